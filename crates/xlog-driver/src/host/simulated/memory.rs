//! Memory of the simulated device: one arena, laid out the same in every run.
//!
//! Addresses are handed out from the start of the arena, and ranges that were freed are preferred,
//! the latest first: a program that still uses one meets its next owner. A range freed on a stream
//! is reusable on that stream at once, and elsewhere when the stream has executed the free. Both
//! ends of a range's life write poison over it, so that whoever reads too early or too late reads
//! something that is easy to tell.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::BTreeMap,
};

use super::super::memory::{ALIGNMENT, not_an_allocation, out_of_memory, size_class};
use crate::{DriverResult, MemoryInfo};

/// What fresh memory holds.
pub(super) const FRESH: u8 = 0xA5;
/// What freed memory holds.
pub(super) const FREED: u8 = 0xDD;

/// Where the arena's addresses start, modulo this: the same in every run.
const ARENA_ALIGNMENT: usize = 1 << 20;

/// A range that was freed.
struct FreeRange {
    id: u64,
    address: u64,
    /// The stream it was freed on, until that has executed the free.
    pending_on: Option<usize>,
    /// The stream it was freed on, if it was on one.
    freed_on: Option<usize>,
}

/// A part of the arena with one purpose.
struct Space {
    next: u64,
    end: u64,
    /// Freed ranges by size, the latest last.
    free: BTreeMap<u64, Vec<FreeRange>>,
    /// Ranges joined with their neighbours once fresh memory ran out, by address.
    joined: BTreeMap<u64, u64>,
    live: BTreeMap<u64, u64>,
    live_bytes: u64,
    total: u64,
}

impl Space {
    fn new(start: u64, total: u64) -> Self {
        Self {
            next: start,
            end: start + total,
            free: BTreeMap::new(),
            joined: BTreeMap::new(),
            live: BTreeMap::new(),
            live_bytes: 0,
            total,
        }
    }

    fn info(&self) -> MemoryInfo {
        MemoryInfo { free: self.total - self.live_bytes, total: self.total }
    }

    /// A range that `stream` may have now; every stream may, if there is none.
    fn take(&mut self, size: u64, stream: Option<usize>) -> Option<u64> {
        let address = self
            .take_freed(size, stream)
            .or_else(|| self.take_fresh(size))
            .or_else(|| self.take_joined(size))?;
        self.live.insert(address, size);
        self.live_bytes += size;
        Some(address)
    }

    fn take_freed(&mut self, size: u64, stream: Option<usize>) -> Option<u64> {
        let ranges = self.free.get_mut(&size)?;
        let is_free =
            |range: &FreeRange| range.pending_on.is_none_or(|pending| Some(pending) == stream);
        let index = ranges.iter().rposition(is_free)?;
        Some(ranges.remove(index).address)
    }

    fn take_fresh(&mut self, size: u64) -> Option<u64> {
        if size > self.end - self.next {
            return None;
        }
        let address = self.next;
        self.next += size;
        Some(address)
    }

    /// Joins what nobody can still reach, and cuts a range out of it.
    fn take_joined(&mut self, size: u64) -> Option<u64> {
        for (&size, ranges) in &mut self.free {
            ranges.retain(|range| {
                if range.pending_on.is_none() {
                    self.joined.insert(range.address, size);
                }
                range.pending_on.is_some()
            });
        }
        let mut joined: BTreeMap<u64, u64> = BTreeMap::new();
        for (address, size) in std::mem::take(&mut self.joined) {
            match joined.last_entry() {
                Some(mut last) if last.key() + last.get() == address => *last.get_mut() += size,
                _ => {
                    joined.insert(address, size);
                }
            }
        }
        self.joined = joined;
        let (&address, &room) = self.joined.iter().find(|(_, room)| **room >= size)?;
        self.joined.remove(&address);
        if room > size {
            self.joined.insert(address + size, room - size);
        }
        Some(address)
    }

    /// Takes a live range back; the answer is its size.
    fn give(&mut self, range: FreeRange) -> Option<u64> {
        let size = self.live.remove(&range.address)?;
        self.live_bytes -= size;
        self.free.entry(size).or_default().push(range);
        Some(size)
    }
}

/// A free that its stream has yet to execute.
#[derive(Debug)]
pub(super) struct PendingFree {
    id: u64,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// Every allocation of one simulated device.
pub(super) struct SimulatedMemory {
    arena: *mut u8,
    layout: Layout,
    device: Space,
    pinned: Space,
    frees: u64,
    poisoned_at_most: usize,
}

// SAFETY: the arena is plain memory that this value owns; nothing about it is tied to a thread.
unsafe impl Send for SimulatedMemory {}

impl SimulatedMemory {
    pub(super) fn new(total: u64, pinned: u64, poisoned_at_most: usize) -> Self {
        let whole = |bytes: u64| bytes - bytes % ALIGNMENT as u64;
        let (total, pinned) = (whole(total), whole(pinned));
        let bytes = usize::try_from(total + pinned).unwrap_or(0) + ARENA_ALIGNMENT;
        // Aligned by hand below: memory asked for with a large alignment is zeroed by touching it.
        let layout = Layout::from_size_align(bytes, 16).unwrap_or(Layout::new::<u128>());
        // SAFETY: the layout's size is not zero.
        let arena = unsafe { alloc_zeroed(layout) };
        let start = (arena as u64).next_multiple_of(ARENA_ALIGNMENT as u64);
        // A machine without that much memory gets a device without any, which says so when asked.
        let fits = !arena.is_null() && layout.size() == bytes;
        let (total, pinned) = if fits { (total, pinned) } else { (0, 0) };
        Self {
            arena,
            layout,
            device: Space::new(start, total),
            pinned: Space::new(start + total, pinned),
            frees: 0,
            poisoned_at_most,
        }
    }

