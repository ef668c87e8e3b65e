//! The interpreter: runs a [`Program`](super::Program) for every row, and stores what it leaves.
//!
//! On the host it goes through the program once for a piece of rows at a time, so that each
//! instruction is a loop over memory that is in the cache.

use xlog_core::ScalarType::{U8, U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    bits::{length, pack},
    program::{Kind, Load, MOST_DEPTH, MOST_SLOTS, Opcode},
};

static MODULE: KernelModule =
    KernelModule { name: "expression", ptx: include_str!("../../kernels/expression.ptx") };

/// Places of the parameters.
const PROGRAM: usize = 0;
const PROGRAM_LENGTH: usize = 1;
const SLOTS: usize = 2;
const VALIDITIES: usize = SLOTS + MOST_SLOTS;
const NULLABLE: usize = VALIDITIES + MOST_SLOTS;
const ROWS: usize = NULLABLE + 1;
const OVERFLOW: usize = ROWS + 1;
const OUTPUT: usize = OVERFLOW + 1;
const OUTPUT_VALIDITY: usize = OUTPUT + 1;

/// What every form of the interpreter takes, before its outputs.
macro_rules! parameters {
    ($($output:expr),*) => {
        &[
            Parameter::input("program", U64).counted_by(1),
            Parameter::value("program_length", U64),
            Parameter::input("slot0", U8),
            Parameter::input("slot1", U8),
            Parameter::input("slot2", U8),
            Parameter::input("slot3", U8),
            Parameter::input("slot4", U8),
            Parameter::input("slot5", U8),
            Parameter::input("slot6", U8),
            Parameter::input("slot7", U8),
            Parameter::input("validity0", U8),
            Parameter::input("validity1", U8),
            Parameter::input("validity2", U8),
            Parameter::input("validity3", U8),
            Parameter::input("validity4", U8),
            Parameter::input("validity5", U8),
            Parameter::input("validity6", U8),
            Parameter::input("validity7", U8),
            Parameter::value("nullable", U32),
            Parameter::value("n", U64),
            Parameter::in_out("overflow", U32).elements(1),
            $($output),*
        ]
    };
}

/// Sets bit `i % 32` of word `i / 32` if the program leaves true for row `i`; every other bit of
/// the words of `n` rows becomes 0.
pub(super) static PREDICATE: KernelDefinition = KernelDefinition {
    name: "xlog_expression_predicate",
    module: &MODULE,
    parameters: parameters![Parameter::output("mask", U32)],
    host: HostKernel::of::<Predicate>(),
};

/// Stores what the program leaves as bytes, with its validity.
pub(super) static BYTES: KernelDefinition = KernelDefinition {
    name: "xlog_expression_bytes",
    module: &MODULE,
    parameters: parameters![
        Parameter::output("values", U8).counted_by(19),
        Parameter::output("validity", U32)
    ],
    host: HostKernel::of::<Store<u8>>(),
};

/// The same as words, of integers.
pub(super) static WORDS: KernelDefinition = KernelDefinition {
    name: "xlog_expression_words",
    module: &MODULE,
    parameters: parameters![
        Parameter::output("values", U32).counted_by(19),
        Parameter::output("validity", U32)
    ],
    host: HostKernel::of::<Store<u32>>(),
};

/// The same as words, of `f32`.
pub(super) static FLOAT_WORDS: KernelDefinition = KernelDefinition {
    name: "xlog_expression_float_words",
    module: &MODULE,
    parameters: parameters![
        Parameter::output("values", U32).counted_by(19),
        Parameter::output("validity", U32)
    ],
    host: HostKernel::of::<Store<FloatWord>>(),
};

/// The same as eight bytes each.
pub(super) static LONGS: KernelDefinition = KernelDefinition {
    name: "xlog_expression_longs",
    module: &MODULE,
    parameters: parameters![
        Parameter::output("values", U64).counted_by(19),
        Parameter::output("validity", U32)
    ],
    host: HostKernel::of::<Store<u64>>(),
};

/// Rows that are worked on at a time: a multiple of 32, and a stack of them fits the cache.
const PIECE: usize = 1024;

struct Predicate;

impl KernelBody for Predicate {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = rows(call)?;
        let mask = call.output::<u32>(OUTPUT, n.div_ceil(32))?;
        let mut words = [0; PIECE / 32];
        interpret(call, |start, entry, count| {
            for (there, bits) in entry.there[..count].iter_mut().zip(&entry.bits) {
                *there &= truth(*bits);
            }
            let count = pack(&mut words, &mut entry.there, count);
            mask.write_from(start / 32, &words[..count]);
        })
    }
}

