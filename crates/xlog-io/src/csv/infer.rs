//! The types of columns, from a sample of their fields.
//!
//! A type is inferred only if every value of the sample can be had back from it: digits with zeroes
//! in front stay text, and so do whole numbers that no integer type has room for.

use std::{collections::HashSet, hash::BuildHasher};

use hashbrown::DefaultHashBuilder;

use super::{
    fields::{Fields, Reading, bare, is_code},
    index::{Dialect, Index},
};
use crate::{
    column_type::ColumnType,
    values::{parse_bool, parse_date, parse_f64, parse_i64, parse_timestamp, parse_u64},
};

/// What the fields of one column looked like.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    bools: bool,
    signed: bool,
    /// Whole numbers that only an unsigned integer has room for.
    large: bool,
    negative: bool,
    /// Whole numbers that no integer has room for.
    huge: bool,
    floats: bool,
    dates: bool,
    timestamps: bool,
    texts: bool,
    values: usize,
    distinct: HashSet<u64>,
}

impl Seen {
    /// Looks at one field.
    fn look(&mut self, reading: Reading<'_>, field: &[u8], hasher: &DefaultHashBuilder) {
        if !reading.is_quoted(field) && reading.is_null(field) {
            return;
        }
        self.values += 1;
        self.distinct.insert(hasher.hash_one(field));
        let Some(text) = bare(reading, field) else {
            // Space, or nothing in quotes: text if anything is.
            return;
        };
        if is_code(&text) {
            self.texts = true;
        } else if parse_i64(&text).is_some() {
            self.signed = true;
            self.negative |= text.first() == Some(&b'-');
        } else if parse_u64(&text).is_some() {
            self.large = true;
        } else if parse_f64(&text).is_some() {
            let digits = text.strip_prefix(b"-").unwrap_or(&text);
            match digits.iter().all(u8::is_ascii_digit) {
                true => self.huge = true,
                false => self.floats = true,
            }
        } else if parse_bool(&text).is_some() {
            self.bools = true;
        } else if parse_date(&text).is_some() && text.len() == 10 {
            self.dates = true;
        } else if parse_timestamp(&text).is_some() && text[0].is_ascii_digit() {
            self.timestamps = true;
        } else {
            self.texts = true;
        }
    }

    /// What was seen of the same column elsewhere.
    pub(super) fn merge(&mut self, other: &Self) {
        self.bools |= other.bools;
        self.signed |= other.signed;
        self.large |= other.large;
        self.negative |= other.negative;
        self.huge |= other.huge;
        self.floats |= other.floats;
        self.dates |= other.dates;
        self.timestamps |= other.timestamps;
        self.texts |= other.texts;
        self.values += other.values;
        self.distinct.extend(&other.distinct);
    }

    /// The narrowest type that has room for all of it without loss.
    pub(super) fn column_type(&self) -> ColumnType {
        let integers = self.signed || self.large || self.huge;
        let numbers = integers || self.floats;
        let times = self.dates || self.timestamps;
        if self.texts || u8::from(self.bools) + u8::from(numbers) + u8::from(times) != 1 {
            return ColumnType::Utf8;
        }
        match (self.floats, self.huge, self.large) {
            _ if self.bools => ColumnType::Bool,
            _ if self.timestamps => ColumnType::Timestamp,
            _ if self.dates => ColumnType::Date,
            (true, _, _) => ColumnType::F64,
            (_, true, _) => ColumnType::Utf8,
            (_, _, true) if self.negative => ColumnType::Utf8,
            (_, _, true) => ColumnType::U64,
            _ => ColumnType::I64,
        }
    }

    /// Whether strings come back often enough that each is better kept once.
    pub(super) fn repeats(&self) -> bool {
        self.values >= 64 && self.distinct.len() * 4 <= self.values
    }
}

/// What the columns of a table looked like.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) columns: Vec<Seen>,
    hasher: DefaultHashBuilder,
}

impl Sample {
    /// Nothing seen yet.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: vec![Seen::default(); columns], hasher: DefaultHashBuilder::default() }
    }

    /// Looks at the rows of a text that starts at the start of one and ends at the end of one, up
    /// to the first fault; the answer is whether there was none.
    pub(super) fn look(&mut self, text: &[u8], dialect: Dialect, nulls: &[String]) -> bool {
        let count = self.columns.len();
        let reading = Reading { quote: dialect.quote, nulls, checked: false };
        let mut index = Index::new(text, dialect, count, Vec::new());
        loop {
            let fault = index.advance(1024);
            for (column, seen) in self.columns.iter_mut().enumerate() {
                let fields = Fields::new(text, &index, count, column, reading);
                for row in 0..index.rows() {
                    seen.look(reading, fields.get(row), &self.hasher);
                }
            }
            if fault.is_some() || index.rows() == 0 {
                return fault.is_none();
            }
        }
    }

    /// Looks at a text from somewhere within a file, which may start in the middle of a row. Rows
    /// are taken only if all of them are well formed.
    pub(super) fn look_within(&mut self, text: &[u8], dialect: Dialect, nulls: &[String]) {
        let newlines = memchr::memchr_iter(b'\n', text);
        let Some(last) = memchr::memrchr(b'\n', text) else { return };
        // A newline may stand within quotes, so a few are tried as the end of a row.
        for first in newlines.take(8) {
            let Some(rows) = text.get(first + 1..=last) else { return };
            let mut within =
                Self { columns: vec![Seen::default(); self.columns.len()], ..self.clone() };
            if within.look(rows, dialect, nulls) {
                for (seen, other) in self.columns.iter_mut().zip(&within.columns) {
                    seen.merge(other);
                }
                return;
            }
        }
    }
}
