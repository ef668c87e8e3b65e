//! Memory of the host device.
//!
//! Stream-ordered memory that was freed is kept by size with the place of its free. It is handed
//! out again at once on the stream that freed it, and elsewhere once that place is reached: the
//! earliest the order allows, so that a missing wait meets recycled memory.

use std::{collections::HashMap, sync::Arc};

use super::{
    pages,
    stream::{Place, StreamCore},
};
use crate::{DriverError, DriverResult, MemoryInfo};

/// Alignment of every allocation, as CUDA's.
pub(super) const ALIGNMENT: usize = 256;

struct FreeRange {
    pointer: u64,
    freed_at: Place,
}

/// Every allocation of one host device.
pub(super) struct HostMemory {
    total: u64,
    held: u64,
    live: HashMap<u64, usize>,
    free: HashMap<usize, Vec<FreeRange>>,
}

impl HostMemory {
    pub(super) fn new(total: u64) -> Self {
        Self { total, held: 0, live: HashMap::new(), free: HashMap::new() }
    }

    pub(super) fn info(&self) -> MemoryInfo {
        let reusable: usize = self.free.iter().map(|(size, ranges)| size * ranges.len()).sum();
        MemoryInfo { free: self.total - self.held + reusable as u64, total: self.total }
    }

    /// Fresh memory, valid everywhere at once.
    pub(super) fn allocate(&mut self, bytes: usize, call: &'static str) -> DriverResult<u64> {
        let size = size_class(bytes).ok_or_else(|| self.out_of_memory(bytes, call))?;
        if size as u64 > self.total - self.held {
            self.release_reached();
        }
        if size as u64 > self.total - self.held {
            return Err(self.out_of_memory(bytes, call));
        }
        let pointer = pages::take(size, ALIGNMENT) as u64;
        if pointer == 0 {
            return Err(self.out_of_memory(bytes, call));
        }
        self.held += size as u64;
        self.live.insert(pointer, size);
        Ok(pointer)
    }

    /// Memory valid from here on in `stream`.
    pub(super) fn allocate_on(
        &mut self,
        bytes: usize,
        stream: &Arc<StreamCore>,
    ) -> DriverResult<u64> {
        if let Some(size) = size_class(bytes)
            && let Some(ranges) = self.free.get_mut(&size)
            && let Some(index) = ranges.iter().rposition(|range| {
                Arc::ptr_eq(&range.freed_at.stream, stream) || range.freed_at.is_reached()
            })
        {
            let pointer = ranges.swap_remove(index).pointer;
            self.live.insert(pointer, size);
            return Ok(pointer);
        }
        self.allocate(bytes, "allocate_on")
    }

    /// Gives memory back from `place` on.
    pub(super) fn free_on(&mut self, pointer: u64, place: Place) -> DriverResult<()> {
        let size = self.take_live(pointer, "free_on")?;
        self.free.entry(size).or_default().push(FreeRange { pointer, freed_at: place });
        Ok(())
    }

    /// Gives memory back at once; the caller has waited for the device.
    pub(super) fn free(&mut self, pointer: u64, call: &'static str) -> DriverResult<()> {
        let size = self.take_live(pointer, call)?;
        self.release(pointer, size);
        Ok(())
    }

    fn take_live(&mut self, pointer: u64, call: &'static str) -> DriverResult<usize> {
        self.live.remove(&pointer).ok_or_else(|| not_an_allocation(pointer, call))
    }

    /// Hands ranges nobody can still reach back to the process.
    fn release_reached(&mut self) {
        let mut reached = Vec::new();
        for (&size, ranges) in &mut self.free {
            ranges.retain(|range| {
                let keep = !range.freed_at.is_reached();
                if !keep {
                    reached.push((range.pointer, size));
                }
                keep
            });
        }
        for (pointer, size) in reached {
            self.release(pointer, size);
        }
    }

    fn release(&mut self, pointer: u64, size: usize) {
        self.held -= size as u64;
        // SAFETY: `pointer` was taken with this size; its entry is gone by now.
        unsafe { pages::give_back(pointer as *mut u8, size, ALIGNMENT) }
    }

    fn out_of_memory(&self, bytes: usize, call: &'static str) -> DriverError {
        out_of_memory(bytes, self.info(), call)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // A live block's owner may still hold its address, and a range whose place was never
        // reached may still be written: both are leaked rather than pulled away.
        self.release_reached();
    }
}

/// The refusal of a request that does not fit into what there is.
pub(super) fn out_of_memory(bytes: usize, info: MemoryInfo, call: &'static str) -> DriverError {
    let MemoryInfo { free, total } = info;
    DriverError::new(
        call,
        DriverError::OUT_OF_MEMORY,
        format!("out of memory: {bytes} bytes asked for, {free} of {total} bytes are free"),
    )
}

/// The refusal to free what was not allocated.
pub(super) fn not_an_allocation(pointer: u64, call: &'static str) -> DriverError {
    DriverError::new(call, 1, format!("no allocation starts at {pointer:#x}"))
}

/// The size handed out for a request: four classes to a doubling. `None` if it does not exist.
pub(super) fn size_class(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
    let step = (bytes.checked_next_power_of_two()? / 8).max(ALIGNMENT);
    bytes.checked_next_multiple_of(step).filter(|size| *size <= isize::MAX as usize - ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_grow_and_waste_at_most_a_quarter() {
        for bytes in [1, 255, 256, 257, 1000, 4096, 5000, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let size = size_class(bytes).expect("an ordinary size");
            assert!(size >= bytes && size.is_multiple_of(ALIGNMENT), "{bytes}: {size}");
            assert!(size <= bytes.next_multiple_of(ALIGNMENT) * 5 / 4, "{bytes}: {size}");
        }
        assert_eq!(size_class(usize::MAX), None);
    }
}