/// How an entry of the stack becomes a value in memory.
trait Stored {
    type Value: bytemuck::Pod;
    fn of(bits: u64) -> Self::Value;
}

macro_rules! stored {
    ($($type:ty),*) => {
        $(impl Stored for $type {
            type Value = $type;
            fn of(bits: u64) -> $type {
                bits as $type
            }
        })*
    };
}

stored! { u8, u32, u64 }

/// An `f32`, which is an `f64` on the stack.
struct FloatWord;

impl Stored for FloatWord {
    type Value = u32;
    fn of(bits: u64) -> u32 {
        (f64::from_bits(bits) as f32).to_bits()
    }
}

struct Store<T>(std::marker::PhantomData<T>);

impl<T: Stored> KernelBody for Store<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = rows(call)?;
        let values = call.output::<T::Value>(OUTPUT, n)?;
        let validity = call.output::<u32>(OUTPUT_VALIDITY, n.div_ceil(32))?;
        let (mut piece, mut words) = (Vec::with_capacity(PIECE), [0; PIECE / 32]);
        interpret(call, |start, entry, count| {
            piece.clear();
            piece.extend(entry.bits[..count].iter().map(|bits| T::of(*bits)));
            values.write_from(start, &piece);
            let count = pack(&mut words, &mut entry.there, count);
            validity.write_from(start / 32, &words[..count]);
        })
    }
}

fn rows<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<usize, KernelFault> {
    length(call.value(ROWS)?)
}

fn truth(bits: u64) -> u8 {
    u8::from(bits != 0)
}

/// One entry of the stack, for a piece of rows.
struct Entry {
    bits: [u64; PIECE],
    /// 1 for a value that is there, else 0.
    there: [u8; PIECE],
}

/// Runs the program for every row; `store` gets what it leaves, a piece of rows at a time.
fn interpret<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    mut store: impl FnMut(usize, &mut Entry, usize),
) -> Result<(), KernelFault> {
    let program_length = length(call.value(PROGRAM_LENGTH)?)?;
    let mut program = vec![0; program_length];
    call.input::<u64>(PROGRAM, program_length)?.read_into(0, &mut program);
    let n = rows(call)?;
    let mut machine = Machine { call, n, nullable: call.value(NULLABLE)?, ..Machine::new(call) };
    let mut start = 0;
    while start < n {
        machine.count = (n - start).min(PIECE);
        machine.run(&program, start)?;
        store(start, &mut machine.stack[0], machine.count);
        start += machine.count;
    }
    if machine.overflow != 0 {
        let flags = call.input::<u32>(OVERFLOW, 1)?.get(0);
        call.output::<u32>(OVERFLOW, 1)?.set(0, flags | machine.overflow);
    }
    Ok(())
}

/// The interpreter's state for a piece of rows.
struct Machine<'c, 'k, M> {
    call: &'c KernelCall<'k, M>,
    n: usize,
    nullable: u32,
    /// Rows of this piece.
    count: usize,
    stack: Vec<Entry>,
    depth: usize,
    overflow: u32,
}

impl<'c, 'k, M: MemoryPolicy> Machine<'c, 'k, M> {
    fn new(call: &'c KernelCall<'k, M>) -> Self {
        Self { call, n: 0, nullable: 0, count: 0, stack: Vec::new(), depth: 0, overflow: 0 }
    }

