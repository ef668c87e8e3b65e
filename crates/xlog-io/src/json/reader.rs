//! Looks at files of JSON lines, and reads them.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};

use super::object::{Refusal, each_value, string_text};
use crate::{
    choice::{given_type, wanted_places},
    column_type::ColumnType,
    columns::{Builder, Seen, TextSink, arrow_type},
    error::{FileError, FileResult},
    source::Input,
    spec::InputSpec,
    text::{
        HEAD_BYTES, Opened, PieceWork, TextReader, check_encoding, last_row_end, samples_within,
        shown,
    },
    values::{
        parse_date, parse_f32, parse_f64, parse_i32, parse_i64, parse_timestamp, parse_u32,
        parse_u64,
    },
};

/// Looks at every input, infers what is not given, and starts reading.
pub(crate) fn open_json_lines(spec: &InputSpec, inputs: Vec<Input>) -> FileResult<TextReader> {
    let mut survey = Survey::default();
    let first = inputs.first().map_or_else(String::new, |input| input.name.clone());
    let mut opened = Vec::with_capacity(inputs.len());
    for input in inputs {
        opened.push(survey.look(input)?);
    }
    // A column that the sample did not show is there if somebody says what it is.
    for (name, _) in &spec.types {
        survey.seen(name);
    }
    if survey.names.is_empty() {
        return Err(FileError::new(first, "it has no objects, so its columns are not known"));
    }
    let plan = Arc::new(survey.plan(spec, &first)?);
    let schema = Arc::clone(&plan.schema);
    let start_of = |file: &str, head: &[u8], _: bool| Ok((check_encoding(file, head)?, 0));
    let worker = || ObjectReader { plan: Arc::clone(&plan) };
    TextReader::start(spec, schema, opened, Box::new(start_of), None, worker)
}

/// What the inputs look like.
#[derive(Default)]
struct Survey {
    names: Vec<String>,
    columns: Vec<Seen>,
    places: HashMap<String, usize>,
}

impl Survey {
    fn look(&mut self, input: Input) -> FileResult<Opened> {
        let mut stream = input.open()?;
        let mut head = Vec::new();
        let over = stream.read_onto(&mut head, HEAD_BYTES)?;
        let start = check_encoding(&input.name, &head)?;
        let end =
            if over { head.len() } else { last_row_end(&head, None).map_or(0, |end| end + 1) };
        if head[start..].trim_ascii_start().first() == Some(&b'[') {
            let message = "it starts with a list; JSON lines are one object on each line, as \
                           jq -c '.[]' writes them";
            return Err(FileError::new(&input.name, message));
        }
        self.look_at(head.get(start..end).unwrap_or(&[]));
        if !over && stream.compression.is_none() {
            for text in samples_within(&input)? {
                let start = memchr::memchr(b'\n', &text).map_or(text.len(), |end| end + 1);
                let end = memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1);
                self.look_at(text.get(start..end).unwrap_or(&[]));
            }
        }
        let head = input.size.is_none().then_some((head, over, stream));
        Ok(Opened { input, head })
    }

    /// Looks at whole lines. What is wrong with them shows when they are read.
    fn look_at(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !is_blank(line)) {
            let _ = each_value(line, &mut |name, written| {
                let seen = self.seen(name);
                match written.as_bytes().first() {
                    Some(b'n') => return Ok(()),
                    Some(b't' | b'f') => seen.look_at_bool(),
                    Some(b'"') => {
                        let text = string_text(written).unwrap_or_default();
                        seen.look_at_text(text.as_bytes());
                    }
                    Some(b'[' | b'{') => {}
                    _ => {
                        seen.look_at_number(written.as_bytes());
                    }
                }
                seen.count(written.as_bytes());
                Ok(())
            });
        }
    }

    fn seen(&mut self, name: &str) -> &mut Seen {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => {
                let place = self.names.len();
                self.names.push(name.to_owned());
                self.columns.push(Seen::default());
                self.places.insert(name.to_owned(), place);
                place
            }
        };
        &mut self.columns[place]
    }

    fn plan(&self, spec: &InputSpec, first: &str) -> FileResult<Plan> {
        let mut columns = Vec::new();
        for place in wanted_places(spec, first, &self.names)? {
            let (name, seen) = (&self.names[place], &self.columns[place]);
            let given = given_type(spec, name);
            columns.push(Column {
                name: name.clone(),
                column_type: given.unwrap_or_else(|| seen.column_type()),
                inferred: given.is_none(),
                dictionary: seen.repeats(),
            });
        }
        let fields: Vec<Field> = columns
            .iter()
            .map(|c| Field::new(&c.name, arrow_type(c.column_type, c.dictionary), true))
            .collect();
        let places = columns.iter().enumerate();
        Ok(Plan {
            places: places.map(|(place, column)| (column.name.clone(), place)).collect(),
            columns,
            all: spec.columns.is_none(),
            schema: Arc::new(Schema::new(fields)),
        })
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

/// A column that is read.
struct Column {
    name: String,
    column_type: ColumnType,
    inferred: bool,
    dictionary: bool,
}

/// How every line is read.
struct Plan {
    columns: Vec<Column>,
    places: HashMap<String, usize>,
    /// Every key is wanted, so one that is not known is an error.
    all: bool,
    schema: SchemaRef,
}

/// Reads pieces of a file.
struct ObjectReader {
    plan: Arc<Plan>,
}

impl PieceWork for ObjectReader {
    fn read(&mut self, file: &str, text: &[u8]) -> FileResult<RecordBatch> {
        let plan = &self.plan;
        let mut builders: Vec<Builder> =
            plan.columns.iter().map(|c| Builder::new(c.column_type, c.dictionary)).collect();
        // The last row that each column has a value of, counted from 1.
        let mut filled = vec![0; builders.len()];
        let mut rows = 0;
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            if is_blank(line) {
                continue;
            }
            rows += 1;
            let mut next = 0;
            let read = each_value(line, &mut |name, written| {
                // Keys mostly come in the same order on every line.
                let place = match plan.columns.get(next) {
                    Some(column) if column.name == name => next,
                    _ => match plan.places.get(name) {
                        Some(place) => *place,
                        None if plan.all => return Err(unknown(name)),
                        None => return Ok(()),
                    },
                };
                next = place + 1;
                if std::mem::replace(&mut filled[place], rows) == rows {
                    let message = "its key stands on the line twice; leave one out".into();
                    return Err(Refusal { column: Some(name.to_owned()), message });
                }
                plan.columns[place].push(written, &mut builders[place])
            });
            read.map_err(|Refusal { column, message }| {
                let error = FileError::new(file, message).at_line(number);
                column.into_iter().fold(error, FileError::in_column)
            })?;
            for (builder, filled) in builders.iter_mut().zip(&mut filled) {
                if *filled < rows {
                    builder.push_missing();
                    *filled = rows;
                }
            }
        }
        let columns = builders.into_iter().map(Builder::finish).collect::<Result<_, _>>();
        let columns = columns.map_err(|message| FileError::new(file, message))?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&plan.schema), columns, &options)
            .map_err(|error| FileError::new(file, error.to_string()))
    }
}

