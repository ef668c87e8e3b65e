//! The resource that asks for memory to be freed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::{
    AllocTag, DeviceBlock, DeviceMemoryResource, DriverError, Failure, FailureCallbackResource,
    ResourceError, ResourceResult, StreamId, XlogDeviceRuntime,
};

use super::{super::super::support::within, Inner};
use crate::{DriverCall, Rig, TestDevice, fail};

/// Room for this many bytes.
const LIMIT: usize = 4096;

/// Refuses what does not fit [`LIMIT`].
struct Limited(Inner);

impl DeviceMemoryResource for Limited {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let remaining = LIMIT.saturating_sub(self.0.bytes_outstanding());
        if bytes > remaining {
            return Err(ResourceError::OutOfBudget { requested: bytes, remaining });
        }
        self.0.allocate(bytes, stream, tag)
    }
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.0.deallocate(block)
    }
    fn device_ordinal(&self) -> u32 {
        self.0.device_ordinal()
    }
    fn bytes_outstanding(&self) -> usize {
        self.0.bytes_outstanding()
    }
    fn reap_pending(&self) -> ResourceResult<()> {
        self.0.reap_pending()
    }
}

/// What a callback has at hand: the runtime it serves, blocks it may free, and what it was told.
#[derive(Default)]
struct Program {
    runtime: OnceLock<Weak<XlogDeviceRuntime>>,
    cache: Mutex<Vec<DeviceBlock>>,
    told: Mutex<Vec<Failure>>,
}

impl Program {
    fn runtime(&self) -> Arc<XlogDeviceRuntime> {
        self.runtime.get().and_then(Weak::upgrade).expect("the runtime lives")
    }

    /// Frees the newest block of the cache; false if there is none.
    fn free_one(&self) -> bool {
        let Some(block) = self.cache.lock().pop() else {
            return false;
        };
        self.runtime().deallocate(block).unwrap_or_else(fail);
        self.runtime().reap_pending().unwrap_or_else(fail);
        true
    }

    fn fill_cache(&self, blocks: usize, bytes: usize) {
        for _ in 0..blocks {
            let block = self.runtime().allocate(bytes, StreamId::DEFAULT, AllocTag("cache"));
            self.cache.lock().push(block.unwrap_or_else(fail));
        }
    }

    /// The call number and the error of every call so far.
    fn told(&self) -> Vec<(u64, ResourceError)> {
        self.told.lock().iter().map(|failure| (failure.calls, failure.error.clone())).collect()
    }
}

/// A rig with a limit under a callback.
fn asking(
    device: TestDevice,
    callback: impl Fn(&Program, &Failure) -> bool + Send + Sync + 'static,
) -> (Rig, Arc<Program>) {
    let program = Arc::new(Program::default());
    let shared = Arc::clone(&program);
    let rig = Rig::decorated(device, |resource| {
        let callback = move |failure: &Failure| {
            shared.told.lock().push(failure.clone());
            callback(&shared, failure)
        };
        let limited = Limited(Box::new(resource));
        Box::new(FailureCallbackResource::new(Box::new(limited), Box::new(callback)))
    });
    assert!(program.runtime.set(Arc::downgrade(&rig.runtime)).is_ok());
    (rig, program)
}

fn over_limit(requested: usize, remaining: usize) -> ResourceError {
    ResourceError::OutOfBudget { requested, remaining }
}

