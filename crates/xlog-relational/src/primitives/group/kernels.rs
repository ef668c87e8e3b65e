//! The kernels of `group_by.cu`.

use std::{marker::PhantomData, ops::Range};

use bytemuck::Pod;
use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use crate::primitives::hash::{Bits, length};

static MODULE: KernelModule =
    KernelModule { name: "group_by", ptx: include_str!("../../../kernels/group_by.ptx") };

const EMPTY: u64 = u64::MAX;
const NO_SLOT: u32 = u32::MAX;
const SIGN: u64 = 1 << 63;
const SIGN_32: u32 = 1 << 31;

/// What is done with the values of a group; as in the CUDA source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Operation {
    Count = 0,
    SumU32 = 1,
    SumI32 = 2,
    SumF32 = 3,
    MinU32 = 4,
    MaxU32 = 5,
    MinI32 = 6,
    MaxI32 = 7,
    MinF32 = 8,
    MaxF32 = 9,
    SumU64 = 10,
    SumI64 = 11,
    SumF64 = 12,
    MinU64 = 13,
    MaxU64 = 14,
    MinI64 = 15,
    MaxI64 = 16,
    MinF64 = 17,
    MaxF64 = 18,
}

impl Operation {
    const ALL: [Self; 19] = [
        Self::Count,
        Self::SumU32,
        Self::SumI32,
        Self::SumF32,
        Self::MinU32,
        Self::MaxU32,
        Self::MinI32,
        Self::MaxI32,
        Self::MinF32,
        Self::MaxF32,
        Self::SumU64,
        Self::SumI64,
        Self::SumF64,
        Self::MinU64,
        Self::MaxU64,
        Self::MinI64,
        Self::MaxI64,
        Self::MinF64,
        Self::MaxF64,
    ];

    fn of(code: u32) -> Result<Self, KernelFault> {
        let found = Self::ALL.into_iter().find(|one| *one as u32 == code);
        found.ok_or_else(|| KernelFault(format!("aggregate {code} is not one")))
    }

    /// Whether the result has 128 bits.
    pub(super) fn is_wide(self) -> bool {
        matches!(self, Self::SumU64 | Self::SumI64)
    }

    fn is_min(self) -> bool {
        use Operation::{MinF32, MinF64, MinI32, MinI64, MinU32, MinU64};
        matches!(self, MinU32 | MinI32 | MinF32 | MinU64 | MinI64 | MinF64)
    }

    fn is_max(self) -> bool {
        use Operation::{MaxF32, MaxF64, MaxI32, MaxI64, MaxU32, MaxU64};
        matches!(self, MaxU32 | MaxI32 | MaxF32 | MaxU64 | MaxI64 | MaxF64)
    }

    /// Whether values are mapped to words of the same order, and back at the end.
    pub(super) fn is_ordered(self) -> bool {
        use Operation::{MaxF32, MaxF64, MaxI32, MaxI64, MinF32, MinF64, MinI32, MinI64};
        matches!(self, MinI32 | MaxI32 | MinF32 | MaxF32 | MinI64 | MaxI64 | MinF64 | MaxF64)
    }

    /// The word that stands for a value.
    #[inline(always)]
    fn word(self, raw: u64) -> u64 {
        let half = raw as u32;
        match self {
            Self::Count => 1,
            Self::SumI32 => i64::from(half as i32) as u64,
            Self::SumF32 => f64::from(f32::from_bits(half)).to_bits(),
            Self::MinI32 | Self::MaxI32 => u64::from(half ^ SIGN_32),
            Self::MinF32 | Self::MaxF32 => {
                u64::from(if half & SIGN_32 != 0 { !half } else { half | SIGN_32 })
            }
            Self::MinI64 | Self::MaxI64 => raw ^ SIGN,
            Self::MinF64 | Self::MaxF64 if raw & SIGN != 0 => !raw,
            Self::MinF64 | Self::MaxF64 => raw | SIGN,
            _ => raw,
        }
    }

    /// Two results of the same group as one, and whether the low word of a sum wrapped.
    fn merge(self, one: u64, other: u64) -> (u64, bool) {
        match self {
            Self::SumF32 | Self::SumF64 => {
                ((f64::from_bits(one) + f64::from_bits(other)).to_bits(), false)
            }
            _ if self.is_min() => (one.min(other), false),
            _ if self.is_max() => (one.max(other), false),
            _ => one.overflowing_add(other),
        }
    }

    /// The value a word stands for.
    fn value(self, word: u64) -> u64 {
        let half = word as u32;
        match self {
            Self::MinI32 | Self::MaxI32 => u64::from(half ^ SIGN_32),
            Self::MinF32 | Self::MaxF32 => {
                u64::from(if half & SIGN_32 != 0 { half ^ SIGN_32 } else { !half })
            }
            Self::MinI64 | Self::MaxI64 => word ^ SIGN,
            Self::MinF64 | Self::MaxF64 if word & SIGN != 0 => word ^ SIGN,
            Self::MinF64 | Self::MaxF64 => !word,
            _ => word,
        }
    }
}

