//! Parquet, Arrow and JSON lines: what is written is read back, and what is damaged is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod support;

use std::{fs, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, Int16Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;
use support::{
    Folder, cut, read, rows_of, table,
    tables::{AnyTable, any_table},
    types,
};
use xlog_io::{ColumnType, Format, InputSpec, OutputSpec, create, open, schema};

fn write(path: &str, batches: &[RecordBatch]) {
    let mut writer = create(&OutputSpec::new(path), batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn numbers(count: i64) -> RecordBatch {
    let text = (0..count).map(|number| format!("text {}", number % 7));
    batch(vec![
        ("number", Arc::new(Int64Array::from_iter_values(0..count))),
        ("text", Arc::new(StringArray::from_iter_values(text))),
        ("twice", Arc::new(Int64Array::from_iter_values((0..count).map(|number| number * 2)))),
    ])
}

fn parquet_of(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read_back(
        any_table in any_table(),
        threads in 1usize..4,
        ending in prop_oneof![
            Just("parquet"), Just("arrow"), Just("jsonl"), Just("jsonl.gz"), Just("parquet.zst"),
        ],
    ) {
        let AnyTable { batch, types } = any_table;
        let folder = Folder::new();
        let path = folder.name(&format!("t.{ending}"));
        let half = batch.num_rows() / 2;
        write(&path, &[batch.slice(0, half), batch.slice(half, batch.num_rows() - half)]);
        let mut spec = cut(&InputSpec::new([path]), threads, 50);
        spec.types = types;
        let mut expected = rows_of(&batch);
        if ending.starts_with("jsonl") {
            // JSON has no numbers for these.
            for value in expected.iter_mut().flatten() {
                if matches!(value.as_deref(), Some("inf" | "-inf" | "NaN")) {
                    *value = None;
                }
            }
        }
        prop_assert_eq!(read(&spec).unwrap(), expected);
    }
}

#[test]
fn dictionaries_are_written_as_text_and_may_differ_from_batch_to_batch() {
    let folder = Folder::new();
    let lines = |from: i64| -> String {
        (from..from + 300).map(|row| format!("{row},v{}\n", row / 100)).collect()
    };
    let csv = folder.file("t.csv", format!("a,b\n{}", lines(0)));
    let expected = read(&csv).unwrap();
    for ending in ["parquet", "arrow", "jsonl", "csv"] {
        let path = folder.name(&format!("copy.{ending}"));
        let mut reader = open(&cut(&csv, 2, 500)).unwrap();
        let mut writer = create(&OutputSpec::new(&path), reader.schema()).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            writer.write(&batch).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(read(&InputSpec::new([path])), Ok(expected.clone()), "{ending}");
    }
}

#[test]
fn chosen_columns_come_in_the_order_of_the_file() {
    let folder = Folder::new();
    for ending in ["parquet", "arrow", "jsonl", "tsv"] {
        let path = folder.name(&format!("t.{ending}"));
        write(&path, &[numbers(100)]);
        let mut spec = InputSpec::new([path]);
        spec.columns = Some(vec!["twice".into(), "number".into()]);
        let rows = read(&spec).unwrap();
        assert_eq!(rows[99], [Some("99".into()), Some("198".into())], "{ending}");
        assert_eq!(types(&spec)[0], ("number".into(), ColumnType::I64));
        spec.columns = Some(vec![]);
        assert_eq!(read(&spec).unwrap().len(), 100, "{ending}");
        spec.columns = Some(vec!["third".into()]);
        let says = folder.says(&read(&spec).unwrap_err());
        assert!(says.contains("column third: there is no such column"), "{says}");
    }
}

#[test]
fn row_groups_are_read_side_by_side_and_leave_in_order() {
    let folder = Folder::new();
    let all = numbers(1000);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, all.schema(), None).unwrap();
    for start in (0..1000).step_by(100) {
        writer.write(&all.slice(start, 100)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    let spec = folder.file("t.parquet", bytes);
    assert_eq!(schema(&spec).unwrap().rows, Some(1000));
    for threads in 1..4 {
        let spec = cut(&spec, threads, 1);
        assert_eq!(read(&spec).unwrap(), rows_of(&all));
    }
    let mut reader = open(&spec).unwrap();
    let text = reader.schema().field(1).data_type().clone();
    assert!(matches!(text, arrow_schema::DataType::Dictionary(_, _)), "{text}");
    while reader.next_batch().unwrap().is_some() {}
    assert_eq!(Some(reader.progress().bytes_read), reader.progress().bytes_total);
}

#[test]
fn files_and_streams_of_arrow_are_both_read() {
    let folder = Folder::new();
    let all = numbers(50);
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &all.schema()).unwrap();
    writer.write(&all).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(read(&folder.file("t.arrows", &stream)).unwrap(), rows_of(&all));
    // Without a name that says it, the first bytes do.
    assert_eq!(read(&folder.file("stream", &stream)).unwrap(), rows_of(&all));
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new(&mut file, &all.schema()).unwrap();
    writer.write(&all).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(read(&folder.file("file", &file)).unwrap(), rows_of(&all));
    assert_eq!(read(&folder.file("table", parquet_of(&all))).unwrap(), rows_of(&all));
}

#[test]
fn types_of_other_programs_are_widened_or_refused() {
    let folder = Folder::new();
    let mixed = batch(vec![
        ("small", Arc::new(Int16Array::from(vec![Some(-5), None]))),
        ("moment", Arc::new(TimestampNanosecondArray::from(vec![1_000, 2_000]))),
        ("raw", Arc::new(BinaryArray::from(vec![&b"x"[..], b"y"]))),
    ]);
    let mut spec = folder.file("t.parquet", parquet_of(&mixed));
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "t.parquet, column raw: its type Binary is not supported; convert the column, or leave it \
         out of what is read"
    );
    spec.leave_out_unsupported = true;
    assert_eq!(read(&spec), Ok(table(&[&["-5", "1"], &["-", "2"]])));
    spec.columns = Some(vec!["raw".into()]);
    assert!(read(&spec).unwrap_err().message.contains("its type Binary is not supported"));
    spec.columns = Some(vec!["small".into(), "moment".into()]);
    assert_eq!(read(&spec), Ok(table(&[&["-5", "1"], &["-", "2"]])));
    spec.types = vec![("small".into(), ColumnType::F64)];
    let says = folder.says(&read(&spec).unwrap_err());
    assert!(says.contains("column small: it is i32 in the file and cannot be read as f64"));
    let fine = batch(vec![("moment", Arc::new(TimestampNanosecondArray::from(vec![1_001])))]);
    let says = folder.says(&read(&folder.file("f.parquet", parquet_of(&fine))).unwrap_err());
    assert!(says.starts_with("f.parquet, column moment: 1001 of type Timestamp"), "{says}");
}

#[test]
fn several_files_must_agree() {
    let folder = Folder::new();
    write(&folder.name("1.parquet"), &[numbers(3)]);
    write(&folder.name("2.parquet"), &[numbers(2)]);
    let spec = InputSpec::new([folder.name("?.parquet")]);
    assert_eq!(read(&spec).unwrap().len(), 5);
    let other = batch(vec![("number", Arc::new(Int64Array::from(vec![1])))]);
    folder.file("3.parquet", parquet_of(&other));
    assert!(folder.says(&read(&spec).unwrap_err()).starts_with(
        "3.parquet: its columns are number, those of 1.parquet are number, text, twice; read"
    ));
    let other = batch(vec![
        ("number", Arc::new(StringArray::from(vec!["1"]))),
        ("text", Arc::new(StringArray::from(vec!["1"]))),
        ("twice", Arc::new(Int64Array::from(vec![1]))),
    ]);
    folder.file("3.parquet", parquet_of(&other));
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "3.parquet, column number: it is utf8 here and i64 in 1.parquet; read files with the same \
         types together"
    );
    folder.file("4.csv", "number,text,twice\n1,2,3\n");
    let mixed = InputSpec::new([folder.name("1.parquet"), folder.name("4.csv")]);
    assert!(read(&mixed).unwrap_err().message.contains("it is csv, and"));
}

/// Reads a file that may be damaged; the answer is whether it was refused, and never a panic.
fn refused(folder: &Folder, name: &str, bytes: &[u8]) -> bool {
    let result = read(&folder.file(name, bytes));
    if let Err(error) = &result {
        assert!(error.file.ends_with(name), "{error}");
        assert!(!error.message.is_empty());
    }
    result.is_err()
}

#[test]
fn files_that_are_cut_off_are_refused() {
    let folder = Folder::new();
    for name in ["t.parquet", "t.arrow", "t.csv.gz", "t.jsonl.zst"] {
        write(&folder.name(name), &[numbers(200)]);
        let whole = fs::read(folder.path(name)).unwrap();
        assert!(!refused(&folder, name, &whole), "{name}");
        for length in (0..whole.len()).step_by(7) {
            let refused = refused(&folder, name, &whole[..length]);
            // The end of an Arrow file repeats what was before it.
            assert!(refused, "{name} with {length} of {} bytes", whole.len());
        }
    }
    write(&folder.name("t.parquet"), &[numbers(200)]);
    let whole = fs::read(folder.path("t.parquet")).unwrap();
    let error = read(&folder.file("t.parquet", &whole[..whole.len() - 10])).unwrap_err();
    let says = folder.says(&error);
    assert!(says.starts_with("t.parquet: it cannot be read as Parquet ("), "{says}");
    assert!(says.ends_with("it may be cut off or damaged: write or fetch it again"), "{says}");
}

#[test]
fn damaged_bytes_never_panic() {
    let folder = Folder::new();
    for name in ["t.parquet", "t.arrow", "t.csv.gz", "t.jsonl"] {
        write(&folder.name(name), &[numbers(60)]);
        let whole = fs::read(folder.path(name)).unwrap();
        let mut count = 0;
        for place in (0..whole.len()).step_by(3) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            count += usize::from(refused(&folder, name, &bytes));
        }
        assert!(count > 0, "{name}");
    }
}

