//! Files as the inputs of a query.

use std::{num::NonZeroUsize, sync::Arc};

use arrow_schema::SchemaRef;
use clap::Args;
use parking_lot::Mutex;
use xlog_io::{BatchReader, ColumnType, FileResult, Format, InputSpec};
use xlog_query::{QueryError, plan::PlanInput, run::Source};

/// How files are read.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputOptions {
    /// The format of the files, where their names do not say it: csv, tsv, jsonl, parquet, arrow
    #[arg(long, value_name = "FORMAT")]
    input_format: Option<Format>,
    /// The type of a column, as amount=f64: bool, u32, u64, i32, i64, f32, f64, date, timestamp,
    /// utf8; may be given several times
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_parser = typed)]
    types: Vec<(String, ColumnType)>,
    /// What stands between the fields of CSV: one character, or tab
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// What stands around fields of CSV that have delimiters in them: one character, or none
    #[arg(long, value_name = "CHARACTER", value_parser = quote, default_value = "\"")]
    quote: Quote,
    /// The first line of CSV is a row; columns are called column1, column2 and so on
    #[arg(long)]
    no_header: bool,
    /// A text that stands for no value in CSV, besides the empty one; may be given several times
    #[arg(long = "null", value_name = "TEXT")]
    nulls: Vec<String>,
}

impl InputOptions {
    /// The same for each of several tables; types go to those that have such a column.
    pub(super) fn shared_by(&self, tables: &[&String; 2]) -> Result<Vec<Self>, QueryError> {
        if self.types.is_empty() {
            return Ok(vec![self.clone(); tables.len()]);
        }
        let mut shared = Vec::new();
        let mut known = vec![false; self.types.len()];
        for table in tables {
            if !is_rereadable(table) {
                known.fill(true);
                shared.push(self.clone());
                continue;
            }
            let plain = Self { types: Vec::new(), ..self.clone() };
            let schema = xlog_io::open(&plain.spec(std::slice::from_ref(*table)))?.schema();
            let mut own = plain;
            for (place, (column, column_type)) in self.types.iter().enumerate() {
                if schema.index_of(column).is_ok() {
                    known[place] = true;
                    own.types.push((column.clone(), *column_type));
                }
            }
            shared.push(own);
        }
        match known.iter().position(|known| !known) {
            None => Ok(shared),
            Some(place) => {
                let column = &self.types[place].0;
                let message = format!("--type: neither table has a column called {column:?}");
                Err(QueryError::Plan { message })
            }
        }
    }

    fn spec(&self, files: &[String]) -> InputSpec {
        let mut spec = InputSpec::new(files.iter().cloned());
        spec.format = self.input_format;
        spec.types = self.types.clone();
        spec.csv.delimiter = self.delimiter;
        spec.csv.quote = self.quote.0;
        spec.csv.header = !self.no_header;
        spec.csv.nulls = self.nulls.clone();
        spec
    }

    /// What a plan says of an input.
    pub(super) fn of_plan(input: &PlanInput) -> Result<Self, QueryError> {
        let wrong = |message: String| QueryError::Plan {
            message: format!("input {:?}: {message}", input.name),
        };
        let mut types = Vec::with_capacity(input.types.len());
        for (column, column_type) in &input.types {
            types.push((column.clone(), column_type.parse().map_err(wrong)?));
        }
        Ok(Self {
            input_format: input
                .format
                .as_ref()
                .map(|name| name.parse().map_err(wrong))
                .transpose()?,
            types,
            delimiter: input.delimiter.as_deref().map(delimiter).transpose().map_err(wrong)?,
            quote: input
                .quote
                .as_deref()
                .map(quote)
                .transpose()
                .map_err(wrong)?
                .unwrap_or_default(),
            no_header: !input.header,
            nulls: input.nulls.clone(),
        })
    }
}

fn typed(text: &str) -> Result<(String, ColumnType), String> {
    let (column, name) = text
        .rsplit_once('=')
        .ok_or_else(|| "a type is given as COLUMN=TYPE, such as amount=f64".to_owned())?;
    Ok((column.to_owned(), name.parse()?))
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !b"\r\n\"".contains(byte) => Ok(*byte),
        _ if text == "tab" || text == "\\t" => Ok(b'\t'),
        _ => Err("a delimiter is one character, such as ; or |, or the word tab".to_owned()),
    }
}

/// What stands around fields, if anything does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quote(Option<u8>);

impl Default for Quote {
    fn default() -> Self {
        Self(xlog_io::CsvOptions::default().quote)
    }
}

fn quote(text: &str) -> Result<Quote, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() => Ok(Quote(Some(*byte))),
        _ if text == "none" => Ok(Quote(None)),
        _ => Err("a quote is one character, such as ' or \", or the word none".to_owned()),
    }
}

/// Whether a file can be read again: pipes and the like cannot, as standard input cannot.
fn is_rereadable(file: &str) -> bool {
    file != "-" && !std::fs::metadata(file).is_ok_and(|data| !data.is_file())
}

/// A table in files.
pub(super) struct FileSource {
    name: String,
    spec: InputSpec,
    schema: SchemaRef,
    bytes: Option<u64>,
    /// The reader that was opened to see the columns, where nobody can open another.
    only: Mutex<Option<Box<dyn BatchReader>>>,
    is_rereadable: bool,
}

impl FileSource {
    /// Looks at the files.
    pub(super) fn open(
        name: &str,
        files: &[String],
        options: &InputOptions,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, QueryError> {
        let mut spec = options.spec(files);
        spec.threads = threads;
        let reader = xlog_io::open(&spec)?;
        let schema = reader.schema();
        let bytes = reader.progress().bytes_total;
        let is_rereadable = files.iter().all(|file| is_rereadable(file));
        let only = Mutex::new((!is_rereadable).then_some(reader));
        Ok(Self { name: name.to_owned(), spec, schema, bytes, only, is_rereadable })
    }

    /// Its columns.
    pub(super) fn columns(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema(&self) -> SchemaRef {
        self.columns()
    }

    fn open(&self, columns: &[String]) -> FileResult<Box<dyn BatchReader>> {
        if let Some(reader) = self.only.lock().take() {
            return Ok(reader);
        }
        let mut spec = self.spec.clone();
        // A type of a column that is not read would be one of none.
        spec.types.retain(|(column, _)| columns.contains(column));
        spec.columns = Some(columns.to_vec());
        xlog_io::open(&spec)
    }

    fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn is_rereadable(&self) -> bool {
        self.is_rereadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_delimiters_are_read_as_the_help_says() {
        assert_eq!(typed("a=b=i64"), Ok(("a=b".to_owned(), ColumnType::I64)));
        assert!(typed("amount").is_err() && typed("amount=int").is_err());
        assert_eq!(delimiter(";"), Ok(b';'));
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert!(delimiter("").is_err() && delimiter(";;").is_err() && delimiter("é").is_err());
    }
}
