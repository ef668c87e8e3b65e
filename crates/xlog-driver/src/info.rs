//! What a device says about itself.

/// Which of the two devices this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A GPU behind the CUDA driver.
    Cuda,
    /// Threads and memory of this process.
    Host,
}

/// A device's fixed properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Which of the two devices this is.
    pub kind: DeviceKind,
    /// Its number among the devices of its kind.
    pub ordinal: u32,
    /// What it calls itself.
    pub name: String,
    /// The driver's version as CUDA counts it, 13000 for 13.0; 0 on the host device.
    pub driver_version: u32,
    /// Compute capability, major and minor; (0, 0) on the host device.
    pub compute_capability: (u32, u32),
    /// Multiprocessors; worker threads that can run at once on the host device.
    pub multiprocessors: u32,
    /// Whether memory can be allocated and freed in stream order.
    pub stream_ordered_memory: bool,
}

/// A device's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes nobody holds.
    pub free: u64,
    /// Bytes there are.
    pub total: u64,
}
