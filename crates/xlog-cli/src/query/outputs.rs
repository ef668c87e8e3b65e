//! Where results go: files, standard output, or a table for people.

use std::{
    io::{IsTerminal, stdout},
    str::FromStr,
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use clap::Args;
use xlog_io::{BatchWriter, CompleteFile, FileResult, Format, OutputSpec};
use xlog_query::{QueryError, plan::PlanOutput, run::Sink};

use super::{progress::make_way, table::TableSink};

/// Where the result goes, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// The file to write, in the format that its name ends in; standard output without it
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// The format: table, csv, tsv, jsonl, parquet, arrow; without it and without -o a table on a
    /// terminal, else CSV
    #[arg(long, value_name = "FORMAT")]
    format: Option<OutputFormat>,
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// For people.
    Table,
    /// For programs.
    File(Format),
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "json" => Ok(Self::File(Format::JsonLines)),
            other => other.parse().map(Self::File).map_err(|_: String| {
                let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
                format!("{other:?} is no format; there are table, {}", known.join(", "))
            }),
        }
    }
}

impl OutputOptions {
    pub(super) fn sink(&self) -> Result<Box<dyn Sink>, QueryError> {
        sink(self.output.as_deref(), self.format)
    }
}

/// Where a result of a plan goes.
pub(super) fn of_plan(output: &PlanOutput) -> Result<Box<dyn Sink>, QueryError> {
    let format = output.format.as_deref().map(str::parse).transpose();
    let format = format.map_err(|message| QueryError::Plan { message })?;
    sink(output.file.as_deref(), format)
}

fn sink(file: Option<&str>, format: Option<OutputFormat>) -> Result<Box<dyn Sink>, QueryError> {
    let refused = |message: &str| Err(QueryError::Plan { message: message.to_owned() });
    let file = file.filter(|file| *file != "-");
    let (path, format) = match (file, format) {
        (Some(_), Some(OutputFormat::Table)) => {
            return refused(
                "a table for people is not written to a file; leave out --format table",
            );
        }
        (Some(file), Some(OutputFormat::File(format))) => (file, Some(format)),
        (Some(file), None) => (file, None),
        (None, Some(OutputFormat::Table)) => return Ok(Box::new(TableSink::new())),
        (None, Some(OutputFormat::File(format))) => {
            if matches!(format, Format::Parquet | Format::Arrow) && stdout().is_terminal() {
                return refused("this format is for programs, not for a terminal; give -o FILE");
            }
            ("-", Some(format))
        }
        (None, None) if stdout().is_terminal() => return Ok(Box::new(TableSink::new())),
        (None, None) => ("-", Some(Format::Csv)),
    };
    let mut spec = OutputSpec::new(path);
    spec.format = format;
    Ok(Box::new(FileSink { spec, writer: None, complete: None }))
}

/// A file that appears when it is complete.
struct FileSink {
    spec: OutputSpec,
    writer: Option<Box<dyn BatchWriter>>,
    complete: Option<CompleteFile>,
}

impl Sink for FileSink {
    fn begin(&mut self, schema: SchemaRef) -> FileResult<()> {
        self.writer = Some(xlog_io::create(&self.spec, schema)?);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> FileResult<bool> {
        if self.spec.path == "-" {
            make_way();
        }
        if let Some(writer) = &mut self.writer {
            writer.write(batch)?;
        }
        Ok(true)
    }

    fn complete(&mut self) -> FileResult<()> {
        if let Some(writer) = self.writer.take() {
            self.complete = Some(writer.complete()?);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> FileResult<()> {
        self.complete()?;
        self.complete.map_or(Ok(()), CompleteFile::publish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_named_as_the_help_says() {
        assert_eq!("table".parse(), Ok(OutputFormat::Table));
        assert_eq!("json".parse(), Ok(OutputFormat::File(Format::JsonLines)));
        assert_eq!("parquet".parse(), Ok(OutputFormat::File(Format::Parquet)));
        assert!("xml".parse::<OutputFormat>().is_err_and(|error| error.contains("table, csv")));
    }
}
