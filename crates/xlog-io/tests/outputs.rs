//! Outputs appear whole or not at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    process::{Command, Stdio},
    sync::Arc,
};

use arrow_array::{Int64Array, RecordBatch};
use support::{Folder, read};
use xlog_io::{FileError, InputSpec, OutputSpec, create};

fn batch(rows: i64) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from_iter_values(0..rows));
    RecordBatch::try_from_iter([("number", numbers as _)]).unwrap()
}

fn write(path: &str, rows: i64) -> Result<(), FileError> {
    let batch = batch(rows);
    let mut writer = create(&OutputSpec::new(path), batch.schema())?;
    writer.write(&batch)?;
    writer.finish()
}

const ENDINGS: [&str; 5] = ["csv", "csv.gz", "parquet", "arrow", "jsonl.zst"];

#[test]
fn a_writer_that_is_dropped_leaves_what_was_there() {
    for ending in ENDINGS {
        let folder = Folder::new();
        let (name, batch) = (format!("t.{ending}"), batch(100_000));
        let unfinished = |folder: &Folder| {
            let path = folder.name(&name);
            let mut writer = create(&OutputSpec::new(&path), batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer
        };
        let writer = unfinished(&folder);
        assert_eq!(folder.names().len(), 1, "the unfinished file");
        assert_ne!(folder.names(), [name.as_str()]);
        drop(writer);
        assert!(folder.names().is_empty());
        fs::write(folder.path(&name), "before").unwrap();
        drop(unfinished(&folder));
        assert_eq!(fs::read(folder.path(&name)).unwrap(), b"before");
        unfinished(&folder).finish().unwrap();
        assert_eq!(folder.names(), [name.as_str()]);
        assert_eq!(read(&InputSpec::new([folder.name(&name)])).unwrap().len(), 100_000);
    }
}

#[test]
fn links_and_permissions_stay() {
    let folder = Folder::new();
    fs::write(folder.path("real.csv"), "before").unwrap();
    fs::set_permissions(folder.path("real.csv"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink(folder.path("real.csv"), folder.path("link.csv")).unwrap();
    write(&folder.name("link.csv"), 2).unwrap();
    assert!(fs::symlink_metadata(folder.path("link.csv")).unwrap().is_symlink());
    assert_eq!(fs::read(folder.path("real.csv")).unwrap(), b"number\n0\n1\n");
    let mode = fs::metadata(folder.path("real.csv")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_full_disk_is_named() {
    for format in ["csv", "parquet", "arrow", "jsonl"] {
        let mut spec = OutputSpec::new("/dev/full");
        spec.format = Some(format.parse().unwrap());
        let batch = batch(1_000_000);
        let outcome = create(&spec, batch.schema()).and_then(|mut writer| {
            writer.write(&batch)?;
            writer.finish()
        });
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "/dev/full: the disk is full; free some space or write elsewhere",
            "{format}"
        );
    }
}

#[test]
fn special_files_are_written_as_they_are() {
    let mut spec = OutputSpec::new("/dev/null");
    spec.format = Some("csv".parse().unwrap());
    let batch = batch(10);
    let mut writer = create(&spec, batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());

    let folder = Folder::new();
    let pipe = folder.name("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    write(&pipe, 2).unwrap();
    assert_eq!(reader.join().unwrap(), "number\n0\n1\n");
}

#[test]
fn pipes_are_read_once_and_whole() {
    let folder = Folder::new();
    for (name, text) in [
        ("pipe.csv", "a,b\n1,x\n2,y\n"),
        ("pipe.jsonl", "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n"),
    ] {
        let pipe = folder.name(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                fs::OpenOptions::new().write(true).open(pipe).unwrap().write_all(text.as_bytes())
            }
        });
        let rows = read(&InputSpec::new([pipe])).unwrap();
        assert_eq!(rows, support::table(&[&["1", "x"], &["2", "y"]]));
        writer.join().unwrap().unwrap();
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let folder = Folder::new();
    assert_eq!(
        folder.says(&write(&folder.name("none/t.csv"), 1).unwrap_err()),
        "none/t.csv: there is no such folder; create it first"
    );
    fs::create_dir(folder.path("t.csv")).unwrap();
    assert!(
        folder.says(&write(&folder.name("t.csv"), 1).unwrap_err()).starts_with("t.csv: it is a")
    );
    assert!(write(&folder.name("t.xml"), 1).unwrap_err().message.contains("--format: csv"));
    fs::write(folder.path("kept.csv"), "before").unwrap();
    fs::set_permissions(folder.path("kept.csv"), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(
        folder.says(&write(&folder.name("kept.csv"), 1).unwrap_err()),
        "kept.csv: it is not allowed to write it; check the permissions of file and folder"
    );
    let date = Arc::new(arrow_array::BinaryArray::from(vec![&b"x"[..]]));
    let odd = RecordBatch::try_from_iter([("odd", date as _)]).unwrap();
    let error = create(&OutputSpec::new(folder.name("odd.csv")), odd.schema()).err().unwrap();
    assert_eq!(
        folder.says(&error),
        "odd.csv, column odd: its type Binary cannot be written; leave the column out"
    );
    assert_eq!(folder.names(), ["kept.csv", "t.csv"]);
}

#[test]
fn a_reader_that_went_away_is_told_apart() {
    let folder = Folder::new();
    let pipe = folder.name("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Reads one line and goes away, as `head` does.
    let mut head =
        Command::new("head").args(["-n", "1", &pipe]).stdout(Stdio::piped()).spawn().unwrap();
    let batch = batch(100_000);
    let mut writer = create(&OutputSpec::new(&pipe), batch.schema()).unwrap();
    // A pipe holds little: one of these finds nobody at the other end.
    let error = (0..1_000).find_map(|_| writer.write(&batch).err());
    let mut line = String::new();
    head.stdout.take().unwrap().read_to_string(&mut line).unwrap();
    assert!(head.wait().unwrap().success());
    assert_eq!(line, "number\n");
    assert!(error.unwrap().is_broken_pipe());
    assert!(!write("/dev/full.csv/x.csv", 1).unwrap_err().is_broken_pipe());
}
