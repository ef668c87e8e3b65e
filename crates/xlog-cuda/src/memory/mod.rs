//! Typed device memory: slices, views of them, and columns.
//!
//! A [`GpuMemoryManager`] hands out [`TrackedCudaSlice`]s. With a runtime behind it a slice is
//! backed by a block, can be recorded by a launch, and is freed through the runtime when it is
//! dropped; without one it has no identity, and dropping it waits for the device.
//!
//! Copies to and from a slice go through the recorder like any launch, over pinned staging memory
//! that outlives the copy. [`TrackedCudaSlice::download`] waits for its result;
//! [`TrackedCudaSlice::start_download`] does not wait until the result is asked for. From and to a
//! pinned buffer of the program's own they go straight: [`TrackedCudaSlice::start_upload_from`] and
//! [`TrackedCudaSlice::start_download_into`].

mod column;
mod download;
mod manager;
mod pinned_copy;
mod slice;
mod transfer;
mod view;

pub use column::{ArrowDeviceColumn, CudaColumn, DlpackColumn};
pub use download::Download;
pub use manager::GpuMemoryManager;
pub use pinned_copy::{PinnedCopy, PinnedCopyError};
pub use slice::TrackedCudaSlice;
pub use view::{ByteView, SliceView};
