//! Which calls of a resource are to fail.

use std::fmt;

/// A kind of call that can be made to fail, each counted by itself from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Operation {
    /// `allocate`.
    Allocate,
    /// `deallocate` and `try_deallocate`.
    Deallocate,
    /// `reap_pending` and `try_reap`.
    Reap,
    /// `prepare_block_use` and `prepare_uses`, a whole launch being one call.
    PrepareUse,
    /// `finish_block_use`, `finish_uses` and `record_block_use`, a whole launch being one call.
    FinishUse,
}

impl Operation {
    /// How many there are.
    pub(super) const COUNT: usize = Self::FinishUse as usize + 1;

    fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Deallocate => "deallocate",
            Self::Reap => "reap",
            Self::PrepareUse => "prepare use",
            Self::FinishUse => "finish use",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which calls fail, and with which code.
///
/// A plan depends on nothing but how many calls of a kind came before: the same calls fail in
/// every run. The default plan fails nothing.
///
/// ```
/// use xlog_cuda::device_runtime::{FaultPlan, Operation};
///
/// // The third allocation, every tenth free, and one call in a hundred of any kind.
/// let plan = FaultPlan::nth(Operation::Allocate, 3)
///     .and(FaultPlan::every(Operation::Deallocate, 10))
///     .and(FaultPlan::seeded(42, 0.01));
/// # let _ = plan;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    rules: Vec<Rule>,
    code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Nth(Operation, u64),
    Every(Operation, u64),
    Seeded { seed: u64, rate: f64 },
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self { rules: Vec::new(), code: Self::UNKNOWN }
    }
}

impl FaultPlan {
    /// CUDA's code for an unknown error: what an injected fault carries unless told otherwise.
    const UNKNOWN: i32 = 999;

    /// Fails call number `n` of a kind, counted from 1.
    #[must_use]
    pub fn nth(operation: Operation, n: u64) -> Self {
        Self { rules: vec![Rule::Nth(operation, n)], ..Self::default() }
    }

    /// Fails every `n`th call of a kind; none if `n` is 0.
    #[must_use]
    pub fn every(operation: Operation, n: u64) -> Self {
        Self { rules: vec![Rule::Every(operation, n)], ..Self::default() }
    }

    /// Fails calls of every kind at random, a share of `rate` (0 to 1) of them. Which ones depends
    /// on the seed, the kind and the number of the call, not on how threads take turns.
    #[must_use]
    pub fn seeded(seed: u64, rate: f64) -> Self {
        Self { rules: vec![Rule::Seeded { seed, rate }], ..Self::default() }
    }

    /// Fails what either plan fails, with the code of this one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.rules.extend(other.rules);
        self
    }

    /// The same plan, whose errors carry the driver's `code`. With
    /// [`DriverError::OUT_OF_MEMORY`](crate::device_runtime::DriverError::OUT_OF_MEMORY), a failed
    /// allocation is taken for a full device.
    #[must_use]
    pub fn with_code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    pub(super) fn code(&self) -> i32 {
        self.code
    }

    /// Whether call number `count` of this kind fails.
    pub(super) fn fails(&self, operation: Operation, count: u64) -> bool {
        self.rules.iter().any(|rule| match *rule {
            Rule::Nth(of, n) => of == operation && n == count,
            Rule::Every(of, n) => of == operation && n != 0 && count.is_multiple_of(n),
            Rule::Seeded { seed, rate } => share(seed, operation, count) < rate,
        })
    }

    /// Whether any call of this kind can fail.
    pub(super) fn can_fail(&self, operation: Operation) -> bool {
        self.rules.iter().any(|rule| match *rule {
            Rule::Nth(of, n) | Rule::Every(of, n) => of == operation && n != 0,
            Rule::Seeded { rate, .. } => rate > 0.0,
        })
    }
}

/// A number from 0 to below 1 that belongs to this one call.
fn share(seed: u64, operation: Operation, count: u64) -> f64 {
    let mixed = split_mix(split_mix(seed ^ ((operation as u64) << 56)).wrapping_add(count));
    // The 53 bits that a float of this size can tell apart.
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// One step of SplitMix64 (Steele, Lea and Flood, 2014).
fn split_mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(plan: &FaultPlan, operation: Operation) -> Vec<u64> {
        (1..=12).filter(|count| plan.fails(operation, *count)).collect()
    }

    #[test]
    fn plans_fail_the_calls_they_name_and_no_others() {
        let plan = FaultPlan::nth(Operation::Allocate, 3)
            .and(FaultPlan::nth(Operation::Allocate, 5))
            .and(FaultPlan::every(Operation::Reap, 4));
        assert_eq!(failing(&plan, Operation::Allocate), [3, 5]);
        assert_eq!(failing(&plan, Operation::Reap), [4, 8, 12]);
        assert!(failing(&plan, Operation::Deallocate).is_empty());
        assert!(plan.can_fail(Operation::Reap) && !plan.can_fail(Operation::FinishUse));
    }

    #[test]
    fn call_number_nought_never_comes() {
        for plan in [
            FaultPlan::default(),
            FaultPlan::nth(Operation::Allocate, 0),
            FaultPlan::every(Operation::Allocate, 0),
            FaultPlan::seeded(1, 0.0),
            FaultPlan::seeded(1, f64::NAN),
        ] {
            assert!(failing(&plan, Operation::Allocate).is_empty(), "{plan:?}");
            assert!(!plan.can_fail(Operation::Allocate), "{plan:?}");
        }
    }

    #[test]
    fn a_seed_gives_its_share_and_the_same_one_every_time() {
        let of = |seed, operation| {
            let plan = FaultPlan::seeded(seed, 0.25);
            (1..=10_000).filter(|count| plan.fails(operation, *count)).collect::<Vec<u64>>()
        };
        let first = of(7, Operation::Allocate);
        assert!((2_300..2_700).contains(&first.len()), "{}", first.len());
        assert_eq!(first, of(7, Operation::Allocate));
        assert_ne!(first, of(8, Operation::Allocate));
        assert_ne!(first, of(7, Operation::Deallocate));
        assert_eq!(failing(&FaultPlan::seeded(7, 1.0), Operation::Reap).len(), 12);
    }

    /// The first numbers of the published generator, from seed 0.
    #[test]
    fn split_mix_is_the_published_one() {
        let first = split_mix(0);
        let second = split_mix(0x9e37_79b9_7f4a_7c15);
        assert_eq!((first, second), (0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4));
    }
}
