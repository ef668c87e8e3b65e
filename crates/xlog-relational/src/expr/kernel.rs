//! The interpreter's kernels: run a [`Program`](super::Program) for every row, and store what it
//! leaves.

use xlog_core::ScalarType::{U8, U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    bits::{length, pack},
    machine::{Entry, Machine, PIECE, truth},
    program::MOST_SLOTS,
};

static MODULE: KernelModule =
    KernelModule { name: "expression", ptx: include_str!("../../kernels/expression.ptx") };

/// Places of the parameters.
const PROGRAM: usize = 0;
const PROGRAM_LENGTH: usize = 1;
pub(super) const SLOTS: usize = 2;
pub(super) const VALIDITIES: usize = SLOTS + MOST_SLOTS;
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

/// Runs the program for every row; `store` gets what it leaves, a piece of rows at a time.
fn interpret<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    mut store: impl FnMut(usize, &mut Entry, usize),
) -> Result<(), KernelFault> {
    let program_length = length(call.value(PROGRAM_LENGTH)?)?;
    let mut program = vec![0; program_length];
    call.input::<u64>(PROGRAM, program_length)?.read_into(0, &mut program);
    let n = rows(call)?;
    let mut machine = Machine::new(call, n, call.value(NULLABLE)?);
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
