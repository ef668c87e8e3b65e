//! Streams, events and the choice of what runs next.

use std::{collections::VecDeque, fmt::Write as _};

use super::{
    super::{
        fault::FaultCell,
        operation::{Operation, Watched},
    },
    memory::{FREED, FRESH, PendingFree, SimulatedMemory},
    random::Random,
    touched::{Streams, Touched, bit},
};
use crate::{DeviceWatcher, DriverError, DriverResult, OperationId, RawEvent, RawStream};

/// A place in a stream: everything up to entry `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stream: usize,
    pub(super) number: u64,
}

/// One entry of a stream's queue.
#[allow(clippy::large_enum_variant)] // as in `Operation`
pub(super) enum Entry {
    /// Does something.
    Run { operation: Operation, number: OperationId },
    /// Holds the stream until another has come far enough.
    Wait(Place),
    /// Holds the stream while a word of memory is zero.
    Hold(u64),
    /// Fresh memory becomes valid here.
    Fresh { address: u64, size: u64 },
    /// Memory is free from here on.
    Freed(PendingFree),
}

#[derive(Default)]
struct Stream {
    entries: VecDeque<Entry>,
    enqueued: u64,
    finished: u64,
    /// The waits since its last operation: the number of each, and what it was for.
    behind: Vec<(u64, Place)>,
}

/// Everything that changes while a simulated device runs.
pub(super) struct Schedule {
    pub(super) random: Random,
    pub(super) memory: SimulatedMemory,
    pub(super) deadlock: Option<String>,
    pub(super) next_operation: u64,
    pub(super) touched: Touched,
    /// Whether waits that are over already are queued all the same, and all are remembered.
    pub(super) keeps_causes: bool,
    /// What the last operation had to come after: its own place, and those it waited for.
    pub(super) causes: Vec<Place>,
    streams: Vec<Stream>,
    /// Streams with something to do, in the order of their numbers.
    busy: Vec<usize>,
    /// What each event stands for; the outer `None` once it is destroyed.
    events: Vec<Option<Option<Place>>>,
}

