//! Reads Parquet, its row groups side by side.

use std::{collections::VecDeque, fs::File, sync::Arc};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
            ParquetRecordBatchReaderBuilder,
        },
    },
    basic::Compression,
    file::{metadata::ParquetMetaData, reader::ChunkReader},
};

use crate::{
    admit::{admit, admitted_places, widen},
    choice::{agree, check_types},
    column_type::ColumnType,
    columns::text_dictionary,
    error::{FileError, FileResult},
    guard::guarded,
    ordered::{JobSource, Ordered},
    source::Input,
    spec::InputSpec,
    traits::{BatchReader, ReadProgress},
};

/// Rows of a batch at most.
const ROWS: usize = 1 << 18;

/// The batches of one or more Parquet files.
#[derive(Debug)]
pub(crate) struct ParquetReader {
    schema: SchemaRef,
    groups: Ordered<Group>,
    waiting: VecDeque<RecordBatch>,
    progress: ReadProgress,
    rows: u64,
}

/// A row group that was read.
struct Group {
    batches: VecDeque<RecordBatch>,
    bytes: u64,
}

/// A file whose footer was read.
struct Surveyed {
    input: Input,
    /// What cannot be read in any order is in memory.
    contents: Option<Bytes>,
    metadata: Arc<ParquetMetaData>,
    schema: SchemaRef,
    places: Vec<usize>,
}

impl ParquetReader {
    /// Reads the footer of every input.
    pub(crate) fn open(spec: &InputSpec, inputs: Vec<Input>) -> FileResult<Self> {
        let bytes_total = inputs.iter().map(|input| input.size).sum();
        let mut files = Vec::with_capacity(inputs.len());
        for input in inputs {
            files.push(Surveyed::new(spec, input)?);
        }
        let schema = common_schema(spec, &files)?;
        let rows = files.iter().map(|file| file.metadata.file_metadata().num_rows() as u64).sum();
        let (threads, wanted) = (spec.threads(), Arc::clone(&schema));
        let source = Groups::new(files, &schema)?;
        let groups = Ordered::new(threads, source, || {
            let wanted = Arc::clone(&wanted);
            move |job: Job| job.read(&wanted)
        });
        let progress = ReadProgress { bytes_read: 0, bytes_total };
        Ok(Self { schema, groups, waiting: VecDeque::new(), progress, rows })
    }

    /// How many rows the files say they have.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
}

impl BatchReader for ParquetReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>> {
        while self.waiting.is_empty() {
            let Some(group) = self.groups.next()? else {
                if let Some(total) = self.progress.bytes_total {
                    self.progress.bytes_read = total;
                }
                return Ok(None);
            };
            self.progress.bytes_read += group.bytes;
            self.waiting = group.batches;
        }
        Ok(self.waiting.pop_front())
    }

    fn progress(&self) -> ReadProgress {
        self.progress
    }
}

impl Surveyed {
    fn new(spec: &InputSpec, input: Input) -> FileResult<Self> {
        let name = input.name.clone();
        let contents = input.contents()?;
        let metadata = guarded(&name, || {
            let options = ArrowReaderOptions::new();
            let loaded = match (&contents, input.open_file()?) {
                (None, Some(file)) => ArrowReaderMetadata::load(&file, options),
                (contents, _) => {
                    ArrowReaderMetadata::load(&contents.clone().unwrap_or_default(), options)
                }
            };
            loaded.map_err(|error| damaged(&name, &error))
        })?;
        let schema = Arc::clone(metadata.schema());
        let places = admitted_places(spec, &name, &schema)?;
        let groups = metadata.metadata().row_groups().iter();
        let other = groups.flat_map(|group| group.columns()).find_map(|column| {
            match column.compression() {
                Compression::BROTLI(_) => Some("Brotli"),
                Compression::LZO => Some("LZO"),
                _ => None,
            }
        });
        if let Some(other) = other {
            let message = format!(
                "it is compressed with {other}, which is not supported; write it with Snappy or \
                 Zstandard"
            );
            return Err(FileError::new(name, message));
        }
        Ok(Self { input, contents, metadata: Arc::clone(metadata.metadata()), schema, places })
    }

    /// Whether a column is text that every row group keeps few distinct values of.
    fn repeats(&self, place: usize) -> bool {
        let is_text = matches!(
            self.schema.field(place).data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        let parquet = self.metadata.file_metadata().schema_descr();
        let leaf =
            (0..parquet.num_columns()).find(|leaf| parquet.get_column_root_idx(*leaf) == place);
        is_text
            && leaf.is_some_and(|leaf| {
                self.metadata.row_groups().iter().all(|group| {
                    let column = group.column(leaf);
                    // Codes take a few bits a row; text written out takes bytes.
                    column.dictionary_page_offset().is_some()
                        && column.uncompressed_size() <= column.num_values().saturating_mul(4)
                })
            })
    }
}

/// The columns of all files, which must agree.
fn common_schema(spec: &InputSpec, files: &[Surveyed]) -> FileResult<SchemaRef> {
    let mut common: Vec<Field> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let mut fields = Vec::with_capacity(file.places.len());
        for place in &file.places {
            let field = file.schema.field(*place);
            let admitted = admit(&file.input.name, field)?;
            fields.push(Field::new(field.name(), admitted, true));
        }
        match number {
            0 => common = fields,
            _ => agree(&files[0].input.name, &common, &file.input.name, &fields)?,
        }
    }
    for (number, field) in common.iter_mut().enumerate() {
        if files.iter().all(|file| file.repeats(file.places[number])) {
            *field = Field::new(field.name(), text_dictionary(), true);
        } else if ColumnType::of_arrow(field.data_type()) == Some(ColumnType::Utf8) {
            // Files may lay text out in different ways.
            let first = field.data_type().clone();
            let same = files
                .iter()
                .all(|file| *file.schema.field(file.places[number]).data_type() == first);
            let data_type = if same { first } else { DataType::Utf8 };
            *field = Field::new(field.name(), data_type, true);
        }
    }
    let first = files.first().map_or("input", |file| file.input.name.as_str());
    check_types(spec, first, &common)?;
    Ok(Arc::new(Schema::new(common)))
}

