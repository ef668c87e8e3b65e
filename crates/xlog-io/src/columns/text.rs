//! Columns of text under construction.

use std::{hash::BuildHasher, sync::Arc};

use arrow_array::{ArrayRef, DictionaryArray, StringArray, UInt32Array, types::UInt32Type};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::Missing;

/// What a field of text goes into.
pub(crate) trait TextSink {
    /// Adds a string.
    fn push(&mut self, text: &[u8]);

    /// Adds a row without one.
    fn push_missing(&mut self);
}

/// Every string, one after the other.
pub(crate) struct PlainText {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    missing: Missing,
}

impl Default for PlainText {
    fn default() -> Self {
        Self { bytes: Vec::new(), offsets: vec![0], missing: Missing::default() }
    }
}

impl TextSink for PlainText {
    #[inline]
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        // Of too much text the end is negative, which `finish` refuses.
        self.offsets.push(self.bytes.len() as i32);
    }

    fn push_missing(&mut self) {
        self.missing.push(self.offsets.len() - 1);
        self.offsets.push(self.bytes.len() as i32);
    }
}

impl PlainText {
    pub(super) fn reserve(&mut self, rows: usize) {
        self.offsets.reserve(rows);
    }

    pub(super) fn finish(self) -> Result<ArrayRef, String> {
        let rows = self.offsets.len() - 1;
        let missing = self.missing.finish(rows);
        Ok(Arc::new(strings(self.bytes, self.offsets, missing)?))
    }
}

fn strings(
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    missing: Option<arrow_buffer::NullBuffer>,
) -> Result<StringArray, String> {
    if i32::try_from(bytes.len()).is_err() {
        return Err("more than 2 GiB of text in one batch".into());
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    StringArray::try_new(offsets, Buffer::from_vec(bytes), missing)
        .map_err(|error| error.to_string())
}

/// Each string once, and a number for each row: what few distinct strings are cheapest as, since
/// the engine takes such columns over as they are.
#[derive(Default)]
pub(crate) struct DictionaryText {
    codes: Vec<u32>,
    missing: Missing,
    bytes: Vec<u8>,
    /// Where each string ends; it starts where the one before it ends.
    ends: Vec<i32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl TextSink for DictionaryText {
    #[inline]
    fn push(&mut self, text: &[u8]) {
        let hash = self.hasher.hash_one(text);
        let (bytes, ends) = (&self.bytes, &self.ends);
        let known = self.table.find(hash, |code| string_of(bytes, ends, *code) == text);
        let code = match known {
            Some(code) => *code,
            None => self.add(hash, text),
        };
        self.codes.push(code);
    }

    fn push_missing(&mut self) {
        self.missing.push(self.codes.len());
        self.codes.push(0);
    }
}

impl DictionaryText {
    pub(super) fn reserve(&mut self, rows: usize) {
        self.codes.reserve(rows);
    }

    #[cold]
    fn add(&mut self, hash: u64, text: &[u8]) -> u32 {
        let code = self.ends.len() as u32;
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as i32);
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        let rehash = |code: &u32| hasher.hash_one(string_of(bytes, ends, *code));
        self.table.insert_unique(hash, code, rehash);
        code
    }

    pub(super) fn finish(mut self) -> Result<ArrayRef, String> {
        if self.ends.is_empty() {
            // The code of a missing row must still be that of a string.
            self.ends.push(0);
        }
        let missing = self.missing.finish(self.codes.len());
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        offsets.extend(self.ends);
        let values = strings(self.bytes, offsets, None)?;
        let keys = UInt32Array::new(ScalarBuffer::from(self.codes), missing);
        let array = DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(values));
        Ok(Arc::new(array.map_err(|error| error.to_string())?))
    }
}

/// The bytes of one string.
#[inline]
fn string_of<'b>(bytes: &'b [u8], ends: &[i32], code: u32) -> &'b [u8] {
    let code = code as usize;
    let start = if code == 0 { 0 } else { ends[code - 1] as usize };
    &bytes[start..ends[code] as usize]
}
