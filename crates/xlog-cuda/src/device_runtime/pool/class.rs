//! Size classes: what a request is rounded up to, so that blocks fit again.
//!
//! Multiples of 256 bytes up to 4 KiB; above, sixteen steps to each doubling. So a block is at most
//! a sixteenth larger than it had to be, and a block that was freed fits the next request of about
//! its size.

/// The smallest block, and the alignment of every block.
pub(super) const GRAIN: usize = 256;

/// Up to here, classes are multiples of the grain.
const FINE: usize = 16 * GRAIN;
const FINE_BITS: u32 = FINE.ilog2();
/// Steps to a doubling, as a power of two.
const STEP_BITS: u32 = 4;

/// How many classes there are: the last holds what no device has.
pub(super) const CLASSES: usize = class_of_rounded(1 << LARGEST_BITS) + 1;
const LARGEST_BITS: u32 = 46;

/// A size class, by number: larger numbers are larger sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(pub(super) u16);

/// The class of a request; `None` if it is larger than any device.
#[inline]
pub(super) fn class_of(bytes: usize) -> Option<Class> {
    if bytes > 1 << LARGEST_BITS {
        return None;
    }
    let rounded = if bytes <= FINE {
        bytes.next_multiple_of(GRAIN)
    } else {
        let step = 1usize << ((bytes - 1).ilog2() - STEP_BITS);
        (bytes + step - 1) & !(step - 1)
    };
    Some(Class(class_of_rounded(rounded) as u16))
}

const fn class_of_rounded(rounded: usize) -> usize {
    if rounded <= FINE {
        return rounded / GRAIN;
    }
    let bits = rounded.ilog2();
    let step_bits = bits - STEP_BITS;
    16 + (((bits - FINE_BITS) as usize) << STEP_BITS) + ((rounded - (1 << bits)) >> step_bits)
}

impl Class {
    /// Bytes of a block of this class.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let number = self.0 as usize;
        if number <= 16 {
            return number * GRAIN;
        }
        let (doubling, step) = ((number - 16) >> STEP_BITS, (number - 16) & 15);
        let bits = FINE_BITS + doubling as u32;
        (1 << bits) + (step << (bits - STEP_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_least_that_fits() {
        let sizes = (1..70_000usize).chain((17..46).flat_map(|bits| {
            [(1 << bits) - 1, 1 << bits, (1 << bits) + 1, (1 << bits) + (1 << (bits - 2)) + 7]
        }));
        for bytes in sizes {
            let class = class_of(bytes).expect("not larger than any device");
            assert!(class.bytes() >= bytes && class.bytes().is_multiple_of(GRAIN), "{bytes}");
            assert!(class.bytes() - bytes <= GRAIN.max(bytes / 16), "{bytes}: {}", class.bytes());
            assert_eq!(class_of(class.bytes()), Some(class), "{bytes}");
            if class.0 > 1 {
                assert!(Class(class.0 - 1).bytes() < bytes, "{bytes} would fit the one below");
            }
        }
        assert_eq!(
            class_of(1 << LARGEST_BITS).map(|class| usize::from(class.0) + 1),
            Some(CLASSES)
        );
        assert_eq!(class_of((1 << LARGEST_BITS) + 1), None);
    }
}
