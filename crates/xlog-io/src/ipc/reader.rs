//! Reads Arrow IPC: files batch by batch, streams as they come.

use std::{
    fs::File,
    io::{BufReader, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow_array::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};

use crate::{
    admit::{admit, admitted_places, widen},
    choice::{agree, check_types},
    error::{FileError, FileResult},
    guard::guarded,
    ordered::{JobSource, Ordered},
    source::{Counted, Input, Stream},
    spec::InputSpec,
    traits::{BatchReader, ReadProgress},
};

/// The first bytes of a file; a stream has none of its own.
const FILE_MAGIC: &[u8] = b"ARROW1";

/// The batches of one or more Arrow files or streams.
#[derive(Debug)]
pub(crate) struct IpcReader {
    schema: SchemaRef,
    batches: Ordered<(RecordBatch, u64)>,
    progress: ReadProgress,
}

type Batches = Box<dyn RecordBatchReader + Send>;

/// An input that is open, and how many bytes of it were read.
type Opened = (Batches, Arc<AtomicU64>);

/// An input whose schema was read.
struct Surveyed {
    input: Input,
    places: Vec<usize>,
    fields: Vec<Field>,
    /// Open already, if it can be read only once.
    opened: Option<Opened>,
}

impl IpcReader {
    /// Reads the schema of every input.
    pub(crate) fn open(spec: &InputSpec, inputs: Vec<Input>) -> FileResult<Self> {
        let bytes_total = inputs.iter().map(|input| input.size).sum();
        let mut files = Vec::with_capacity(inputs.len());
        for input in inputs {
            files.push(Surveyed::new(spec, input)?);
        }
        let mut common: Vec<Field> = Vec::new();
        for (number, file) in files.iter().enumerate() {
            match number {
                0 => common.clone_from(&file.fields),
                _ => agree(&files[0].input.name, &common, &file.input.name, &file.fields)?,
            }
        }
        let first = files.first().map_or("input", |file| file.input.name.as_str());
        check_types(spec, first, &common)?;
        let schema = Arc::new(Schema::new(common));
        let wanted = Arc::clone(&schema);
        let source = Source {
            files: files.into_iter(),
            current: None,
            consumed_before: 0,
            name: String::new(),
        };
        let batches = Ordered::new(spec.threads(), source, || {
            let wanted = Arc::clone(&wanted);
            move |job: Job| job.admit(&wanted)
        });
        let progress = ReadProgress { bytes_read: 0, bytes_total };
        Ok(Self { schema, batches, progress })
    }
}

impl BatchReader for IpcReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>> {
        while let Some((batch, consumed)) = self.batches.next()? {
            self.progress.bytes_read = consumed;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        if let Some(total) = self.progress.bytes_total {
            self.progress.bytes_read = total;
        }
        Ok(None)
    }

    fn progress(&self) -> ReadProgress {
        self.progress
    }
}

impl Surveyed {
    fn new(spec: &InputSpec, input: Input) -> FileResult<Self> {
        let name = input.name.clone();
        let opened = open(&input, None)?;
        let schema = opened.0.schema();
        let places = admitted_places(spec, &name, &schema)?;
        let fields = places.iter().map(|place| {
            let field = schema.field(*place);
            Ok(Field::new(field.name(), admit(&name, field)?, true))
        });
        let fields = fields.collect::<FileResult<_>>()?;
        let opened = input.size.is_none().then_some(opened);
        Ok(Self { input, places, fields, opened })
    }
}

/// Opens a file or a stream, whichever it is, for the chosen columns or for all.
fn open(input: &Input, chosen: Option<Vec<usize>>) -> FileResult<Opened> {
    let name = &input.name;
    let mut stream = input.open()?;
    let consumed = stream.counter();
    let mut start = Vec::new();
    stream.read_onto(&mut start, FILE_MAGIC.len())?;
    let is_file = start == FILE_MAGIC;
    let counted = |raw: File| Counted { raw, consumed: Arc::clone(&consumed) };
    guarded(name, || {
        let opened: Result<Batches, ArrowError> = match (is_file, stream.compression) {
            (true, None) if input.size.is_some() => match input.open_file()? {
                Some(file) => boxed(FileReader::try_new(BufReader::new(counted(file)), chosen)),
                None => return Err(FileError::new(name, "it cannot be read twice")),
            },
            (true, _) => {
                while !stream.read_onto(&mut start, 1 << 20)? {}
                boxed(FileReader::try_new(Cursor::new(std::mem::take(&mut start)), chosen))
            }
            (false, _) => {
                let whole = Cursor::new(std::mem::take(&mut start)).chain(StreamBytes(stream));
                boxed(StreamReader::try_new(BufReader::new(whole), chosen))
            }
        };
        opened.map_err(|error| damaged(name, &error))
    })
    .map(|batches| (batches, consumed))
}

fn boxed<R: RecordBatchReader + Send + 'static>(
    opened: Result<R, ArrowError>,
) -> Result<Batches, ArrowError> {
    opened.map(|reader| Box::new(reader) as Batches)
}

/// An input as the crate that reads streams wants it.
struct StreamBytes(Stream);

impl Read for StreamBytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Batches as they stand in the inputs, one after the other.
struct Source {
    files: std::vec::IntoIter<Surveyed>,
    current: Option<(Surveyed, Opened)>,
    consumed_before: u64,
    name: String,
}

impl JobSource for Source {
    type Job = Job;

    fn next_job(&mut self) -> FileResult<Option<Job>> {
        loop {
            let Some((file, (batches, consumed))) = &mut self.current else {
                let Some(mut file) = self.files.next() else { return Ok(None) };
                self.name.clone_from(&file.input.name);
                let opened = match file.opened.take() {
                    Some(opened) => opened,
                    // Other columns are not even unpacked.
                    None => {
                        let chosen =
                            std::mem::replace(&mut file.places, (0..file.fields.len()).collect());
                        open(&file.input, Some(chosen))?
                    }
                };
                self.current = Some((file, opened));
                continue;
            };
            let name = file.input.name.clone();
            let next = guarded(&name, || {
                batches.next().transpose().map_err(|error| damaged(&name, &error))
            })?;
            if let Some(batch) = next {
                let places = file.places.clone();
                // What is read again, as the end of a file is, does not count twice.
                let read = consumed.load(Ordering::Relaxed);
                let read = read.min(file.input.size.unwrap_or(read));
                let consumed = self.consumed_before + read;
                return Ok(Some(Job { name, batch, places, consumed }));
            }
            self.consumed_before += file.input.size.unwrap_or(0);
            self.current = None;
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// A batch as it stands in its file.
struct Job {
    name: String,
    batch: RecordBatch,
    places: Vec<usize>,
    consumed: u64,
}

impl Job {
    fn admit(self, schema: &SchemaRef) -> FileResult<(RecordBatch, u64)> {
        let columns = self.places.iter().zip(schema.fields()).map(|(place, field)| {
            widen(self.batch.column(*place), field.data_type())
                .map_err(|why| FileError::new(&self.name, why).in_column(field.name()))
        });
        let columns = columns.collect::<FileResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
        Ok((batch.map_err(|error| damaged(&self.name, &error))?, self.consumed))
    }
}

fn damaged(name: &str, error: &ArrowError) -> FileError {
    let message = format!(
        "it cannot be read as Arrow ({error}); it may be cut off or damaged: write or fetch it \
         again"
    );
    FileError::new(name, message)
}