    fn run(&mut self, program: &[u64], start: usize) -> Result<(), KernelFault> {
        self.depth = 0;
        let mut at = 0;
        while at < program.len() {
            let word = program[at];
            let (kind, argument) = ((word >> 8) as u8, (word >> 32) as usize);
            let next = program.get(at + 1).copied().unwrap_or(0);
            let mut used = 1;
            match word as u8 {
                op if op == Opcode::Load as u8 => self.load(kind, argument, start)?,
                op if op == Opcode::Constant as u8 => {
                    self.push(next, 1)?;
                    used = 2;
                }
                op if op == Opcode::Null as u8 => self.push(0, 0)?,
                op if op == Opcode::ToFloat as u8 => match kind {
                    k if k == Kind::I64 as u8 => self.map(|bits| (bits as i64 as f64).to_bits()),
                    _ => self.map(|bits| (bits as f64).to_bits()),
                },
                op if op == Opcode::ToSigned as u8 => {
                    self.checked(op, |bits| (bits, bits > i64::MAX as u64));
                }
                op if op == Opcode::Compare as u8 => self.compare(kind, argument),
                op if op == Opcode::And as u8 => self.logic(true),
                op if op == Opcode::Or as u8 => self.logic(false),
                op if op == Opcode::Not as u8 => self.map(|bits| u64::from(bits == 0)),
                op if op == Opcode::IsNull as u8 => {
                    let count = self.count;
                    let top = self.top();
                    for (bits, there) in top.bits[..count].iter_mut().zip(&mut top.there) {
                        (*bits, *there) = (u64::from(*there == 0), 1);
                    }
                }
                op if op == Opcode::In as u8 => {
                    let values = program.get(at + 1..at + 1 + argument).unwrap_or_default();
                    self.is_in(values, kind & 1 == 1, kind & 2 == 2);
                    used = 1 + argument;
                }
                op if op == Opcode::RoundToF32 as u8 => {
                    self.map(|bits| f64::from(f64::from_bits(bits) as f32).to_bits());
                }
                op if op == Opcode::Lookup as u8 => {
                    self.lookup(argument, length(next)?)?;
                    used = 2;
                }
                op if op == Opcode::Negate as u8 => match kind {
                    k if k == Kind::F64 as u8 => self.map(|bits| bits ^ 1 << 63),
                    k if k == Kind::I64 as u8 => self.checked(op, |bits| {
                        let (value, overflows) = (bits as i64).overflowing_neg();
                        (value as u64, overflows)
                    }),
                    _ => self.checked(op, |bits| (bits.wrapping_neg(), bits > 1 << 63)),
                },
                op => self.arithmetic(op, kind)?,
            }
            at += used;
        }
        Ok(())
    }

    /// A place on top of the stack.
    fn grow(&mut self) -> Result<&mut Entry, KernelFault> {
        if self.depth == MOST_DEPTH {
            return Err(KernelFault("an expression's stack is too deep".to_owned()));
        }
        if self.stack.len() == self.depth {
            self.stack.push(Entry { bits: [0; PIECE], there: [0; PIECE] });
        }
        self.depth += 1;
        Ok(&mut self.stack[self.depth - 1])
    }

    fn push(&mut self, bits: u64, there: u8) -> Result<(), KernelFault> {
        let count = self.count;
        let entry = self.grow()?;
        entry.bits[..count].fill(bits);
        entry.there[..count].fill(there);
        Ok(())
    }

    fn top(&mut self) -> &mut Entry {
        &mut self.stack[self.depth - 1]
    }

    /// The two topmost entries, of which the left one stays.
    fn pop(&mut self) -> (&mut Entry, &Entry) {
        self.depth -= 1;
        let (left, right) = self.stack.split_at_mut(self.depth);
        (&mut left[self.depth - 1], &right[0])
    }

