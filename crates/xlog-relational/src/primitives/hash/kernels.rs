//! The kernels of `hash_table.cu`.

use std::{marker::PhantomData, ops::Range};

use bytemuck::Pod;
use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy, Output},
};

use super::{Bits, HostKeys, Longs, SPAN, Words, count_of, length, slot_after, slot_of};

pub(super) static MODULE: KernelModule =
    KernelModule { name: "hash_table", ptx: include_str!("../../../kernels/hash_table.ptx") };

pub(super) const EMPTY: u64 = u64::MAX;
pub(super) const NO_SLOT: u32 = u32::MAX;

macro_rules! pack_definition {
    ($(#[$doc:meta])* $static:ident, $name:literal, $scalar:expr, $word:ty) => {
        $(#[$doc])*
        pub(in crate::primitives) static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("column", $scalar).counted_by(11),
                Parameter::input("validity", U32).optional(),
                Parameter::value("has_validity", U32),
                Parameter::value("lane", U32),
                Parameter::value("null_bit", U32),
                Parameter::value("first_keys", U32),
                Parameter::value("first_valid", U32),
                Parameter::in_out("keys", U64).counted_by(11),
                Parameter::in_out("extra", U32).optional(),
                Parameter::value("has_extra", U32),
                Parameter::in_out("valid", U32),
                Parameter::value("n", U64),
            ],
            host: HostKernel::of::<Pack<$word>>(),
        };
    };
}

pack_definition! {
    /// Adds a column of 32-bit words to the keys.
    PACK_U32, "xlog_keys_pack_u32", U32, u32
}
pack_definition! {
    /// Adds a column of 64-bit words to the keys.
    PACK_U64, "xlog_keys_pack_u64", U64, u64
}

struct Pack<Word>(PhantomData<Word>);

impl<Word: Pod + Into<u64>> KernelBody for Pack<Word> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(11)?)?;
        let column = call.input::<Word>(0, n)?;
        let validity = Bits::of(call, 1, n)?;
        let (lane, null_bit) = (call.value::<u32>(3)?, call.value::<u32>(4)?);
        let (first_keys, first_valid) = (call.value::<u32>(5)? != 0, call.value::<u32>(6)? != 0);
        let (keys, keys_out) = (call.input::<u64>(7, n)?, call.output::<u64>(7, n)?);
        let has_extra = call.value::<u32>(9)? != 0;
        let extras = if has_extra { n } else { 0 };
        let (extra, extra_out) = (call.input::<u32>(8, extras)?, call.output::<u32>(8, extras)?);
        let words = n.div_ceil(32);
        let (valid, valid_out) = (call.input::<u32>(10, words)?, call.output::<u32>(10, words)?);
        for word in 0..words {
            let mut bits = 0u32;
            for at in word * 32..n.min(word * 32 + 32) {
                let known = validity.get(at);
                bits |= u32::from(known) << (at % 32);
                let value: u64 = if known { column.get(at).into() } else { 0 };
                let mut key = if first_keys { 0 } else { keys.get(at) };
                let mut more = if first_keys || !has_extra { 0 } else { extra.get(at) };
                if lane < 2 {
                    key |= value << (32 * lane);
                } else {
                    more |= value as u32;
                }
                if null_bit < 32 {
                    more |= u32::from(!known) << null_bit;
                }
                keys_out.set(at, key);
                if has_extra {
                    extra_out.set(at, more);
                }
            }
            valid_out.set(word, if first_valid { bits } else { valid.get(word) & bits });
        }
        Ok(())
    }
}

/// Words whose hashes have nothing to do with those of the keys.
pub(in crate::primitives) static MIX: KernelDefinition = KernelDefinition {
    name: "xlog_keys_mix",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U64).counted_by(2),
        Parameter::output("mixed", U64).counted_by(2),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Mix>(),
};

struct Mix;

impl KernelBody for Mix {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(2)?)?;
        let (keys, mixed) = (call.input::<u64>(0, n)?, call.output::<u64>(1, n)?);
        let mut words = Vec::new();
        keys.for_each_piece(|start, piece| {
            words.clear();
            words.extend(
                piece.iter().map(|key| (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            );
            mixed.write_from(start, &words);
        });
        Ok(())
    }
}

/// The slot of each 32-bit key, inserted where it is new.
pub(in crate::primitives) static INSERT_U32: KernelDefinition = KernelDefinition {
    name: "xlog_table_insert_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U32).counted_by(11),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::in_out("table", U64).counted_by(6),
        Parameter::value("capacity", U64),
        Parameter::value("farthest", U64),
        Parameter::value("mask", U32),
        Parameter::output("slots", U32).counted_by(11),
        Parameter::in_out("full", U32).elements(1),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<InsertWords>(),
};

struct InsertWords;

impl KernelBody for InsertWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(11)?)?;
        let keys = Words { keys: call.input(0, n)?, mask: call.value(8)? };
        let (valid, count) = (Bits::of(call, 1, n)?, count_of(call, 3, n)?);
        let capacity = length(call.value(6)?)?;
        let insertion = Insertion {
            keys,
            valid,
            entries: call.input(5, capacity)?,
            out: call.output(5, capacity)?,
            farthest: call.value(7)?,
            slots: call.output(9, n)?,
        };
        if insert(call, &insertion, count) {
            call.output::<u32>(10, 1)?.set(0, 1);
        }
        Ok(())
    }
}

/// The slot of each 64-bit key, inserted where it is new.
pub(in crate::primitives) static INSERT_U64: KernelDefinition = KernelDefinition {
    name: "xlog_table_insert_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U64).counted_by(13),
        Parameter::input("extra", U32).optional(),
        Parameter::value("has_extra", U32),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::in_out("table", U64).counted_by(8),
        Parameter::value("capacity", U64),
        Parameter::value("farthest", U64),
        Parameter::value("mask", U32),
        Parameter::output("slots", U32).counted_by(13),
        Parameter::in_out("full", U32).elements(1),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<InsertLongs>(),
};

