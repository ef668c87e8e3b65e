//! Folders, files and the command, for its tests.

use std::{
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A folder that is gone after the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xlog-query-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// Writes a file and answers its name.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file for the test");
        path.display().to_string()
    }

    /// The name of a file that may not be there.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The names of all files in it.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command with these arguments, on the host device.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xlog"));
    command.args(arguments);
    let with_device = !["schema", "completions", "man", "--help"].contains(&arguments[0]);
    if with_device && !arguments.contains(&"--help") && !arguments.contains(&"--device") {
        command.args(["--device", "host"]);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command runs")
}

/// Runs with a text on standard input.
pub(crate) fn run_with(arguments: &[&str], input: &str) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    match stdin.write_all(input.as_bytes()) {
        // A command that refuses may be gone before it was told everything.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.expect("it takes its input"),
    }
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run that works prints.
#[track_caller]
pub(crate) fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A run that is refused: exit code 2, all of these words, and nothing on standard output.
#[track_caller]
pub(crate) fn refused(arguments: &[&str], words: &[&str]) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
}

/// One of the example files.
pub(crate) fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data");
    root.join(name).display().to_string()
}
