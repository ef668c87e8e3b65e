//! The one source of chance in a simulated run.

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(super) fn below(&mut self, end: usize) -> usize {
        // The high half of a product: no division, and no bias that a schedule would notice.
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}
