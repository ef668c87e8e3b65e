//! Which steps of a trace must follow which, and whether they do.
//!
//! What has to be ordered does not depend on the waits, so it is worked out once: for each use the
//! write before it, for each write also the reads since, for each use its allocation, for each free
//! all that is left. An edit then costs one pass over the clocks and one look at each pair.

use super::{
    FindingKind,
    shadow::{NOBODY, Segment, Shadow},
    trace::{Edit, Step, Trace},
};

/// Two steps that have to be ordered, and are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceRace {
    /// What goes wrong.
    pub kind: FindingKind,
    /// The step that was enqueued first.
    pub earlier: usize,
    /// The step that should follow it.
    pub later: usize,
    /// The allocation both touch.
    pub allocation: u32,
}

/// A trace with all that does not depend on its waits worked out: for trying many edits.
#[derive(Debug)]
pub struct Analysis<'t> {
    trace: &'t Trace,
    /// What must be ordered.
    pairs: Vec<TraceRace>,
    /// For each step its stream, or `NOBODY`.
    stream: Vec<u32>,
    /// For each step how many things its stream had by then, itself included.
    ticks: Vec<u32>,
    /// For each step how many things its stream has had when the step is known to be there.
    tick: Vec<u32>,
    /// For each step the one before it on its stream, or `NOBODY`; for what the host learns, the
    /// last step it covers.
    previous: Vec<u32>,
    ignores_host: bool,
}

impl Trace {
    /// What has to be ordered and is not, with one change or as it is. Judged on declared uses,
    /// allocations and frees. For many edits, [`analysis`](Self::analysis) is faster.
    #[must_use]
    pub fn races(&self, edit: Option<Edit>) -> Vec<TraceRace> {
        self.analysis().races(edit)
    }

    /// Works out what does not depend on waits.
    #[must_use]
    pub fn analysis(&self) -> Analysis<'_> {
        let count = self.steps.len();
        let (mut stream, mut tick) = (vec![NOBODY; count], vec![0; count]);
        let mut previous = vec![NOBODY; count];
        let mut last = vec![NOBODY; self.streams as usize];
        let mut ticks = vec![0u32; self.streams as usize];
        for (index, step) in self.steps.iter().enumerate() {
            if let Step::HostKnows { stream: known, until } = *step {
                let on_it = |at: &usize| stream[*at] == known;
                let place = (0..until.min(index)).rev().find(on_it);
                previous[index] = place.map_or(NOBODY, |place| place as u32);
            }
            let Some(on) = step.stream() else { continue };
            let (last, ticks) = (&mut last[on as usize], &mut ticks[on as usize]);
            // A record counts too: it stands for less than the next one.
            *ticks += u32::from(takes_a_tick(step) || matches!(step, Step::Record { .. }));
            (stream[index], tick[index], previous[index]) = (on, *ticks, *last);
            *last = index as u32;
        }
        let ticks = tick.clone();
        // An operation counts from its record on: only the caller knows when it came, where a
        // recorder left time in between.
        for (index, step) in self.steps.iter().enumerate() {
            if let Step::Record { stands_for: Some(operation), .. } = *step {
                tick[operation] = tick[index];
            }
        }
        let pairs = Pairs::of(self, &stream, &tick);
        Analysis { trace: self, pairs, stream, ticks, tick, previous, ignores_host: false }
    }
}

/// Whether a step is something that can be followed.
fn takes_a_tick(step: &Step) -> bool {
    matches!(step, Step::Operation { .. } | Step::Allocate { .. } | Step::Free { .. })
}

