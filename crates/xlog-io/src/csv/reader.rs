//! Reads CSV in batches, on several threads.

use std::{
    io::{Read, Seek, SeekFrom},
    sync::Arc,
};

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use parking_lot::Mutex;

use super::{
    index::Dialect,
    infer::Sample,
    piece::{PieceReader, Plan, Wanted, line_of},
    preamble::{Preamble, guess_delimiter},
    split::{HEAD_BYTES, Opened, Piece, Spare, Splitter, last_row_end},
};
use crate::{
    choice::{given_type, wanted_places},
    columns::arrow_type,
    error::{FileError, FileResult},
    ordered::Ordered,
    source::Input,
    spec::{CsvOptions, InputSpec},
    traits::{BatchReader, ReadProgress},
};

/// Bytes of a sample from within a file, and how many of those there are.
const SAMPLE_BYTES: u64 = 32 << 10;
const SAMPLES: u64 = 8;

/// The batches of one or more CSV files.
#[derive(Debug)]
pub(crate) struct CsvReader {
    schema: SchemaRef,
    pieces: Ordered<PieceResult>,
    progress: ReadProgress,
    /// Lines of the current file before the next piece.
    lines: u64,
}

/// A piece that was read, well or not.
struct PieceResult {
    first_after: Option<u64>,
    lines: u64,
    consumed: u64,
    batch: FileResult<RecordBatch>,
}

impl CsvReader {
    /// Looks at the start of every input and infers what is not given.
    pub(crate) fn open(
        spec: &InputSpec,
        inputs: Vec<Input>,
        delimiter: Option<u8>,
    ) -> FileResult<Self> {
        let bytes_total = inputs.iter().map(|input| input.size).sum();
        let mut survey = Survey::new(spec, delimiter)?;
        let mut opened = Vec::with_capacity(inputs.len());
        for input in inputs {
            opened.push(survey.look(input)?);
        }
        let dialect = survey.dialect();
        let plan = Arc::new(survey.plan(spec)?);
        let schema = Arc::clone(&plan.schema);
        let spare: Spare = Arc::new(Mutex::new(Vec::new()));
        let source = Splitter {
            inputs: opened.into_iter(),
            options: spec.csv.clone(),
            dialect,
            block_bytes: spec.block_bytes,
            spare: Arc::clone(&spare),
            current: None,
            consumed_before: 0,
        };
        let pieces = Ordered::start(spec.threads(), source, || {
            let mut reader = PieceReader::new(Arc::clone(&plan));
            let spare = Arc::clone(&spare);
            move |piece: Piece| {
                let batch = match piece.too_long {
                    false => reader.read(&piece.file, &piece.text),
                    true => Err(FileError::new(&*piece.file, TOO_LONG).at_line(1)),
                };
                let lines = line_of(&piece.text, piece.text.len()) - 1;
                let Piece { first_after, consumed, text, .. } = piece;
                spare.lock().push(text);
                Ok(PieceResult { first_after, lines, consumed, batch })
            }
        })?;
        let progress = ReadProgress { bytes_read: 0, bytes_total };
        Ok(Self { schema, pieces, progress, lines: 0 })
    }
}

const TOO_LONG: &str = "a row that starts here is longer than 64 MiB; if a quote in it is not \
    closed, close it, or switch quotes off with --quote none";

impl BatchReader for CsvReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>> {
        while let Some(read) = self.pieces.next()? {
            self.lines = read.first_after.unwrap_or(self.lines);
            self.progress.bytes_read = read.consumed;
            let batch = read.batch.map_err(|mut error| {
                self.pieces.stop();
                error.line = error.line.map(|line| line + self.lines);
                error
            })?;
            self.lines += read.lines;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn progress(&self) -> ReadProgress {
        self.progress
    }
}

/// What the inputs look like.
struct Survey<'s> {
    options: &'s CsvOptions,
    delimiter: Option<u8>,
    names: Vec<String>,
    first_file: String,
    sample: Sample,
}