fn unknown(name: &str) -> Refusal {
    let message = format!(
        "a sample of the file did not show this key; give its type, as with --type {name}=utf8"
    );
    Refusal { column: Some(name.to_owned()), message }
}

impl Column {
    /// Adds a value as it is written.
    fn push(&self, written: &str, builder: &mut Builder) -> Result<(), Refusal> {
        let bytes = written.as_bytes();
        let first = bytes.first().copied().unwrap_or(b'n');
        if first == b'n' {
            builder.push_missing();
            return Ok(());
        }
        if matches!(first, b'[' | b'{') {
            let message =
                "lists and objects within a row are not supported; leave the column out".into();
            return Err(Refusal { column: Some(self.name.clone()), message });
        }
        let bad = || self.bad(written);
        let number = || if first == b'"' || first == b't' || first == b'f' { &[] } else { bytes };
        let text = || if first == b'"' { string_text(written) } else { None };
        let moment = || text().ok_or_else(bad);
        match builder {
            Builder::Bool(column) => match first {
                b't' | b'f' => column.push(first == b't'),
                _ => return Err(bad()),
            },
            Builder::U32(column) => column.push(parse_u32(number()).ok_or_else(bad)?),
            Builder::U64(column) => column.push(parse_u64(number()).ok_or_else(bad)?),
            Builder::I32(column) => column.push(parse_i32(number()).ok_or_else(bad)?),
            Builder::I64(column) => column.push(parse_i64(number()).ok_or_else(bad)?),
            Builder::F32(column) => column.push(parse_f32(number()).ok_or_else(bad)?),
            Builder::F64(column) => column.push(parse_f64(number()).ok_or_else(bad)?),
            Builder::Date(column) => {
                column.push(parse_date(moment()?.as_bytes()).ok_or_else(bad)?);
            }
            Builder::Timestamp(column) => {
                column.push(parse_timestamp(moment()?.as_bytes()).ok_or_else(bad)?);
            }
            // In a column of text, what is no string is the text it is written as.
            Builder::Text(column) => match text() {
                Some(text) => column.push(text.as_bytes()),
                None if bytes.starts_with(b"\"") => return Err(bad()),
                None => column.push(bytes),
            },
            Builder::Dictionary(column) => match text() {
                Some(text) => column.push(text.as_bytes()),
                None if bytes.starts_with(b"\"") => return Err(bad()),
                None => column.push(bytes),
            },
        }
        Ok(())
    }

    fn bad(&self, written: &str) -> Refusal {
        let Self { name, column_type, inferred, .. } = self;
        let from = match inferred {
            true => "which was inferred from a sample of the file",
            false => "which was given as the column's type",
        };
        let integer = matches!(
            column_type,
            ColumnType::I32 | ColumnType::I64 | ColumnType::U32 | ColumnType::U64
        );
        let real = written.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let better = if integer && real { ColumnType::F64 } else { ColumnType::Utf8 };
        let message = format!(
            "{} is no {column_type}, {from}; give another type with --type {name}={better}",
            shown(written.as_bytes())
        );
        Refusal { column: Some(name.clone()), message }
    }
}
