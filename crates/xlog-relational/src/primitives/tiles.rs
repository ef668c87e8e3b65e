//! The words through which the tiles of a single-pass kernel hand on their counts.
//!
//! They are CUB's: 32 for what lies before the first tile, then one for each. Only a grid of
//! several tiles looks at them.

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{host::length, scan};
use crate::Engine;

/// Words before those of the first tile.
const BEFORE: usize = 32;

/// Bits of the counts that tiles hand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountBits {
    /// Eight bytes a tile.
    B32,
    /// Sixteen bytes a tile.
    B64,
}

macro_rules! init {
    ($name:ident, $entry:literal) => {
        static $name: KernelDefinition = KernelDefinition {
            name: $entry,
            module: &scan::MODULE,
            parameters: &[
                Parameter::output("tiles", U64).counted_by(1),
                Parameter::value("words", U64),
                Parameter::value("tile_count", U32),
            ],
            host: HostKernel::of::<Init>(),
        };
    };
}

init!(INIT_32, "xlog_tiles_init_32");
init!(INIT_64, "xlog_tiles_init_64");

/// The host's kernels hand nothing on between tiles: it is enough that the words are there.
struct Init;

impl KernelBody for Init {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        call.output::<u64>(0, length(call.value(1)?)?)?.fill(0);
        Ok(())
    }
}

/// Words for `tiles` tiles, none of which is done.
#[track_caller]
pub(crate) fn tile_words(
    engine: &Engine,
    stream: StreamId,
    bits: CountBits,
    tiles: usize,
) -> ResourceResult<TrackedCudaSlice<u64>> {
    let (kernel, each) = match bits {
        CountBits::B32 => (&INIT_32, 1),
        CountBits::B64 => (&INIT_64, 2),
    };
    let words = engine.alloc::<u64>((BEFORE + tiles) * each, stream, "tiles")?;
    if tiles > 1 {
        engine
            .launch(kernel, stream)?
            .output(&words)
            .value(words.len() as u64)
            .value(tiles as u32)
            .launch(LaunchDims::linear(tiles.div_ceil(128) as u32, 128))?;
    }
    Ok(words)
}