struct InsertLongs;

impl KernelBody for InsertLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(13)?)?;
        let extra = if call.value::<u32>(2)? == 0 { None } else { Some(call.input(1, n)?) };
        let keys = Longs { keys: call.input(0, n)?, extra, mask: call.value(10)? };
        let (valid, count) = (Bits::of(call, 3, n)?, count_of(call, 5, n)?);
        let capacity = length(call.value(8)?)?;
        let insertion = Insertion {
            keys,
            valid,
            entries: call.input(7, capacity)?,
            out: call.output(7, capacity)?,
            farthest: call.value(9)?,
            slots: call.output(11, n)?,
        };
        if insert(call, &insertion, count) {
            call.output::<u32>(12, 1)?.set(0, 1);
        }
        Ok(())
    }
}

/// Rows that are inserted before others are looked up by several threads.
const FIRST_WAVE: usize = 1 << 15;

/// Inserts all keys; whether one found no place.
///
/// Rows go in waves that double in size: threads look up a wave together in what is there, and
/// those that found nothing are inserted by one. Keys that repeat are there soon.
pub(super) fn insert<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    insertion: &impl Insert,
    count: usize,
) -> bool {
    let threads = call.threads();
    let mut start = 0;
    let mut wave = if threads == 1 { count } else { FIRST_WAVE };
    while start < count {
        let end = count.min(start + wave);
        if start == 0 {
            if insertion.rows(start..end) {
                return true;
            }
        } else {
            let part = (end - start).div_ceil(threads);
            let missing = std::thread::scope(|scope| {
                let parts = (start..end)
                    .step_by(part)
                    .map(|from| scope.spawn(move || insertion.look_up(from..end.min(from + part))));
                let running: Vec<_> = parts.collect();
                running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
            });
            for rows in missing {
                let Ok(rows) = rows else { return true };
                if rows.into_iter().any(|row| insertion.rows(row as usize..row as usize + 1)) {
                    return true;
                }
            }
            wave *= 2;
        }
        start = end;
    }
    false
}

/// Rows on their way into a table.
pub(super) trait Insert: Sync {
    /// Inserts a range of rows; whether one found no place.
    fn rows(&self, rows: Range<usize>) -> bool;

    /// Looks a range of rows up; those whose key is not there yet.
    fn look_up(&self, rows: Range<usize>) -> Vec<u32>;
}

/// Keys on their way into a table.
struct Insertion<'c, K, M> {
    keys: K,
    valid: Bits<'c, M>,
    entries: Input<'c, u64, M>,
    out: Output<'c, u64, M>,
    farthest: u64,
    slots: Output<'c, u32, M>,
}

impl<K: HostKeys, M: MemoryPolicy> Insertion<'_, K, M> {
    /// Calls `row` for the rows of a range, span by span, with the first slot of each and what it
    /// held when the span began.
    #[inline(always)]
    fn each(
        &self,
        rows: Range<usize>,
        mut row: impl FnMut(usize, K::Key, usize, u64) -> Option<u32>,
    ) -> bool {
        let capacity = self.entries.len();
        let mut key = [K::Key::default(); SPAN];
        let mut first = [0usize; SPAN];
        let mut entry = [EMPTY; SPAN];
        let mut found = [NO_SLOT; SPAN];
        for start in rows.clone().step_by(SPAN) {
            let span = SPAN.min(rows.end - start);
            self.keys.read(start, &mut key[..span]);
            for k in 0..span {
                first[k] = slot_of(self.keys.hash(key[k]), capacity);
                self.entries.prefetch(first[k]);
            }
            for k in 0..span {
                entry[k] = self.entries.get(first[k]);
                if (entry[k] >> 32) as u32 == self.keys.tag(key[k]) {
                    self.keys.prefetch(entry[k] as u32 as usize);
                }
            }
            for k in 0..span {
                found[k] = NO_SLOT;
                if self.valid.get(start + k) {
                    let slot = row(start + k, key[k], first[k], entry[k]);
                    let Some(slot) = slot else { return true };
                    found[k] = slot;
                }
            }
            self.slots.write_from(start, &found[..span]);
        }
        false
    }
}

impl<K: HostKeys + Sync, M: MemoryPolicy> Insert for Insertion<'_, K, M> {
    fn rows(&self, rows: Range<usize>) -> bool {
        let capacity = self.entries.len();
        self.each(rows, |at, key, mut slot, _| {
            let tag = self.keys.tag(key);
            for _ in 0..self.farthest {
                let entry = self.entries.get(slot);
                if entry == EMPTY {
                    self.out.set(slot, u64::from(tag) << 32 | at as u64);
                    return Some(slot as u32);
                }
                if (entry >> 32) as u32 == tag && self.keys.same(key, entry as u32 as usize) {
                    return Some(slot as u32);
                }
                slot = slot_after(slot, capacity);
            }
            None
        })
    }

    fn look_up(&self, rows: Range<usize>) -> Vec<u32> {
        let capacity = self.entries.len();
        let mut missing = Vec::new();
        self.each(rows, |at, key, mut slot, mut entry| {
            let tag = self.keys.tag(key);
            for _ in 0..self.farthest {
                if entry == EMPTY {
                    break;
                }
                if (entry >> 32) as u32 == tag && self.keys.same(key, entry as u32 as usize) {
                    return Some(slot as u32);
                }
                slot = slot_after(slot, capacity);
                entry = self.entries.get(slot);
            }
            missing.push(at as u32);
            Some(NO_SLOT)
        });
        missing
    }
}
