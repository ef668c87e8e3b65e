//! CSV as people and programs write it, well and badly.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod support;

use proptest::prelude::*;
use support::{
    Folder, cut, oracle, read, rows_of, table,
    tables::{AnyTable, any_table},
    types,
};
use xlog_io::{ColumnType, InputSpec, OutputSpec, create};

/// What reading a text is refused with.
fn refusal(text: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    let spec = folder.file("t.csv", text);
    folder.says(&read(&spec).unwrap_err())
}

#[test]
fn types_are_the_narrowest_that_lose_nothing() {
    let folder = Folder::new();
    let text = "flag,whole,large,real,day,moment,text,code,huge,mixed,none,spaced\n\
                true,1,18446744073709551615,1.5,2024-02-29,2024-01-01T10:00:00,a,007,\
                123456789012345678901,1,, 5 \n\
                FALSE,-2,1,2,2024-03-01,2024-01-01,b c,1,1,x,,6\n";
    let found = types(&folder.file("t.csv", text));
    let found: Vec<_> = found.into_iter().map(|(_, column_type)| column_type).collect();
    use ColumnType::{Bool, Date, F64, I64, Timestamp, U64, Utf8};
    assert_eq!(found, [Bool, I64, U64, F64, Date, Timestamp, Utf8, Utf8, Utf8, Utf8, Utf8, I64]);
}

#[test]
fn what_is_empty_is_missing_and_what_is_quoted_is_text() {
    let folder = Folder::new();
    let spec = folder.file("t.csv", "a,b,c\n,\"\",1\nx,\"y \"\"z\"\"\",\n\"q,\r\nr\",,\" 3\"\n");
    let expected = table(&[&["-", "", "1"], &["x", "y \"z\"", "-"], &["q,\r\nr", "-", "3"]]);
    assert_eq!(read(&spec), Ok(expected));

    let mut spec = folder.file("n.csv", "a,b\nNA,1\n\"NA\",NA\nx,2\n");
    spec.csv.nulls = vec!["NA".into()];
    assert_eq!(read(&spec), Ok(table(&[&["-", "1"], &["NA", "-"], &["x", "2"]])));
    // Of numbers too: what is quoted there is no missing value.
    let mut spec = folder.file("m.csv", "a\n1\nNA\n\"NA\"\n");
    spec.csv.nulls = vec!["NA".into()];
    assert_eq!(read(&spec), Ok(table(&[&["1"], &["-"], &["NA"]])));
    spec.types = vec![("a".into(), ColumnType::I64)];
    let refusal = folder.says(&read(&spec).unwrap_err());
    assert!(refusal.starts_with("m.csv, line 4, column a: "), "{refusal}");
}

#[test]
fn marks_line_ends_and_empty_lines_are_what_they_should_be() {
    let folder = Folder::new();
    let expected = Ok(table(&[&["1", "x"], &["2", "y"]]));
    for text in [
        "a,b\n1,x\n2,y\n",
        "a,b\n1,x\n2,y",
        "a,b\r\n1,x\r\n2,y\r\n",
        "a,b\r\n1,x\r\n2,y",
        "\u{feff}a,b\n1,x\n2,y\n",
        "\n\na,b\n\n1,x\n\n\r\n2,y\n\n",
        "a;b\n1;x\n2;y\n",
        "a\tb\n1\tx\n2\ty\n",
        "\"a\",\"b\"\n\"1\",\"x\"\n\"2\",\"y\"\n",
    ] {
        let spec = folder.file("t.csv", text);
        assert_eq!(read(&spec), expected, "{text:?}");
        let names: Vec<_> = types(&spec).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"], "{text:?}");
    }
    // In one column an empty line is a row without a value.
    assert_eq!(read(&folder.file("t.csv", "a\n1\n\n2\n")), Ok(table(&[&["1"], &["-"], &["2"]])));
}

#[test]
fn a_header_alone_is_a_table_without_rows() {
    let folder = Folder::new();
    for text in ["a,b\n", "a,b", "a,b\r\n\r\n"] {
        let spec = folder.file("t.csv", text);
        assert_eq!(read(&spec), Ok(vec![]));
        let expected = [("a".to_owned(), ColumnType::Utf8), ("b".to_owned(), ColumnType::Utf8)];
        assert_eq!(types(&spec), expected);
    }
}

