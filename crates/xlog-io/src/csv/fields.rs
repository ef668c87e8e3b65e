//! The fields of one column, and how they become values.

use std::borrow::Cow;

use super::index::{Index, skip_empty_lines};
use crate::{
    columns::{Builder, Plain, TextSink},
    values::{
        is_code, parse_bool, parse_date, parse_f32, parse_f64, parse_i32, parse_i64,
        parse_timestamp, parse_u32, parse_u64,
    },
};

/// How fields are read, whatever their column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'r> {
    pub(super) quote: Option<u8>,
    /// Texts that stand for no value, besides the empty one.
    pub(super) nulls: &'r [String],
    /// The text is known to be UTF-8.
    pub(super) checked: bool,
}

impl Reading<'_> {
    /// Whether a field without quotes stands for no value.
    #[inline]
    pub(super) fn is_null(self, field: &[u8]) -> bool {
        field.is_empty() || self.nulls.iter().any(|null| null.as_bytes() == field)
    }

    /// Whether a field stands in quotes.
    #[inline]
    pub(super) fn is_quoted(self, field: &[u8]) -> bool {
        self.quote.is_some() && field.first().copied() == self.quote
    }

    /// What stands within the quotes of a field.
    pub(super) fn unquoted<'f>(self, field: &'f [u8]) -> Cow<'f, [u8]> {
        let quote = self.quote.unwrap_or(b'"');
        let inner = field.get(1..field.len().saturating_sub(1)).unwrap_or(&[]);
        if memchr::memchr(quote, inner).is_none() {
            return Cow::Borrowed(inner);
        }
        let mut text = Vec::with_capacity(inner.len());
        let mut rest = inner;
        while let Some(place) = memchr::memchr(quote, rest) {
            text.extend_from_slice(&rest[..=place]);
            rest = rest.get(place + 2..).unwrap_or(&[]);
        }
        text.extend_from_slice(rest);
        Cow::Owned(text)
    }
}

/// The text a number, date or bool is read from: without quotes, and without space around it.
pub(super) fn bare<'f>(reading: Reading<'_>, field: &'f [u8]) -> Option<Cow<'f, [u8]>> {
    if reading.is_quoted(field) {
        let text = match reading.unquoted(field) {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
            Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_vec()),
        };
        // In quotes, a text that stands for a missing value elsewhere is that text.
        return (!text.is_empty()).then_some(text);
    }
    let text = field.trim_ascii();
    (!reading.is_null(field) && !reading.is_null(text)).then_some(Cow::Borrowed(text))
}

/// One column of the rows of an index.
#[derive(Clone, Copy)]
pub(super) struct Fields<'f> {
    text: &'f [u8],
    ends: &'f [u32],
    columns: usize,
    column: usize,
    rows: usize,
    reading: Reading<'f>,
}

impl<'f> Fields<'f> {
    pub(super) fn new(
        text: &'f [u8],
        index: &'f Index<'_>,
        columns: usize,
        column: usize,
        reading: Reading<'f>,
    ) -> Self {
        Self { text, ends: index.ends(), columns, column, rows: index.rows(), reading }
    }

    /// A field as it stands in the text.
    #[inline(always)]
    pub(super) fn get(&self, row: usize) -> &'f [u8] {
        let place = row * self.columns + self.column;
        let mut start = self.ends[place].wrapping_add(1) as usize;
        let mut end = self.ends[place + 1] as usize;
        if self.column == 0 {
            start = skip_empty_lines(self.text, start, self.columns);
        }
        if self.column + 1 == self.columns && end > start && self.text.get(end - 1) == Some(&b'\r')
        {
            end -= 1;
        }
        self.text.get(start..end).unwrap_or(&[])
    }

    /// Reads every field into a column. The answer is the first row that cannot be read.
    /// `strict` is for types that were inferred: digits that look like a code are refused.
    pub(super) fn read_into(self, builder: &mut Builder, strict: bool) -> Option<usize> {
        match builder {
            Builder::Bool(column) => self.values(column, parse_bool),
            Builder::U32(column) => self.numbers(column, strict, parse_u32),
            Builder::U64(column) => self.numbers(column, strict, parse_u64),
            Builder::I32(column) => self.numbers(column, strict, parse_i32),
            Builder::I64(column) => self.numbers(column, strict, parse_i64),
            Builder::F32(column) => self.numbers(column, strict, parse_f32),
            Builder::F64(column) => self.numbers(column, strict, parse_f64),
            Builder::Date(column) => self.values(column, parse_date),
            Builder::Timestamp(column) => self.values(column, parse_timestamp),
            Builder::Text(column) => self.texts(column),
            Builder::Dictionary(column) => self.texts(column),
        }
    }

    fn numbers<T: Copy + Default>(
        self,
        column: &mut Plain<T>,
        strict: bool,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<usize> {
        match strict {
            true => self.values(column, |text| if is_code(text) { None } else { parse(text) }),
            false => self.values(column, parse),
        }
    }

    #[inline(always)]
    fn values<T: Copy + Default>(
        self,
        column: &mut Plain<T>,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<usize> {
        for row in 0..self.rows {
            let field = self.get(row);
            if field.is_empty() {
                column.push_missing();
                continue;
            }
            if !self.reading.is_quoted(field)
                && let Some(value) = parse(field)
                // A text that stands for no value may be one of the type's own.
                && (self.reading.nulls.is_empty() || !self.reading.is_null(field))
            {
                column.push(value);
                continue;
            }
            match bare(self.reading, field) {
                None => column.push_missing(),
                Some(text) => match parse(&text) {
                    Some(value) => column.push(value),
                    None => return Some(row),
                },
            }
        }
        None
    }

    fn texts(self, column: &mut impl TextSink) -> Option<usize> {
        for row in 0..self.rows {
            let field = self.get(row);
            if self.reading.is_quoted(field) {
                let text = self.reading.unquoted(field);
                if !self.reading.checked && std::str::from_utf8(&text).is_err() {
                    return Some(row);
                }
                column.push(&text);
            } else if self.reading.is_null(field) {
                column.push_missing();
            } else {
                if !self.reading.checked && std::str::from_utf8(field).is_err() {
                    return Some(row);
                }
                column.push(field);
            }
        }
        None
    }
}
