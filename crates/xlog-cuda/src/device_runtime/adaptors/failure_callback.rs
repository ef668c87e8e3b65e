//! Asks the program to free something when memory runs out.

use std::{cell::RefCell, fmt};

use super::Inner;
use crate::device_runtime::{
    AllocTag, DeviceBlock, DeviceMemoryResource, ResourceError, ResourceResult, StreamId,
    forward::forward,
};

/// A request that there is not enough memory for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Bytes asked for.
    pub bytes: usize,
    /// The stream they were asked for on.
    pub stream: StreamId,
    /// The label of the request.
    pub tag: AllocTag,
    /// What the resource below answered this time.
    pub error: ResourceError,
    /// How often the callback has been called for this request, this call included.
    pub calls: u64,
}

type Callback = Box<dyn Fn(&Failure) -> bool + Send + Sync>;

/// Calls the program back when memory runs out, and tries again if it could free something.
///
/// The callback runs when the resource below answers an error that
/// [is out of memory](ResourceError::is_out_of_memory), in the thread that asks, with no lock held.
/// If it answers true the request is tried again, and so on; if it answers false the last error is
/// the caller's, unchanged. Freed memory may have to be reaped to count, so a callback should end
/// with [`reap_pending`](DeviceMemoryResource::reap_pending). One that answers true without having
/// freed anything is called for ever: [`Failure::calls`] tells it when to give up.
///
/// The callback may allocate and free on this same resource. What it allocates itself fails
/// plainly if there is no memory: for its own requests it is not called, so it cannot end up
/// inside itself. Other threads' requests call it at the same time.
///
/// ```
/// use std::sync::Arc;
/// use parking_lot::Mutex;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let inner = Arc::new(AsyncCudaResource::new(device, 0, pool));
/// // The second allocation finds no memory.
/// let plan = FaultPlan::nth(Operation::Allocate, 2).with_code(DriverError::OUT_OF_MEMORY);
/// let full = FaultInjectionResource::new(Box::new(Arc::clone(&inner)), plan);
///
/// let old = full.allocate(4096, StreamId::DEFAULT, AllocTag("old"))?;
/// let cache = Arc::new(Mutex::new(vec![old]));
/// let shared = Arc::clone(&cache);
/// let resource = FailureCallbackResource::new(
///     Box::new(full),
///     Box::new(move |_| shared.lock().pop().is_some_and(|block| inner.deallocate(block).is_ok())),
/// );
/// let block = resource.allocate(4096, StreamId::DEFAULT, AllocTag("new"))?;
/// assert!(cache.lock().is_empty());
/// # resource.deallocate(block)?;
/// # Ok::<(), ResourceError>(())
/// ```
pub struct FailureCallbackResource {
    inner: Inner,
    callback: Callback,
}

impl FailureCallbackResource {
    /// Calls `callback` when `inner` has too little memory for a request.
    #[must_use]
    pub fn new(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        callback: Box<dyn Fn(&Failure) -> bool + Send + Sync>,
    ) -> Self {
        Self { inner, callback }
    }

    #[cold]
    fn ask(&self, failure: &Failure) -> bool {
        let resource = std::ptr::from_ref(self).addr();
        Asking::enter(resource).is_some_and(|_asking| (self.callback)(failure))
    }
}

thread_local! {
    /// The resources whose callback this thread is in, the innermost last.
    static ASKING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread is in a callback, until this is dropped.
struct Asking;

impl Asking {
    /// `None` if the thread is in the callback of that resource already.
    fn enter(resource: usize) -> Option<Self> {
        let entered = ASKING.try_with(|asking| {
            let mut asking = asking.borrow_mut();
            let first = !asking.contains(&resource);
            if first {
                asking.push(resource);
            }
            first
        });
        // A thread that is past its own end asks nobody.
        entered.unwrap_or(false).then_some(Self)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = ASKING.try_with(|asking| asking.borrow_mut().pop());
    }
}

impl DeviceMemoryResource for FailureCallbackResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let mut calls = 0;
        loop {
            let error = match self.inner.allocate(bytes, stream, tag) {
                Err(error) if error.is_out_of_memory() => error,
                answer => return answer,
            };
            calls += 1;
            let failure = Failure { bytes, stream, tag, error, calls };
            if !self.ask(&failure) {
                return Err(failure.error);
            }
        }
    }

    forward! {
        this => this.inner;
        deallocate, try_deallocate, device_ordinal, bytes_outstanding, reap_pending, try_reap, uses,
    }
}

impl fmt::Debug for FailureCallbackResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureCallbackResource")
            .field("device_ordinal", &self.inner.device_ordinal())
            .finish_non_exhaustive()
    }
}
