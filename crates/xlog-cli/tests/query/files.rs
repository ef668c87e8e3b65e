//! Files that are at fault: a message that names them, exit code 2, and nothing left behind.

use std::process::Stdio;

use crate::support::{Folder, command, example, refused, run, said, text};

#[test]
fn malformed_csv_is_refused_with_file_line_and_column() {
    let folder = Folder::new("malformed");
    let out = folder.path("out.csv");
    let refuse = |name: &str, content: &[u8], words: &[&str]| {
        let file = folder.file(name, content);
        let words = [&[name][..], words].concat();
        refused(&["convert", &file, "-o", &out], &words);
        std::fs::remove_file(&file).expect("it was there");
        assert_eq!(folder.files(), Vec::<String>::new(), "{name}");
    };
    refuse("ragged.csv", b"a,b\n1,2\n3\n", &["line 3"]);
    refuse("wide.csv", b"a,b\n1,2\n3,4,5\n", &["line 3"]);
    refuse("utf8.csv", b"a,b\n1,x\n2,\xff\xfe\n", &["line 3", "b", "UTF-8"]);
    refuse("quote.csv", b"a,b\n1,\"x\n2,y\n", &["line 2"]);
    refuse("empty.csv", b"", &["empty"]);
    let mut late = "a,b\n".to_owned();
    (0..400_000).for_each(|n| late.push_str(&format!("{n},{n}\n")));
    let place = late.find("\n123456,").expect("a line") + 1;
    late.replace_range(place..place + 6, "12345x");
    refuse("number.csv", late.as_bytes(), &["line 123458", "column a", "12345x", "--type a="]);
}

#[test]
fn what_is_unusual_and_right_is_read() {
    let folder = Folder::new("unusual");
    let read = |name: &str, content: &[u8]| said(&["convert", &folder.file(name, content)]);
    assert_eq!(read("bom.csv", b"\xef\xbb\xbfa,b\n1,2\n"), "a,b\n1,2\n");
    assert_eq!(read("crlf.csv", b"a,b\r\n1,2\r\n"), "a,b\n1,2\n");
    assert_eq!(read("quotes.csv", b"a,b\n\"x, \"\"y\"\"\nz\",2\n"), "a,b\n\"x, \"\"y\"\"\nz\",2\n");
    assert_eq!(read("header.csv", b"a,b\n"), "a,b\n");
    assert_eq!(read("last.csv", b"a,b\n1,2"), "a,b\n1,2\n");
}

#[test]
fn missing_files_columns_and_truncated_parquet_are_refused() {
    let folder = Folder::new("missing");
    let file = folder.file("a.csv", "amount,b\n1,2\n");
    refused(&["head", &folder.path("none.csv")], &["none.csv", "no such file"]);
    refused(&["head", &folder.path("none-*.csv")], &["none-*.csv"]);
    refused(
        &["filter", &file, "--where", "amonut > 1"],
        &["--where", "did you mean \"amount\"?", "^"],
    );
    refused(&["sort", &file, "--by", "c"], &["--by", "\"c\"", "there are: amount, b"]);
    refused(&["group", &file, "--by", "b", "--agg", "sum(c)"], &["--agg", "\"c\""]);
    refused(&["filter", &file, "--where", "amount >"], &["expected a value", "^"]);
    refused(&["join", &file, &file, "--on", "x"], &["--on", "the left table"]);
    refused(&["group", &file], &["--by"]);
    let parquet = folder.path("a.parquet");
    said(&["convert", &file, "-o", &parquet]);
    let whole = std::fs::read(&parquet).expect("it was written");
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        let cut = folder.file("cut.parquet", &whole[..length]);
        refused(&["convert", &cut], &["cut.parquet"]);
    }
}

#[test]
fn outputs_that_cannot_be_written_are_refused_and_what_was_there_stays() {
    let folder = Folder::new("outputs");
    let orders = example("orders.csv");
    refused(&["convert", &orders, "-o", &folder.path("no/such/out.csv")], &["out.csv", "folder"]);
    refused(&["convert", &orders, "-o", &folder.path("out.xyz")], &["out.xyz", "format"]);
    let out = folder.file("out.csv", "before\n");
    let bad = folder.file("bad.csv", "a\n1\n2,3\n");
    refused(&["convert", &bad, "-o", &out], &["bad.csv", "line 3"]);
    assert_eq!(std::fs::read_to_string(&out).expect("it is there"), "before\n");
    assert_eq!(folder.files(), ["bad.csv", "out.csv"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    refused(
        &["convert", &example("orders.csv"), "--format", "csv", "-o", "/dev/full"],
        &["/dev/full", "full"],
    );
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let mut child = command(&["convert", &example("orders.csv")]);
    let output = child.stdout(full).stderr(Stdio::piped()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("standard output"), "{}", text(&output.stderr));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = Folder::new("pipe");
    let mut rows = String::from("n\n");
    (0..300_000).for_each(|n| rows.push_str(&format!("{n}\n")));
    let file = folder.file("n.csv", rows);
    let mut child = command(&["convert", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    for format in ["table", "jsonl"] {
        let mut child = command(&["convert", &file, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    }
}

#[test]
fn a_bad_plan_is_refused_with_its_place() {
    let folder = Folder::new("plans");
    let plan = |content: &str| folder.file("plan.toml", content);
    refused(&["run", &plan("[step.a]\nfrm = 'x'\n")], &["plan.toml, line 2", "\"from\""]);
    refused(
        &["run", &plan("[input.x]\nfiles = 'none.csv'\n[step.a]\nfrom = 'x'\n")],
        &["none.csv"],
    );
    refused(&["run", &folder.path("none.toml")], &["none.toml"]);
    let output = run(&["run", &plan("[step.a]\nfrom = 'x'\n")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no input"), "{}", text(&output.stderr));
}
