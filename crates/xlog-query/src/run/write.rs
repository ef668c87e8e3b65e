//! Rows on their way to a sink.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use parking_lot::MutexGuard;
use xlog_relational::{Schema, Table, ops};

use super::{Context, Sink, schema::arrow_schema};
use crate::error::{QueryError, QueryResult};

/// Rows that are fetched from the device at a time.
const WINDOW: u64 = 1 << 18;

/// A sink that is being written to.
pub(super) struct Writing<'c> {
    context: &'c Context<'c>,
    sink: MutexGuard<'c, Option<Box<dyn Sink>>>,
    schema: SchemaRef,
}

impl<'c> Writing<'c> {
    pub(super) fn begin(
        context: &'c Context<'c>,
        sink: usize,
        schema: &Schema,
    ) -> QueryResult<Self> {
        let schema = arrow_schema(schema);
        let Some(sink) = context.shared.sinks.get(sink) else {
            return Err(QueryError::plan("the query has more results than there are sinks"));
        };
        let mut sink = sink.lock();
        if let Some(sink) = sink.as_mut() {
            sink.begin(SchemaRef::clone(&schema))?;
        }
        Ok(Self { context, sink, schema })
    }

    /// Writes all rows of a table. `false` if no more are wanted.
    pub(super) fn write(&mut self, table: &Table) -> QueryResult<bool> {
        let stream = self.context.stream;
        let windows = (0..table.rows()).step_by(WINDOW as usize);
        // The next window is on its way while one is written.
        let start = |from: u64| -> QueryResult<_> {
            Ok(ops::limit(table, from, WINDOW, stream)?.start_download(stream)?)
        };
        let mut next = windows.clone().next().map(start).transpose()?;
        for following in windows.skip(1).map(Some).chain([None]) {
            let Some(current) = next.take() else { break };
            next = following.map(start).transpose()?;
            self.context.shared.cancel.check()?;
            let batch = self.declared(&current.wait()?)?;
            self.context.shared.monitor.wrote(batch.num_rows());
            if let Some(sink) = self.sink.as_mut()
                && !sink.write(&batch)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A batch with the columns that were declared.
    fn declared(&self, batch: &RecordBatch) -> QueryResult<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = SchemaRef::clone(&self.schema);
        RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options)
            .map_err(|error| QueryError::plan(format!("a result has other columns: {error}")))
    }
}
