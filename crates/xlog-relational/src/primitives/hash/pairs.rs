//! Tables of keys of two 32-bit columns, for group-bys.
//!
//! A slot holds the 64 bits of its key, so that one read decides. Keys with a null need more bits:
//! they have slots of their own behind the others.

use std::ops::Range;

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    device_runtime::ResourceResult,
    launch::LaunchBatch,
    memory::{SliceView, TrackedCudaSlice},
};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy, Output},
};

use super::{
    Bits, KeyWords, Keys, Memory, SPAN, TILE, dims,
    host::hash_long,
    kernels::{EMPTY, Insert, MODULE, NO_SLOT, insert},
    length, or_none, slot_after, slot_of,
};
use crate::Engine;

/// The columns of such keys.
pub(in crate::primitives) struct Pairs<'a> {
    columns: [(SliceView<'a, u32>, Option<Memory<'a, u32>>); 2],
    rows: u64,
}

/// A table of such keys.
pub(in crate::primitives) struct PairTable {
    pub(in crate::primitives) entries: TrackedCudaSlice<u64>,
    /// A row of the key in each slot that is taken.
    pub(in crate::primitives) row_of: TrackedCudaSlice<u32>,
    /// Slots of both kinds.
    pub(in crate::primitives) slots: u64,
}

impl<'a> Pairs<'a> {
    /// The columns, if they are two of 32 bits.
    pub(in crate::primitives) fn of(keys: &Keys<'a>) -> Option<Self> {
        let [first, second] = keys.columns else { return None };
        let (KeyWords::U32(one), KeyWords::U32(other)) = (first.words, second.words) else {
            return None;
        };
        let columns =
            [(one, first.validity.map(Memory::Lent)), (other, second.validity.map(Memory::Lent))];
        Some(Self { columns, rows: keys.rows })
    }

    /// How many slots keys with a null get, beside `capacity` for the others: a quarter as many,
    /// since one of the columns says nothing, and a few for the one key that reads as no key.
    fn others(&self, capacity: u64) -> u64 {
        let nulls = self.columns.iter().any(|(_, validity)| validity.is_some());
        if nulls { (capacity / 4).max(64) } else { 64 }
    }

    /// A table in which a batch has every row find or become its key. `slots[i]` becomes the slot
    /// of row `i`; `full` becomes 1 if a key found no place within `farthest` slots.
    #[expect(clippy::too_many_arguments, reason = "one launch, argument by argument")]
    pub(in crate::primitives) fn table(
        &self,
        engine: &Engine,
        batch: &mut LaunchBatch<'_>,
        capacity: u64,
        farthest: u64,
        mask: u32,
        slots: &TrackedCudaSlice<u32>,
        full: &SliceView<'_, u32>,
    ) -> ResourceResult<PairTable> {
        let stream = batch.stream();
        let slot_count = capacity + self.others(capacity);
        let len = usize::try_from(slot_count)
            .map_err(|_| format!("a table of {slot_count} slots does not fit this machine"))?;
        let entries = engine.alloc::<u64>(len, stream, "hash table")?;
        batch.fill_bytes(&entries.as_view(), 0xff)?;
        let row_of = engine.alloc::<u32>(len, stream, "rows of slots")?;
        let mut launch = engine.launch(&INSERT_PAIRS, stream)?;
        for (words, validity) in &self.columns {
            let (validity, has_validity) = or_none(validity.as_ref());
            launch.input(words).input(&validity).value(has_validity);
        }
        launch
            .in_out(&entries)
            .value(slot_count)
            .value(capacity)
            .value(farthest)
            .value(mask)
            .output(slots)
            .output(&row_of)
            .in_out(full)
            .value(self.rows)
            .launch_in(batch, dims(engine, self.rows, TILE))?;
        Ok(PairTable { entries, row_of, slots: slot_count })
    }
}

