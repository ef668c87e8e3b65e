//! The core a benchmark runs on.
//!
//! On a machine that others use too, a core whose neighbours are busy is up to two times slower
//! than the next one, from one moment to the next, and what is measured then says more about the
//! neighbours. So the thread that measures looks for the core that is quietest, listens before and
//! after whatever it times, and leaves out what it timed while the core was not its own. It judges
//! by a piece of work that has nothing to do with what is measured.

use std::{
    cell::Cell,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::Failure;

/// How much slower than ever a core may be and still count as quiet.
const TOLERANCE: f64 = 1.25;

/// Quiet rounds that are enough, if there are no more.
const ENOUGH: usize = 25;

/// How long a quiet core is waited for; a round that is under way ends first.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Keeps the calling thread on a quiet core until it is dropped.
#[derive(Debug)]
pub(super) struct QuietCore {
    /// Where the thread could run before; `None` if it runs anywhere.
    before: Option<affinity::Cores>,
    /// Nanoseconds the listening work took when it was fastest.
    fastest: AtomicU64,
}

/// What was measured, and how much of it was left out.
#[derive(Debug)]
pub(super) struct Rounds<T> {
    pub(super) kept: Vec<T>,
    pub(super) left_out: usize,
}

/// Listens during a round.
pub(super) struct Ear<'q> {
    core: &'q QuietCore,
    quiet: Cell<bool>,
}

impl Ear<'_> {
    /// Notes whether the core is quiet at this moment; not to be called while something is timed.
    pub(super) fn listen(&self) {
        self.quiet.set(self.quiet.get() & self.core.is_quiet());
    }
}

impl QuietCore {
    /// Settles on the quietest of the cores the thread may use.
    pub(super) fn find() -> Self {
        let core = Self { before: affinity::allowed(), fastest: AtomicU64::new(u64::MAX) };
        core.settle();
        core
    }

    /// Stays out of it: the thread runs where it is put, and every round counts.
    pub(super) const fn anywhere() -> Self {
        Self { before: None, fastest: AtomicU64::new(u64::MAX) }
    }

    /// Tries every core, and moves to the fastest.
    fn settle(&self) {
        let Some(before) = &self.before else { return };
        let mut best = None;
        for core in before.iter().filter(|core| affinity::allow(&affinity::Cores::only(*core))) {
            // Several looks, for a core has to come up to speed.
            let took = (0..8).map(|_| self.listen()).min().unwrap_or(u64::MAX);
            if best.is_none_or(|(least, _)| took < least) {
                best = Some((took, core));
            }
        }
        if let Some((_, core)) = best {
            affinity::allow(&affinity::Cores::only(core));
        }
    }

    /// Times the listening work: independent sums, so that whoever shares the core's execution
    /// units shows.
    fn listen(&self) -> u64 {
        let start = Instant::now();
        let mut sums = [1u64, 2, 3, 4];
        for step in 0..2_000 {
            for sum in &mut sums {
                *sum = black_box(*sum).wrapping_add(step);
            }
        }
        black_box(sums);
        let took = start.elapsed().as_nanos() as u64;
        self.fastest.fetch_min(took, Ordering::Relaxed);
        took
    }

    fn is_quiet(&self) -> bool {
        if self.before.is_none() {
            return true;
        }
        let took = self.listen();
        took as f64 <= self.fastest.load(Ordering::Relaxed) as f64 * TOLERANCE
    }

    /// Runs `round` until `wanted` of them were quiet, or that took too long: then those count that
    /// were, or all if there are hardly any. It runs `wanted` of them in any case.
    pub(super) fn rounds<T>(
        &self,
        wanted: usize,
        mut round: impl FnMut(&Ear<'_>) -> Result<T, Failure>,
    ) -> Result<Rounds<T>, Failure> {
        let (mut kept, mut loud) = (Vec::with_capacity(wanted), Vec::new());
        let start = Instant::now();
        while kept.len() < wanted
            && (start.elapsed() < PATIENCE || kept.len() + loud.len() < wanted)
        {
            let ear = Ear { core: self, quiet: Cell::new(true) };
            ear.listen();
            if !ear.quiet.get() && start.elapsed() < PATIENCE {
                self.settle();
                // What this core's caches lack is nobody's fault: this round never counts.
                round(&ear)?;
                ear.quiet.set(true);
                ear.listen();
            }
            let value = round(&ear)?;
            ear.listen();
            if ear.quiet.get() { &mut kept } else { &mut loud }.push(value);
        }
        if kept.len() < wanted.div_ceil(4).min(ENOUGH) {
            kept.append(&mut loud);
        }
        Ok(Rounds { kept, left_out: loud.len() })
    }
}

impl Drop for QuietCore {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            affinity::allow(before);
        }
    }
}

#[cfg(target_os = "linux")]
mod affinity {
    /// A set of cores.
    pub(super) struct Cores(libc::cpu_set_t);

    impl std::fmt::Debug for Cores {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_set().entries(self.iter()).finish()
        }
    }

    impl Cores {
        pub(super) fn only(core: usize) -> Self {
            // SAFETY: a set of plain bits, for which zero is the empty set; `core` comes from a
            // set of the same size.
            unsafe {
                let mut cores: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(core, &mut cores);
                Self(cores)
            }
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
            // SAFETY: only numbers that the set has room for are asked about.
            (0..8 * size_of_val(&self.0)).filter(|core| unsafe { libc::CPU_ISSET(*core, &self.0) })
        }
    }

    /// The cores the calling thread may use.
    pub(super) fn allowed() -> Option<Cores> {
        // SAFETY: zero is the empty set, and the call fills a set of the size it is told.
        unsafe {
            let mut cores: libc::cpu_set_t = std::mem::zeroed();
            let answer = libc::sched_getaffinity(0, size_of_val(&cores), &mut cores);
            (answer == 0).then_some(Cores(cores))
        }
    }

    /// Has the calling thread use these cores; false if the system refuses.
    pub(super) fn allow(cores: &Cores) -> bool {
        // SAFETY: the call reads a set of the size it is told.
        unsafe { libc::sched_setaffinity(0, size_of_val(&cores.0), &cores.0) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod affinity {
    #[derive(Debug)]
    pub(super) struct Cores;

    impl Cores {
        pub(super) fn only(_: usize) -> Self {
            Self
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
            std::iter::empty()
        }
    }

    pub(super) fn allowed() -> Option<Cores> {
        None
    }

    pub(super) fn allow(_: &Cores) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_one_core_and_is_let_go_again() {
        let count = || affinity::allowed().map(|cores| cores.iter().count());
        let before = count();
        let quiet = QuietCore::find();
        assert_eq!(count(), Some(1));
        drop(quiet);
        assert_eq!(count(), before);
    }

    #[test]
    fn rounds_with_noise_are_left_out_unless_there_is_nothing_else() {
        let core = QuietCore::find();
        // A core that was once infinitely fast is never quiet again.
        core.fastest.store(0, Ordering::Relaxed);
        let mut rounds = 0;
        let loud = core.rounds(3, |_| {
            rounds += 1;
            std::thread::sleep(PATIENCE / 8);
            Ok(rounds)
        });
        let loud = loud.expect("no failures");
        assert!(loud.kept.len() >= 3 && loud.left_out == 0, "there is nothing else");
        let anywhere = QuietCore::anywhere();
        let all = anywhere.rounds(3, |_| Ok(())).expect("no failures");
        assert_eq!((all.kept.len(), all.left_out), (3, 0));
        assert!(anywhere.rounds(1, |_| Err::<(), _>("broken".into())).is_err());
    }
}
