//! Known defects that can be switched on, to see that the checks find them.
//!
//! A check is worth what it finds. Each defect here is one that systems of this kind have shipped,
//! or one of the dependency rules left out, written into the place where it would sit. Without the
//! feature `mutants` none of it is built: [`is`] is `false`, and the compiler drops what hangs on
//! it. With it, one defect at a time is on for the whole process, for `xlog check --mutant N`.

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // `what` says it
pub enum Mutant {
    OneReader = 1,
    ReadersPileUp = 2,
    SynchronisedTooSoon = 3,
    NumberedTooSoon = 4,
    NeighbourForgotten = 5,
    RemainderForgotten = 6,
    NoClaims = 7,
    NoBirthInSlabs = 8,
    StaleFree = 9,
    CommitStops = 10,
    RefusedWithoutReap = 11,
    ReadElsewhere = 12,
    FreeForgotten = 13,
    NothingChecked = 14,
    ReadSkipsWrite = 15,
    WriteSkipsWrite = 16,
    WriteSkipsReads = 17,
    WaitsForItself = 18,
    NoBirth = 19,
    WriteKeepsReads = 20,
    BareWriteForgets = 21,
    FreeSkipsUses = 22,
    StaleUse = 23,
    CarvedFresh = 24,
    LateWait = 25,
    ReplacedTooSoon = 26,
}

impl Mutant {
    /// Every defect, in the order of their numbers.
    pub const ALL: [Self; 26] = [
        Self::OneReader,
        Self::ReadersPileUp,
        Self::SynchronisedTooSoon,
        Self::NumberedTooSoon,
        Self::NeighbourForgotten,
        Self::RemainderForgotten,
        Self::NoClaims,
        Self::NoBirthInSlabs,
        Self::StaleFree,
        Self::CommitStops,
        Self::RefusedWithoutReap,
        Self::ReadElsewhere,
        Self::FreeForgotten,
        Self::NothingChecked,
        Self::ReadSkipsWrite,
        Self::WriteSkipsWrite,
        Self::WriteSkipsReads,
        Self::WaitsForItself,
        Self::NoBirth,
        Self::WriteKeepsReads,
        Self::BareWriteForgets,
        Self::FreeSkipsUses,
        Self::StaleUse,
        Self::CarvedFresh,
        Self::LateWait,
        Self::ReplacedTooSoon,
    ];

    /// The defect with a number.
    #[must_use]
    pub fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| *mutant as u32 == number)
    }

    /// What is wrong with it on.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::OneReader => "a block remembers only its last reader",
            Self::ReadersPileUp => "a block remembers every read until the next write",
            Self::SynchronisedTooSoon => "a stream counts as waiting before the wait is issued",
            Self::NumberedTooSoon => "a launch gets its number at its preflight, not at its record",
            Self::NeighbourForgotten => "joining free neighbours keeps the uses of one",
            Self::RemainderForgotten => "what is left of a split range forgets its uses",
            Self::NoClaims => "claims of other launches are not looked at",
            Self::NoBirthInSlabs => "a pool's blocks do not wait for their slab's allocation",
            Self::StaleFree => "a stale handle frees the block at its address",
            Self::CommitStops => "a commit that cannot record leaves its uses unrecorded",
            Self::RefusedWithoutReap => "the budget refuses while freed memory is not reaped",
            Self::ReadElsewhere => "a read is recorded on the block's own stream",
            Self::FreeForgotten => "a free that fails is forgotten",
            Self::NothingChecked => "a check that has no device says that all is well",
            Self::ReadSkipsWrite => "rule 1: a read does not wait for the last write",
            Self::WriteSkipsWrite => "rule 1: a write does not wait for the last write",
            Self::WriteSkipsReads => "rule 1: a write does not wait for the reads since",
            Self::WaitsForItself => "rule 2: a stream waits for its own work",
            Self::NoBirth => "rule 3: the allocation does not count as the first write",
            Self::WriteKeepsReads => "rule 4: a write does not forget the reads before it",
            Self::BareWriteForgets => "rule 4: a write without a preflight forgets reads",
            Self::FreeSkipsUses => "rule 5: a free waits for nothing",
            Self::StaleUse => "rule 6: a stale handle may be used",
            Self::CarvedFresh => "rule 7: a block from a pool follows nothing",
            Self::LateWait => "rule 8: a wait covers work enqueued after its use",
            Self::ReplacedTooSoon => "rule 8: an event is recorded again while blocks name it",
        }
    }
}

#[cfg(feature = "mutants")]
static ON: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Switches one defect on, or all off. Says whether that could be done: not without the feature
/// `mutants`.
#[must_use]
pub fn switch_on(mutant: Option<Mutant>) -> bool {
    #[cfg(feature = "mutants")]
    ON.store(mutant.map_or(0, |mutant| mutant as u32), std::sync::atomic::Ordering::SeqCst);
    cfg!(feature = "mutants") || mutant.is_none()
}

/// Whether a defect is on.
#[inline(always)]
#[must_use]
pub fn is(mutant: Mutant) -> bool {
    #[cfg(feature = "mutants")]
    return ON.load(std::sync::atomic::Ordering::Relaxed) == mutant as u32;
    #[cfg(not(feature = "mutants"))]
    {
        let _ = mutant;
        false
    }
}

/// A number drawn before its time: what [`Mutant::NumberedTooSoon`] carries from preflight to
/// record.
#[cfg(feature = "mutants")]
pub(crate) mod drawn {
    use std::cell::Cell;

    thread_local! {
        static DRAWN: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn set(tick: u64) {
        DRAWN.set(tick);
    }

    pub(crate) fn take() -> u64 {
        DRAWN.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defects_have_numbers_and_are_off() {
        for (number, mutant) in (1..).zip(Mutant::ALL) {
            assert_eq!(Mutant::numbered(number), Some(mutant));
            assert!(!is(mutant) && !mutant.what().is_empty());
        }
        assert_eq!((Mutant::numbered(0), Mutant::numbered(27)), (None, None));
        assert!(switch_on(None));
    }
}
