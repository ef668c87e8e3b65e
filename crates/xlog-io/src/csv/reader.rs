//! Looks at CSV files, and starts reading them.

use std::sync::Arc;

use arrow_schema::{Field, Schema};

use super::{
    index::Dialect,
    infer::Sample,
    piece::{PieceReader, Plan, Wanted},
    preamble::{Preamble, guess_delimiter},
};
use crate::{
    choice::{given_type, wanted_places},
    columns::arrow_type,
    error::{FileError, FileResult},
    format::Format,
    source::Input,
    spec::{CsvOptions, InputSpec},
    text::{HEAD_BYTES, Opened, TextReader, last_row_end, samples_within},
};

/// Looks at the start of every input, infers what is not given, and starts reading.
pub(crate) fn open_csv(
    spec: &InputSpec,
    inputs: Vec<Input>,
    delimiter: Option<u8>,
) -> FileResult<TextReader> {
    let mut survey = Survey::new(spec, delimiter)?;
    let mut opened = Vec::with_capacity(inputs.len());
    for input in inputs {
        opened.push(survey.look(input)?);
    }
    let dialect = survey.dialect();
    let plan = Arc::new(survey.plan(spec)?);
    let schema = Arc::clone(&plan.schema);
    let options = spec.csv.clone();
    let start_of = move |file: &str, head: &[u8], whole: bool| {
        let preamble = Preamble::read(file, head, whole, dialect, &options)?;
        Ok((preamble.bytes, preamble.lines))
    };
    let worker = || PieceReader::new(Arc::clone(&plan));
    TextReader::start(spec, schema, opened, Box::new(start_of), dialect.quote, worker)
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
                "{shown:?} cannot be a delimiter or quote; give an ASCII character that ends no \
                 line"
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
        if let Some(other) = Format::of_magic(&head).filter(|other| other.is_binary()) {
            let message =
                format!("it is {other}, and no text; name it with --input-format {other}");
            return Err(FileError::new(&input.name, message));
        }
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
            for text in samples_within(&input)? {
                self.sample.look_within(&text, dialect, &self.options.nulls);
            }
        }
        let head = input.size.is_none().then_some((head, over, stream));
        Ok(Opened { input, head })
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
