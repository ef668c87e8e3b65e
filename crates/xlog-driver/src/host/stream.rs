//! A stream of the host device: a bounded in-order queue and the thread that runs it.
//!
//! Every operation has a number; the stream has come as far as the number it last finished. An
//! event is nothing but a stream and a number, so recording one enqueues nothing.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};

use super::{
    fault::FaultCell,
    operation::{Operation, Watched},
    stamp::HostStamp,
};
use crate::{DeviceWatcher, DriverError, DriverResult, OperationId};

/// Operations a stream holds before enqueueing blocks, about what a GPU's queue takes.
pub(super) const QUEUE_DEPTH: u64 = 1024;

/// How often a waiter looks before it goes to sleep.
const SPINS: u32 = 64;

/// One entry of a stream's queue.
#[allow(clippy::large_enum_variant)] // as in `Operation`
pub(super) enum Entry {
    /// Does something; the number is for a watcher, the stamps for a trace.
    Run { operation: Operation, number: OperationId, stamps: Option<Box<Stamps>> },
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

/// When an operation begins and ends.
type Stamps = [Arc<HostStamp>; 2];

struct Queue {
    entries: VecDeque<Entry>,
    /// For the next operation.
    stamps: Option<Box<Stamps>>,
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
    watcher: Option<Arc<dyn DeviceWatcher>>,
}

impl StreamCore {
    /// A new stream with its thread.
    pub(super) fn start(
        fault: Arc<FaultCell>,
        watcher: Option<Arc<dyn DeviceWatcher>>,
    ) -> DriverResult<Arc<Self>> {
        let core = Arc::new(Self {
            queue: Mutex::new(Queue {
                entries: VecDeque::new(),
                stamps: None,
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
            watcher,
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
    pub(super) fn enqueue(&self, mut entry: Entry) {
        let mut queue = self.queue.lock();
        while queue.enqueued - self.finished() >= QUEUE_DEPTH {
            drop(queue);
            self.wait_for_room();
            queue = self.queue.lock();
        }
        if let Entry::Run { stamps, .. } = &mut entry
            && queue.stamps.is_some()
        {
            *stamps = queue.stamps.take();
        }
        queue.entries.push_back(entry);
        queue.enqueued += 1;
        let wake = std::mem::take(&mut queue.worker_sleeps);
        drop(queue);
        if wake {
            self.work.notify_one();
        }
    }

    /// Has the next operation note its times, or no longer.
    pub(super) fn stamp_next(&self, stamps: Option<Box<Stamps>>) {
        self.queue.lock().stamps = stamps;
    }

    /// Whether the next operation would be taken without waiting. Nobody else may enqueue between
    /// this and that, or it is only a guess.
    pub(super) fn has_room(&self) -> bool {
        self.enqueued() - self.finished() < QUEUE_DEPTH
    }

    /// Blocks while the queue is full.
    pub(super) fn wait_for_room(&self) {
        let enqueued = self.enqueued();
        if enqueued - self.finished() >= QUEUE_DEPTH {
            self.wait_for(enqueued - QUEUE_DEPTH + 1);
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
                while queue.entries.is_empty() {
                    if queue.closing {
                        return;
                    }
                    queue.worker_sleeps = true;
                    self.work.wait(&mut queue);
                }
                queue.worker_sleeps = false;
                std::mem::swap(&mut batch, &mut queue.entries);
            }
            for entry in batch.drain(..) {
                self.execute(&entry);
                self.finished.fetch_add(1, Ordering::SeqCst);
                if self.waiters.load(Ordering::SeqCst) > 0 {
                    // Taking the lock puts the notice after the waiter's last look.
                    drop(self.progress_lock.lock());
                    self.progress.notify_all();
                }
            }
        }
    }

    fn execute(&self, entry: &Entry) {
        match entry {
            Entry::Run { operation, number, stamps } => {
                if let Some(stamps) = stamps {
                    stamps[0].pass();
                }
                let watcher = self.watcher.as_deref();
                let watched = watcher.map(|watcher| Watched { watcher, operation: *number });
                // SAFETY: `Driver`'s enqueueing methods were promised what this asks for.
                unsafe { operation.execute(&self.fault, watched) }
                // What a lost device passes over has not ended.
                if let Some(stamps) = stamps
                    && !self.fault.is_lost()
                {
                    stamps[1].pass();
                }
            }
            Entry::Wait { place } if !self.fault.is_lost() => place.stream.wait_for(place.number),
            Entry::Wait { .. } => {}
        }
    }
}
