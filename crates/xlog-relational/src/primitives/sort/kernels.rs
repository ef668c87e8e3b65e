//! The kernels of a radix sort, for every type of key and value.

use xlog_core::ScalarType::{self, U32, U64};
use xlog_driver::{KernelDefinition, KernelModule, Parameter, host::HostKernel};

use super::host;

/// A module for each kind of key and value: a sort loads what it launches and no more.
macro_rules! modules {
    ($($static:ident => $name:literal),*) => {
        $(static $static: KernelModule = KernelModule {
            name: $name,
            ptx: include_str!(concat!("../../../kernels/", $name, ".ptx")),
        };)*
    };
}

modules!(
    COUNT => "radix_count",
    SORT_32 => "radix_sort_32", SORT_32_32 => "radix_sort_32_32", SORT_32_64 => "radix_sort_32_64",
    SORT_64 => "radix_sort_64", SORT_64_32 => "radix_sort_64_32", SORT_64_64 => "radix_sort_64_64"
);

/// `bins[i]`, the counts of the digits of one sweep, become their exclusive sums.
pub(super) static STARTS: KernelDefinition = KernelDefinition {
    name: "xlog_radix_starts",
    module: &COUNT,
    parameters: &[Parameter::in_out("bins", U32).counted_by(1), Parameter::value("count", U64)],
    host: HostKernel::of::<host::Starts>(),
};

/// What a sort of keys of one type launches.
#[derive(Debug)]
#[doc(hidden)]
pub struct KeyKernels {
    /// Counts the digits of every sweep.
    pub(super) histogram: KernelDefinition,
    /// Keys alone.
    pub(super) keys: SweepKernels,
    /// Keys with values of four bytes.
    pub(super) pairs_32: SweepKernels,
    /// Keys with values of eight bytes.
    pub(super) pairs_64: SweepKernels,
}

/// What a sort of keys and values of one type launches.
#[derive(Debug)]
#[doc(hidden)]
pub struct SweepKernels {
    /// Sorts by one digit.
    pub(super) sweep: KernelDefinition,
    /// The same, with a change of the keys' bits as they are read and as they are written.
    pub(super) sweep_ordered: KernelDefinition,
    /// Sorts what fits one block, by all digits.
    pub(super) tile: KernelDefinition,
    /// Keys that a block of a sweep takes, and its threads.
    pub(super) tile_rows: usize,
    pub(super) threads: u32,
}

// A sweep only writes what it moves. By more bits than a digit has, which only the host is asked
// for, it reads there what it wrote before: hence `in_out`.
macro_rules! sweep_keys {
    ($module:ident, $name:expr, $key:expr, $body:ty $(, $order:literal)*) => {
        KernelDefinition {
            name: $name,
            module: &$module,
            parameters: &[
                Parameter::in_out("look_back", U32),
                Parameter::in_out("counter", U32).elements(1),
                Parameter::input("bins", U32).elements(256),
                Parameter::output("bins_left", U32).elements(256),
                Parameter::input("keys_in", $key).counted_by(6),
                Parameter::in_out("keys_out", $key).counted_by(7),
                Parameter::value("count", U64),
                Parameter::value("rows", U64),
                Parameter::value("shift", U32),
                Parameter::value("bits", U32),
                $(Parameter::value($order, bits_of($key)),)*
            ],
            host: HostKernel::of::<$body>(),
        }
    };
}

macro_rules! sweep_pairs {
    ($module:ident, $name:expr, $key:expr, $value:expr, $body:ty $(, $order:literal)*) => {
        KernelDefinition {
            name: $name,
            module: &$module,
            parameters: &[
                Parameter::in_out("look_back", U32),
                Parameter::in_out("counter", U32).elements(1),
                Parameter::input("bins", U32).elements(256),
                Parameter::output("bins_left", U32).elements(256),
                Parameter::input("keys_in", $key).counted_by(8),
                Parameter::in_out("keys_out", $key).counted_by(9),
                Parameter::input("values_in", $value).counted_by(8),
                Parameter::in_out("values_out", $value).counted_by(9),
                Parameter::value("count", U64),
                Parameter::value("rows", U64),
                Parameter::value("shift", U32),
                Parameter::value("bits", U32),
                $(Parameter::value($order, bits_of($key)),)*
            ],
            host: HostKernel::of::<$body>(),
        }
    };
}

