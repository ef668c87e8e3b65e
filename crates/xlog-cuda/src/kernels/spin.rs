//! Kernels for tests and benchmarks: a gate that holds a stream back, its signal, and launches
//! that do next to nothing.

use std::time::{Duration, Instant};

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

static MODULE: KernelModule =
    KernelModule { name: "spin", ptx: include_str!("../../kernels/spin.ptx") };

/// Holds its stream until `*flag` is not zero, or until `max_nanoseconds` have passed. One thread.
pub static GATE: KernelDefinition = KernelDefinition {
    name: "xlog_gate",
    module: &MODULE,
    parameters: &[
        Parameter::input("flag", U32).elements(1),
        Parameter::value("max_nanoseconds", U64),
    ],
    host: HostKernel::of::<Gate>(),
};

struct Gate;

impl KernelBody for Gate {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let flag = call.input::<u32>(0, 1)?;
        let (start, most) = (Instant::now(), Duration::from_nanos(call.value(1)?));
        while flag.get(0) == 0 && start.elapsed() < most {
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }
}

/// Sets `*flag`. One thread.
pub static SIGNAL: KernelDefinition = KernelDefinition {
    name: "xlog_signal",
    module: &MODULE,
    parameters: &[Parameter::output("flag", U32).elements(1), Parameter::value("value", U32)],
    host: HostKernel::of::<Signal>(),
};

struct Signal;

impl KernelBody for Signal {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        call.output::<u32>(0, 1)?.set(0, call.value(1)?);
        Ok(())
    }
}

/// Does nothing, whatever it is given.
struct Empty;

impl KernelBody for Empty {
    fn run<M: MemoryPolicy>(_: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        Ok(())
    }
}

/// Adds its last argument to the first element of each of its others.
struct Touch<const BLOCKS: usize>;

impl<const BLOCKS: usize> KernelBody for Touch<BLOCKS> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let amount = call.value::<u32>(BLOCKS)?;
        for index in 0..BLOCKS {
            let value = call.input::<u32>(index, 1)?.get(0);
            call.output::<u32>(index, 1)?.set(0, value.wrapping_add(amount));
        }
        Ok(())
    }
}

const READ: Parameter = Parameter::input("block", U32).elements(0);
const BLOCK: Parameter = Parameter::in_out("block", U32).elements(1);
const AMOUNT: Parameter = Parameter::value("amount", U32);

macro_rules! spin_kernels {
    ($($(#[$doc:meta])* $static:ident = $name:literal, $parameters:expr, $body:ty;)*) => {
        $($(#[$doc])* pub static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &$parameters,
            host: HostKernel::of::<$body>(),
        };)*
    };
}

spin_kernels! {
    /// Takes one block and does nothing.
    EMPTY_1 = "xlog_empty_1", [BLOCK; 1], Empty;
    /// Takes four blocks and does nothing.
    EMPTY_4 = "xlog_empty_4", [BLOCK; 4], Empty;
    /// Takes eight blocks and does nothing.
    EMPTY_8 = "xlog_empty_8", [BLOCK; 8], Empty;
    /// Takes one block to read and does nothing.
    EMPTY_READ_1 = "xlog_empty_1", [READ; 1], Empty;
    /// Takes four blocks to read and does nothing.
    EMPTY_READ_4 = "xlog_empty_4", [READ; 4], Empty;
    /// Takes eight blocks to read and does nothing.
    EMPTY_READ_8 = "xlog_empty_8", [READ; 8], Empty;
    /// Adds an amount to the first element of one block. One thread.
    TOUCH_1 = "xlog_touch_1", [BLOCK, AMOUNT], Touch<1>;
    /// Adds an amount to the first element of four blocks. One thread.
    TOUCH_4 = "xlog_touch_4", [BLOCK, BLOCK, BLOCK, BLOCK, AMOUNT], Touch<4>;
    /// Adds an amount to the first element of eight blocks. One thread.
    TOUCH_8 = "xlog_touch_8",
        [BLOCK, BLOCK, BLOCK, BLOCK, BLOCK, BLOCK, BLOCK, BLOCK, AMOUNT], Touch<8>;
}
