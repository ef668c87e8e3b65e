//! From what to read and write to who does it.

use arrow_schema::SchemaRef;

use crate::{
    csv::{CsvReader, CsvWriter},
    error::{FileError, FileResult},
    format::Format,
    ipc::{IpcReader, IpcWriter},
    output::Output,
    parquet::{ParquetReader, ParquetWriter},
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
        Format::Csv => Ok(Box::new(CsvReader::open(spec, inputs, spec.csv.delimiter)?)),
        Format::Tsv => {
            Ok(Box::new(CsvReader::open(spec, inputs, spec.csv.delimiter.or(Some(b'\t')))?))
        }
        Format::Parquet => Ok(Box::new(ParquetReader::open(spec, inputs)?)),
        Format::Arrow => Ok(Box::new(IpcReader::open(spec, inputs)?)),
        Format::JsonLines => Err(FileError::new(&inputs[0].name, "no JSON")),
    }
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
        return Err(FileError::new(file, no_format("its name ends in none")));
    };
    let output = Output::create(&spec.path)?;
    match format {
        Format::Csv => Ok(Box::new(CsvWriter::create(output, &schema, b',')?)),
        Format::Tsv => Ok(Box::new(CsvWriter::create(output, &schema, b'\t')?)),
        Format::Parquet => Ok(Box::new(ParquetWriter::create(output, &schema)?)),
        Format::Arrow => Ok(Box::new(IpcWriter::create(output, &schema)?)),
        Format::JsonLines => Err(FileError::new(output.name, "no JSON")),
    }
}

fn no_format(why: &str) -> String {
    let names: Vec<_> = Format::ALL.iter().map(|known| known.name()).collect();
    format!("its format is not known, since {why}; give one of {}", names.join(", "))
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
        let Some(format) = Format::of_name(&input.name).or_else(|| input.guessed_format()) else {
            return Err(FileError::new(
                &input.name,
                no_format("neither its name nor its first bytes say it"),
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