#[test]
fn lines_of_json_are_refused_by_line_and_column() {
    let folder = Folder::new();
    let refusal = |text: &str| folder.says(&read(&folder.file("t.jsonl", text)).unwrap_err());
    assert_eq!(
        refusal("{\"a\": 1}\n\n{\"a\": }\n"),
        "t.jsonl, line 3: it is no JSON object (expected value at character 7); write one on each \
         line"
    );
    assert!(refusal("{\"a\": 1}\n5\n").starts_with("t.jsonl, line 2: it is no JSON object ("));
    assert!(refusal("{\"a\": 1} {}\n").contains("line 1: it is no JSON object (trailing"));
    assert_eq!(
        refusal("{\"a\": 1}\n{\"a\": {\"b\": 2}}\n"),
        "t.jsonl, line 2, column a: lists and objects within a row are not supported; leave the \
         column out"
    );
    assert_eq!(
        refusal("{\"a\": 1, \"a\": 2}\n"),
        "t.jsonl, line 1, column a: its key stands on the line twice; leave one out"
    );
    assert!(refusal("[{\"a\": 1}]").starts_with("t.jsonl: it starts with a list; JSON lines are"));
    assert!(refusal("\n").contains("it has no objects"));
    // Half of a pair of surrogates is no text, and not the text it is written as either.
    let half = refusal("{\"a\": \"x\"}\n{\"a\": \"\\ud800\"}\n");
    assert!(half.starts_with("t.jsonl, line 2, column a: "), "{half}");
    let mut spec = folder.file("t.jsonl", "{\"a\": 1}\n{\"a\": 12345678901234567890123}\n");
    assert_eq!(read(&spec), Ok(table(&[&["1"], &["12345678901234567890123"]])));
    spec.types = vec![("a".into(), ColumnType::I64)];
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "t.jsonl, line 2, column a: \"12345678901234567890123\" is no i64, which was given as the \
         column's type; give another type with --type a=f64"
    );
    let many: String = (0..100_000).map(|row| format!("{{\"a\": {row}}}\n")).collect();
    let spec = folder.file("late.jsonl", many.replace("{\"a\": 45000}", "{\"b\": 45000}"));
    assert_eq!(
        folder.says(&read(&cut(&spec, 3, 10_000)).unwrap_err()),
        "late.jsonl, line 45001, column b: a sample of the file did not show this key; give its \
         type, as with --type b=utf8"
    );
}

