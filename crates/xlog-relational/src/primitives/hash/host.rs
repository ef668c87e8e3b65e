//! What the host bodies of the hashed kernels share: hashes, keys and slots, as in the CUDA
//! sources.

use xlog_driver::host::{Input, KernelCall, KernelFault, MemoryPolicy};

/// Rows looked up together: their first slots are read one after the other, so that the processor
/// waits for memory once and not for each.
pub(in crate::primitives) const SPAN: usize = 32;

/// Where a split side keeps its number of rows: behind the counts of its 256 parts.
const USED: usize = 256;

/// A count as this machine counts.
pub(in crate::primitives) fn length(n: u64) -> Result<usize, KernelFault> {
    usize::try_from(n).map_err(|_| KernelFault(format!("{n} values do not fit this machine")))
}

/// MurmurHash3's 32-bit finalizer.
pub(in crate::primitives) fn hash_word(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// MurmurHash3's 64-bit finalizer, over both parts of a key.
pub(in crate::primitives) fn hash_long(mut h: u64, extra: u32) -> u64 {
    h ^= u64::from(extra).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The first slot of a hash.
#[inline(always)]
pub(in crate::primitives) fn slot_of(hash: u32, capacity: usize) -> usize {
    ((u64::from(hash) * capacity as u64) >> 32) as usize
}

/// The slot to try next.
#[inline(always)]
pub(in crate::primitives) fn slot_after(slot: usize, capacity: usize) -> usize {
    if slot + 1 == capacity { 0 } else { slot + 1 }
}

/// Keys as a host kernel reads them.
pub(in crate::primitives) trait HostKeys {
    /// One key.
    type Key: Copy + Default;
    /// The key of row `at`.
    fn key(&self, at: usize) -> Self::Key;
    /// The keys of the rows from `start` on.
    fn read(&self, start: usize, keys: &mut [Self::Key]) {
        keys.iter_mut().enumerate().for_each(|(k, key)| *key = self.key(start + k));
    }
    /// Asks for what [`same`](Self::same) reads of row `at`.
    fn prefetch(&self, _at: usize) {}
    /// Its hash.
    fn hash(&self, key: Self::Key) -> u32;
    /// What an entry says of it.
    fn tag(&self, key: Self::Key) -> u32;
    /// Whether the key of row `at`, whose tag is equal, is equal.
    fn same(&self, key: Self::Key, at: usize) -> bool;
}

/// Keys of 32 bits.
pub(in crate::primitives) struct Words<'c, M> {
    pub(in crate::primitives) keys: Input<'c, u32, M>,
    pub(in crate::primitives) mask: u32,
}

impl<M: MemoryPolicy> HostKeys for Words<'_, M> {
    type Key = u32;
    #[inline(always)]
    fn key(&self, at: usize) -> u32 {
        self.keys.get(at)
    }
    #[inline(always)]
    fn read(&self, start: usize, keys: &mut [u32]) {
        self.keys.read_into(start, keys);
    }
    #[inline(always)]
    fn hash(&self, key: u32) -> u32 {
        hash_word(key) & self.mask
    }
    #[inline(always)]
    fn tag(&self, key: u32) -> u32 {
        key
    }
    #[inline(always)]
    fn same(&self, _: u32, _: usize) -> bool {
        true
    }
}

/// Keys of 64 or 96 bits.
pub(in crate::primitives) struct Longs<'c, M> {
    pub(in crate::primitives) keys: Input<'c, u64, M>,
    pub(in crate::primitives) extra: Option<Input<'c, u32, M>>,
    pub(in crate::primitives) mask: u32,
}

/// A key of 64 or 96 bits, and its hash.
#[derive(Clone, Copy, Default)]
pub(in crate::primitives) struct LongKey {
    pub(in crate::primitives) word: u64,
    extra: u32,
    hashed: u64,
}

impl<M: MemoryPolicy> HostKeys for Longs<'_, M> {
    type Key = LongKey;
    #[inline(always)]
    fn key(&self, at: usize) -> LongKey {
        let word = self.keys.get(at);
        let extra = self.extra.as_ref().map_or(0, |extra| extra.get(at));
        LongKey { word, extra, hashed: hash_long(word, extra) }
    }
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        self.keys.prefetch(at);
    }
    #[inline(always)]
    fn hash(&self, key: LongKey) -> u32 {
        (key.hashed >> 32) as u32 & self.mask
    }
    #[inline(always)]
    fn tag(&self, key: LongKey) -> u32 {
        key.hashed as u32 & self.mask
    }
    #[inline(always)]
    fn same(&self, key: LongKey, at: usize) -> bool {
        self.keys.get(at) == key.word
            && self.extra.as_ref().is_none_or(|extra| extra.get(at) == key.extra)
    }
}

/// A bitmap that may not be there: all bits are set then.
pub(in crate::primitives) struct Bits<'c, M>(Option<Input<'c, u32, M>>);

impl<'c, M: MemoryPolicy> Bits<'c, M> {
    /// The bitmap of parameter `index` for `n` rows, if parameter `index + 1` says it is there.
    pub(in crate::primitives) fn of(
        call: &'c KernelCall<'_, M>,
        index: usize,
        n: usize,
    ) -> Result<Self, KernelFault> {
        Ok(Self(if call.value::<u32>(index + 1)? == 0 {
            None
        } else {
            Some(call.input(index, n.div_ceil(32))?)
        }))
    }

    #[inline(always)]
    pub(in crate::primitives) fn get(&self, at: usize) -> bool {
        self.0.as_ref().is_none_or(|words| words.get(at / 32) >> (at % 32) & 1 == 1)
    }
}

/// How many rows a side has: `n`, or what parameter `index` says if parameter `index + 1` is set.
pub(in crate::primitives) fn count_of<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    index: usize,
    n: usize,
) -> Result<usize, KernelFault> {
    if call.value::<u32>(index + 1)? == 0 {
        return Ok(n);
    }
    Ok(call.input::<u32>(index, USED + 1)?.get(USED) as usize)
}
