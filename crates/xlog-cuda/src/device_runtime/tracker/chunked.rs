//! A table that grows without moving: an entry is found by its number without a lock.

use crate::sync::{OnceLock, sized};

/// Chunks there can be beyond the first.
const CHUNKS: usize = sized(24, 2);

/// Entries by number: `FIRST` of them, a power of two, from the start, so that finding one of those
/// takes one look; then chunks, each twice as large, made when they are first needed.
pub(crate) struct Chunked<T, const FIRST: usize> {
    first: Box<[T]>,
    /// Behind a pointer: the table itself stays small, beside what else is looked at.
    chunks: Box<[OnceLock<Box<[T]>>; CHUNKS]>,
}

impl<T: Default, const FIRST: usize> Chunked<T, FIRST> {
    pub(crate) fn new() -> Self {
        Self {
            first: (0..FIRST).map(|_| T::default()).collect(),
            chunks: Box::new(std::array::from_fn(|_| OnceLock::new())),
        }
    }

    /// The entries that are there from the start.
    #[inline(always)]
    pub(crate) fn first(&self) -> &[T] {
        &self.first
    }

    /// Entry `number`, if the table ever grew that far.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        match self.first.get(number as usize) {
            Some(entry) => Some(entry),
            None => self.get_beyond(number),
        }
    }

    /// Entry `number`, made with its chunk if need be; `None` past the last chunk.
    #[inline]
    pub(crate) fn grow(&self, number: u32) -> Option<&T> {
        match self.first.get(number as usize) {
            Some(entry) => Some(entry),
            None => self.grow_beyond(number),
        }
    }

    /// The chunk of an entry beyond the first chunk, and its place there.
    fn position(number: u32) -> (usize, usize) {
        let chunk = (number as usize / FIRST).ilog2() as usize;
        (chunk, number as usize - (FIRST << chunk))
    }

    #[inline(never)]
    fn get_beyond(&self, number: u32) -> Option<&T> {
        let (chunk, offset) = Self::position(number);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    #[inline(never)]
    fn grow_beyond(&self, number: u32) -> Option<&T> {
        let (chunk, offset) = Self::position(number);
        let entries = self.chunks.get(chunk)?;
        let fresh = || (0..FIRST << chunk).map(|_| T::default()).collect();
        entries.get_or_init(fresh).get(offset)
    }
}

impl<T, const FIRST: usize> std::fmt::Debug for Chunked<T, FIRST> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunked").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn entries_keep_their_place_while_the_table_grows() {
        let table: Chunked<AtomicU32, 8> = Chunked::new();
        assert!(table.get(7).is_some() && table.get(8).is_none());
        let places: Vec<_> = (0..5_000)
            .map(|number| {
                let entry = table.grow(number).expect("room");
                entry.store(number, Ordering::Relaxed);
                std::ptr::from_ref(entry)
            })
            .collect();
        for (number, place) in (0..).zip(places) {
            let entry = table.get(number).expect("made");
            assert!(std::ptr::eq(entry, place) && entry.load(Ordering::Relaxed) == number);
        }
        assert!(table.get(1 << 20).is_none() && table.grow(u32::MAX).is_none());
    }
}
