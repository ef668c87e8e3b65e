//! Rust's own number types as values of a column.

use bytemuck::Pod;

use crate::types::DataType;

/// A Rust type whose bytes are those of a value on the device.
pub trait Native: Pod + sealed::Sealed {
    /// The type of a column of them.
    const DATA_TYPE: DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! natives {
    ($($rust:ty => $data_type:ident),* $(,)?) => {
        $(impl sealed::Sealed for $rust {}
        impl Native for $rust {
            const DATA_TYPE: DataType = DataType::$data_type;
        })*
    };
}

natives! { u32 => U32, u64 => U64, i32 => I32, i64 => I64, f32 => F32, f64 => F64 }
