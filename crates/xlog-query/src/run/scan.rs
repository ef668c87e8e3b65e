//! Batches of an input, read ahead by a thread of its own, as tables.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use arrow_array::RecordBatch;
use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use xlog_io::{BatchReader, FileError, FileResult, ReadProgress};
use xlog_relational::{Table, ops};

use super::{Context, Monitor, Shared, Source, schema};
use crate::error::{QueryError, QueryResult};

/// Batches that wait to be worked on, at most.
const AHEAD: usize = 2;
/// Batches with fewer rows are put together until there are that many.
const LEAST_ROWS: usize = 1 << 16;
/// How often somebody who waits for a batch looks whether the query was cancelled.
const PATIENCE: Duration = Duration::from_millis(50);

/// An input that is being read.
pub(super) struct Scan<'c> {
    shared: &'c Shared,
    batches: Receiver<FileResult<Option<Step>>>,
    /// Whether the reader said that there is nothing more.
    over: bool,
    /// The columns that are wanted, in the order in which they are.
    schema: SchemaRef,
    places: Vec<usize>,
    /// A batch that is handed out in parts, and where the next one begins.
    current: Option<(RecordBatch, usize)>,
    most_rows: usize,
    progress: ReadProgress,
    began: bool,
}

/// A batch, and how far the reader was after it.
struct Step {
    batch: RecordBatch,
    progress: ReadProgress,
}

impl<'c> Scan<'c> {
    pub(super) fn open(
        shared: &'c Shared,
        source: &Arc<dyn Source>,
        columns: &[String],
    ) -> QueryResult<Self> {
        let reader = source.open(columns)?;
        let own = reader.schema();
        let mut places = Vec::with_capacity(columns.len());
        for column in columns {
            let place = own.index_of(column).map_err(|_| {
                let message = format!("column {column:?} is gone since the file was looked at");
                QueryError::plan(format!("{}: {message}", source.name()))
            })?;
            places.push(place);
        }
        let fields: Vec<_> = places.iter().map(|place| own.field(*place).clone()).collect();
        let schema = Arc::new(ArrowSchema::new(fields));
        let row = schema::row_bytes(&schema::table_schema(&schema)?).max(1);
        let options = &shared.options;
        // A batch is there several times: as it was read, on the device, and as what is made of it.
        let fitting = (options.memory / 32 / row).clamp(1 << 10, 1 << 22) as usize;
        let most_rows = options.batch_rows.unwrap_or(fitting).max(1);
        let batches = read_ahead(reader, Arc::clone(&shared.monitor))?;
        let progress = ReadProgress::default();
        Ok(Self {
            shared,
            batches,
            over: false,
            schema,
            places,
            current: None,
            most_rows,
            progress,
            began: false,
        })
    }

    /// How much of the input has been read, as far as anybody knows.
    pub(super) fn fraction(&self) -> Option<f64> {
        let total = self.progress.bytes_total.filter(|total| *total > 0)?;
        Some((self.progress.bytes_read as f64 / total as f64).clamp(1e-9, 1.0))
    }

    /// The next rows to be worked on together. There are some at least once, if need be an empty
    /// batch.
    pub(super) fn next(&mut self) -> QueryResult<Option<Vec<RecordBatch>>> {
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut rows = 0;
        while rows < LEAST_ROWS.min(self.most_rows) {
            let Some(batch) = self.part()? else { break };
            if batch.num_rows() == 0 {
                continue;
            }
            rows += batch.num_rows();
            batches.push(batch.project(&self.places).map_err(|error| {
                QueryError::plan(format!("a batch does not have its reader's columns: {error}"))
            })?);
            if self.shared.options.batch_rows.is_some() {
                break;
            }
        }
        if batches.is_empty() && !self.began {
            batches.push(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        self.began = true;
        Ok(if batches.is_empty() { None } else { Some(batches) })
    }

    /// The next rows, no more than may be worked on at a time.
    fn part(&mut self) -> QueryResult<Option<RecordBatch>> {
        loop {
            if let Some((batch, start)) = &mut self.current {
                let length = self.most_rows.min(batch.num_rows() - *start);
                if length > 0 {
                    let part = batch.slice(*start, length);
                    *start += length;
                    return Ok(Some(part));
                }
                self.current = None;
            }
            match self.receive()? {
                Some(batch) => self.current = Some((batch, 0)),
                None => return Ok(None),
            }
        }
    }

    fn receive(&mut self) -> QueryResult<Option<RecordBatch>> {
        while !self.over {
            self.shared.cancel.check()?;
            match self.batches.recv_timeout(PATIENCE) {
                Ok(Ok(Some(step))) => {
                    self.progress = step.progress;
                    return Ok(Some(step.batch));
                }
                Ok(Ok(None)) => self.over = true,
                Ok(Err(error)) => {
                    self.over = true;
                    return Err(error.into());
                }
                // Not the end of the input: rows would be missing without a word.
                Err(RecvTimeoutError::Disconnected) => {
                    self.over = true;
                    return Err(QueryError::plan("a reader ended early; please report it"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(None)
    }
}

/// Batches as one table on the device.
pub(super) fn table_of(context: &Context<'_>, batches: &[RecordBatch]) -> QueryResult<Table> {
    let mut tables = Vec::with_capacity(batches.len());
    for batch in batches {
        tables.push(Table::from_batch(context.engine, batch, context.stream)?);
    }
    match &tables[..] {
        [only] => Ok(only.clone()),
        several => Ok(ops::concat(&several.iter().collect::<Vec<_>>(), context.stream)?),
    }
}

/// Starts the thread that reads. It ends with the input, with an error, or when nobody listens.
fn read_ahead(
    mut reader: Box<dyn BatchReader>,
    monitor: Arc<Monitor>,
) -> QueryResult<Receiver<FileResult<Option<Step>>>> {
    let (sender, receiver) = sync_channel(AHEAD);
    let input = monitor.begin(reader.progress());
    let read = move || {
        loop {
            let answer = reader.next_batch();
            let progress = reader.progress();
            if let Ok(Some(batch)) = &answer {
                monitor.read(input, progress, batch.num_rows());
            }
            let more = matches!(answer, Ok(Some(_)));
            let answer = answer.map(|batch| batch.map(|batch| Step { batch, progress }));
            // Nobody listens any more, or there is nothing more to say.
            if sender.send(answer).is_err() || !more {
                return;
            }
        }
    };
    let named = thread::Builder::new().name("reader".to_owned());
    named.spawn(read).map_err(|error| {
        let message = format!("no thread can be started to read it: {error}");
        let file = "input".to_owned();
        QueryError::File(FileError { file, line: None, column: None, message })
    })?;
    Ok(receiver)
}
