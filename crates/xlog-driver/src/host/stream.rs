//! A stream of the host device: a bounded in-order queue and the thread that runs it.
//!
//! Every operation has a number; the stream has come as far as the number it last finished. An
//! event is nothing but a stream and a number, so recording one enqueues nothing.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};

use super::{fault::FaultCell, kernel::AccessObserver};
use crate::{Arguments, DriverError, DriverResult, KernelDefinition, LaunchDims};

/// Operations a stream holds before enqueueing blocks, about what a GPU's queue takes.
const QUEUE_DEPTH: u64 = 1024;

/// How often a waiter looks before it goes to sleep.
const SPINS: u32 = 64;

/// One enqueued operation.
#[allow(clippy::large_enum_variant)] // most are kernels: boxing would allocate for each
pub(super) enum Operation {
    /// Runs a kernel.
    Kernel { kernel: &'static KernelDefinition, dims: LaunchDims, arguments: Arguments },
    /// Copies bytes; host and device memory are the same here.
    Copy { destination: u64, source: u64, bytes: usize },
    /// Sets bytes.
    Fill { destination: u64, value: u8, bytes: usize },
    /// Holds the stream until another has come far enough.
    Wait { place: Place },
}

/// A place in a stream: everything up to operation `number`.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) stream: Arc<StreamCore>,
    pub(super) number: u64,
}

impl Place {
    pub(super) fn is_reached(&self) -> bool {
        self.stream.finished() >= self.number
    }
}

struct Queue {
    operations: VecDeque<Operation>,
    enqueued: u64,
    worker_sleeps: bool,
    closing: bool,
}

/// What the stream's thread and everybody else share.
pub(super) struct StreamCore {
    queue: Mutex<Queue>,
    work: Condvar,
    finished: AtomicU64,
    waiters: AtomicUsize,
    progress_lock: Mutex<()>,
    progress: Condvar,
    fault: Arc<FaultCell>,
    observer: Option<Arc<dyn AccessObserver>>,
}

impl StreamCore {
    /// A new stream with its thread.
    pub(super) fn start(
        fault: Arc<FaultCell>,
        observer: Option<Arc<dyn AccessObserver>>,
    ) -> DriverResult<Arc<Self>> {
        let core = Arc::new(Self {
            queue: Mutex::new(Queue {
                operations: VecDeque::new(),
                enqueued: 0,
                worker_sleeps: false,
                closing: false,
            }),
            work: Condvar::new(),
            finished: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            progress_lock: Mutex::new(()),
            progress: Condvar::new(),
            fault,
            observer,
        });
        let worker = Arc::clone(&core);
        std::thread::Builder::new()
            .name("xlog-stream".into())
            .spawn(move || worker.run())
            .map_err(|error| {
                DriverError::new(
                    "create_stream",
                    error.raw_os_error().unwrap_or(DriverError::OUT_OF_MEMORY),
                    format!("no thread for another host stream: {error}"),
                )
            })?;
        Ok(core)
    }

    /// Appends an operation, blocking while the queue is full.
    pub(super) fn enqueue(&self, operation: Operation) {
        loop {
            let mut queue = self.queue.lock();
            if queue.enqueued - self.finished() >= QUEUE_DEPTH {
                let room_at = queue.enqueued - QUEUE_DEPTH + 1;
                drop(queue);
                self.wait_for(room_at);
                continue;
            }
            queue.operations.push_back(operation);
            queue.enqueued += 1;
            let wake = std::mem::take(&mut queue.worker_sleeps);
            drop(queue);
            if wake {
                self.work.notify_one();
            }
            return;
        }
    }

    /// The number of the last operation enqueued.
    pub(super) fn enqueued(&self) -> u64 {
        self.queue.lock().enqueued
    }

    /// The number of the last operation finished.
    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Blocks the calling thread until operation `number` is finished.
    pub(super) fn wait_for(&self, number: u64) {
        for _ in 0..SPINS {
            if self.finished() >= number {
                return;
            }
            std::hint::spin_loop();
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.progress_lock.lock();
        while self.finished.load(Ordering::SeqCst) < number {
            self.progress.wait(&mut guard);
        }
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Lets the thread end once the queue is empty.
    pub(super) fn close(&self) {
        self.queue.lock().closing = true;
        self.work.notify_one();
    }

    fn run(&self) {
        let mut batch = VecDeque::new();
        loop {
            {
                let mut queue = self.queue.lock();
                while queue.operations.is_empty() {
                    if queue.closing {
                        return;
                    }
                    queue.worker_sleeps = true;
                    self.work.wait(&mut queue);
                }
                queue.worker_sleeps = false;
                std::mem::swap(&mut batch, &mut queue.operations);
            }
            for operation in batch.drain(..) {
                self.execute(&operation);
                self.finished.fetch_add(1, Ordering::SeqCst);
                if self.waiters.load(Ordering::SeqCst) > 0 {
                    // Taking the lock puts the notice after the waiter's last look.
                    drop(self.progress_lock.lock());
                    self.progress.notify_all();
                }
            }
        }
    }

    /// Runs one operation; on a lost device it is passed over, so that nobody waits forever.
    fn execute(&self, operation: &Operation) {
        if self.fault.is_lost() {
            return;
        }
        match operation {
            Operation::Kernel { kernel, dims, arguments } => {
                // SAFETY: `Driver::launch` was promised matching arguments and memory that stays.
                let run = || unsafe {
                    kernel.host.run(kernel, arguments, *dims, self.observer.as_deref())
                };
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(())) => {}
                    Ok(Err(fault)) => self.fault.lose(fault.0),
                    Err(panic) => self.fault.lose(format!(
                        "kernel {} panicked: {}",
                        kernel.name,
                        panic_text(panic.as_ref())
                    )),
                }
            }
            Operation::Copy { destination, source, bytes } => {
                // SAFETY: the caller of the copy promised both ranges until this point of the
                // stream. `copy`, not `copy_nonoverlapping`: an overlap gives some bytes, not
                // undefined behaviour.
                unsafe {
                    std::ptr::copy(*source as *const u8, *destination as *mut u8, *bytes);
                }
            }
            Operation::Fill { destination, value, bytes } => {
                // SAFETY: the caller of the fill promised the range until this point.
                unsafe { std::ptr::write_bytes(*destination as *mut u8, *value, *bytes) }
            }
            Operation::Wait { place } => place.stream.wait_for(place.number),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