#[test]
fn columns_without_names_are_called_by_number() {
    let folder = Folder::new();
    let mut spec = folder.file("t.csv", "1,x\n2,y\n");
    spec.csv.header = false;
    assert_eq!(read(&spec), Ok(table(&[&["1", "x"], &["2", "y"]])));
    assert_eq!(types(&spec)[1].0, "column2");
    assert_eq!(types(&folder.file("u.csv", "a,,c\n1,2,3\n"))[1].0, "column2");
}

#[test]
fn only_the_chosen_columns_are_read() {
    let folder = Folder::new();
    let mut spec = folder.file("t.csv", "a,b,c\n1,x,2.5\n3,\"y\n\",4\n");
    spec.columns = Some(vec!["c".into(), "a".into()]);
    assert_eq!(read(&spec), Ok(table(&[&["1", "2.5"], &["3", "4.0"]])));
    spec.columns = Some(vec![]);
    assert_eq!(read(&spec), Ok(table(&[&[], &[]])));
    spec.columns = Some(vec!["d".into()]);
    let error = read(&spec).unwrap_err();
    assert_eq!(
        folder.says(&error),
        "t.csv, column d: there is no such column; the columns are a, b, c"
    );
}

#[test]
fn a_type_that_is_given_is_the_type() {
    let folder = Folder::new();
    let mut spec = folder.file("t.csv", "a,b,c\n007,1,2024-01-01\n+8,2,2024-01-02\n");
    spec.types = vec![
        ("a".into(), ColumnType::U32),
        ("b".into(), ColumnType::F32),
        ("c".into(), ColumnType::Timestamp),
    ];
    let expected = table(&[&["7", "1.0", "1704067200000000"], &["8", "2.0", "1704153600000000"]]);
    assert_eq!(read(&spec), Ok(expected));
    spec.types = vec![("z".into(), ColumnType::U32)];
    assert!(folder.says(&read(&spec).unwrap_err()).starts_with("t.csv, column z: there is no"));
}

#[test]
fn several_files_are_one_table_with_one_type_a_column() {
    let folder = Folder::new();
    folder.file("part-1.csv", "a,b\n1,x\n");
    folder.file("part-2.csv", "a,b\n");
    folder.file("part-3.csv", "a,b\n2.5,y\n");
    let spec = InputSpec::new([folder.name("part-*.csv")]);
    assert_eq!(read(&spec), Ok(table(&[&["1.0", "x"], &["2.5", "y"]])));

    folder.file("part-4.csv", "a,c\n2.5,y\n");
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "part-4.csv: its columns are a, c, those of part-1.csv are a, b; read files with the same \
         columns together"
    );
    let none = InputSpec::new([folder.name("q*.csv")]);
    assert_eq!(
        folder.says(&read(&none).unwrap_err()),
        "q*.csv: no file has such a name; check the pattern"
    );
}

#[test]
fn a_line_with_the_wrong_number_of_fields_is_named() {
    let expected = "t.csv, line 5: 2 fields expected, 3 found; mend the line, or put fields that \
                    contain the delimiter in quotes";
    assert_eq!(refusal("a,b\n1,\"x\ny\"\n\n2,y,z\n"), expected);
    assert_eq!(refusal("a,b\n1,x\n\n\n2,y,z"), expected);
    let too_few = expected.replace("3 found", "1 found").replace("line 5", "line 2");
    assert_eq!(refusal("a,b\n1\n"), too_few);
    assert_eq!(refusal("a,b\n1\n2\n3,4\n"), too_few);
    assert!(refusal("a\n1\n2,3\n").starts_with("t.csv, line 3: 1 field expected, 2 found"));
}

#[test]
fn a_quote_in_the_wrong_place_is_named() {
    let stray = "a quote stands within a field, or text after a closing one; put the whole field \
                 in quotes and write those in it twice, or switch quotes off with --quote none";
    assert_eq!(refusal("a,b\n1,x\n2,5\" pipe\n3,6\" pipe\n"), format!("t.csv, line 3: {stray}"));
    assert_eq!(refusal("a,b\n1,\"x\ny\" z\n"), format!("t.csv, line 3: {stray}"));
    assert_eq!(refusal("a,b\n1, \"x\"\n"), format!("t.csv, line 2: {stray}"));
    let open = "a quote opens here and is never closed; close it, or switch quotes off with \
                --quote none";
    assert_eq!(refusal("a,b\n1,x\n2,\"y\n3,z\n\n"), format!("t.csv, line 3: {open}"));
    assert_eq!(refusal("a,\"b\n1,x\n"), format!("t.csv, line 1: {open}"));
    assert_eq!(refusal("a,b\n1,x\n\n\r\n\"y,z\n"), format!("t.csv, line 5: {open}"));

    let folder = Folder::new();
    let mut spec = folder.file("t.csv", "a,b\n2,5\" pipe\n");
    spec.csv.quote = None;
    assert_eq!(read(&spec), Ok(table(&[&["2", "5\" pipe"]])));
}