/// Row groups, one after the other.
struct Groups {
    jobs: std::vec::IntoIter<Job>,
    name: String,
}

impl Groups {
    fn new(files: Vec<Surveyed>, wanted: &SchemaRef) -> FileResult<Self> {
        let name = files.first().map_or_else(String::new, |file| file.input.name.clone());
        let mut jobs = Vec::new();
        for file in files {
            // Text is asked for in the layout that the engine wants it in.
            let hinted = file.schema.fields().iter().enumerate().map(|(place, field)| {
                let number = file.places.iter().position(|wanted| *wanted == place);
                let wanted = number.map(|number| wanted.field(number).data_type());
                let text = wanted.filter(|t| ColumnType::of_arrow(t) == Some(ColumnType::Utf8));
                match text.filter(|_| *field.data_type() != DataType::Null) {
                    Some(text) => field.as_ref().clone().with_data_type(text.clone()),
                    None => field.as_ref().clone(),
                }
            });
            let hinted = Arc::new(Schema::new(hinted.collect::<Vec<_>>()));
            let options = ArrowReaderOptions::new().with_schema(hinted);
            let name = &file.input.name;
            let metadata = ArrowReaderMetadata::try_new(Arc::clone(&file.metadata), options)
                .map_err(|error| damaged(name, &error))?;
            for group in 0..file.metadata.num_row_groups() {
                jobs.push(Job {
                    input: file.input.clone(),
                    contents: file.contents.clone(),
                    metadata: metadata.clone(),
                    places: file.places.clone(),
                    group,
                });
            }
        }
        Ok(Self { jobs: jobs.into_iter(), name })
    }
}

impl JobSource for Groups {
    type Job = Job;

    fn next_job(&mut self) -> FileResult<Option<Job>> {
        Ok(self.jobs.next())
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// One row group to read.
struct Job {
    input: Input,
    contents: Option<Bytes>,
    metadata: ArrowReaderMetadata,
    places: Vec<usize>,
    group: usize,
}

impl Job {
    fn read(self, schema: &SchemaRef) -> FileResult<Group> {
        let name = self.input.name.clone();
        guarded(&name, || match (&self.contents, self.input.open_file()?) {
            // Each thread has the file open for itself: a file has one place it is read from.
            (None, Some(file)) => self.read_from::<File>(file, schema),
            (contents, _) => self.read_from(contents.clone().unwrap_or_default(), schema),
        })
    }

    fn read_from<R: ChunkReader + 'static>(
        &self,
        reader: R,
        schema: &SchemaRef,
    ) -> FileResult<Group> {
        let name = &self.input.name;
        let group = self.metadata.metadata().row_group(self.group);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let mask =
            ProjectionMask::roots(self.metadata.parquet_schema(), self.places.iter().copied());
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(reader, self.metadata.clone());
        let reader: ParquetRecordBatchReader = builder
            .with_row_groups(vec![self.group])
            .with_projection(mask)
            .with_batch_size(rows.clamp(1, ROWS))
            .build()
            .map_err(|error| damaged(name, &error))?;
        let mut batches = VecDeque::new();
        for batch in reader {
            let batch = batch.map_err(|error| damaged(name, &error))?;
            let columns = batch.columns().iter().zip(schema.fields()).map(|(array, field)| {
                widen(array, field.data_type())
                    .map_err(|why| FileError::new(name, why).in_column(field.name()))
            });
            let columns = columns.collect::<FileResult<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
            batches.push_back(batch.map_err(|error| damaged(name, &error))?);
        }
        let read: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if read != rows {
            let message = format!("a row group has {read} rows and promises {rows}; {DAMAGED}");
            return Err(FileError::new(name, message));
        }
        batches.retain(|batch| batch.num_rows() > 0);
        let bytes = u64::try_from(group.compressed_size()).unwrap_or(0);
        Ok(Group { batches, bytes })
    }
}

const DAMAGED: &str = "it may be cut off or damaged: write or fetch it again";

fn damaged(name: &str, error: &dyn std::fmt::Display) -> FileError {
    let text = error.to_string();
    let reason = ["Parquet error: ", "EOF: ", "External: ", "Arrow: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.trim_start_matches(prefix));
    FileError::new(name, format!("it cannot be read as Parquet ({reason}); {DAMAGED}"))
}
