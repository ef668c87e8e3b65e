//! From what to read and write to who does it.

use arrow_schema::SchemaRef;

use crate::{
    csv::{CsvWriter, open_csv},
    error::{FileError, FileResult},
    format::Format,
    ipc::{IpcEncoder, IpcReader},
    json::{JsonLinesWriter, open_json_lines},
    output::Output,
    parquet::{ParquetEncoder, ParquetReader},
    plain_writer::PlainWriter,
    source::Input,
    spec::{InputSpec, OutputSpec},
    traits::{BatchReader, BatchWriter},
};

/// Opens a table for reading.
///
/// ```no_run
/// use xlog_io::{InputSpec, open};
///
/// let mut reader = open(&InputSpec::new(["sales-*.csv"]))?;
/// println!("{}", reader.schema());
/// while let Some(batch) = reader.next_batch()? {
///     println!("{} rows", batch.num_rows());
/// }
/// # Ok::<(), xlog_io::FileError>(())
/// ```
pub fn open(spec: &InputSpec) -> FileResult<Box<dyn BatchReader>> {
    let inputs = inputs(spec)?;
    match format(spec, &inputs)? {
        Format::Csv => Ok(Box::new(open_csv(spec, inputs, spec.csv.delimiter)?)),
        Format::Tsv => Ok(Box::new(open_csv(spec, inputs, spec.csv.delimiter.or(Some(b'\t')))?)),
        Format::Parquet => Ok(Box::new(ParquetReader::open(spec, inputs)?)),
        Format::Arrow => Ok(Box::new(IpcReader::open(spec, inputs)?)),
        Format::JsonLines => Ok(Box::new(open_json_lines(spec, inputs)?)),
    }
}

/// What is known of a table before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSchema {
    /// Its columns, as every batch will have them.
    pub columns: SchemaRef,
    /// Its rows, where the files say how many (Parquet).
    pub rows: Option<u64>,
}

/// Looks at a table without reading it. Types of CSV and JSON lines come from a sample.
///
/// ```no_run
/// use xlog_io::{InputSpec, schema};
///
/// let table = schema(&InputSpec::new(["sales.parquet"]))?;
/// println!("{} with {:?} rows", table.columns, table.rows);
/// # Ok::<(), xlog_io::FileError>(())
/// ```
pub fn schema(spec: &InputSpec) -> FileResult<TableSchema> {
    let inputs = inputs(spec)?;
    if format(spec, &inputs)? == Format::Parquet {
        let reader = ParquetReader::open(spec, inputs)?;
        return Ok(TableSchema { columns: reader.schema(), rows: Some(reader.rows()) });
    }
    Ok(TableSchema { columns: open(spec)?.schema(), rows: None })
}

/// Starts a file for a table with these columns. It appears under its name once it is finished.
///
/// ```no_run
/// # use xlog_io::{InputSpec, OutputSpec, create, open};
/// let mut reader = open(&InputSpec::new(["sales.csv"]))?;
/// let mut writer = create(&OutputSpec::new("sales.parquet"), reader.schema())?;
/// while let Some(batch) = reader.next_batch()? {
///     writer.write(&batch)?;
/// }
/// writer.finish()?;
/// # Ok::<(), xlog_io::FileError>(())
/// ```
pub fn create(spec: &OutputSpec, schema: SchemaRef) -> FileResult<Box<dyn BatchWriter>> {
    let Some(format) = spec.format.or_else(|| Format::of_name(&spec.path)) else {
        let file = if spec.path == "-" { "standard output" } else { &spec.path };
        return Err(FileError::new(file, no_format("its name does not end in one", "--format")));
    };
    let output = Output::create(&spec.path)?;
    match format {
        Format::Csv => Ok(Box::new(CsvWriter::create(output, &schema, b',')?)),
        Format::Tsv => Ok(Box::new(CsvWriter::create(output, &schema, b'\t')?)),
        Format::Parquet => Ok(Box::new(PlainWriter::<ParquetEncoder>::create(output, &schema)?)),
        Format::Arrow => Ok(Box::new(PlainWriter::<IpcEncoder>::create(output, &schema)?)),
        Format::JsonLines => Ok(Box::new(JsonLinesWriter::create(output, &schema)?)),
    }
}

fn no_format(why: &str, option: &str) -> String {
    let names: Vec<_> = Format::ALL.iter().map(|known| known.name()).collect();
    let names = names.join(", ");
    format!("its format is not known, since {why}; name one with {option}: {names}")
}

/// The files that the names stand for.
fn inputs(spec: &InputSpec) -> FileResult<Vec<Input>> {
    let mut inputs = Vec::new();
    for path in &spec.paths {
        let is_pattern = path.contains(['*', '?', '[']) && std::fs::metadata(path).is_err();
        if !is_pattern {
            inputs.push(Input::new(path)?);
            continue;
        }
        let matches = glob::glob(path)
            .map_err(|error| FileError::new(path, format!("it is no pattern of names: {error}")))?;
        let before = inputs.len();
        for found in matches {
            let found = found.map_err(|error| FileError::from_io(path, "read", error.error()))?;
            if found.is_file() {
                inputs.push(Input::new(&found.to_string_lossy())?);
            }
        }
        if inputs.len() == before {
            return Err(FileError::new(path, "no file has such a name; check the pattern"));
        }
    }
    if inputs.is_empty() {
        return Err(FileError::new("input", "no file is named; name one, or - for standard input"));
    }
    Ok(inputs)
}

/// The one format of all inputs.
fn format(spec: &InputSpec, inputs: &[Input]) -> FileResult<Format> {
    if let Some(format) = spec.format {
        return Ok(format);
    }
    let mut first: Option<Format> = None;
    for input in inputs {
        let format = match Format::of_name(&input.name) {
            Some(format) => Some(format),
            None => input.guessed_format()?,
        };
        let Some(format) = format else {
            return Err(FileError::new(
                &input.name,
                no_format("neither its name nor its first bytes say it", "--input-format"),
            ));
        };
        if let Some(other) = first.filter(|first| *first != format) {
            let message = format!(
                "it is {format}, and {} is {other}; read files of one format together",
                inputs[0].name
            );
            return Err(FileError::new(&input.name, message));
        }
        first = Some(format);
    }
    Ok(first.unwrap_or(Format::Csv))
}