    fn load(&mut self, kind: u8, slot: usize, start: usize) -> Result<(), KernelFault> {
        let (call, n, count) = (self.call, self.n, self.count);
        let nullable = self.nullable >> slot & 1 == 1;
        let entry = self.grow()?;
        let width = match kind {
            k if k == Load::Byte as u8 => 1,
            k if k == Load::Long as u8 => 8,
            _ => 4,
        };
        let memory = call.input::<u8>(SLOTS + slot, n * width)?;
        if width == 8 {
            let bytes = bytemuck::cast_slice_mut(&mut entry.bits[..count]);
            memory.read_into(start * 8, bytes);
        } else {
            let mut raw = [0u32; PIECE];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut raw);
            memory.read_into(start * width, &mut bytes[..count * width]);
            let bits = entry.bits[..count].iter_mut();
            match kind {
                k if k == Load::Byte as u8 => {
                    let bytes: &[u8] = bytemuck::cast_slice(&raw);
                    bits.zip(bytes).for_each(|(bits, byte)| *bits = u64::from(*byte));
                }
                k if k == Load::SignedWord as u8 => {
                    bits.zip(&raw).for_each(|(b, word)| *b = i64::from(*word as i32) as u64);
                }
                k if k == Load::FloatWord as u8 => bits.zip(&raw).for_each(|(bits, word)| {
                    *bits = f64::from(f32::from_bits(*word)).to_bits();
                }),
                _ => bits.zip(&raw).for_each(|(bits, word)| *bits = u64::from(*word)),
            }
        }
        entry.there[..count].fill(1);
        if nullable {
            let mut words = [0u32; PIECE / 32];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            let memory = call.input::<u8>(VALIDITIES + slot, n.div_ceil(32) * 4)?;
            memory.read_into(start / 8, &mut bytes[..count.div_ceil(32) * 4]);
            let rows = entry.there[..count].chunks_mut(32).zip(words);
            rows.for_each(|(rows, word)| {
                rows.iter_mut().enumerate().for_each(|(i, there)| *there = (word >> i & 1) as u8);
            });
        }
        Ok(())
    }

    fn map(&mut self, f: impl Fn(u64) -> u64) {
        let count = self.count;
        self.top().bits[..count].iter_mut().for_each(|bits| *bits = f(*bits));
    }

    /// Replaces each value; one that is there and overflows is noted.
    fn checked(&mut self, opcode: u8, f: impl Fn(u64) -> (u64, bool)) {
        let count = self.count;
        let top = self.top();
        let mut overflows = 0;
        for (bits, there) in top.bits[..count].iter_mut().zip(&top.there) {
            let (value, overflow) = f(*bits);
            *bits = value;
            overflows |= u8::from(overflow) & there;
        }
        self.overflow |= u32::from(overflows) << opcode;
    }

    fn both(&mut self, f: impl Fn(u64, u64) -> u64) {
        let count = self.count;
        let (left, right) = self.pop();
        for (a, b) in left.bits[..count].iter_mut().zip(&right.bits) {
            *a = f(*a, *b);
        }
        left.there[..count].iter_mut().zip(&right.there).for_each(|(a, b)| *a &= b);
    }

    /// As `both`, noting overflows, and with results that may be missing.
    fn both_checked(&mut self, opcode: u8, f: impl Fn(u64, u64) -> (u64, bool, u8)) {
        let count = self.count;
        let (left, right) = self.pop();
        let mut overflows = 0;
        for row in 0..count {
            let (value, overflow, there) = f(left.bits[row], right.bits[row]);
            left.bits[row] = value;
            left.there[row] &= right.there[row] & there;
            overflows |= u8::from(overflow) & left.there[row];
        }
        self.overflow |= u32::from(overflows) << opcode;
    }

    fn logic(&mut self, and: bool) {
        let count = self.count;
        let (left, right) = self.pop();
        for row in 0..count {
            let (a, b) = (truth(left.bits[row]), truth(right.bits[row]));
            let (a_there, b_there) = (left.there[row], right.there[row]);
            // One side that is there can decide alone: false for `and`, true for `or`.
            let (a_decides, b_decides) = if and { (1 - a, 1 - b) } else { (a, b) };
            let decided = (a_there & a_decides) | (b_there & b_decides);
            left.there[row] = (a_there & b_there) | decided;
            left.bits[row] = u64::from(if and { 1 - decided } else { decided });
        }
    }

    fn compare(&mut self, kind: u8, comparison: usize) {
        match kind {
            k if k == Kind::U64 as u8 => self.compare_by(comparison, |a, b| a < b, |a, b| a == b),
            k if k == Kind::I64 as u8 => {
                self.compare_by(comparison, |a, b| (a as i64) < b as i64, |a, b| a == b);
            }
            k if k == Kind::F64 as u8 => self.compare_by(
                comparison,
                |a, b| float_is_less(f64::from_bits(a), f64::from_bits(b)),
                |a, b| {
                    let (a, b) = (f64::from_bits(a), f64::from_bits(b));
                    a == b || (a.is_nan() && b.is_nan())
                },
            ),
            _ => {
                // The left side is signed: a negative one is below every right side.
                self.compare_mixed(comparison);
            }
        }
    }

    fn compare_by(
        &mut self,
        comparison: usize,
        less: impl Fn(u64, u64) -> bool,
        equal: impl Fn(u64, u64) -> bool,
    ) {
        match comparison {
            0 => self.both(|a, b| u64::from(equal(a, b))),
            1 => self.both(|a, b| u64::from(!equal(a, b))),
            2 => self.both(|a, b| u64::from(less(a, b))),
            3 => self.both(|a, b| u64::from(!less(b, a))),
            4 => self.both(|a, b| u64::from(less(b, a))),
            _ => self.both(|a, b| u64::from(!less(a, b))),
        }
    }

    fn compare_mixed(&mut self, comparison: usize) {
        let negative = |a: u64| (a as i64) < 0;
        match comparison {
            0 => self.both(|a, b| u64::from(!negative(a) && a == b)),
            1 => self.both(|a, b| u64::from(negative(a) || a != b)),
            2 => self.both(|a, b| u64::from(negative(a) || a < b)),
            3 => self.both(|a, b| u64::from(negative(a) || a <= b)),
            4 => self.both(|a, b| u64::from(!negative(a) && a > b)),
            _ => self.both(|a, b| u64::from(!negative(a) && a >= b)),
        }
    }

    fn is_in(&mut self, values: &[u64], with_null: bool, float: bool) {
        let count = self.count;
        let top = self.top();
        for (bits, there) in top.bits[..count].iter_mut().zip(&mut top.there) {
            let wanted = if float { normal_bits(f64::from_bits(*bits)) } else { *bits };
            let found = values.binary_search(&wanted).is_ok();
            *bits = u64::from(found);
            *there &= u8::from(found || !with_null);
        }
    }

    fn lookup(&mut self, slot: usize, len: usize) -> Result<(), KernelFault> {
        let (table, count) = (self.call.input::<u8>(SLOTS + slot, len * 4)?, self.count);
        let top = self.top();
        for (bits, there) in top.bits[..count].iter_mut().zip(&top.there) {
            let mut word = [0u8; 4];
            // What stands in a missing row leads nowhere.
            if *there == 1 {
                table.read_into(*bits as usize * 4, &mut word);
            }
            *bits = u64::from(u32::from_ne_bytes(word));
        }
        Ok(())
    }

    fn arithmetic(&mut self, op: u8, kind: u8) -> Result<(), KernelFault> {
        let real =
            |f: fn(f64, f64) -> f64| move |a, b| f(f64::from_bits(a), f64::from_bits(b)).to_bits();
        let signed = |f: fn(i64, i64) -> (i64, bool)| {
            move |a, b| {
                let (value, overflows) = f(a as i64, b as i64);
                (value as u64, overflows, 1)
            }
        };
        let unsigned = |f: fn(u64, u64) -> (u64, bool)| {
            move |a, b| {
                let (value, overflows) = f(a, b);
                (value, overflows, 1)
            }
        };
        let (f64_kind, i64_kind) = (Kind::F64 as u8, Kind::I64 as u8);
        match op {
            o if o == Opcode::Add as u8 => match kind {
                k if k == f64_kind => self.both(real(|a, b| a + b)),
                k if k == i64_kind => self.both_checked(op, signed(i64::overflowing_add)),
                _ => self.both_checked(op, unsigned(u64::overflowing_add)),
            },
            o if o == Opcode::Subtract as u8 => match kind {
                k if k == f64_kind => self.both(real(|a, b| a - b)),
                k if k == i64_kind => self.both_checked(op, signed(i64::overflowing_sub)),
                _ => self.both_checked(op, |a, b| {
                    let value = a.wrapping_sub(b) as i64;
                    (value as u64, (value < 0) != (a < b), 1)
                }),
            },
            o if o == Opcode::Multiply as u8 => match kind {
                k if k == f64_kind => self.both(real(|a, b| a * b)),
                k if k == i64_kind => self.both_checked(op, signed(i64::overflowing_mul)),
                _ => self.both_checked(op, unsigned(u64::overflowing_mul)),
            },
            o if o == Opcode::Divide as u8 => match kind {
                k if k == f64_kind => self.both(real(|a, b| a / b)),
                k if k == i64_kind => self.both_checked(op, |a, b| {
                    let divisor = if b == 0 { 1 } else { b as i64 };
                    let (value, overflows) = (a as i64).overflowing_div(divisor);
                    (value as u64, overflows, truth(b))
                }),
                _ => self.both_checked(op, |a, b| (a / b.max(1), false, truth(b))),
            },
            o if o == Opcode::Remainder as u8 => match kind {
                k if k == f64_kind => self.both(real(|a, b| a % b)),
                k if k == i64_kind => self.both_checked(op, |a, b| {
                    let divisor = if b == 0 { 1 } else { b as i64 };
                    ((a as i64).wrapping_rem(divisor) as u64, false, truth(b))
                }),
                _ => self.both_checked(op, |a, b| (a % b.max(1), false, truth(b))),
            },
            other => return Err(KernelFault(format!("an expression has no instruction {other}"))),
        }
        Ok(())
    }
}

/// The order of comparisons: NaN is above every number.
fn float_is_less(a: f64, b: f64) -> bool {
    a < b || (!a.is_nan() && b.is_nan())
}

/// The bits of a floating-point number, with one zero and one NaN.
pub(super) fn normal_bits(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { (value + 0.0).to_bits() }
}
