//! The kernels of selections, for every type of value.

use xlog_core::ScalarType::{self, U32, U64};
use xlog_driver::{KernelDefinition, KernelModule, Parameter, host::HostKernel};

use super::{Tiled, host};

static MODULE: KernelModule =
    KernelModule { name: "select", ptx: include_str!("../../../kernels/select.ptx") };

/// What selections of values of one type launch.
#[derive(Debug)]
#[doc(hidden)]
pub struct SelectKernels {
    /// Values by a condition on them.
    pub(super) range: Tiled,
    /// Row numbers by a condition on the values.
    pub(super) range_rows: Tiled,
    /// Values by a mask.
    pub(super) mask: Tiled,
}

macro_rules! range {
    ($name:expr, $value:expr, $selected:expr, $bits:expr, $body:ty, $tile_rows:expr) => {
        Tiled {
            kernel: KernelDefinition {
                name: $name,
                module: &MODULE,
                parameters: &[
                    Parameter::input("values", $value).counted_by(4),
                    Parameter::output("selected", $selected).counted_by(4),
                    Parameter::output("count", U64).elements(1),
                    Parameter::in_out("tiles", U64),
                    Parameter::value("rows", U64),
                    Parameter::value("tile_count", U32),
                    Parameter::value("magnitude", $bits),
                    Parameter::value("flip", $bits),
                    Parameter::value("least", $bits),
                    Parameter::value("span", $bits),
                    Parameter::value("outside", U32),
                ],
                host: HostKernel::of::<$body>(),
            },
            tile_rows: $tile_rows,
        }
    };
}

macro_rules! select_kernels {
    ($name:ident, $value:expr, $bits:expr, $type:ty, $width:literal, $tiles:expr) => {
        /// What selections of such values launch.
        pub(super) static $name: SelectKernels = SelectKernels {
            range: range!(
                concat!("xlog_select_range_", $width),
                $value,
                $value,
                $bits,
                host::InRange<$type, false>,
                $tiles[0]
            ),
            range_rows: range!(
                concat!("xlog_select_range_rows_", $width),
                $value,
                U32,
                $bits,
                host::InRange<$type, true>,
                $tiles[1]
            ),
            mask: Tiled {
                kernel: KernelDefinition {
                    name: concat!("xlog_select_mask_", $width),
                    module: &MODULE,
                    parameters: &[
                        Parameter::input("values", $value).counted_by(5),
                        Parameter::input("mask", U32).counted_by(6),
                        Parameter::output("selected", $value).counted_by(5),
                        Parameter::output("count", U64).elements(1),
                        Parameter::in_out("tiles", U64),
                        Parameter::value("rows", U64),
                        Parameter::value("words", U64),
                        Parameter::value("tile_count", U32),
                    ],
                    host: HostKernel::of::<host::Masked<$type>>(),
                },
                tile_rows: $tiles[1],
            },
        };
    };
}

/// Rows a block takes: of values alone, and with flags beside them.
const TILES_32: [usize; 2] = [384 * 17, 384 * 15];
const TILES_64: [usize; 2] = [384 * 11, 384 * 11];

select_kernels!(SELECT_U32, U32, U32, u32, "32", TILES_32);
select_kernels!(SELECT_I32, ScalarType::I32, U32, u32, "32", TILES_32);
select_kernels!(SELECT_F32, ScalarType::F32, U32, u32, "32", TILES_32);
select_kernels!(SELECT_U64, U64, U64, u64, "64", TILES_64);
select_kernels!(SELECT_I64, ScalarType::I64, U64, u64, "64", TILES_64);
select_kernels!(SELECT_F64, ScalarType::F64, U64, u64, "64", TILES_64);

/// Row numbers by a mask.
pub(super) static MASK_ROWS: Tiled = Tiled {
    kernel: KernelDefinition {
        name: "xlog_select_mask_rows",
        module: &MODULE,
        parameters: &[
            Parameter::input("mask", U32).counted_by(5),
            Parameter::output("selected", U32).counted_by(4),
            Parameter::output("count", U64).elements(1),
            Parameter::in_out("tiles", U64),
            Parameter::value("rows", U64),
            Parameter::value("words", U64),
            Parameter::value("tile_count", U32),
        ],
        host: HostKernel::of::<host::MaskedRows>(),
    },
    tile_rows: TILES_32[1],
};
