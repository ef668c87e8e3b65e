//! Zeroed memory for the host device and its pinned twin.
//!
//! Large ranges come from the system page by page, when they are first touched: nothing is zeroed
//! twice, and a pool's slab takes no memory before it is used. Where the system has large pages
//! they are asked for, since hashed operators reach all over their memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// A large page, and the size from which on memory comes in pages.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// What pages of the system begin at a multiple of.
pub(super) const PAGE: usize = 4096;

/// Zeroed memory of `size` bytes at a multiple of `alignment`, a page at most; null if there is
/// none.
pub(super) fn take(size: usize, alignment: usize) -> *mut u8 {
    #[cfg(target_os = "linux")]
    if size >= LARGE_PAGE {
        return map(size);
    }
    let Some(layout) = layout(size, alignment) else { return std::ptr::null_mut() };
    // SAFETY: the layout has at least one byte.
    unsafe { alloc_zeroed(layout) }
}

/// Gives memory back.
///
/// # Safety
/// `pointer` came from [`take`] with the same `size` and `alignment`, and nobody reaches it any
/// more.
pub(super) unsafe fn give_back(pointer: *mut u8, size: usize, alignment: usize) {
    #[cfg(target_os = "linux")]
    if size >= LARGE_PAGE {
        // SAFETY: `map` mapped exactly this range, and nobody reaches it any more.
        unsafe { libc::munmap(pointer.cast(), size) };
        return;
    }
    if let Some(layout) = layout(size, alignment) {
        // SAFETY: `take` got it with this layout.
        unsafe { dealloc(pointer, layout) }
    }
}

fn layout(size: usize, alignment: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), alignment).ok()
}

/// Pages that begin where a large page does.
#[cfg(target_os = "linux")]
fn map(size: usize) -> *mut u8 {
    let Some(size) = size.checked_next_multiple_of(PAGE) else { return std::ptr::null_mut() };
    let Some(whole) = size.checked_add(LARGE_PAGE) else { return std::ptr::null_mut() };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous mapping touches nothing that is there.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let before = start.align_offset(LARGE_PAGE);
    let after = whole - before - size;
    // SAFETY: `before` is less than a large page, and `before + size + after` is all of it; what is
    // unmapped lies outside the range that is handed out. Advice changes no contents.
    unsafe {
        let used = start.add(before);
        if before > 0 {
            libc::munmap(start, before);
        }
        if after > 0 {
            libc::munmap(used.add(size), after);
        }
        libc::madvise(used, size, libc::MADV_HUGEPAGE);
        used.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_goes_back() {
        for size in [1, 255, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 12_345] {
            for alignment in [16, 256, PAGE] {
                let pointer = take(size, alignment);
                assert!(!pointer.is_null() && pointer.addr().is_multiple_of(alignment), "{size}");
                // SAFETY: `size` bytes from `pointer` on are this test's.
                let bytes = unsafe { std::slice::from_raw_parts_mut(pointer, size) };
                assert!(bytes.iter().all(|byte| *byte == 0), "{size}");
                bytes.fill(0xa5);
                // SAFETY: taken above, like this.
                unsafe { give_back(pointer, size, alignment) }
            }
        }
    }

    #[test]
    fn what_does_not_exist_is_null() {
        assert!(take(usize::MAX, 256).is_null());
        assert!(take(isize::MAX as usize, 256).is_null());
    }
}