pub(super) fn a_callback_that_frees_memory_makes_the_request_succeed(device: TestDevice) {
    let (rig, program) = asking(device, |program, _| program.free_one());
    let [stream] = rig.streams();
    program.fill_cache(4, 1024);
    assert_eq!(program.told(), []);
    let block = rig.runtime.allocate(3000, stream, AllocTag("large")).unwrap_or_else(fail);
    // Each call says what the last attempt found.
    let expected = [0, 1024, 2048].map(|remaining| over_limit(3000, remaining));
    assert_eq!(program.told(), (1..).zip(expected).collect::<Vec<_>>());
    for failure in &*program.told.lock() {
        let told = (failure.bytes, failure.stream, failure.tag);
        assert_eq!(told, (3000, stream, AllocTag("large")));
    }
    assert_eq!((program.cache.lock().len(), rig.runtime.bytes_outstanding()), (1, 4024));
    // The next request counts from one again. What was freed counts until it is reaped.
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    let block = rig.runtime.allocate(LIMIT, stream, AllocTag("all")).unwrap_or_else(fail);
    assert_eq!(program.told()[3..], [(1, over_limit(LIMIT, LIMIT - 4024))]);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

pub(super) fn a_callback_that_frees_nothing_leaves_the_error_as_it_was(device: TestDevice) {
    let (rig, program) = asking(device, |_, failure| failure.calls < 3);
    let [stream] = rig.streams();
    program.fill_cache(1, 4000);
    let before = rig.books();
    let answer = rig.runtime.allocate(97, stream, AllocTag("too much")).map(drop);
    assert_eq!(answer, Err(over_limit(97, 96)));
    let calls: Vec<u64> = program.told().into_iter().map(|(calls, _)| calls).collect();
    assert_eq!(calls, [1, 2, 3]);
    assert_eq!(rig.books(), before);
    let block = rig.runtime.allocate(96, stream, AllocTag("fits")).unwrap_or_else(fail);
    assert_eq!(program.told().len(), 3, "what fits calls nobody");
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

pub(super) fn a_full_device_calls_the_callback(device: TestDevice) {
    let rig = Rig::new(device);
    let errors: Arc<Mutex<Vec<ResourceError>>> = Arc::default();
    let told = Arc::clone(&errors);
    let resource = FailureCallbackResource::new(
        Box::new(Arc::clone(&rig.resource)),
        Box::new(move |failure| {
            told.lock().push(failure.error.clone());
            failure.calls < 2
        }),
    );
    let too_much = rig.device.memory().unwrap_or_else(fail).total as usize + 1;
    let answer = resource.allocate(too_much, StreamId::DEFAULT, AllocTag("huge")).map(drop);
    let error = answer.expect_err("no device has this much");
    assert!(
        matches!(&error, ResourceError::Driver(e) if e.code() == DriverError::OUT_OF_MEMORY),
        "{error:?}"
    );
    assert_eq!(*errors.lock(), [error.clone(), error]);
    assert!(format!("{resource:?}").contains("FailureCallbackResource"));
}

pub(super) fn other_errors_call_no_callback(device: TestDevice) {
    let (rig, program) = asking(device, |_, _| true);
    let [stream] = rig.streams();
    let stack = rig.runtime.resource();
    stack.allocate(0, stream, AllocTag("nothing")).expect_err("of nothing");
    stack.allocate(64, StreamId(999), AllocTag("nowhere")).expect_err("an unknown stream");
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    stack.allocate(64, stream, AllocTag("failed")).expect_err("the driver failed");
    rig.driver.lose_device_at(DriverCall::AllocateOn);
    stack.allocate(64, stream, AllocTag("lost")).expect_err("the device is lost");
    let lost = stack.allocate(64, stream, AllocTag("lost")).map(drop);
    assert_eq!(lost, Err(ResourceError::DeviceLost));
    assert_eq!(program.told(), []);
}

pub(super) fn a_callback_may_use_its_own_resource_but_is_not_called_inside_itself(
    device: TestDevice,
) {
    let (rig, program) = asking(device, |program, _| {
        // Too much for itself: refused plainly, and the callback is not entered again.
        let own = program.runtime().allocate(LIMIT, StreamId::DEFAULT, AllocTag("own"));
        assert_eq!(own.map(drop), Err(over_limit(LIMIT, 96)));
        let small = program.runtime().allocate(96, StreamId::DEFAULT, AllocTag("own"));
        program.runtime().deallocate(small.unwrap_or_else(fail)).unwrap_or_else(fail);
        program.free_one()
    });
    program.fill_cache(1, 4000);
    let block = rig.runtime.allocate(LIMIT, StreamId::DEFAULT, AllocTag("outer"));
    let block = block.unwrap_or_else(fail);
    assert_eq!(program.told(), [(1, over_limit(LIMIT, 96))]);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

/// While one thread is in the callback, a request of another thread is called back too.
pub(super) fn threads_in_a_callback_do_not_keep_each_other_out(device: TestDevice) {
    let (rig, program) = asking(device, |program, failure| {
        if failure.tag == AllocTag("second") {
            return false;
        }
        let runtime = program.runtime();
        let other = std::thread::spawn(move || {
            runtime.allocate(LIMIT, StreamId::DEFAULT, AllocTag("second")).map(drop)
        });
        let answer = other.join().expect("no panic");
        assert_eq!(answer, Err(over_limit(LIMIT, 0)));
        program.free_one()
    });
    program.fill_cache(1, LIMIT);
    within("a callback in each of two threads", move || {
        let block = rig.runtime.allocate(LIMIT, StreamId::DEFAULT, AllocTag("first"));
        rig.runtime.deallocate(block.unwrap_or_else(fail)).unwrap_or_else(fail);
    });
    let tags: Vec<_> = program.told.lock().iter().map(|failure| failure.tag.0).collect();
    assert_eq!(tags, ["first", "second"]);
}

pub(super) fn a_callback_that_panics_is_called_again_next_time(device: TestDevice) {
    let (rig, program) = asking(device, |program, failure| {
        if failure.tag == AllocTag("panics") {
            resume_unwind(Box::new("on purpose, and without a message"));
        }
        program.free_one()
    });
    program.fill_cache(1, LIMIT);
    let ask = |tag| rig.runtime.allocate(LIMIT, StreamId::DEFAULT, AllocTag(tag));
    let panicked = catch_unwind(AssertUnwindSafe(|| ask("panics").map(drop)));
    assert!(panicked.is_err(), "the callback's panic is the caller's");
    let block = ask("asks again").unwrap_or_else(fail);
    assert_eq!(program.told().len(), 2);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}
