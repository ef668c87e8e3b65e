//! Buffers of one size that nobody has.

use std::collections::VecDeque;

use super::{LastCopy, buffer::Memory};
use crate::device_runtime::{ResourceResult, StreamId};

/// The smallest buffer; sizes double from here, so that one serves many copies.
const SMALLEST: usize = 4096;

/// How many sizes there are: the largest is half of what an address can name.
pub(super) const SHELVES: usize = (usize::BITS - 1 - SMALLEST.trailing_zeros()) as usize;

/// The shelf for buffers of at least `bytes`, and their size; `None` if there is no such size.
pub(super) fn shelf_of(bytes: usize) -> Option<(usize, usize)> {
    let size = bytes.checked_next_power_of_two()?.max(SMALLEST);
    let index = (size.trailing_zeros() - SMALLEST.trailing_zeros()) as usize;
    (index < SHELVES).then_some((index, size))
}

/// Buffers of one size: those at rest, and those whose last copy may still run. The latter stand
/// in line behind each other by stream: if the first of a line is not done, none behind it is, so
/// finding one takes a question a stream, however many buffers there are.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    idle: Vec<Memory>,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    key: (u64, StreamId),
    copying: VecDeque<(Memory, LastCopy)>,
}

impl Shelf {
    pub(super) fn put(&mut self, memory: Memory) {
        self.idle.push(memory);
    }

    pub(super) fn put_behind(&mut self, memory: Memory, copy: LastCopy) {
        let key = copy.key();
        match self.lines.iter_mut().find(|line| line.key == key) {
            Some(line) => line.copying.push_back((memory, copy)),
            None => self.lines.push(Line { key, copying: VecDeque::from([(memory, copy)]) }),
        }
    }

    /// A buffer at rest.
    pub(super) fn take_idle(&mut self) -> Option<Memory> {
        self.idle.pop()
    }

    /// A buffer whose last copy turns out to be over. A question that fails changes nothing.
    pub(super) fn take_done(&mut self) -> ResourceResult<Option<Memory>> {
        for index in 0..self.lines.len() {
            let line = &mut self.lines[index].copying;
            let Some((_, copy)) = line.front() else { continue };
            if copy.is_done()? {
                let taken = line.pop_front().map(|(memory, _)| memory);
                if line.is_empty() {
                    self.lines.swap_remove(index);
                }
                return Ok(taken);
            }
        }
        Ok(None)
    }

    /// Everything, with the copies that may still run: for the end of the pool.
    pub(super) fn empty(&mut self) -> impl Iterator<Item = (Memory, Option<LastCopy>)> + use<> {
        let (idle, lines) = (std::mem::take(&mut self.idle), std::mem::take(&mut self.lines));
        let copying = lines.into_iter().flat_map(|line| line.copying);
        let copying = copying.map(|(memory, copy)| (memory, Some(copy)));
        idle.into_iter().map(|memory| (memory, None)).chain(copying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_every_one_has_a_shelf() {
        assert_eq!([1, 4096, 4097, 8192].map(shelf_of), {
            [(0, 4096), (0, 4096), (1, 8192), (1, 8192)].map(Some)
        });
        assert_eq!(shelf_of(1 << 62), Some((SHELVES - 1, 1 << 62)));
        assert_eq!([(1 << 62) + 1, 1 << 63, usize::MAX].map(shelf_of), [None; 3]);
    }
}