#[test]
fn a_value_of_another_type_is_named() {
    let folder = Folder::new();
    let mut spec = folder.file("t.csv", "id,amount\n1,2\n2,\"x\"\n");
    spec.types = vec![("amount".into(), ColumnType::I64)];
    assert_eq!(
        folder.says(&read(&spec).unwrap_err()),
        "t.csv, line 3, column amount: \"\\\"x\\\"\" is no i64, which was given as the column's \
         type; give another type with --type amount=utf8"
    );
    spec.types = vec![("id".into(), ColumnType::U32), ("amount".into(), ColumnType::Utf8)];
    folder.file("t.csv", "id,amount\n1,2\n-2,x\n");
    assert!(folder.says(&read(&spec).unwrap_err()).contains("line 3, column id: \"-2\" is no u32"));

    // Nothing that a sample shows: rows far from its start, and from every other place it looks at.
    let mut text = String::from("id,code\n");
    for row in 0..100_000 {
        let code = if row == 40_000 { "1.5".into() } else { format!("{row}") };
        text.push_str(&format!("{row},{code}\n"));
    }
    let spec = folder.file("large.csv", &text);
    let expected = "large.csv, line 40002, column code: \"1.5\" is no i64, which was inferred from \
                    a sample of the file; give another type with --type code=f64";
    for (threads, block) in [(1, 1 << 22), (3, 10_000), (2, 65_536)] {
        assert_eq!(folder.says(&read(&cut(&spec, threads, block)).unwrap_err()), expected);
    }
    let spec = folder.file("large.csv", text.replace("\n40000,1.5\n", "\n40000,040\n"));
    let expected = "large.csv, line 40002, column code: \"040\" would change as i64, which was \
                    inferred from a sample of the file; give another type with --type code=utf8";
    assert_eq!(folder.says(&read(&spec).unwrap_err()), expected);
    let mut typed = spec.clone();
    typed.types = vec![("code".into(), ColumnType::Utf8)];
    assert_eq!(read(&typed).unwrap()[40_000][1].as_deref(), Some("040"));
}

#[test]
fn text_that_is_not_utf_8_is_named() {
    assert_eq!(
        refusal(b"a,b\nx,1\n\xff,2\n"),
        "t.csv, line 3, column a: \"\u{fffd}\" is not UTF-8; convert the file, as with iconv -t \
         UTF-8"
    );
    assert_eq!(
        refusal(b"a,\xff\nx,1\n"),
        "t.csv, line 1: the name of column 2 is not UTF-8; convert the file"
    );
    assert_eq!(
        refusal(b"\xff\xfea\0,\0b\0\n\0"),
        "t.csv: it is UTF-16; convert it to UTF-8, as with iconv -f UTF-16"
    );
}

#[test]
fn what_is_no_table_is_refused() {
    assert_eq!(refusal(""), "t.csv: it is empty; its first line must name the columns");
    assert_eq!(refusal("\r"), "t.csv: it is empty; its first line must name the columns");
    assert_eq!(refusal("\n\r\n"), "t.csv: it is empty; its first line must name the columns");
    assert_eq!(
        refusal("a,b\r1,2\r"),
        "t.csv: its lines end in carriage returns alone; end them in newlines"
    );
    assert_eq!(
        refusal("a,b,a\n1,2,3\n"),
        "t.csv, line 1: two columns are called \"a\"; rename one of them"
    );
    let folder = Folder::new();
    let missing = InputSpec::new([folder.name("none.csv")]);
    assert_eq!(
        folder.says(&read(&missing).unwrap_err()),
        "none.csv: there is no such file; check its name"
    );
    let mut odd = folder.file("t.csv", "a\n1\n");
    odd.csv.delimiter = Some(b'"');
    assert!(read(&odd).unwrap_err().message.contains("must differ"));
}

const NASTY: &str = "\u{feff}id,\"na\nme\",x\r\n1,\"a,\"\"b\"\"\n\nc\",2.5\r\n\r\n2,,\n\n\"3\",\
                     \"\"\"\",-1e3\r\n4,\"\r\n\",7\n5,\"\",\"8\"\n6,plain,9";