impl<'s> Survey<'s> {
    fn new(spec: &'s InputSpec, delimiter: Option<u8>) -> FileResult<Self> {
        let quote = spec.csv.quote;
        let name = || spec.paths.join(", ");
        let allowed = |byte: u8| byte.is_ascii() && !matches!(byte, 0 | b'\n' | b'\r');
        if let Some(bad) = delimiter.into_iter().chain(quote).find(|byte| !allowed(*byte)) {
            let shown = char::from(bad);
            let message = format!(
                "{shown:?} cannot be a delimiter or quote; give an ASCII character that ends no line"
            );
            return Err(FileError::new(name(), message));
        }
        if delimiter.is_some() && delimiter == quote {
            return Err(FileError::new(name(), "delimiter and quote must differ; change one"));
        }
        Ok(Self {
            options: &spec.csv,
            delimiter,
            names: Vec::new(),
            first_file: String::new(),
            sample: Sample::new(0),
        })
    }

    fn dialect(&self) -> Dialect {
        Dialect { delimiter: self.delimiter.unwrap_or(b','), quote: self.options.quote }
    }

    /// Looks at one input.
    fn look(&mut self, input: Input) -> FileResult<Opened> {
        let mut stream = input.open()?;
        let mut head = Vec::new();
        let over = stream.read_onto(&mut head, HEAD_BYTES)?;
        let quote = self.options.quote;
        self.delimiter = self.delimiter.or_else(|| Some(guess_delimiter(&head, quote)));
        let dialect = self.dialect();
        let preamble = Preamble::read(&input.name, &head, over, dialect, self.options)?;
        if self.first_file.is_empty() {
            self.first_file.clone_from(&input.name);
            self.sample = Sample::new(preamble.names.len());
            self.names = preamble.names;
        } else if self.names != preamble.names {
            let message = format!(
                "its columns are {}, those of {} are {}; read files with the same columns together",
                preamble.names.join(", "),
                self.first_file,
                self.names.join(", "),
            );
            return Err(FileError::new(&input.name, message));
        }
        let mut rows = head[preamble.bytes..].to_vec();
        if !over {
            rows.truncate(last_row_end(&rows, quote).map_or(0, |end| end + 1));
        } else if rows.last().is_some_and(|last| *last != b'\n') {
            rows.push(b'\n');
        }
        self.sample.look(&rows, dialect, &self.options.nulls);
        if !over && stream.compression.is_none() {
            self.look_within(&input)?;
        }
        let head = input.size.is_none().then_some((head, over, stream));
        Ok(Opened { input, head })
    }

    /// Looks at places all over a file, so that a column whose first rows are alike does not get a
    /// type that its last rows contradict.
    fn look_within(&mut self, input: &Input) -> FileResult<()> {
        let (Some(mut file), Some(size)) = (input.open_file()?, input.size) else { return Ok(()) };
        let dialect = self.dialect();
        let beyond = size.saturating_sub(HEAD_BYTES as u64);
        for number in 1..=SAMPLES {
            let end = HEAD_BYTES as u64 + beyond * number / SAMPLES;
            let start = end.saturating_sub(SAMPLE_BYTES);
            let mut text = Vec::new();
            let read = file
                .seek(SeekFrom::Start(start))
                .and_then(|_| (&mut file).take(SAMPLE_BYTES).read_to_end(&mut text));
            read.map_err(|error| input.io(&error))?;
            if number == SAMPLES && text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            self.sample.look_within(&text, dialect, &self.options.nulls);
        }
        Ok(())
    }

    /// How to read what was looked at.
    fn plan(&self, spec: &InputSpec) -> FileResult<Plan> {
        let places = wanted_places(spec, &self.first_file, &self.names)?;
        let wanted: Vec<Wanted> = places
            .into_iter()
            .map(|place| {
                let (name, seen) = (self.names[place].clone(), &self.sample.columns[place]);
                let given = given_type(spec, &name);
                Wanted {
                    place,
                    column_type: given.unwrap_or_else(|| seen.column_type()),
                    inferred: given.is_none(),
                    dictionary: seen.repeats(),
                    name,
                }
            })
            .collect();
        let fields: Vec<Field> = wanted
            .iter()
            .map(|w| Field::new(&w.name, arrow_type(w.column_type, w.dictionary), true))
            .collect();
        Ok(Plan {
            dialect: self.dialect(),
            nulls: self.options.nulls.clone(),
            columns: self.names.len(),
            wanted,
            schema: Arc::new(Schema::new(fields)),
        })
    }
}