/// The byte that fills the words of an aggregate before the first value.
pub(super) fn first_bytes(operation: Operation) -> u8 {
    if operation.is_min() { 0xff } else { 0 }
}

/// Numbers the slots that are taken.
pub(super) static NUMBER: KernelDefinition = KernelDefinition {
    name: "xlog_group_number",
    module: &MODULE,
    parameters: &[
        Parameter::input("table", U64).counted_by(1),
        Parameter::value("capacity", U64),
        Parameter::input("row_of", U32).optional(),
        Parameter::value("has_row_of", U32),
        Parameter::output("numbers", U32).counted_by(1),
        Parameter::output("rows", U32),
        Parameter::in_out("groups", U32).elements(1),
    ],
    host: HostKernel::of::<Number>(),
};

struct Number;

impl KernelBody for Number {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let capacity = length(call.value(1)?)?;
        let table = call.input::<u64>(0, capacity)?;
        let row_of =
            if call.value::<u32>(3)? == 0 { None } else { Some(call.input::<u32>(2, capacity)?) };
        let (numbers, rows) = (call.output::<u32>(4, capacity)?, call.output::<u32>(5, capacity)?);
        let mut groups = call.input::<u32>(6, 1)?.get(0);
        table.for_each_piece(|first, piece| {
            for (slot, &entry) in piece.iter().enumerate().filter(|(_, entry)| **entry != EMPTY) {
                numbers.set(first + slot, groups);
                let row = row_of.as_ref().map_or(entry as u32, |rows| rows.get(first + slot));
                rows.set(groups as usize, row);
                groups += 1;
            }
        });
        call.output::<u32>(6, 1)?.set(0, groups);
        Ok(())
    }
}

macro_rules! aggregate_definition {
    ($(#[$doc:meta])* $static:ident, $name:literal, $scalar:expr, $word:ty) => {
        $(#[$doc])*
        pub(super) static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("slots", U32).counted_by(9),
                Parameter::input("numbers", U32),
                Parameter::input("values", $scalar).counted_by(9),
                Parameter::input("valid", U32).optional(),
                Parameter::value("has_valid", U32),
                Parameter::value("operation", U32),
                Parameter::in_out("low", U64).counted_by(8),
                Parameter::in_out("high", U64).counted_by(8),
                Parameter::value("groups", U64),
                Parameter::value("n", U64),
            ],
            host: HostKernel::of::<Add<$word>>(),
        };
    };
}

aggregate_definition! {
    /// Combines 32-bit values by group.
    AGGREGATE_U32, "xlog_group_aggregate_u32", U32, u32
}
aggregate_definition! {
    /// Combines 64-bit values by group.
    AGGREGATE_U64, "xlog_group_aggregate_u64", U64, u64
}

struct Add<Word>(PhantomData<Word>);

/// Rows whose numbers and words are read together.
const SPAN: usize = 256;

impl<Word: Pod + Into<u64> + Send> KernelBody for Add<Word> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        use Operation::{Count, SumF32, SumF64, SumI32, SumI64, SumU32, SumU64};
        let operation = Operation::of(call.value(5)?)?;
        // A loop for each kind: the choice is made once and not for each row.
        match operation {
            Count => add::<Word, M, false>(call, operation, |low, _, _| low + 1),
            SumU32 => add::<Word, M, false>(call, operation, |low, _, word| low.wrapping_add(word)),
            SumI32 => add::<Word, M, false>(call, operation, |low, _, word| {
                low.wrapping_add(SumI32.word(word))
            }),
            SumF32 | SumF64 => add::<Word, M, false>(call, operation, |low, _, word| {
                let word = f64::from_bits(operation.word(word));
                (f64::from_bits(low) + word).to_bits()
            }),
            SumU64 => add::<Word, M, true>(call, operation, |low, high, word| {
                let (sum, carry) = low.overflowing_add(word);
                *high = high.wrapping_add(u64::from(carry));
                sum
            }),
            SumI64 => add::<Word, M, true>(call, operation, |low, high, word| {
                let (sum, carry) = low.overflowing_add(word);
                let sign = ((word as i64) >> 63) as u64;
                *high = high.wrapping_add(sign).wrapping_add(u64::from(carry));
                sum
            }),
            _ if operation.is_max() => {
                add::<Word, M, false>(call, operation, |low, _, word| low.max(operation.word(word)))
            }
            _ => {
                add::<Word, M, false>(call, operation, |low, _, word| low.min(operation.word(word)))
            }
        }
    }
}

