//! The runtime's own kernels: CUDA C in `kernels/*.cu`, compiled ahead, and the Rust function that
//! does the same on the host device.
//!
//! Every definition here is one signature with two bodies; the conformance suite runs both.

mod checksum;
mod elementwise;
mod spin;

pub use checksum::{CHECKSUM_U32, checksum_u32};
pub use elementwise::{
    AXPY_F32, BLEND_U32, COPY_U32, FILL_U32, INCREMENT_U32, MIX_U32, blend_u32, mix_u32,
};
pub use spin::{
    EMPTY_1, EMPTY_4, EMPTY_8, EMPTY_READ_1, EMPTY_READ_4, EMPTY_READ_8, GATE, SIGNAL, TOUCH_1,
    TOUCH_4, TOUCH_8,
};

use xlog_driver::host::KernelFault;

/// A length argument as this machine counts.
fn length(n: u64) -> Result<usize, KernelFault> {
    usize::try_from(n).map_err(|_| KernelFault(format!("{n} values do not fit this machine")))
}
