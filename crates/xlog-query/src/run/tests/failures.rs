//! Queries that end before their input does.

use super::*;

#[test]
fn a_bad_file_ends_the_query_and_nothing_is_finished() {
    let wrong = FileError {
        file: "orders.csv".to_owned(),
        line: Some(12),
        column: Some("amount".to_owned()),
        message: "'x' is no number".to_owned(),
    };
    let batch = orders(100).to_batch().unwrap();
    let broken =
        MemorySource { name: "orders".to_owned(), batch, batch_rows: 10, end: Some(wrong.clone()) };
    let sources: [Arc<dyn Source>; 1] = [Arc::new(broken)];
    let sink = MemorySink::default();
    let sinks = vec![Box::new(sink.clone()) as Box<dyn Sink>];
    let (cancel, monitor) = (CancelToken::new(), Arc::new(Monitor::default()));
    let ran = run(&engine(), &query(FROM), &sources, sinks, &options(None), &cancel, &monitor);
    assert_eq!(ran, Err(QueryError::File(wrong)));
    assert!(!sink.0.lock().finished);
}

/// A table whose reader ends without a word.
struct Vanishing(RecordBatch);

impl Source for Vanishing {
    fn name(&self) -> &str {
        "orders"
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn open(&self, _: &[String]) -> FileResult<Box<dyn BatchReader>> {
        Ok(Box::new(VanishingReader(self.0.clone(), 0)))
    }
}

struct VanishingReader(RecordBatch, usize);

impl BatchReader for VanishingReader {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>> {
        self.1 += 1;
        if self.1 > 3 {
            // No message: this panic is meant.
            std::panic::resume_unwind(Box::new(()));
        }
        Ok(Some(self.0.clone()))
    }

    fn progress(&self) -> ReadProgress {
        ReadProgress::default()
    }
}

#[test]
fn a_reader_that_vanishes_is_no_end_of_the_input() {
    let sources: [Arc<dyn Source>; 1] = [Arc::new(Vanishing(orders(10).to_batch().unwrap()))];
    let sink = MemorySink::default();
    let sinks = vec![Box::new(sink.clone()) as Box<dyn Sink>];
    let (cancel, monitor) = (CancelToken::new(), Arc::new(Monitor::default()));
    let ran = run(&engine(), &query(FROM), &sources, sinks, &options(None), &cancel, &monitor);
    let error = ran.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("ended early"), "{error:?}");
    assert!(!sink.0.lock().finished);
}

#[test]
fn a_cancelled_query_ends_and_finishes_nothing() {
    /// Cancels at its first batch.
    struct Cancelling(CancelToken, MemorySink);
    impl Sink for Cancelling {
        fn begin(&mut self, schema: SchemaRef) -> FileResult<()> {
            self.1.begin(schema)
        }
        fn write(&mut self, batch: &RecordBatch) -> FileResult<bool> {
            self.0.cancel();
            self.1.write(batch)
        }
        fn finish(self: Box<Self>) -> FileResult<()> {
            Box::new(self.1).finish()
        }
    }
    let orders = orders(1000);
    let (cancel, monitor) = (CancelToken::new(), Arc::new(Monitor::default()));
    let sink = MemorySink::default();
    let sinks = vec![Box::new(Cancelling(cancel.clone(), sink.clone())) as Box<dyn Sink>];
    let sources = [source("orders", &orders, 10)];
    let options = options(Some(10));
    let ran = run(&engine(), &query(FROM), &sources, sinks, &options, &cancel, &monitor);
    assert_eq!(ran, Err(QueryError::Cancelled));
    assert!(!sink.0.lock().finished);
    assert_eq!(sink.0.lock().batches.len(), 1);
}

/// Takes everything, and cannot write out the last of it.
struct Full;

impl Sink for Full {
    fn begin(&mut self, _: SchemaRef) -> FileResult<()> {
        Ok(())
    }
    fn write(&mut self, _: &RecordBatch) -> FileResult<bool> {
        Ok(true)
    }
    fn complete(&mut self) -> FileResult<()> {
        Err(FileError::new("second.csv", "no space left"))
    }
    fn finish(self: Box<Self>) -> FileResult<()> {
        Ok(())
    }
}

#[test]
fn no_output_appears_unless_all_are_complete() {
    let orders = orders(100);
    let two = query(
        "[step.a]\nfrom = 'orders'\nwrite = 'first.csv'\n\
         [step.b]\nfrom = 'orders'\nwrite = 'second.csv'\n",
    );
    assert_eq!(two.outputs, ["a", "b"]);
    let sink = MemorySink::default();
    let sinks = vec![Box::new(sink.clone()) as Box<dyn Sink>, Box::new(Full)];
    let (cancel, monitor) = (CancelToken::new(), Arc::new(Monitor::default()));
    let sources = [source("orders", &orders, 10)];
    let ran = run(&engine(), &two, &sources, sinks, &options(None), &cancel, &monitor);
    let error = ran.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("no space left"), "{error:?}");
    assert!(!sink.0.lock().batches.is_empty() && !sink.0.lock().finished);
}