    pub(super) fn info(&self) -> MemoryInfo {
        self.device.info()
    }

    /// Memory for `stream`, or for everybody: its address, and how much it is.
    pub(super) fn allocate(
        &mut self,
        bytes: usize,
        stream: Option<usize>,
        call: &'static str,
    ) -> DriverResult<(u64, u64)> {
        Self::take(&mut self.device, bytes, stream, call)
    }

    /// Pinned memory, poisoned.
    pub(super) fn allocate_pinned(&mut self, bytes: usize) -> DriverResult<u64> {
        let (address, size) = Self::take(&mut self.pinned, bytes, None, "allocate_pinned")?;
        self.poison(address, size, FRESH);
        Ok(address)
    }

    /// Streams whose progress decides which range an allocation of `bytes` on `stream` gets: those
    /// that have yet to execute a free, and those that have.
    pub(super) fn freed_elsewhere(
        &self,
        bytes: usize,
        stream: Option<usize>,
    ) -> impl Iterator<Item = usize> {
        let size = size_class(bytes).map_or(0, |size| size as u64);
        // What is joined once fresh memory ran out can be of any size.
        let full = size > self.device.end - self.device.next;
        let fits = move |(freed, _): &(&u64, &Vec<FreeRange>)| full || **freed == size;
        let ranges = self.device.free.iter().filter(fits).flat_map(|(_, ranges)| ranges);
        ranges.filter_map(|range| range.freed_on).filter(move |on| Some(*on) != stream)
    }

    fn take(
        space: &mut Space,
        bytes: usize,
        stream: Option<usize>,
        call: &'static str,
    ) -> DriverResult<(u64, u64)> {
        let size = size_class(bytes).map(|size| size as u64);
        let taken = size.and_then(|size| Some((space.take(size, stream)?, size)));
        taken.ok_or_else(|| out_of_memory(bytes, space.info(), call))
    }

    /// Takes a range back from a place in a stream on, which is yet to be executed.
    pub(super) fn free_on(&mut self, address: u64, stream: usize) -> DriverResult<PendingFree> {
        self.frees += 1;
        let id = self.frees;
        let range = FreeRange { id, address, pending_on: Some(stream), freed_on: Some(stream) };
        let size = self.device.give(range).ok_or_else(|| not_an_allocation(address, "free_on"))?;
        Ok(PendingFree { id, address, size })
    }

    /// The stream has executed a free: everybody may have the range now, if it was not handed out
    /// again on that stream before.
    pub(super) fn executed(&mut self, free: &PendingFree) {
        let ranges = self.device.free.get_mut(&free.size);
        let range = ranges.and_then(|ranges| ranges.iter_mut().find(|range| range.id == free.id));
        if let Some(range) = range {
            range.pending_on = None;
        }
    }

    /// Takes a range back at once; the device is at rest.
    pub(super) fn free(&mut self, address: u64) -> DriverResult<()> {
        let range = FreeRange { id: 0, address, pending_on: None, freed_on: None };
        let size = self.device.give(range).ok_or_else(|| not_an_allocation(address, "free"))?;
        self.poison(address, size, FREED);
        Ok(())
    }

    /// Takes pinned memory back at once.
    pub(super) fn free_pinned(&mut self, address: u64) -> DriverResult<()> {
        let range = FreeRange { id: 0, address, pending_on: None, freed_on: None };
        let size = self.pinned.give(range);
        let size = size.ok_or_else(|| not_an_allocation(address, "free_pinned"))?;
        self.poison(address, size, FREED);
        Ok(())
    }

    /// Writes `value` over a range of the arena: all of it, or both ends of a long one.
    pub(super) fn poison(&mut self, address: u64, size: u64, value: u8) {
        let size = size as usize;
        let end = if size > self.poisoned_at_most { self.poisoned_at_most / 2 } else { size };
        // SAFETY: the range lies in the arena, since only ranges of its spaces come here.
        unsafe { std::ptr::write_bytes(address as *mut u8, value, end) };
        if end < size {
            let last = address + (size - end) as u64;
            // SAFETY: the end of the same range.
            unsafe { std::ptr::write_bytes(last as *mut u8, value, end) };
        }
    }
}

impl Drop for SimulatedMemory {
    fn drop(&mut self) {
        if !self.arena.is_null() {
            // SAFETY: `new` allocated it with this layout. Nothing runs any more: work runs only
            // while somebody steps the driver that owns this.
            unsafe { dealloc(self.arena, self.layout) }
        }
    }
}
