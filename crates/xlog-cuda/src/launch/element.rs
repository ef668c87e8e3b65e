//! Types that kernels know.

use bytemuck::Pod;
use xlog_core::ScalarType;

/// A type that can be a kernel's argument, or what one points to.
pub trait DeviceElement: Pod {
    /// The type's name on the device.
    const SCALAR: ScalarType;
}

macro_rules! device_elements {
    ($($rust:ty => $scalar:ident),* $(,)?) => {
        $(impl DeviceElement for $rust {
            const SCALAR: ScalarType = ScalarType::$scalar;
        })*
    };
}

device_elements! {
    u8 => U8, u32 => U32, u64 => U64, i32 => I32, i64 => I64, f32 => F32, f64 => F64,
}