#[test]
fn a_cut_at_every_byte_gives_the_same_rows() {
    let folder = Folder::new();
    let spec = folder.file("t.csv", NASTY);
    let expected = table(&[
        &["1", "a,\"b\"\n\nc", "2.5"],
        &["2", "-", "-"],
        &["3", "\"", "-1000.0"],
        &["4", "\r\n", "7.0"],
        &["5", "", "8.0"],
        &["6", "plain", "9.0"],
    ]);
    for block in 1..NASTY.len() + 2 {
        for threads in [1, 3] {
            assert_eq!(read(&cut(&spec, threads, block)), Ok(expected.clone()), "{block}");
        }
    }
}

#[test]
fn a_fault_at_every_byte_has_its_line() {
    let folder = Folder::new();
    let mut read_through = 0;
    for end in 4..NASTY.len() {
        for spoilt in ["\"", "x\"", ",", "\n", "a"] {
            let Some((before, after)) = NASTY.split_at_checked(end) else { continue };
            let text = format!("{before}{spoilt}{after}");
            let spec = folder.file("t.csv", &text);
            // A fault that types cannot be guessed behind is found when the file is opened.
            let Ok(reader) = xlog_io::open(&spec) else { continue };
            read_through += 1;
            let types: Vec<_> = reader
                .schema()
                .fields()
                .iter()
                .map(|field| (field.data_type().clone(), true))
                .collect();
            let expected = oracle::read(text.as_bytes(), b',', Some(b'"'), &types);
            for block in [1, 7, 64, 1 << 20] {
                let found = read(&cut(&spec, 2, block));
                let found = found.map_err(|error| error.line.unwrap());
                assert_eq!(found, expected.clone().map_err(|wrong| wrong.line), "{text:?}");
            }
        }
    }
    assert!(read_through > 2 * NASTY.len(), "{read_through} of {}", 5 * NASTY.len());
}

#[test]
fn without_a_header_the_first_line_with_anything_says_how_many_columns_there_are() {
    let folder = Folder::new();
    let mut spec = folder.file("t.csv", "\n\r\n1,2\n\n3,4\n");
    spec.csv.header = false;
    assert_eq!(read(&spec), Ok(table(&[&["1", "2"], &["3", "4"]])));
    // An empty line is a row of a table of one column.
    let mut spec = folder.file("one.csv", "\n1\n\n");
    spec.csv.header = false;
    assert_eq!(read(&spec), Ok(table(&[&["-"], &["1"], &["-"]])));
}

#[test]
fn a_file_that_cannot_be_looked_at_says_why() {
    let folder = Folder::new();
    let spec = folder.file("t.gz", "no gzip at all");
    let error = read(&spec).expect_err("it is no such file");
    assert!(!error.to_string().contains("first bytes"), "{error}");
}

#[test]
fn repeated_text_comes_as_a_dictionary() {
    let folder = Folder::new();
    let text: String = (0..500).map(|row| format!("{},v{}\n", row, row % 3)).collect();
    let spec = folder.file("t.csv", format!("a,b\n{text}"));
    let mut reader = xlog_io::open(&spec).unwrap();
    assert!(matches!(
        reader.schema().field(1).data_type(),
        arrow_schema::DataType::Dictionary(_, _)
    ));
    let batch = reader.next_batch().unwrap().unwrap();
    assert_eq!(rows_of(&batch)[499], [Some("499".into()), Some("v1".into())]);
    assert_eq!(reader.progress().bytes_total, Some(reader.progress().bytes_read));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_written_is_read_back(
        any_table in any_table(),
        threads in 1usize..4,
        block in 1usize..200,
        ending in prop_oneof![Just("csv"), Just("tsv"), Just("csv.gz"), Just("csv.zst")],
    ) {
        let folder = Folder::new();
        let AnyTable { batch, types } = any_table;
        let path = folder.name(&format!("t.{ending}"));
        let mut writer = create(&OutputSpec::new(&path), batch.schema()).unwrap();
        let half = batch.num_rows() / 2;
        writer.write(&batch.slice(0, half)).unwrap();
        writer.write(&batch.slice(half, batch.num_rows() - half)).unwrap();
        writer.finish().unwrap();
        prop_assert_eq!(folder.names(), [format!("t.{ending}")]);
        let mut spec = cut(&InputSpec::new([path]), threads, block);
        spec.types = types;
        prop_assert_eq!(read(&spec).unwrap(), rows_of(&batch));
    }
}
