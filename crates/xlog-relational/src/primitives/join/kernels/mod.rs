//! The kernels of `hash_join.cu` and `small_join.cu`.

mod long;
mod short;
mod small;
mod split;

pub(super) use {
    long::{COMPACT, EXPAND, MATCH_U32, MATCH_U64, OFFSETS, PLACE, RANK, SCAN},
    rest::{APPEND, COUNT_UNSET, MARK},
    short::{BUILD_U32, BUILD_U64, PROBE_U32, PROBE_U64},
    small::{SMALL_U32, SMALL_U64},
    split::{HISTOGRAM_U32, HISTOGRAM_U64, SCATTER_U32, SCATTER_U64},
};

mod rest;

use xlog_driver::{
    KernelModule,
    host::{Input, KernelCall, KernelFault, MemoryPolicy},
};

use crate::primitives::hash::{Bits, HostKeys, count_of, slot_after};

static MODULE: KernelModule =
    KernelModule { name: "hash_join", ptx: include_str!("../../../../kernels/hash_join.ptx") };

/// What the words of `control` hold; as in the CUDA source.
pub(super) mod control {
    pub(in super::super) const WORDS: usize = 8;
    pub(in super::super) const OUTPUT: usize = 0;
    pub(in super::super) const REPEATS: usize = 1;
    pub(in super::super) const ONES_COUNT: usize = 2;
    pub(in super::super) const ONES_VALUE: usize = 3;
    pub(in super::super) const APPENDED: usize = 4;
    pub(in super::super) const MATCHES: usize = 5;
    pub(in super::super) const LISTED: usize = 6;
}

/// Kinds as the kernels know them.
pub(super) mod kind {
    pub(in super::super) const INNER: u32 = 0;
    pub(in super::super) const LEFT: u32 = 1;
    pub(in super::super) const FULL: u32 = 2;
    pub(in super::super) const SEMI: u32 = 3;
    pub(in super::super) const ANTI: u32 = 4;
}

const EMPTY: u64 = u64::MAX;
const NONE: u32 = u32::MAX;

/// Rows of one entry of the sums that `MATCH` leaves.
const TILE: usize = 1024;

/// Whether a repeated build key is no matter: existence alone is asked for.
fn may_repeat(kind: u32) -> bool {
    kind == kind::SEMI || kind == kind::ANTI
}

/// What stands for each row in the output: a column, or the row's number.
struct Values<'c, M>(Option<Input<'c, u32, M>>);

impl<'c, M: MemoryPolicy> Values<'c, M> {
    /// The column of parameter `index`, if parameter `index + 1` says it is there.
    fn of(call: &'c KernelCall<'_, M>, index: usize, n: usize) -> Result<Self, KernelFault> {
        let there = call.value::<u32>(index + 1)? != 0;
        Ok(Self(if there { Some(call.input(index, n)?) } else { None }))
    }

    #[inline(always)]
    fn get(&self, at: usize) -> u32 {
        self.0.as_ref().map_or(at as u32, |values| values.get(at))
    }
}

/// The entry of a key and its slot, from the first slot on.
#[inline(always)]
fn find<K: HostKeys, M: MemoryPolicy>(
    build: &K,
    key: K::Key,
    tag: u32,
    table: &Input<'_, u64, M>,
    mut slot: usize,
) -> Option<(u64, usize)> {
    let capacity = table.len();
    loop {
        let entry = table.get(slot);
        if entry == EMPTY {
            return None;
        }
        if (entry >> 32) as u32 == tag && build.same(key, entry as u32 as usize) {
            return Some((entry, slot));
        }
        slot = slot_after(slot, capacity);
    }
}

/// Which rows of a side there are, and have a key: parameters `index` (bitmap) to `index + 3`.
fn rows_of<'c, M: MemoryPolicy>(
    call: &'c KernelCall<'_, M>,
    index: usize,
    n: usize,
) -> Result<(Bits<'c, M>, usize), KernelFault> {
    Ok((Bits::of(call, index, n)?, count_of(call, index + 2, n)?))
}
