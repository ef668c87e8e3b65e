//! Timing several ways of doing one thing, turn by turn.

use std::time::{Duration, Instant};

use super::quiet_core::{Ear, QuietCore};
use crate::Failure;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Timed rounds; every way runs one batch in each.
    pub(super) rounds: usize,
    /// Operations in a batch: few enough that the device's queue never fills, and that a core is
    /// quiet for as long as that.
    pub(super) batch: usize,
}

impl Effort {
    pub(super) const fn new(quick: bool) -> Self {
        Self { rounds: if quick { 7 } else { 301 }, batch: 64 }
    }
}

/// Rounds before the first that counts.
const WARM_UP: usize = 12;

/// One way of doing it: does that many operations.
pub(super) type Way<'w> = &'w mut dyn FnMut(usize) -> Result<(), Failure>;

/// Nanoseconds an operation takes, each way.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// Median over all rounds.
    pub(super) ns: f64,
    /// Median of the differences to the first way, round by round.
    pub(super) above_first: f64,
    /// Rounds that count, and rounds left out because the core was not quiet.
    pub(super) rounds: usize,
    pub(super) left_out: usize,
}

/// Times every way, batch by batch in turn; `settle` runs after each batch, untimed. Returns the
/// timings and how many operations each way did in all.
pub(super) fn alternate(
    core: &QuietCore,
    effort: Effort,
    ways: &mut [Way<'_>],
    mut settle: impl FnMut() -> Result<(), Failure>,
) -> Result<(Vec<Timing>, u64), Failure> {
    let mut run = 0;
    let mut round = |ear: Option<&Ear<'_>>| -> Result<Vec<f64>, Failure> {
        run += 1;
        let mut times = Vec::with_capacity(ways.len());
        for way in &mut *ways {
            let start = Instant::now();
            way(effort.batch)?;
            times.push(start.elapsed().as_nanos() as f64 / effort.batch as f64);
            settle()?;
            if let Some(ear) = ear {
                ear.listen();
            }
        }
        Ok(times)
    };
    // Warm-up: modules, event pools and caches. A lane's event pool fills over some 300 launches.
    for _ in 0..WARM_UP {
        round(None)?;
    }
    let rounds = core.rounds(effort.rounds, |ear| round(Some(ear)))?;
    let timings = (0..ways.len())
        .map(|way| Timing {
            ns: median(rounds.kept.iter().map(|times| times[way]).collect()),
            above_first: median(rounds.kept.iter().map(|times| times[way] - times[0]).collect()),
            rounds: rounds.kept.len(),
            left_out: rounds.left_out,
        })
        .collect();
    Ok((timings, (run * effort.batch) as u64))
}

/// Keeps this core busy for a while: one that comes from idling takes that long to reach its speed,
/// and what is measured meanwhile is measured on a slower machine.
pub(super) fn wake_up(quick: bool) {
    let busy = Duration::from_millis(if quick { 50 } else { 500 });
    let start = Instant::now();
    while start.elapsed() < busy {
        std::hint::spin_loop();
    }
}

/// The middle value; 0 of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_alternate_and_are_counted() {
        let order = std::cell::RefCell::new(Vec::new());
        let mut first = |n: usize| {
            order.borrow_mut().push(('a', n));
            Ok(())
        };
        let mut second = |n: usize| {
            order.borrow_mut().push(('b', n));
            Ok(())
        };
        let effort = Effort { rounds: 2, batch: 3 };
        let (timings, operations) =
            alternate(&QuietCore::anywhere(), effort, &mut [&mut first, &mut second], || Ok(()))
                .expect("no failures");
        let rounds = WARM_UP + 2;
        assert_eq!((timings.len(), operations), (2, 3 * rounds as u64), "each way");
        assert_eq!(order.borrow().len(), 2 * rounds);
        assert!(order.borrow().chunks(2).all(|pair| pair == [('a', 3), ('b', 3)]));
        assert_eq!(timings[0].above_first, 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
