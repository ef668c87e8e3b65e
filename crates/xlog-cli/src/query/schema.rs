//! `xlog schema`: the columns of files.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use clap::Args;
use xlog_io::FileError;
use xlog_query::QueryError;

use super::{
    cells::type_name,
    inputs::{FileSource, InputOptions},
    outputs::OutputOptions,
};

/// The columns of files.
#[derive(Debug, Args)]
pub(crate) struct SchemaCommand {
    /// Files with the same columns: names, patterns such as 'orders-*.csv', or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Says what columns there are, as a table of its own.
pub(super) fn run(command: &SchemaCommand) -> Result<(), QueryError> {
    let files = &command.files;
    let source = FileSource::open("input", files, &command.inputs, None)?;
    let columns = source.columns();
    let fields = columns.fields();
    let schema = Arc::new(Schema::new(vec![
        Field::new("column", DataType::Utf8, false),
        Field::new("type", DataType::Utf8, false),
        Field::new("nullable", DataType::Boolean, false),
    ]));
    let names: StringArray = fields.iter().map(|field| Some(field.name().as_str())).collect();
    let types: StringArray =
        fields.iter().map(|field| Some(type_name(field.data_type()).0)).collect();
    let nullable: BooleanArray = fields.iter().map(|field| Some(field.is_nullable())).collect();
    let arrays: Vec<arrow_array::ArrayRef> =
        vec![Arc::new(names), Arc::new(types), Arc::new(nullable)];
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)
        .map_err(|error| FileError::new("schema", error.to_string()))?;
    let mut sink = command.output.sink()?;
    sink.begin(schema)?;
    sink.write(&batch)?;
    Ok(sink.finish()?)
}
