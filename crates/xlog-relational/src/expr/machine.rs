//! The interpreter on the host.
//!
//! It goes through the program once for a piece of rows at a time, so that each instruction is a
//! loop over memory that is in the cache.

use xlog_driver::host::{KernelCall, KernelFault, MemoryPolicy};

use super::{
    bits::length,
    kernel::{SLOTS, VALIDITIES},
    program::{Kind, Load, MOST_DEPTH, Opcode},
};

/// Rows that are worked on at a time: a multiple of 32, and a stack of them fits the cache.
pub(super) const PIECE: usize = 1024;

/// Whether bits are true: 1, else 0.
pub(super) fn truth(bits: u64) -> u8 {
    u8::from(bits != 0)
}

/// One entry of the stack, for a piece of rows.
pub(super) struct Entry {
    pub(super) bits: [u64; PIECE],
    /// 1 for a value that is there, else 0.
    pub(super) there: [u8; PIECE],
}

/// The interpreter's state for a piece of rows.
pub(super) struct Machine<'c, 'k, M> {
    call: &'c KernelCall<'k, M>,
    n: usize,
    nullable: u32,
    /// Rows of this piece.
    pub(super) count: usize,
    /// What the program leaves is its first entry.
    pub(super) stack: Vec<Entry>,
    depth: usize,
    /// Bit `i` is set if opcode `i` overflowed.
    pub(super) overflow: u32,
}

impl<'c, 'k, M: MemoryPolicy> Machine<'c, 'k, M> {
    /// Over a table of `n` rows; bit `i` of `nullable` says whether slot `i` has a validity.
    pub(super) fn new(call: &'c KernelCall<'k, M>, n: usize, nullable: u32) -> Self {
        Self { call, n, nullable, count: 0, stack: Vec::new(), depth: 0, overflow: 0 }
    }

    /// Runs the program for `count` rows from `start` on.
    pub(super) fn run(&mut self, program: &[u64], start: usize) -> Result<(), KernelFault> {
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
        let real = |f: fn(f64, f64) -> f64| {
            move |a, b| {
                let value = f(f64::from_bits(a), f64::from_bits(b));
                if value.is_nan() { ONE_NAN } else { value.to_bits() }
            }
        };
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

/// Any NaN that comes out of a calculation, and every NaN where there is to be one.
const ONE_NAN: u64 = 0x7ff8_0000_0000_0000;

/// The bits of a floating-point number, with one zero and one NaN.
pub(super) fn normal_bits(value: f64) -> u64 {
    if value.is_nan() { ONE_NAN } else { (value + 0.0).to_bits() }
}