#[test]
fn keys_of_json_may_be_missing_and_in_any_order() {
    let folder = Folder::new();
    let text = "{\"a\": 1, \"b\": \"2024-01-02\", \"c\": true}\r\n{\"c\": null, \"a\": 2.5}\n\
                {\"b\": \"2024-01-03\", \"\\u0061\": -3}\n";
    let spec = folder.file("t.ndjson", text);
    let expected = table(&[&["1.0", "19724", "true"], &["2.5", "-", "-"], &["-3.0", "19725", "-"]]);
    assert_eq!(read(&spec), Ok(expected));
    use ColumnType::{Bool, Date, F64};
    assert_eq!(types(&spec), [("a".into(), F64), ("b".into(), Date), ("c".into(), Bool)]);
}

#[test]
fn a_format_that_nothing_says_is_asked_for() {
    let folder = Folder::new();
    let mut spec = folder.file("data", "a,b\n1,2\n");
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "data: its format is not known, since neither its name nor its first bytes say it; name \
         one with --input-format: csv, tsv, jsonl, parquet, arrow"
    );
    spec.format = Some(Format::Csv);
    assert_eq!(read(&spec), Ok(table(&[&["1", "2"]])));
    let spec = folder.file("t.csv", parquet_of(&numbers(1)));
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "t.csv: it is parquet, and no text; name it with --input-format parquet"
    );
}
