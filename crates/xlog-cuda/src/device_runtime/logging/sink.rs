//! Where records go.

use std::sync::Arc;

use super::LogRecord;

/// Takes the records of a [`LoggingResource`](super::LoggingResource).
///
/// Records come one at a time, in the order of their sequence numbers, while other threads wait
/// for their turn: a sink takes the record and returns. It must not call the resource it logs.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// #[derive(Default)]
/// struct Failures(AtomicUsize);
///
/// impl LogSink for Failures {
///     fn record(&self, record: LogRecord) {
///         self.0.fetch_add(usize::from(record.result.is_err()), Ordering::Relaxed);
///     }
/// }
///
/// let failures = Arc::new(Failures::default());
/// let plain = Box::new(DirectCudaResource::new(Arc::new(CudaDevice::host()), 0));
/// let memory = LoggingResource::new(plain, Arc::clone(&failures));
/// memory.allocate(0, StreamId::DEFAULT, AllocTag::UNTAGGED).expect_err("zero bytes");
/// assert_eq!(failures.0.load(Ordering::Relaxed), 1);
/// ```
pub trait LogSink: Send + Sync + 'static {
    /// Takes one record. There is nobody to give an error to: a sink keeps its own.
    fn record(&self, record: LogRecord);

    /// Returns when all that was recorded so far is where it belongs.
    fn flush(&self) {}
}

/// A shared sink is a sink: whoever keeps the other handle can ask it what it has.
impl<S: LogSink + ?Sized> LogSink for Arc<S> {
    fn record(&self, record: LogRecord) {
        (**self).record(record);
    }

    fn flush(&self) {
        (**self).flush();
    }
}