impl Schedule {
    pub(super) fn new(seed: u64, memory: SimulatedMemory) -> Self {
        Self {
            random: Random::new(seed),
            memory,
            deadlock: None,
            next_operation: 0,
            touched: Touched::default(),
            keeps_causes: false,
            causes: Vec::new(),
            streams: Vec::new(),
            busy: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn create_stream(&mut self) -> RawStream {
        self.streams.push(Stream::default());
        RawStream(self.streams.len() as u64)
    }

    /// The number of a stream. Destroyed ones keep theirs: what they hold still runs.
    pub(super) fn stream(&self, stream: RawStream, call: &'static str) -> DriverResult<usize> {
        let index = (stream.0 as usize).wrapping_sub(1);
        if index < self.streams.len() {
            return Ok(index);
        }
        let message = format!("{} is not a stream of this device; create one first", stream.0);
        Err(DriverError::new(call, 1, message))
    }

    pub(super) fn create_event(&mut self) -> RawEvent {
        self.events.push(Some(None));
        RawEvent(self.events.len() as u64)
    }

    /// What an event stands for; to be changed, if the caller likes.
    pub(super) fn event(
        &mut self,
        event: RawEvent,
        call: &'static str,
    ) -> DriverResult<&mut Option<Place>> {
        let found = self.events.get_mut((event.0 as usize).wrapping_sub(1));
        found.and_then(Option::as_mut).ok_or_else(|| {
            let message = format!("{} is not an event of this device, or was destroyed", event.0);
            DriverError::new(call, 1, message)
        })
    }

    pub(super) fn destroy_event(&mut self, event: RawEvent) -> DriverResult<()> {
        self.event(event, "destroy_event")?;
        self.events[event.0 as usize - 1] = None;
        Ok(())
    }

    /// How many entries each stream was given, and how many are over.
    pub(super) fn progress(&self) -> Vec<(u64, u64)> {
        self.streams.iter().map(|stream| (stream.enqueued, stream.finished)).collect()
    }

    /// Notes an allocation: which range it gets depends on who has executed which free.
    pub(super) fn asks_for_memory(&mut self, bytes: usize, stream: Option<usize>) {
        self.touched.memory = true;
        let freed = self.memory.freed_elsewhere(bytes, stream);
        self.touched.asked |= freed.fold(0, |streams, stream| streams | bit(stream));
    }

    /// The place behind everything on a stream so far.
    pub(super) fn tail(&self, stream: usize) -> Place {
        Place { stream, number: self.streams[stream].enqueued }
    }

    pub(super) fn is_reached(&self, place: Place) -> bool {
        self.streams[place.stream].finished >= place.number
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy.is_empty()
    }

    /// Entries a stream holds.
    pub(super) fn pending(&self, stream: usize) -> u64 {
        self.streams[stream].enqueued - self.streams[stream].finished
    }

    pub(super) fn push(&mut self, stream: usize, entry: Entry) {
        self.touched.enqueued |= bit(stream);
        let queue = &mut self.streams[stream];
        queue.entries.push_back(entry);
        queue.enqueued += 1;
        if let Err(index) = self.busy.binary_search(&stream) {
            self.busy.insert(index, stream);
        }
        // Only what is at the front can be over.
        if self.streams[stream].entries.len() == 1 {
            self.pass_waits(false);
        }
    }

    /// Whether a wait does not hold its stream any more. Nothing waits on a lost device.
    fn is_over(&self, entry: &Entry, lost: bool) -> bool {
        match entry {
            Entry::Wait(place) => lost || self.is_reached(*place),
            // SAFETY: whoever holds a stream on a word promised that it stays; no reference is
            // formed, so whoever writes it cannot break anything.
            Entry::Hold(word) => lost || unsafe { (*word as *const u32).read_volatile() } != 0,
            _ => false,
        }
    }

    fn is_wait(entry: &Entry) -> bool {
        matches!(entry, Entry::Wait(_) | Entry::Hold(_))
    }

    /// Passes every wait that holds its stream no more. An event behind such a wait may be what
    /// another stream waits for, so this goes on until nothing changes.
    pub(super) fn pass_waits(&mut self, lost: bool) {
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for index in 0..self.busy.len() {
                let stream = self.busy[index];
                while let Some(entry) = self.streams[stream].entries.front()
                    && self.is_over(entry, lost)
                {
                    self.remember_wait(stream);
                    self.streams[stream].entries.pop_front();
                    self.streams[stream].finished += 1;
                    changed = true;
                }
            }
        }
        self.busy.retain(|stream| !self.streams[*stream].entries.is_empty());
    }

    /// The wait at the front of a stream is over: what comes next on it is behind that place.
    fn remember_wait(&mut self, stream: usize) {
        if let Some(&Entry::Wait(place)) = self.streams[stream].entries.front()
            && self.keeps_causes
        {
            // What was waited for may itself be a wait that has no operation behind it yet.
            let further = self.streams[place.stream].behind.iter();
            let further: Vec<Place> = further
                .filter(|(wait, _)| *wait <= place.number)
                .map(|(_, place)| *place)
                .collect();
            let queue = &mut self.streams[stream];
            let number = queue.finished + 1;
            queue.behind.push((number, place));
            queue.behind.extend(further.into_iter().map(|place| (number, place)));
        }
    }

    fn can_run(&self, stream: usize, lost: bool) -> bool {
        let next = self.streams[stream].entries.front();
        next.is_some_and(|entry| !Self::is_wait(entry) || self.is_over(entry, lost))
    }

    /// How many streams can run their next operation now.
    pub(super) fn runnable(&self, fault: &FaultCell) -> usize {
        let lost = fault.is_lost();
        self.busy.iter().filter(|stream| self.can_run(**stream, lost)).count()
    }

    /// The streams that can run their next operation now.
    pub(super) fn runnable_streams(&self, fault: &FaultCell) -> Streams {
        let lost = fault.is_lost();
        let able = self.busy.iter().filter(|stream| self.can_run(**stream, lost));
        able.fold(0, |streams, stream| streams | bit(*stream))
    }

    /// The streams with something to do.
    pub(super) fn busy_streams(&self) -> Streams {
        self.busy.iter().fold(0, |streams, stream| streams | bit(*stream))
    }

    /// Runs the next operation of one that can, chosen by chance; false if none can.
    pub(super) fn step(&mut self, fault: &FaultCell, watcher: Option<&dyn DeviceWatcher>) -> bool {
        let runnable = self.runnable(fault);
        if runnable == 0 {
            return false;
        }
        let choice = if runnable == 1 { 0 } else { self.random.below(runnable) };
        self.step_choice(choice, fault, watcher)
    }

    /// Runs the next operation of the stream that is number `choice` among those that can.
    pub(super) fn step_choice(
        &mut self,
        choice: usize,
        fault: &FaultCell,
        watcher: Option<&dyn DeviceWatcher>,
    ) -> bool {
        let lost = fault.is_lost();
        let mut able = self.busy.iter().copied().filter(|stream| self.can_run(*stream, lost));
        let Some(stream) = able.nth(choice) else { return false };
        self.step_stream(stream, fault, watcher)
    }

    /// Runs the next operation of a stream; false if it cannot.
    pub(super) fn step_stream(
        &mut self,
        stream: usize,
        fault: &FaultCell,
        watcher: Option<&dyn DeviceWatcher>,
    ) -> bool {
        if stream >= self.streams.len() || !self.can_run(stream, fault.is_lost()) {
            return false;
        }
        self.touched.ran |= bit(stream);
        if self.keeps_causes {
            let number = self.streams[stream].finished + 1;
            let behind = std::mem::take(&mut self.streams[stream].behind);
            self.causes = behind.into_iter().map(|(_, place)| place).collect();
            let streams = self.causes.iter().map(|place| bit(place.stream));
            self.touched.asked |= streams.fold(0, |all, stream| all | stream);
            self.causes.push(Place { stream, number });
        }
        if let Some(entry) = self.streams[stream].entries.pop_front() {
            self.execute(entry, fault, watcher);
            self.streams[stream].finished += 1;
        }
        self.pass_waits(fault.is_lost());
        true
    }

    fn execute(&mut self, entry: Entry, fault: &FaultCell, watcher: Option<&dyn DeviceWatcher>) {
        match entry {
            Entry::Run { operation, number } => {
                let watched = watcher.map(|watcher| Watched { watcher, operation: number });
                // SAFETY: `Driver`'s enqueueing methods were promised what this asks for.
                unsafe { operation.execute(fault, watched) }
            }
            Entry::Fresh { address, size } => self.memory.poison(address, size, FRESH),
            Entry::Freed(free) => {
                self.memory.poison(free.address, free.size, FREED);
                self.memory.executed(&free);
            }
            Entry::Wait(_) | Entry::Hold(_) => {}
        }
    }

    /// The stream that has to run next for `stream` to come further.
    fn needed_by(&self, stream: usize, fault: &FaultCell) -> Option<usize> {
        let (mut at, lost) = (stream, fault.is_lost());
        // A circle of waits is no longer than all streams.
        for _ in 0..=self.streams.len() {
            if self.can_run(at, lost) {
                return Some(at);
            }
            let Some(Entry::Wait(place)) = self.streams[at].entries.front() else { return None };
            at = place.stream;
        }
        None
    }

    /// Steps until `holds`. If nothing can run before that, nothing ever will. With `only` a
    /// stream, nothing runs but what that needs.
    pub(super) fn run_until(
        &mut self,
        call: &'static str,
        only: Option<usize>,
        fault: &FaultCell,
        watcher: Option<&dyn DeviceWatcher>,
        holds: impl Fn(&Self) -> bool,
    ) -> DriverResult<()> {
        while !holds(self) {
            let stepped = match only {
                Some(stream) => match self.needed_by(stream, fault) {
                    Some(needed) => self.step_stream(needed, fault, watcher),
                    None => false,
                },
                None => self.step(fault, watcher),
            };
            if !stepped {
                let text = self.describe_deadlock();
                self.deadlock.get_or_insert_with(|| format!("{call}: {text}"));
                return Err(DriverError::new(call, DEADLOCK, text));
            }
        }
        Ok(())
    }

    fn describe_deadlock(&self) -> String {
        let mut text = String::from("deadlock: no stream can go on");
        for &stream in &self.busy {
            let held = self.streams[stream].entries.iter().find(|entry| Self::is_wait(entry));
            let name = stream + 1;
            let _ = match held {
                Some(Entry::Wait(Place { stream, number })) => write!(
                    text,
                    "; stream {name} waits for entry {number} of stream {}, which has finished {}",
                    stream + 1,
                    self.streams[*stream].finished
                ),
                Some(Entry::Hold(word)) => {
                    write!(text, "; stream {name} is held until the word at {word:#x} is not zero")
                }
                _ => write!(text, "; stream {name} has work"),
            };
        }
        text.push_str(
            ". Look for a wait that covers work enqueued after the use it stands for, or for a \
             word that nobody sets",
        );
        text
    }
}

/// CUDA's code for a launch that took too long, which is how a GPU would show it.
const DEADLOCK: i32 = 702;