/// The slot of each key of two columns, inserted where it is new.
static INSERT_PAIRS: KernelDefinition = KernelDefinition {
    name: "xlog_table_insert_pairs",
    module: &MODULE,
    parameters: &[
        Parameter::input("first", U32).counted_by(14),
        Parameter::input("first_valid", U32).optional(),
        Parameter::value("has_first_valid", U32),
        Parameter::input("second", U32).counted_by(14),
        Parameter::input("second_valid", U32).optional(),
        Parameter::value("has_second_valid", U32),
        Parameter::in_out("table", U64).counted_by(7),
        Parameter::value("slot_count", U64),
        Parameter::value("capacity", U64),
        Parameter::value("farthest", U64),
        Parameter::value("mask", U32),
        Parameter::output("slots", U32).counted_by(14),
        Parameter::output("row_of", U32).counted_by(7),
        Parameter::in_out("full", U32).elements(1),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<InsertPairs>(),
};

struct InsertPairs;

impl KernelBody for InsertPairs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (slot_count, n) = (length(call.value(7)?)?, length(call.value(14)?)?);
        let insertion = Insertion {
            columns: [call.input(0, n)?, call.input(3, n)?],
            valid: [Bits::of(call, 1, n)?, Bits::of(call, 4, n)?],
            entries: call.input(6, slot_count)?,
            out: call.output(6, slot_count)?,
            capacity: length(call.value(8)?)?,
            farthest: call.value(9)?,
            mask: call.value(10)?,
            slots: call.output(11, n)?,
            row_of: call.output(12, slot_count)?,
        };
        if insert(call, &insertion, n) {
            call.output::<u32>(13, 1)?.set(0, 1);
        }
        Ok(())
    }
}

/// Pairs on their way into a table.
struct Insertion<'c, M> {
    columns: [Input<'c, u32, M>; 2],
    valid: [Bits<'c, M>; 2],
    entries: Input<'c, u64, M>,
    out: Output<'c, u64, M>,
    capacity: usize,
    farthest: u64,
    mask: u32,
    slots: Output<'c, u32, M>,
    row_of: Output<'c, u32, M>,
}

/// A key, the slots that it may take, and the first of them that it tries.
#[derive(Clone, Copy, Default)]
struct Pair {
    word: u64,
    first_slot: usize,
    slots: usize,
    place: usize,
}

impl<M: MemoryPolicy> Insertion<'_, M> {
    /// As in the CUDA source.
    #[inline(always)]
    fn pair(&self, at: usize, first: u32, second: u32) -> Pair {
        let known = [self.valid[0].get(at), self.valid[1].get(at)];
        let whole = u64::from(second) << 32 | u64::from(first);
        let (word, first_slot, slots) = match known {
            [true, true] if whole != EMPTY => (whole, 0, self.capacity),
            _ => {
                let (kind, half) = match known {
                    [false, true] => (0, second),
                    [true, false] => (1, first),
                    [false, false] => (2, 0),
                    [true, true] => (3, 0),
                };
                let others = self.entries.len() - self.capacity;
                (kind << 32 | u64::from(half), self.capacity, others)
            }
        };
        let hash = (hash_long(word, 0) >> 32) as u32 & self.mask;
        Pair { word, first_slot, slots, place: slot_of(hash, slots) }
    }

    /// Calls `found` for each row of a range with its key, and keeps the slot that it says.
    #[inline(always)]
    fn each(&self, rows: Range<usize>, mut found: impl FnMut(usize, Pair) -> Option<u32>) -> bool {
        let mut words = [[0u32; SPAN]; 2];
        let mut slots = [NO_SLOT; SPAN];
        for start in rows.clone().step_by(SPAN) {
            let span = SPAN.min(rows.end - start);
            for (column, words) in self.columns.iter().zip(&mut words) {
                column.read_into(start, &mut words[..span]);
            }
            for k in 0..span {
                let Some(slot) = found(start + k, self.pair(start + k, words[0][k], words[1][k]))
                else {
                    return true;
                };
                slots[k] = slot;
            }
            self.slots.write_from(start, &slots[..span]);
        }
        false
    }

    /// The slot of a key, or the empty one where it would be; `None` if neither is near.
    #[inline(always)]
    fn slot(&self, pair: Pair) -> Option<(usize, bool)> {
        let mut place = pair.place;
        for _ in 0..self.farthest {
            let slot = pair.first_slot + place;
            let entry = self.entries.get(slot);
            if entry == EMPTY || entry == pair.word {
                return Some((slot, entry == pair.word));
            }
            place = slot_after(place, pair.slots);
        }
        None
    }
}

impl<M: MemoryPolicy> Insert for Insertion<'_, M> {
    fn rows(&self, rows: Range<usize>) -> bool {
        self.each(rows, |at, pair| {
            let (slot, taken) = self.slot(pair)?;
            if !taken {
                self.out.set(slot, pair.word);
                self.row_of.set(slot, at as u32);
            }
            Some(slot as u32)
        })
    }

    fn look_up(&self, rows: Range<usize>) -> Vec<u32> {
        let mut missing = Vec::new();
        self.each(rows, |at, pair| match self.slot(pair) {
            Some((slot, true)) => Some(slot as u32),
            _ => {
                missing.push(at as u32);
                Some(NO_SLOT)
            }
        });
        missing
    }
}