impl Analysis<'_> {
    /// The same without what the host learnt by waiting and asking: what do events alone order? A
    /// program may be right by what its host knows, so such a judgement is for comparing edits.
    #[must_use]
    pub fn ignoring_host(mut self) -> Self {
        self.ignores_host = true;
        self
    }

    /// What has to be ordered and is not, with one change or as it is.
    #[must_use]
    pub fn races(&self, edit: Option<Edit>) -> Vec<TraceRace> {
        let clocks = self.clocks(edit);
        self.pairs.iter().copied().filter(|pair| !self.ordered(&clocks, pair)).collect()
    }

    /// Whether anything has to be ordered and is not.
    #[must_use]
    pub fn has_race(&self, edit: Option<Edit>) -> bool {
        let clocks = self.clocks(edit);
        self.pairs.iter().any(|pair| !self.ordered(&clocks, pair))
    }

    /// Whether the wait that is edited was needed as it is, by what the host knew when it was
    /// queued: something is ordered with it that is not under the edit. What the host learnt later
    /// may have made it needless, but nobody could know that.
    #[must_use]
    pub fn is_needed(&self, edit: Edit) -> bool {
        let (Edit::Remove(wait) | Edit::EndEarlier(wait)) = edit;
        let (with, without) = (self.clocks_until(None, wait), self.clocks_until(Some(edit), wait));
        let lost = |pair: &TraceRace| self.ordered(&with, pair) && !self.ordered(&without, pair);
        self.pairs.iter().any(lost)
    }

    fn ordered(&self, clocks: &[u32], pair: &TraceRace) -> bool {
        let source = self.stream[pair.earlier] as usize;
        // What is queued after the declaration was queued for something else.
        let later = match self.trace.steps[pair.later] {
            Step::Operation { declared: Some(declared), .. } => declared,
            _ => pair.later,
        };
        let reached = clocks[later * self.trace.streams as usize + source];
        reached >= self.tick[pair.earlier]
    }

    /// The clock of every step: how much of each stream it follows.
    fn clocks(&self, edit: Option<Edit>) -> Vec<u32> {
        self.clocks_until(edit, if self.ignores_host { 0 } else { usize::MAX })
    }

    /// The same with what the host learnt before step `host_until`, and not with what it learnt
    /// after it.
    fn clocks_until(&self, edit: Option<Edit>, host_until: usize) -> Vec<u32> {
        let streams = self.trace.streams as usize;
        let mut clocks = vec![0u32; self.trace.steps.len() * streams];
        let mut host = vec![0u32; streams];
        for (index, step) in self.trace.steps.iter().enumerate() {
            if let (Step::HostKnows { .. }, Some(place)) = (step, known(self.previous[index]))
                && index < host_until
            {
                raise(&mut host, &clocks[place * streams..][..streams]);
            }
            if self.stream[index] == NOBODY {
                continue;
            }
            let (before, from_here) = clocks.split_at_mut(index * streams);
            let clock = &mut from_here[..streams];
            if self.previous[index] != NOBODY {
                let start = self.previous[index] as usize * streams;
                clock.copy_from_slice(&before[start..start + streams]);
            }
            raise(clock, &host);
            let own = &mut clock[self.stream[index] as usize];
            *own = self.ticks[index].max(*own);
            if let Step::Wait { record: Some(record), .. } = *step
                && let Some(place) = self.waited_for(index, record, edit)
            {
                raise(clock, &before[place * streams..][..streams]);
            }
        }
        clocks
    }

    /// The last step that a wait stands behind, under an edit.
    fn waited_for(&self, wait: usize, record: usize, edit: Option<Edit>) -> Option<usize> {
        match edit {
            Some(Edit::Remove(removed)) if removed == wait => None,
            Some(Edit::EndEarlier(weakened)) if weakened == wait => {
                let last = match self.trace.steps[record] {
                    Step::Record { stands_for: Some(step), .. } => step,
                    _ => self.last_tick(record)?,
                };
                self.last_tick(known(self.previous[last])?)
            }
            _ => Some(record),
        }
    }

    /// The last step at or before `index`, on its stream, that takes a tick.
    fn last_tick(&self, index: usize) -> Option<usize> {
        let mut at = index;
        while !takes_a_tick(&self.trace.steps[at]) {
            at = known(self.previous[at])?;
        }
        Some(at)
    }
}

