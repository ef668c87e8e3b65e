//! Batches as files keep them: text as text, whatever its layout in memory.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

/// Rows that are written in one go, few enough that the text of a dictionary's rows, written out,
/// is not too much for one array.
const ROWS: usize = 65_536;

/// The schema with dictionaries as the text that is in them.
pub(crate) fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = match field.data_type() {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A batch in slices whose dictionaries are text; `schema` is that of [`plain_schema`].
pub(crate) fn plain_slices<'b>(
    batch: &'b RecordBatch,
    schema: &'b SchemaRef,
) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> + 'b {
    (0..batch.num_rows()).step_by(ROWS).map(move |start| {
        let slice = batch.slice(start, ROWS.min(batch.num_rows() - start));
        let columns: Result<Vec<_>, _> = slice.columns().iter().map(plain_array).collect();
        RecordBatch::try_new(Arc::clone(schema), columns?)
    })
}

fn plain_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.as_any_dictionary_opt() {
        Some(dictionary) => arrow_select::take::take(dictionary.values(), dictionary.keys(), None),
        None => Ok(Arc::clone(array)),
    }
}
