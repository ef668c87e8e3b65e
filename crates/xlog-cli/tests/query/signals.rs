//! Ctrl-C.
#![cfg(unix)]

use std::{io::Write, process::Stdio};

use crate::support::{Folder, command, text};

#[test]
fn an_interrupt_ends_the_query_and_leaves_nothing_behind() {
    let folder = Folder::new("interrupt");
    let out = folder.path("out.csv");
    let mut child = command(&["convert", "-", "-o", &out, "--type", "a=i64", "--type", "b=i64"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // More than is looked at for types, so that rows are on their way; and never the end.
    let rows: String = (0..2_000_000).map(|n| format!("{n},{n}\n")).collect();
    stdin.write_all(b"a,b\n").expect("it reads");
    stdin.write_all(rows.as_bytes()).expect("it reads");
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends though its input does not");
    drop(stdin);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(folder.files(), Vec::<String>::new());
}
