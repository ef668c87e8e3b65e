//! The books of a stream-ordered resource: bytes live, and bytes freed on each stream but not yet
//! known to be free.

/// Totals of one lane. Both only grow, so a reap that races another settles at the larger, and
/// nothing is counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Freed {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LaneAccount {
    freed: Freed,
    reaped: Freed,
}

/// Bytes live and bytes pending, in one place so that they are read together.
#[derive(Debug)]
pub(super) struct Accounts {
    live: usize,
    pending: usize,
    lanes: Vec<LaneAccount>,
}

impl Accounts {
    pub(super) fn new(lanes: usize) -> Self {
        Self { live: 0, pending: 0, lanes: vec![LaneAccount::default(); lanes] }
    }

    pub(super) fn allocated(&mut self, bytes: usize) {
        self.live += bytes;
    }

    /// A block was handed to the driver on `lane`: no longer live, not yet free.
    pub(super) fn freed(&mut self, bytes: usize, lane: usize) {
        self.live -= bytes;
        self.pending += bytes;
        self.lanes[lane].freed.bytes += bytes as u64;
        self.lanes[lane].freed.blocks += 1;
    }

    /// Every lane with pending frees, and how much was freed there so far.
    pub(super) fn lanes_with_pending(&self) -> Vec<(usize, Freed)> {
        let pending = |account: &LaneAccount| account.freed != account.reaped;
        let lanes = self.lanes.iter().enumerate().filter(|(_, account)| pending(account));
        lanes.map(|(lane, account)| (lane, account.freed)).collect()
    }

    /// How much was freed on `lane` so far.
    pub(super) fn freed_on(&self, lane: usize) -> Freed {
        self.lanes[lane].freed
    }

    /// Everything freed on `lane` up to `seen` is free now. Answers how many blocks that settles.
    pub(super) fn reaped(&mut self, lane: usize, seen: Freed) -> usize {
        let reaped = &mut self.lanes[lane].reaped;
        if seen.blocks <= reaped.blocks {
            return 0;
        }
        let blocks = seen.blocks - reaped.blocks;
        self.pending -= (seen.bytes - reaped.bytes) as usize;
        *reaped = seen;
        blocks as usize
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Pending bytes, added up lane by lane.
    pub(super) fn pending_by_lane(&self) -> usize {
        self.lanes.iter().map(|lane| (lane.freed.bytes - lane.reaped.bytes) as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reaps_of_one_free_count_it_once() {
        let mut accounts = Accounts::new(3);
        accounts.allocated(100);
        accounts.allocated(20);
        accounts.freed(100, 2);
        let seen = accounts.lanes_with_pending();
        assert_eq!(seen, [(2, Freed { bytes: 100, blocks: 1 })]);
        accounts.freed(20, 2);
        assert_eq!(accounts.reaped(2, seen[0].1), 1);
        assert_eq!(accounts.reaped(2, seen[0].1), 0, "the second reap finds nothing left");
        assert_eq!((accounts.live(), accounts.pending(), accounts.pending_by_lane()), (0, 20, 20));
    }
}
