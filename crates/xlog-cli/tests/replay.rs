//! `xlog replay` as people run it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

const GOOD: &str = "\
1,10:43:21.000001,allocate,0x7f0000000000,1048576,0
1,10:43:21.000002,allocate,0x7f0000200000,4096,0x2
2,10:43:21.000003,free,0x7f0000000000,1048576,0
2,10:43:21.000004,allocate failure,0x0,99999999999,0
1,10:43:21.000005,free,0x7f0000900000,64,0
1,10:43:21.000006,allocate,0x7f0000000000,2048,0x2
1,10:43:21.000007,free,0x7f0000200000,4096,0x2
";

/// A folder that is gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xlog-replay-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    fn log(&self, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join("log.csv");
        fs::write(&path, text).expect("a log for the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn replay(log: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xlog"))
        .args(["replay", "--device", "host"])
        .arg(log)
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a replay that works says.
#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

/// What a replay of bad input says.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(text(&output.stdout), "");
    for part in parts {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
}

#[test]
fn a_good_log_runs_on_every_stack() {
    let folder = Folder::new("good");
    let log = folder.log(format!("{HEADER}{GOOD}"));
    for stack in ["async", "direct"] {
        let table = said(&replay(&log, &["--stack", stack]));
        for part in ["allocate", "median", "p99", "peak bytes live", stack, "line 6"] {
            assert!(table.contains(part), "no {part:?} in {table}");
        }
        let object = said(&replay(&log, &["--stack", stack, "--json"]));
        let object: serde_json::Value = serde_json::from_str(&object).expect("one JSON object");
        let number = |name: &str| object[name].as_u64().expect("a number");
        assert_eq!(object["allocate"]["calls"], 3);
        assert_eq!(object["free"]["calls"], 2);
        assert_eq!(object["all"]["calls"], 5);
        assert_eq!((number("failures"), number("streams")), (0, 2));
        assert_eq!((number("unknown_frees"), number("never_freed"), number("left_out")), (1, 1, 1));
        assert_eq!(number("peak_live_bytes"), 1_048_576 + 4096);
        assert!(number("peak_outstanding_bytes") >= number("peak_live_bytes"));
    }
}

#[test]
fn json_lines_run_with_their_uses_and_reaps() {
    let folder = Folder::new("json");
    let log = folder.log(concat!(
        r#"{"sequence":0,"time_ns":1,"thread":0,"action":"allocate","stream":3,"tag":"a","#,
        r#""bytes":512,"asked":500,"address":"0x100","generation":1,"ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"prepare","stream":4,"address":"0x100","access":"read","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"finish","stream":4,"address":"0x100","access":"read","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"free","stream":3,"bytes":512,"address":"0x100","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"reap","ok":true}"#,
    ));
    for (stack, others, left_out) in [("async", 3, 0), ("direct", 1, 2)] {
        let object = said(&replay(&log, &["--json", "--stack", stack]));
        let object: serde_json::Value = serde_json::from_str(&object).expect("one JSON object");
        assert_eq!(
            (&object["other"]["calls"], &object["left_out"]),
            (&others.into(), &left_out.into())
        );
        assert_eq!((&object["streams"], &object["failures"]), (&3.into(), &0.into()));
        assert_eq!(object["peak_live_bytes"], 500);
    }
}

#[test]
fn a_log_of_the_adaptor_runs_again() {
    use std::sync::Arc;
    use xlog_cuda::{CudaDevice, device_runtime::*};

    let folder = Folder::new("recorded");
    let path = folder.0.join("recorded.csv");
    {
        let device = Arc::new(CudaDevice::host());
        let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let memory = AsyncCudaResource::new(device, 0, Arc::clone(&pool));
        let sink = CsvSink::new(fs::File::create(&path).expect("a log"));
        let logged = LoggingResource::without_uses(Box::new(memory), sink);
        let stream = pool.acquire().expect("a stream");
        for round in 1..100 {
            let block = logged.allocate(round * 64, stream, AllocTag("test")).expect("memory");
            logged.deallocate(block).expect("memory goes back");
        }
    }
    for (stack, peak, has_pool) in [("async", 99 * 64, false), ("default", 25 * 256, true)] {
        let object = said(&replay(&path, &["--json", "--stack", stack]));
        let object: serde_json::Value = serde_json::from_str(&object).expect("one JSON object");
        assert_eq!((&object["all"]["calls"], &object["never_freed"]), (&198.into(), &0.into()));
        assert_eq!(object["peak_live_bytes"], peak, "{stack}: what was granted");
        assert_eq!(object["pool_bytes"].is_u64(), has_pool, "{stack}");
        assert_eq!(object["fragmentation"].is_f64(), has_pool, "{stack}");
    }
}

#[test]
fn bad_logs_are_refused_with_file_line_and_next_step() {
    let folder = Folder::new("bad");
    let bad = |log: &[u8], parts: &[&str]| {
        let path = folder.log(log);
        refused(&replay(&path, &[]), parts);
        refused(&replay(&path, &["--json"]), &["log.csv"]);
    };
    let after_good = |line: &str| format!("{HEADER}{GOOD}{line}\n").into_bytes();
    bad(&after_good("1,10:43:21.0,alloc,0x10,1,0"), &["log.csv", "line 9", "column 14", "mend"]);
    bad(&after_good("1,10:43:21.0,allocate,0x7f0000000000,1,0"), &["line 9", "line 7", "record"]);
    bad(&after_good("1,10:43:21.0,alloc"), &["line 9", "cut short"]);
    bad(b"", &["empty", "Thread,Time,Action"]);
    bad(b"\x7fELF\xff\xfe\0\0", &["line 1", "UTF-8"]);
    bad(HEADER.as_bytes(), &["no call to run", "LoggingResource"]);
    let streams: String =
        (1..=70).map(|n| format!("1,,allocate,{:#x},8,{n:#x}\n", n * 4096)).collect();
    bad(format!("{HEADER}{streams}").as_bytes(), &["70 streams", "--streams 62"]);
    let path = folder.log(format!("{HEADER}{streams}"));
    assert!(said(&replay(&path, &["--streams", "62"])).contains("63 streams"));
}

#[test]
fn a_missing_log_is_refused_and_so_is_a_folder() {
    let folder = Folder::new("missing");
    let missing = folder.0.join("nothing-here.csv");
    refused(&replay(&missing, &[]), &["nothing-here.csv", "could not be opened", "check the path"]);
    refused(&replay(&folder.0, &[]), &["could not be read"]);
}

#[test]
fn a_call_that_fails_is_reported_with_its_line() {
    let folder = Folder::new("failing");
    let much = "1,,allocate,0x10,4611686018427387904,0\n1,,free,0x10,4611686018427387904,0\n";
    let output = replay(&folder.log(format!("{HEADER}{GOOD}{much}")), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("failures                1"), "{}", text(&output.stdout));
    let error = text(&output.stderr);
    assert!(error.contains("line 9") && error.contains("log.csv"), "{error}");
}

#[test]
fn the_help_has_an_example_and_the_stacks() {
    let help = replay(Path::new("any"), &["--help"]);
    let help = said(&help);
    for part in ["Example:", "xlog replay", "async", "direct", "cuda:N"] {
        assert!(help.contains(part), "no {part:?} in {help}");
    }
}
