//! Rows of a side that belong to the output without a partner.

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{MODULE, NONE, control};
use crate::primitives::hash::length;

/// Bits of build rows from bits of slots.
pub(in super::super) static MARK: KernelDefinition = KernelDefinition {
    name: "xlog_join_mark",
    module: &MODULE,
    parameters: &[
        Parameter::input("slots", U32).counted_by(3),
        Parameter::input("slot_bits", U32),
        Parameter::output("row_bits", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Mark>(),
};

struct Mark;

impl KernelBody for Mark {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(3)?)?;
        let slots = call.input::<u32>(0, n)?;
        let bits = call.input::<u32>(1, 1 << 27)?;
        let words = n.div_ceil(32);
        let out = call.output::<u32>(2, words)?;
        for word in 0..words {
            let mut mine = 0;
            for at in word * 32..n.min(word * 32 + 32) {
                let slot = slots.get(at);
                if slot != NONE {
                    mine |= (bits.get(slot as usize / 32) >> (slot % 32) & 1) << (at % 32);
                }
            }
            out.set(word, mine);
        }
        Ok(())
    }
}

/// How many rows have no bit.
pub(in super::super) static COUNT_UNSET: KernelDefinition = KernelDefinition {
    name: "xlog_join_count_unset",
    module: &MODULE,
    parameters: &[
        Parameter::input("bits", U32),
        Parameter::in_out("control", U64).elements(8),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<CountUnset>(),
};

struct CountUnset;

impl KernelBody for CountUnset {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(2)?)?;
        let bits = call.input::<u32>(0, n.div_ceil(32))?;
        let unset = (0..n).filter(|at| bits.get(at / 32) >> (at % 32) & 1 == 0).count();
        let before = call.input::<u64>(1, control::WORDS)?.get(control::APPENDED);
        call.output::<u64>(1, control::WORDS)?.set(control::APPENDED, before + unset as u64);
        Ok(())
    }
}

/// The rows that have no bit, appended to the output.
pub(in super::super) static APPEND: KernelDefinition = KernelDefinition {
    name: "xlog_join_append",
    module: &MODULE,
    parameters: &[
        Parameter::input("bits", U32),
        Parameter::value("build_side", U32),
        Parameter::value("has_other", U32),
        Parameter::value("short_way", U32),
        Parameter::in_out("control", U64).elements(8),
        Parameter::output("out_build", U32).optional(),
        Parameter::output("out_probe", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Append>(),
};

struct Append;

impl KernelBody for Append {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let control = call.input::<u64>(4, control::WORDS)?;
        if call.value::<u32>(3)? != 0 && control.get(control::REPEATS) != 0 {
            return Ok(());
        }
        let n = length(call.value(7)?)?;
        let bits = call.input::<u32>(0, n.div_ceil(32))?;
        let (build_side, has_other) = (call.value::<u32>(1)? != 0, call.value::<u32>(2)? != 0);
        let mut to = length(control.get(control::OUTPUT))?;
        let most = to + n;
        let has_build = build_side || has_other;
        let out_build = call.output::<u32>(5, if has_build { most } else { 0 })?;
        let out_probe = call.output::<u32>(6, most)?;
        for at in (0..n).filter(|at| bits.get(at / 32) >> (at % 32) & 1 == 0) {
            if has_build {
                out_build.set(to, if build_side { at as u32 } else { NONE });
            }
            if !build_side || has_other {
                out_probe.set(to, if build_side { NONE } else { at as u32 });
            }
            to += 1;
        }
        call.output::<u64>(4, control::WORDS)?.set(control::OUTPUT, to as u64);
        Ok(())
    }
}
