//! The type of a column, from a sample of its values.
//!
//! A type is inferred only if every value of the sample can be had back from it: digits with zeroes
//! in front stay text, and so do whole numbers that no integer type has room for.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hasher},
};

use crate::{
    column_type::ColumnType,
    values::{is_code, parse_bool, parse_date, parse_f64, parse_i64, parse_timestamp, parse_u64},
};

/// What the fields of one column looked like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
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
    /// Counts a value, by how it is written.
    pub(crate) fn count(&mut self, written: &[u8]) {
        self.values += 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(written);
        self.distinct.insert(hasher.finish());
    }

    /// Looks at a value that may be anything.
    pub(crate) fn look_at_field(&mut self, text: &[u8]) {
        if is_code(text) {
            self.texts = true;
        } else if parse_bool(text).is_some() {
            self.bools = true;
        } else if !self.look_at_number(text) {
            self.look_at_text(text);
        }
    }

    /// Looks at a number, and answers whether it is one.
    pub(crate) fn look_at_number(&mut self, text: &[u8]) -> bool {
        if parse_i64(text).is_some() {
            self.signed = true;
            self.negative |= text.first() == Some(&b'-');
        } else if parse_u64(text).is_some() {
            self.large = true;
        } else if parse_f64(text).is_some() {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            match digits.iter().all(u8::is_ascii_digit) {
                true => self.huge = true,
                false => self.floats = true,
            }
        } else {
            return false;
        }
        true
    }

    /// Looks at text, which may be a day or a moment.
    pub(crate) fn look_at_text(&mut self, text: &[u8]) {
        let dated = text.first().is_some_and(u8::is_ascii_digit);
        match dated && text.len() == 10 && parse_date(text).is_some() {
            true => self.dates = true,
            false if dated && parse_timestamp(text).is_some() => self.timestamps = true,
            false => self.texts = true,
        }
    }

    /// Looks at `true` or `false`.
    pub(crate) fn look_at_bool(&mut self) {
        self.bools = true;
    }

    /// What was seen of the same column elsewhere.
    pub(crate) fn merge(&mut self, other: &Self) {
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
    pub(crate) fn column_type(&self) -> ColumnType {
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
    pub(crate) fn repeats(&self) -> bool {
        self.values >= 64 && self.distinct.len() * 4 <= self.values
    }
}
