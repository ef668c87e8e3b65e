//! `xlog check`, run as a person runs it.

use std::process::{Command, Output};

fn xlog(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xlog"));
    command.arg("check").args(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn programs_without_a_finding_end_with_a_summary() {
    let output = xlog(&["--seeds", "60", "--streams", "8", "--threads", "4", "--faults"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for words in ["60 programs", "launches a second", "made to fail", "nothing was found"] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert!(output.stderr.is_empty(), "no progress where nobody looks: {}", text(&output.stderr));
}

#[test]
fn a_summary_is_one_object_for_programs() {
    let output = xlog(&["--seeds", "20", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(object["programs"], 20);
    assert_eq!(object["waits_superfluous"], 0);
    assert_eq!(object["found"], false);
    assert!(object["launches"].as_u64() > Some(200), "{object}");
}

#[test]
fn a_seed_is_shown_and_is_the_same_again() {
    let [once, again] = [xlog(&["--replay", "7"]), xlog(&["--replay", "7"])];
    assert!(once.status.success());
    assert_eq!(text(&once.stdout), text(&again.stdout));
    assert!(text(&once.stdout).contains("thread 0:") && text(&once.stdout).contains("allocate b0"));
}

#[test]
fn waits_that_do_nothing_are_found_on_a_real_device() {
    let torture = ["--torture", "--device", "host", "--launches", "20000"];
    let fine = xlog(&torture);
    assert!(fine.status.success(), "{}", text(&fine.stderr));
    assert!(text(&fine.stdout).contains("no wrong byte, no leak"));
    let deaf = xlog(&[&torture[..], &["--deaf"]].concat());
    assert_eq!(deaf.status.code(), Some(1), "{}", text(&deaf.stdout));
    assert!(text(&deaf.stderr).contains("serial run"), "{}", text(&deaf.stderr));
}

#[test]
fn a_log_is_checked_in_many_interleavings() {
    let block = r#""bytes":4096,"address":"0x1000","generation":1"#;
    let line = |number: u32, action: &str, stream: u32, rest: &str| {
        format!(r#"{{"sequence":{number},"time_ns":{number},"thread":1,"action":"{action}","#)
            + &format!(r#""stream":{stream},{block}{rest},"ok":true}}"#)
    };
    let lines = [
        line(0, "allocate", 1, ""),
        line(1, "finish", 1, r#","access":"write""#),
        line(2, "finish", 2, r#","access":"read""#),
        line(3, "free", 1, ""),
    ];
    let path = std::env::temp_dir().join(format!("xlog-check-{}.jsonl", std::process::id()));
    std::fs::write(&path, lines.join("\n")).expect("a file");
    let output = xlog(&[path.to_str().expect("a path"), "--seeds", "30"]);
    std::fs::remove_file(&path).expect("the file is there");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("2 uses on 3 streams, in 30 interleavings"), "{said}");
}

#[test]
fn bad_input_names_the_next_step() {
    for (arguments, words) in [
        (&["no-such-log.jsonl"][..], "check the path"),
        (&["--mutant", "3"], "--features mutants"),
        (&["--mutant", "99"], "numbered 1 to 26"),
        (&["--stack", "heap"], "there are async"),
        (&["--workload", "idle"], "there are random"),
        (&["--streams", "63"], "0..=62"),
        (&["--seeds", "0"], "1.."),
        (&["--deaf"], "--torture"),
    ] {
        let output = xlog(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {words} in {said}");
    }
}