fn known(index: u32) -> Option<usize> {
    (index != NOBODY).then_some(index as usize)
}

fn raise(clock: &mut [u32], other: &[u32]) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// Collects the pairs that have to be ordered.
struct Pairs<'s> {
    trace: &'s Trace,
    stream: &'s [u32],
    tick: &'s [u32],
    pairs: Vec<TraceRace>,
}

impl<'s> Pairs<'s> {
    fn of(trace: &'s Trace, stream: &'s [u32], tick: &'s [u32]) -> Vec<TraceRace> {
        let mut all = Self { trace, stream, tick, pairs: Vec::new() };
        let mut shadows: Vec<Option<Shadow>> = vec![None; trace.allocations as usize];
        for (index, step) in trace.steps.iter().enumerate() {
            all.add_step(index, step, &mut shadows);
        }
        all.pairs.sort_unstable();
        all.pairs.dedup();
        all.pairs
    }

    fn add_step(&mut self, index: usize, step: &Step, shadows: &mut [Option<Shadow>]) {
        match *step {
            Step::Allocate { allocation, bytes, .. } => {
                // Memory that is valid everywhere needs nothing to be waited for, and neither does
                // what nobody wrote: a pair with it is left out below.
                shadows[allocation as usize] = Some(Shadow::new(bytes, index as u32));
            }
            Step::Free { allocation, stream: Some(_) } => {
                let Some(shadow) = shadows[allocation as usize].take() else { return };
                for segment in shadow.segments() {
                    self.all_of(segment, index, allocation, FindingKind::UseAfterFree);
                }
            }
            // A block cut from an allocation that is in use: its stream follows what was there.
            // It does not count as a write: whoever uses it first waits for what was there too.
            Step::HandOut { allocation, stream: Some(_), start, end, .. } => {
                let Some(shadow) = &mut shadows[allocation as usize] else { return };
                shadow.touch(start, end, |segment| {
                    self.all_of(segment, index, allocation, FindingKind::UseBeforeAllocation);
                });
            }
            Step::Operation { ref uses, .. } => {
                for one in uses {
                    let Some(shadow) = &mut shadows[one.allocation as usize] else { continue };
                    shadow.touch(one.start, one.end, |segment| {
                        self.use_of(segment, index, one.allocation, one.access);
                    });
                }
            }
            _ => {}
        }
    }

    fn use_of(
        &mut self,
        segment: &mut Segment,
        index: usize,
        allocation: u32,
        access: xlog_core::Access,
    ) {
        let kind = match self.trace.steps[segment.write as usize] {
            Step::Allocate { .. } => FindingKind::UseBeforeAllocation,
            _ if access.reads() => FindingKind::ReadAfterWrite,
            _ => FindingKind::WriteAfterWrite,
        };
        self.pair(segment.write, index, allocation, kind);
        if access.writes() {
            for &read in &segment.reads {
                self.pair(read, index, allocation, FindingKind::WriteAfterRead);
            }
            segment.write = index as u32;
            segment.reads.clear();
        } else {
            // Of one stream's reads the one that counts last covers the others.
            segment.reads.retain(|read| {
                let read = *read as usize;
                self.stream[read] != self.stream[index] || self.tick[read] > self.tick[index]
            });
            segment.reads.push(index as u32);
        }
    }

    fn all_of(&mut self, segment: &Segment, index: usize, allocation: u32, kind: FindingKind) {
        self.pair(segment.write, index, allocation, kind);
        for &read in &segment.reads {
            self.pair(read, index, allocation, kind);
        }
    }

    fn pair(&mut self, earlier: u32, later: usize, allocation: u32, kind: FindingKind) {
        let earlier = earlier as usize;
        // What takes no place on a stream (memory valid everywhere) is before everything, and one
        // stream's own order needs no wait.
        if self.stream[earlier] != NOBODY && self.stream[earlier] != self.stream[later] {
            self.pairs.push(TraceRace { kind, earlier, later, allocation });
        }
    }
}