/// Threads add up for themselves if there are as many rows to a group at least.
const ROWS_TO_A_GROUP: usize = 4;
/// Rows below which one thread is enough.
const FEW_ROWS: usize = 1 << 16;

fn add<Word: Pod + Into<u64> + Send, M: MemoryPolicy, const WIDE: bool>(
    call: &KernelCall<'_, M>,
    operation: Operation,
    combine: impl Fn(u64, &mut u64, u64) -> u64 + Sync,
) -> Result<(), KernelFault> {
    let (groups, n) = (length(call.value(8)?)?, length(call.value(9)?)?);
    let rows = Rows::<Word, M> {
        slots: call.input(0, n)?,
        numbers: call.input(1, NO_SLOT as usize)?,
        values: call.input(2, n)?,
        valid: Bits::of(call, 3, n)?,
        counts: operation == Operation::Count,
    };
    let (low, low_out) = (call.input::<u64>(6, groups)?, call.output::<u64>(6, groups)?);
    let (high, high_out) = (call.input::<u64>(7, groups)?, call.output::<u64>(7, groups)?);
    let threads = call.threads();
    if threads == 1 || groups > n / ROWS_TO_A_GROUP || n < FEW_ROWS {
        rows.each(0..n, |group, value| {
            let mut more = if WIDE { high.get(group) } else { 0 };
            low_out.set(group, combine(low.get(group), &mut more, value));
            if WIDE {
                high_out.set(group, more);
            }
        });
        return Ok(());
    }
    let first = if operation.is_min() { u64::MAX } else { 0 };
    let part = n.div_ceil(threads);
    let sums = std::thread::scope(|scope| {
        let (rows, combine) = (&rows, &combine);
        let running: Vec<_> = (0..n)
            .step_by(part)
            .map(|from| {
                scope.spawn(move || {
                    let mut low = vec![first; groups];
                    let mut high = vec![0u64; if WIDE { groups } else { 0 }];
                    rows.each(from..n.min(from + part), |group, value| {
                        let mut nothing = 0;
                        let more = if WIDE { &mut high[group] } else { &mut nothing };
                        low[group] = combine(low[group], more, value);
                    });
                    (low, high)
                })
            })
            .collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for own in sums {
        let own = own.map_err(|_| KernelFault("a thread of an aggregate ended early".into()))?;
        for group in 0..groups {
            let (sum, carry) = operation.merge(low.get(group), own.0[group]);
            low_out.set(group, sum);
            if WIDE {
                let sum = high.get(group).wrapping_add(own.1[group]).wrapping_add(u64::from(carry));
                high_out.set(group, sum);
            }
        }
    }
    Ok(())
}

/// Rows with their groups and values.
struct Rows<'c, Word, M> {
    slots: Input<'c, u32, M>,
    numbers: Input<'c, u32, M>,
    values: Input<'c, Word, M>,
    valid: Bits<'c, M>,
    /// Whether the values do not matter, and are not there.
    counts: bool,
}

impl<Word: Pod + Into<u64>, M: MemoryPolicy> Rows<'_, Word, M> {
    /// Calls `row` with the group and the value of each row of a range that counts.
    #[inline(always)]
    fn each(&self, rows: Range<usize>, mut row: impl FnMut(usize, u64)) {
        let mut slot = [0u32; SPAN];
        let mut value = [Word::zeroed(); SPAN];
        for start in rows.clone().step_by(SPAN) {
            let span = SPAN.min(rows.end - start);
            self.slots.read_into(start, &mut slot[..span]);
            if !self.counts {
                self.values.read_into(start, &mut value[..span]);
            }
            for slot in &mut slot[..span] {
                *slot = if *slot == NO_SLOT { NO_SLOT } else { self.numbers.get(*slot as usize) };
            }
            for k in 0..span {
                if slot[k] != NO_SLOT && self.valid.get(start + k) {
                    row(slot[k] as usize, value[k].into());
                }
            }
        }
    }
}

/// Words of a least or greatest value, turned back into the value.
pub(super) static FINISH: KernelDefinition = KernelDefinition {
    name: "xlog_group_finish",
    module: &MODULE,
    parameters: &[
        Parameter::in_out("low", U64).counted_by(2),
        Parameter::value("operation", U32),
        Parameter::value("groups", U64),
    ],
    host: HostKernel::of::<Finish>(),
};

struct Finish;

impl KernelBody for Finish {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let groups = length(call.value(2)?)?;
        let operation = Operation::of(call.value(1)?)?;
        let (low, out) = (call.input::<u64>(0, groups)?, call.output::<u64>(0, groups)?);
        (0..groups).for_each(|g| out.set(g, operation.value(low.get(g))));
        Ok(())
    }
}
