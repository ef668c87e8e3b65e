//! Looks at a block's memory: is everything there that was put there?

use super::{
    books::{FREED, Guarded, Region, State},
    core::Core,
    finding::FindingKind,
};
use crate::device_runtime::{ResourceError, ResourceResult, tracker::Lane};

/// The most that is copied to the host at once.
const AT_ONCE: usize = 1 << 20;

/// What is wrong in a region: its first wrong byte, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    first: usize,
    count: usize,
}

/// A part of a region that was copied to `at` in the buffer.
struct Piece {
    region: usize,
    offset: usize,
    at: usize,
    bytes: usize,
}

impl Core {
    /// Looks at a block behind all its uses, and waits for that. Reports what is new, and answers
    /// what is wrong, if anything is; an error if nobody can tell.
    pub(super) fn examine(
        &self,
        block: &Guarded,
        state: &mut State,
    ) -> ResourceResult<Option<ResourceError>> {
        let mut regions = block.margins().to_vec();
        if state.poisoned {
            regions.push(block.body());
        }
        let lane = self.lane_of(block);
        self.tracker().check_capture(lane)?;
        self.tracker().follow_slot(block.slot, lane)?;
        let wrong = self.compare(&regions, lane)?;
        let mut answer = None;
        for (region, wrong) in regions.iter().zip(wrong) {
            if wrong.count > 0 {
                let at = region.ptr.wrapping_sub(block.ptr) as i64 + wrong.first as i64;
                self.report(block, state, region.kind, (at, wrong.count));
                answer = answer.or_else(|| Some(block.error(region.kind)));
            }
        }
        Ok(answer)
    }

    /// Reports a mistake, once for each block and kind.
    fn report(&self, block: &Guarded, state: &mut State, kind: FindingKind, at: (i64, usize)) {
        if !state.reported.contains(&kind) {
            state.reported.push(kind);
            self.add_finding(block.finding(kind, at, state.freed.clone()));
        }
    }

    /// Fills the body of a freed block, behind all its uses.
    pub(super) fn poison(&self, block: &Guarded, state: &mut State) -> ResourceResult<()> {
        if !state.poisoned {
            let lane = self.lane_of(block);
            self.tracker().check_capture(lane)?;
            self.tracker().follow_slot(block.slot, lane)?;
            self.fill((block.ptr, block.bytes), FREED, lane)?;
            state.poisoned = true;
        }
        Ok(())
    }

    /// Fills a part of a block of this guard on `lane`.
    pub(super) fn fill(
        &self,
        (ptr, bytes): (u64, usize),
        value: u8,
        lane: &Lane,
    ) -> ResourceResult<()> {
        let raw = self.tracker().uncaptured_raw(lane)?;
        // SAFETY: the range is part of a block that the resource below gave to this guard, and the
        // lane follows every use of it. The block goes back only behind what its lane does.
        self.device.note(unsafe { self.device.driver().fill_bytes(ptr, value, bytes, raw) })
    }

    /// What is wrong in each of the regions.
    fn compare(&self, regions: &[Region], lane: &Lane) -> ResourceResult<Vec<Wrong>> {
        let total: usize = regions.iter().map(|region| region.bytes).sum();
        let room = total.min(AT_ONCE);
        let buffer = self.staging.allocate(room)?;
        let mut wrong = vec![Wrong::default(); regions.len()];
        let (mut pieces, mut used, mut answer) = (Vec::new(), 0, Ok(()));
        'all: for (index, region) in regions.iter().enumerate() {
            let mut offset = 0;
            while offset < region.bytes {
                let bytes = (region.bytes - offset).min(room - used);
                let source = region.ptr + offset as u64;
                answer = self.copy(buffer.pointer().wrapping_add(used), source, bytes, lane);
                if answer.is_err() {
                    break 'all;
                }
                pieces.push(Piece { region: index, offset, at: used, bytes });
                (offset, used) = (offset + bytes, used + bytes);
                if used == room {
                    answer = self.tracker().synchronize(lane);
                    if answer.is_err() {
                        break 'all;
                    }
                    look(&buffer, regions, &pieces, &mut wrong);
                    pieces.clear();
                    used = 0;
                }
            }
        }
        // Whatever was enqueued is over before another copy gets the buffer; if nobody can tell,
        // it is left behind.
        if answer.is_ok() && used > 0 {
            answer = self.tracker().synchronize(lane);
            if answer.is_ok() {
                look(&buffer[..used], regions, &pieces, &mut wrong);
            }
        }
        if answer.is_err() && self.tracker().synchronize(lane).is_err() {
            buffer.leave_behind();
        }
        answer.map(|()| wrong)
    }

    fn copy(&self, to: *mut u8, from: u64, bytes: usize, lane: &Lane) -> ResourceResult<()> {
        let raw = self.tracker().uncaptured_raw(lane)?;
        // SAFETY: the range is part of a block that this guard has and does not give back while
        // the block's state is locked; the buffer has room, and is handed on only once the lane
        // was waited for.
        self.device.note(unsafe { self.device.driver().copy_to_host(to, from, bytes, raw) })
    }
}

fn look(seen: &[u8], regions: &[Region], pieces: &[Piece], wrong: &mut [Wrong]) {
    for piece in pieces {
        let value = regions[piece.region].value;
        let part = &seen[piece.at..piece.at + piece.bytes];
        let Some(first) = part.iter().position(|byte| *byte != value) else { continue };
        let found = &mut wrong[piece.region];
        if found.count == 0 {
            found.first = piece.offset + first;
        }
        found.count += part[first..].iter().filter(|byte| **byte != value).count();
    }
}
