//! What the tests of files share.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod oracle;
pub(crate) mod tables;

use std::{fs, num::NonZeroUsize, path::PathBuf};

use arrow_array::{
    Array, RecordBatch,
    cast::AsArray,
    types::{
        Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::DataType;
use xlog_io::{ColumnType, FileError, InputSpec, open};

/// A value as text, whatever the array's layout.
pub(crate) fn value(array: &dyn Array, row: usize) -> Option<String> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).to_string(),
        DataType::Timestamp(_, _) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).to_string()
        }
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            return value(dictionary.values(), dictionary.normalized_keys()[row]);
        }
        other => panic!("no test knows {other}"),
    })
}

/// All rows of a batch, as text.
pub(crate) fn rows_of(batch: &RecordBatch) -> Vec<Vec<Option<String>>> {
    let row = |row| batch.columns().iter().map(|column| value(column, row)).collect();
    (0..batch.num_rows()).map(row).collect()
}

/// All rows of an input, as text.
pub(crate) fn read(spec: &InputSpec) -> Result<Vec<Vec<Option<String>>>, FileError> {
    let mut reader = open(spec)?;
    let mut rows = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        assert_eq!(batch.schema(), reader.schema());
        assert!(batch.num_rows() > 0, "an empty batch");
        rows.extend(rows_of(&batch));
    }
    assert_eq!(reader.next_batch(), Ok(None));
    Ok(rows)
}

/// The types of an input's columns.
pub(crate) fn types(spec: &InputSpec) -> Vec<(String, ColumnType)> {
    let schema = open(spec).unwrap().schema();
    let field = |field: &arrow_schema::FieldRef| {
        (field.name().clone(), ColumnType::of_arrow(field.data_type()).unwrap())
    };
    schema.fields().iter().map(field).collect()
}

/// A folder that goes away with the test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file, and answers how to read it.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> InputSpec {
        fs::write(self.path(name), contents).unwrap();
        InputSpec::new([self.name(name)])
    }

    /// The names of everything in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What an error says, without the folder.
    pub(crate) fn says(&self, error: &FileError) -> String {
        error.to_string().replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// The same with so many threads and bytes of text in a batch.
pub(crate) fn cut(spec: &InputSpec, threads: usize, block_bytes: usize) -> InputSpec {
    let mut spec = spec.clone();
    spec.threads = NonZeroUsize::new(threads);
    spec.block_bytes = block_bytes;
    spec
}

/// Rows as short literals: `-` is no value.
pub(crate) fn table(rows: &[&[&str]]) -> Vec<Vec<Option<String>>> {
    let value = |text: &&str| (*text != "-").then(|| (*text).to_owned());
    rows.iter().map(|row| row.iter().map(value).collect()).collect()
}
