//! What the command says about itself.

use crate::support::{example, refused, run, said, text};

const COMMANDS: [&str; 12] = [
    "sort",
    "filter",
    "join",
    "group",
    "distinct",
    "head",
    "schema",
    "convert",
    "combine",
    "run",
    "completions",
    "man",
];

#[test]
fn every_command_has_help_with_examples() {
    let all = said(&["--help"]);
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command}")), "{command} is not in {all}");
        let help = said(&[command, "--help"]);
        assert!(help.contains("Examples:\n  xlog "), "{command}: {help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}

#[test]
fn shells_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = said(&["completions", shell]);
        assert!(script.contains("distinct") && script.contains("memory"), "{shell}");
    }
    assert!(said(&["man"]).contains(".TH xlog 1"));
    let page = said(&["man", "join"]);
    assert!(page.contains("xlog\\-join") && page.contains("customer_id=id"), "{page}");
    refused(&["man", "jion"], &["no command \"jion\""]);
}

#[test]
fn a_wrong_command_line_is_answered_with_exit_code_2() {
    for (arguments, word) in [
        (&["filter", "a.csv"][..], "--where"),
        (&["sort", "a.csv"], "--sort"),
        (&["head"], "FILE"),
        (&["join", "a.csv", "b.csv"], "--on"),
        (&["head", "a.csv", "--memory", "much"], "4GiB"),
        (&["head", "a.csv", "--type", "a"], "COLUMN=TYPE"),
        (&["head", "a.csv", "--format", "xml"], "table, csv"),
        (&["head", "a.csv", "--delimiter", ";;"], "one character"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn a_device_that_is_not_there_is_no_fault_of_the_files() {
    let output = run(&["head", &example("orders.csv"), "--device", "cuda:99"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cuda:99") || error.contains("the host device"), "{error}");
}
