//! The core a benchmark runs on.
//!
//! On a machine that others use too, a core whose neighbours are busy is up to two times slower
//! than the next one, and what is measured there says more about the neighbours. So the thread that
//! measures looks for the core that is quietest just then, and stays on it.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Keeps the calling thread on one core until it is dropped.
pub(super) struct QuietCore(Option<affinity::Cores>);

impl QuietCore {
    /// Tries every core the thread may use, a few milliseconds each, and settles on the fastest.
    /// Where threads cannot be told where to run, the thread stays where it is.
    pub(super) fn find(quick: bool) -> Self {
        let Some(before) = affinity::allowed() else { return Self(None) };
        let glance = Duration::from_micros(if quick { 200 } else { 2_000 });
        let mut best = None;
        for core in before.iter() {
            if !affinity::allow(&affinity::Cores::only(core)) {
                continue;
            }
            // The first glance lets the core come up to speed.
            let rounds = (0..3).map(|_| work_for(glance)).max().unwrap_or(0);
            if best.is_none_or(|(most, _)| rounds > most) {
                best = Some((rounds, core));
            }
        }
        let settled = best.is_some_and(|(_, core)| affinity::allow(&affinity::Cores::only(core)));
        if !settled {
            affinity::allow(&before);
        }
        Self(settled.then_some(before))
    }
}

impl Drop for QuietCore {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            affinity::allow(before);
        }
    }
}

/// How many rounds of work this core gets done in `time`: independent sums, so that whoever shares
/// the core's execution units shows.
fn work_for(time: Duration) -> u64 {
    let start = Instant::now();
    let mut rounds = 0;
    let mut sums = [1u64, 2, 3, 4];
    while start.elapsed() < time {
        for step in 0..256 {
            for sum in &mut sums {
                *sum = black_box(*sum).wrapping_add(step);
            }
        }
        rounds += 1;
    }
    black_box(sums);
    rounds
}

#[cfg(target_os = "linux")]
mod affinity {
    /// A set of cores.
    pub(super) struct Cores(libc::cpu_set_t);

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
        let quiet = QuietCore::find(true);
        assert_eq!(count(), Some(1));
        drop(quiet);
        assert_eq!(count(), before);
    }
}
