//! Tables from and to Arrow record batches.
//!
//! Values go up straight from Arrow's buffers, and come down into pinned buffers that Arrow takes
//! over and gives back to the runtime's pool when the last array that uses them is dropped. What is
//! laid out otherwise here is converted on the way: validity of a slice that does not start on a
//! byte, truth values (a byte each on the device, a bit in Arrow), and text, which becomes codes
//! of a dictionary unless it is one already.
//!
//! | Arrow | here | and back |
//! |---|---|---|
//! | `Int32 Int64 UInt32 UInt64 Float32 Float64 Boolean Date32` | the same | the same |
//! | `Timestamp(Microsecond, None)` | `Timestamp` | the same |
//! | `Utf8 LargeUtf8 Utf8View`, dictionaries of them | `Utf8` | `Dictionary(UInt32, Utf8)` |
//!
//! Any other type is refused with the column's name.

mod export;
mod import;

pub use export::{ArrayDownload, TableDownload};

#[cfg(test)]
mod tests;
