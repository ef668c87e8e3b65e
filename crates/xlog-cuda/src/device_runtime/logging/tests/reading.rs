//! The reader, over good logs and hostile ones.

use super::super::{LogAction, LogReadError, LoggedCall, read_log};
use crate::device_runtime::Access;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";
const GOOD: &str = "7,10:43:21.123456,allocate,0x7f00,1024,0x2";

fn csv(line: &str) -> Result<Vec<LoggedCall>, LogReadError> {
    read_log(format!("{HEADER}{line}\n").as_bytes())
}

fn one(line: &str) -> LoggedCall {
    let mut calls = csv(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(calls.len(), 1);
    calls.remove(0)
}

#[track_caller]
fn refused(log: &[u8], line: usize, column: usize, says: &str) {
    let error = read_log(log).expect_err("a bad log");
    assert_eq!((error.line(), error.column()), (line, column), "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert!(error.to_string().len() < 400, "{error}");
}

#[test]
fn rmms_lines_are_read_in_all_the_ways_it_has_written_them() {
    let call = LoggedCall {
        line: 2,
        thread: 7,
        time_ns: Some(((10 * 60 + 43) * 60 + 21) * 1_000_000_000 + 123_456_000),
        action: LogAction::Allocate,
        ok: true,
        pointer: 0x7f00,
        bytes: 1024,
        stream: 2,
        access: None,
    };
    assert_eq!(one(GOOD), call);
    assert_eq!(one(&GOOD.replace("21.1", "21:1")), call, "a colon before the microseconds");
    assert_eq!(one(&GOOD.replace("0x2", "2")), call, "a stream in decimal");
    assert_eq!(one(&GOOD.replace("0x7f00", "7f00")), call, "an address without 0x");
    assert_eq!(one(&GOOD.replace(',', " , ")), call, "spaces");
    assert_eq!(one("\"7\",\"10:43:21.123456\",\"allocate\",\"0x7f00\",\"1024\",\"0x2\""), call);
    assert_eq!(one(&GOOD.replace("10:43:21.123456", "")).time_ns, None);
    assert_eq!(one(&GOOD.replace("0x2", "5581c0d0a2e0")).stream, 0x5581_c0d0_a2e0);
    let failed = one("7,10:43:21.123456,allocate failure,(nil),1024,0");
    assert_eq!((failed.ok, failed.pointer), (false, 0));
    assert_eq!(one(&GOOD.replace("allocate", "free")).action, LogAction::Free);
}

#[test]
fn line_ends_marks_and_blank_lines_do_not_matter() {
    let log = format!("\u{feff}{HEADER}\r\n\r\n   \n{GOOD}\r\n\n{GOOD}");
    let calls = read_log(log.replace("Stream\n", "Stream\r\n").as_bytes()).unwrap();
    assert_eq!(calls.iter().map(|call| call.line).collect::<Vec<_>>(), [5, 7]);
    assert_eq!(read_log(HEADER.as_bytes()), Ok(vec![]));
}

#[test]
fn our_own_lines_are_read_with_uses_and_failures() {
    let log = concat!(
        r#"{"sequence":0,"time_ns":5,"thread":0,"action":"allocate","stream":1,"tag":"x","#,
        r#""bytes":512,"asked":500,"address":"0x100","generation":1,"ok":true}"#,
        "\n",
        r#"{"sequence":1,"thread":3,"action":"finish","stream":2,"address":"0x100","#,
        r#""access":"read_write","ok":false,"error":"no"}"#,
        "\n",
        r#"{"thread":1,"action":"reap","ok":true,"something":["later"]}"#,
    );
    let calls = read_log(log.as_bytes()).unwrap();
    assert_eq!((calls[0].bytes, calls[0].time_ns), (500, Some(5)));
    assert_eq!((calls[1].access, calls[1].ok), (Some(Access::ReadWrite), false));
    assert_eq!((calls[2].action, calls[2].thread, calls[2].line), (LogAction::Reap, 1, 3));
}

#[test]
fn fields_that_are_wrong_are_named() {
    for (line, column, says) in [
        (GOOD.replace("7,", "x,"), 1, "a thread"),
        (GOOD.replace("7,", "-7,"), 1, "a thread"),
        (GOOD.replace("7,", "+7,"), 1, "a thread"),
        (GOOD.replace("7,", ","), 1, "a thread"),
        (GOOD.replace("10:43", "25:43"), 3, "10:43:21.123456"),
        (GOOD.replace("10:43:21", "noon"), 3, "10:43:21.123456"),
        (GOOD.replace(".123456", "."), 3, "10:43:21.123456"),
        (GOOD.replace("allocate", "alloc"), 19, "allocate failure"),
        (GOOD.replace("0x7f00", "0xzz"), 28, "hexadecimal"),
        (GOOD.replace("0x7f00", "0x"), 28, "hexadecimal"),
        (GOOD.replace("0x7f00", "0x+1"), 28, "hexadecimal"),
        (GOOD.replace("0x7f00", "0x10000000000000000"), 28, "hexadecimal"),
        (GOOD.replace("1024", "1e3"), 35, "a size"),
        (GOOD.replace("1024", "99999999999999999999"), 35, "a size"),
        (GOOD.replace("0x2", "two"), 40, "a stream"),
        (GOOD.replace("0x2", "99999999999999999999"), 40, "a stream"),
        (GOOD.replace(",0x2", ""), 39, "cut short"),
        ("7,10:43".to_owned(), 8, "cut short"),
        (format!("{GOOD},more"), 48, "6 fields"),
        (format!("{GOOD},,,,,,,,,,"), 53, "6 fields"),
        (GOOD.replace("allocate", "\"allocate"), 19, "quote"),
        (GOOD.replace("allocate", "\"allocate\"x"), 19, "comma"),
        (GOOD.replace("allocate", "\"allo\"\"cate\""), 19, "allocate failure"),
        (GOOD.replace("allocate", "allo\0cate"), 19, "allocate failure"),
        (GOOD.replace("allocate", "é"), 19, "allocate failure"),
        (GOOD.replace("7,", "\u{feff}7,"), 1, "a thread"),
    ] {
        refused(format!("{HEADER}{line}").as_bytes(), 2, column, says);
    }
}

#[test]
fn json_that_is_wrong_is_named() {
    for (line, column, says) in [
        ("{", 1, "JSON object"),
        ("{\"action\":\"allo", 15, "JSON object"),
        ("{}", 1, "\"action\""),
        (r#"{"action":"burn"}"#, 1, "one of allocate"),
        (r#"{"action":5}"#, 1, "one of allocate"),
        (r#"{"action":"reap"}"#, 1, "\"ok\""),
        (r#"{"action":"reap","ok":true}"#, 1, "\"thread\""),
        (r#"{"action":"reap","ok":true,"thread":-1}"#, 1, "below 2^64"),
        (r#"{"action":"reap","ok":true,"thread":1e400}"#, 41, "JSON object"),
        (r#"{"action":"reap","ok":true,"thread":18446744073709551616}"#, 1, "below 2^64"),
        (r#"{"action":"free","ok":true,"thread":1,"stream":1,"bytes":1}"#, 1, "\"address\""),
        (r#"{"action":"free","ok":true,"thread":1,"stream":1,"address":"0x1"}"#, 1, "\"bytes\""),
        (r#"{"action":"free","ok":true,"thread":1,"bytes":1,"address":"0x1"}"#, 1, "\"stream\""),
        (r#"{"action":"reap","ok":true,"thread":1,"address":"12"}"#, 1, "hexadecimal"),
        (r#"{"action":"reap","ok":true,"thread":1,"address":"0x+1"}"#, 1, "hexadecimal"),
        (r#"{"action":"finish","ok":true,"thread":1,"stream":1,"address":"0x1"}"#, 1, "read_write"),
        (r#"{"action":"reap","ok":true,"thread":1} {}"#, 40, "JSON object"),
    ] {
        refused(line.as_bytes(), 1, column, says);
    }
    // Deeper than any stack.
    let deep = format!("{{\"action\":{}", "[".repeat(500_000));
    assert!(read_log(deep.as_bytes()).is_err());
    // The first line decides: CSV after JSON is a mistake.
    refused(
        format!("{{\"action\":\"reap\",\"ok\":true,\"thread\":1}}\n{GOOD}").as_bytes(),
        2,
        2,
        "",
    );
}

#[test]
fn what_is_no_log_at_all_is_refused_at_once() {
    refused(b"", 1, 1, "empty");
    refused(b"\n\n \r\n", 1, 1, "empty");
    refused(b"hello", 1, 1, "Thread,Time,Action");
    refused(b"\x7fELF\x02\x01\x01\0\0", 1, 1, "Thread,Time,Action");
    refused(b"Thread,Time\xff", 1, 12, "UTF-8");
    refused(GOOD.as_bytes(), 1, 1, "Thread,Time,Action");
    refused(&vec![b'x'; 1 << 20], 1, 1, "Thread,Time,Action");
    refused(&vec![b'\0'; (1 << 20) + 1], 1, 1, "longer than");
    refused(&vec![b','; 1 << 20], 1, 1, "Thread,Time,Action");
    refused(&vec![b'"'; 1 << 20], 1, 1, "Thread,Time,Action");
    let long = format!("{HEADER}{}", "9".repeat(2 << 20));
    refused(long.as_bytes(), 2, 1, "longer than");
    let long = format!("{HEADER}{}", GOOD.replace("1024", &"9".repeat(1 << 19)));
    refused(long.as_bytes(), 2, 35, "a size");
}

#[test]
fn a_reader_that_fails_is_an_error() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let error = read_log(std::io::BufReader::new(Broken)).expect_err("nothing to read");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
}
