//! `--trace`, `--report`, `--checked` and `--compare` as people use them.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

/// A folder that is gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xlog-trace-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The names of the files in it.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn xlog(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xlog")).args(arguments).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    text(&output.stderr)
}

const OPS: [&str; 7] = ["bench", "ops", "--device", "host", "--quick", "--only", "small"];

#[test]
fn a_benchmark_of_operators_writes_a_trace_and_a_report() {
    let folder = Folder::new("written");
    let (trace, report) = (folder.path("trace.json"), folder.path("report.html"));
    said(&xlog(&[&OPS[..], &["--trace", &trace, "--report", &report]].concat()));
    assert_eq!(folder.names(), ["report.html", "trace.json"]);
    let trace: Value =
        serde_json::from_slice(&fs::read(&trace).expect("a trace")).expect("valid JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let launches = |event: &&Value| event["name"].as_str().is_some_and(|n| n.contains("radix"));
    assert!(events.iter().filter(launches).count() > 10);
    let page = fs::read_to_string(&report).expect("a report");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn a_checked_replay_finds_nothing_and_says_so_in_its_report() {
    let folder = Folder::new("checked");
    let (log, report) = (folder.path("log.csv"), folder.path("report.html"));
    let lines = "Thread,Time,Action,Pointer,Size,Stream\n\
                 1,10:43:21.000001,allocate,0x7f0000000000,1048576,0\n\
                 1,10:43:21.000002,free,0x7f0000000000,1048576,0\n";
    fs::write(&log, lines).expect("a log");
    said(&xlog(&["replay", &log, "--device", "host", "--checked", "--report", &report]));
    let page = fs::read_to_string(&report).expect("a report");
    assert!(page.contains("\"hazards\":[]"));
    assert!(page.contains("\"replay\""), "the tag of the blocks");
    let refusal = refused(&xlog(&["replay", &log, "--device", "cuda:0", "--checked"]));
    assert!(refusal.contains("--device host"), "{refusal}");
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_work() {
    let folder = Folder::new("unwritable");
    let missing = folder.path("no/such/folder/report.html");
    let refusal = refused(&xlog(&[&OPS[..], &["--report", &missing]].concat()));
    assert!(refusal.contains("no/such/folder") && refusal.contains("cannot be written"));
    let taken = folder.path("");
    let refusal = refused(&xlog(&[&OPS[..], &["--trace", &taken]].concat()));
    assert!(refusal.contains("cannot be written"), "{refusal}");
    assert_eq!(folder.names(), [""; 0], "nothing is left behind");
}

#[test]
fn a_benchmark_is_compared_with_an_earlier_run_of_itself() {
    let folder = Folder::new("compared");
    let old = folder.path("old.json");
    fs::write(&old, said(&xlog(&[&OPS[..], &["--json"]].concat()))).expect("a file of rows");
    let compared = said(&xlog(&[&OPS[..], &["--compare", &old]].concat()));
    assert!(compared.contains("geometric mean"), "{compared}");
    assert!(!compared.contains("without a counterpart"), "{compared}");
    assert!(!compared.contains('\u{1b}'), "colours are for terminals");
    let lines = said(&xlog(&[&OPS[..], &["--json", "--compare", &old]].concat()));
    let ratios = lines.lines().filter(|line| line.contains("\"ratio\"")).count();
    let rows = fs::read_to_string(&old).expect("rows").lines().count();
    assert_eq!(ratios, rows, "one figure of each row");
}

#[test]
fn a_file_to_compare_with_that_is_none_is_refused_before_the_work() {
    let folder = Folder::new("not-rows");
    let missing = folder.path("old.json");
    assert!(refused(&xlog(&[&OPS[..], &["--compare", &missing]].concat())).contains("--json"));
    fs::write(&missing, "{\"bench\":\"ops\"}\nnonsense\n").expect("a file");
    let refusal = refused(&xlog(&[&OPS[..], &["--compare", &missing]].concat()));
    assert!(refusal.contains("old.json:2:"), "{refusal}");
}

#[test]
fn a_query_writes_its_report_too() {
    let folder = Folder::new("query");
    let (report, trace) = (folder.path("out.html"), folder.path("out.json"));
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/orders.csv");
    let sort = ["sort", data, "--by", "amount:desc", "--limit", "3", "--device", "host"];
    let plain = said(&xlog(&sort));
    let traced = xlog(&[&sort[..], &["--report", &report, "--trace", &trace]].concat());
    assert_eq!(said(&traced), plain, "tracing changes no result");
    assert_eq!(folder.names(), ["out.html", "out.json"]);
    let page = fs::read_to_string(&report).expect("the page");
    assert!(page.contains("xlog_radix"), "the sort's kernels are on it");
    let json = fs::read_to_string(&trace).expect("the trace");
    serde_json::from_str::<Value>(&json).expect("JSON");
    let nowhere = folder.path("no/such/folder.html");
    let refusal = refused(&xlog(&[&sort[..], &["--report", &nowhere]].concat()));
    assert!(refusal.contains("folder.html"), "{refusal}");
}

#[test]
fn a_trace_and_a_report_are_two_files() {
    let folder = Folder::new("one-name");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/orders.csv");
    let both = folder.path("both");
    let refusal = refused(&xlog(&["head", data, "--trace", &both, "--report", &both]));
    assert!(refusal.contains("--trace and --report both write"), "{refusal}");
    assert!(folder.names().is_empty());
}

#[cfg(unix)]
#[test]
fn a_trace_goes_to_a_device_and_leaves_links_as_they_are() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let folder = Folder::new("special");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/orders.csv");
    let head = ["head", data, "--device", "host", "--trace"];
    said(&xlog(&[&head[..], &["/dev/null"]].concat()));
    let null = fs::metadata("/dev/null").expect("it is still there");
    assert!(null.file_type().is_char_device(), "and still what it was");
    let (target, link) = (folder.path("real.json"), folder.path("link.json"));
    fs::write(&target, "old").expect("a file");
    symlink(&target, &link).expect("a link");
    said(&xlog(&[&head[..], &[&link]].concat()));
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert!(fs::read_to_string(&target).expect("the trace").starts_with('{'));
}
