//! Numbers from a seed: the same on every machine, whatever the version of whatever library.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Numbers that follow from `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        // The product's upper half: no number is favoured by more than one part in 2^32.
        ((u128::from(self.number()) * limit as u128) >> 64) as usize
    }

    /// True `parts` times in 256.
    pub fn chance(&mut self, parts: u8) -> bool {
        self.number() >> 56 < u64::from(parts)
    }

    /// One of `values`.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}
