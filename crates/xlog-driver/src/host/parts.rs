//! A kernel's work, split over the threads of this machine.
//!
//! A GPU runs the blocks of a grid side by side; a kernel of the host device may do the same with
//! parts of its elements. As on a GPU, what two of them write must be different memory: an accessor
//! forms no reference, so a race spoils values and nothing else.

use std::{
    ops::Range,
    panic::resume_unwind,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{KernelCall, MemoryPolicy};

/// Elements that are worth a thread of their own: starting one takes as long as this many.
const WORTH_A_THREAD: usize = 1 << 16;

impl<M: MemoryPolicy> KernelCall<'_, M> {
    /// How many threads the kernel may split its work over: its share of the machine, as long as
    /// other kernels run beside it; 1 where it is watched. Its accessors can be shared with them:
    /// threads that write keep to places of their own.
    #[must_use]
    pub fn threads(&self) -> usize {
        let running = RUNNING.load(Ordering::Relaxed).max(1);
        if M::WATCHED { 1 } else { (processors() / running).max(1) }
    }

    /// How many threads work over `len` elements is worth. A watched kernel runs on one: the same
    /// run shows the same accesses in the same order.
    #[must_use]
    pub fn threads_for(&self, len: usize) -> usize {
        (len / WORTH_A_THREAD).clamp(1, self.threads())
    }

    /// Calls `work` with the number and the range of each of `parts` parts of `len` elements, all
    /// at the same time, and waits for them. What each answered comes back in their order. Parts
    /// begin at multiples of `grain`, which is not zero; some may be empty.
    pub fn in_parts<R: Send>(
        &self,
        len: usize,
        parts: usize,
        grain: usize,
        work: impl Fn(usize, Range<usize>) -> R + Sync,
    ) -> Vec<R> {
        if parts <= 1 {
            return vec![work(0, 0..len)];
        }
        let step = len.div_ceil(parts).next_multiple_of(grain.max(1));
        let range = |part: usize| (part * step).min(len)..((part + 1) * step).min(len);
        let work = &work;
        thread::scope(|scope| {
            let others: Vec<_> =
                (1..parts).map(|part| scope.spawn(move || work(part, range(part)))).collect();
            let mut answers = vec![work(0, range(0))];
            for other in others {
                // A panic of a part is one of the kernel, with its own words.
                answers.push(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            answers
        })
    }
}

/// Kernels that run on this machine right now, on whatever stream of whatever device.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A kernel that runs, until it is dropped.
pub(super) struct Running(());

impl Running {
    pub(super) fn begin() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}