macro_rules! key_kernels {
    ($name:ident, $key:expr, $bits:ty, $width:literal, $tiles:expr,
     [$keys:ident, $pairs_32:ident, $pairs_64:ident]) => {
        /// What a sort of such keys launches.
        pub(super) static $name: KeyKernels = KeyKernels {
            histogram: KernelDefinition {
                name: concat!("xlog_radix_histogram_", $width),
                module: &COUNT,
                parameters: &[
                    Parameter::input("keys", $key).counted_by(2),
                    Parameter::in_out("bins", U32).elements(256),
                    Parameter::value("count", U64),
                    Parameter::value("begin", U32),
                    Parameter::value("end", U32),
                    Parameter::value("magnitude", bits_of($key)),
                    Parameter::value("flip", bits_of($key)),
                ],
                host: HostKernel::of::<host::Histogram<$bits>>(),
            },
            keys: SweepKernels {
                sweep: sweep_keys!($keys, concat!("xlog_radix_sweep_", $width), $key,
                    host::Sweep<$bits, (), false>),
                sweep_ordered: sweep_keys!($keys,
                    concat!("xlog_radix_sweep_ordered_", $width), $key,
                    host::Sweep<$bits, (), true>,
                    "magnitude_in", "flip_in", "magnitude_out", "flip_out"),
                tile: KernelDefinition {
                    name: concat!("xlog_radix_tile_", $width),
                    module: &$keys,
                    parameters: &[
                        Parameter::input("keys_in", $key).counted_by(2),
                        Parameter::output("keys_out", $key).counted_by(2),
                        Parameter::value("count", U64),
                        Parameter::value("begin", U32),
                        Parameter::value("end", U32),
                        Parameter::value("magnitude", bits_of($key)),
                        Parameter::value("flip", bits_of($key)),
                    ],
                    host: HostKernel::of::<host::Tile<$bits, ()>>(),
                },
                tile_rows: $tiles[0].0,
                threads: $tiles[0].1,
            },
            pairs_32: key_kernels!(@pairs $pairs_32, $key, $bits, $width, U32, u32, "_32",
                $tiles[1]),
            pairs_64: key_kernels!(@pairs $pairs_64, $key, $bits, $width, U64, u64, "_64",
                $tiles[2]),
        };
    };
    (@pairs $module:ident, $key:expr, $bits:ty, $width:literal, $value:expr, $type:ty,
     $suffix:literal, $rows:expr) => {
        SweepKernels {
            sweep: sweep_pairs!($module,
                concat!("xlog_radix_sweep_", $width, $suffix), $key, $value,
                host::Sweep<$bits, $type, false>),
            sweep_ordered: sweep_pairs!($module,
                concat!("xlog_radix_sweep_ordered_", $width, $suffix), $key, $value,
                host::Sweep<$bits, $type, true>,
                "magnitude_in", "flip_in", "magnitude_out", "flip_out"),
            tile: KernelDefinition {
                name: concat!("xlog_radix_tile_", $width, $suffix),
                module: &$module,
                parameters: &[
                    Parameter::input("keys_in", $key).counted_by(4),
                    Parameter::output("keys_out", $key).counted_by(4),
                    Parameter::input("values_in", $value).counted_by(4),
                    Parameter::output("values_out", $value).counted_by(4),
                    Parameter::value("count", U64),
                    Parameter::value("begin", U32),
                    Parameter::value("end", U32),
                    Parameter::value("magnitude", bits_of($key)),
                    Parameter::value("flip", bits_of($key)),
                ],
                host: HostKernel::of::<host::Tile<$bits, $type>>(),
            },
            tile_rows: $rows.0,
            threads: $rows.1,
        }
    };
}

/// The type of a key's bits.
const fn bits_of(key: ScalarType) -> ScalarType {
    if key.size() == 4 { U32 } else { U64 }
}

/// Keys a block takes, and its threads: of the keys alone, with values of four bytes, with values
/// of eight. The kernels assert the same numbers of keys.
const TILES_32: [(usize, u32); 3] = [(9728, 512), (8832, 384), (5760, 384)];
const TILES_64: [(usize, u32); 3] = [(5760, 384), (5760, 384), (4608, 384)];

key_kernels!(KEYS_U32, U32, u32, "32", TILES_32, [SORT_32, SORT_32_32, SORT_32_64]);
key_kernels!(KEYS_I32, ScalarType::I32, u32, "32", TILES_32, [SORT_32, SORT_32_32, SORT_32_64]);
key_kernels!(KEYS_F32, ScalarType::F32, u32, "32", TILES_32, [SORT_32, SORT_32_32, SORT_32_64]);
key_kernels!(KEYS_U64, U64, u64, "64", TILES_64, [SORT_64, SORT_64_32, SORT_64_64]);
key_kernels!(KEYS_I64, ScalarType::I64, u64, "64", TILES_64, [SORT_64, SORT_64_32, SORT_64_64]);
key_kernels!(KEYS_F64, ScalarType::F64, u64, "64", TILES_64, [SORT_64, SORT_64_32, SORT_64_64]);
