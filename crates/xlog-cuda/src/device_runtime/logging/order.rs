//! The one order of a log.
//!
//! A call is logged when it returns, since only then its answer is known. That would be wrong for
//! a free: before it returns, another thread may have been given the same address, and returned.
//! So a free takes its place in the order before it goes down, and what comes after it waits here
//! until its answer is in. A free that failed freed nothing, and is logged where it returned.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{
    LogRecord, LogSink,
    record::{now_ns, start_of_log},
};

/// As many records wait behind a free that does not return; then its place is given up. A thread
/// that lost its core for a while is not to lose its place: others log thousands meanwhile.
const MOST_WAITING: usize = 1 << 16;

/// Hands records to a sink in order.
pub(super) struct Order {
    line: Mutex<Line>,
    sink: Box<dyn LogSink>,
}

#[derive(Default)]
struct Line {
    next_sequence: u64,
    /// The place of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
}

enum Slot {
    Waiting,
    Ready(LogRecord),
    Empty,
}

/// A place in the order, and when it was taken.
pub(super) struct Place {
    number: u64,
    time_ns: u64,
}

impl Order {
    pub(super) fn new(sink: Box<dyn LogSink>) -> Self {
        // The clock starts with the first resource, not with the first call.
        let _ = start_of_log();
        Self { line: Mutex::default(), sink }
    }

    /// Takes the next place, for a call that is about to be made.
    pub(super) fn reserve(&self) -> Place {
        let mut line = self.line.lock();
        let place = Place { number: line.first + line.slots.len() as u64, time_ns: now_ns() };
        self.add(&mut line, Slot::Waiting);
        place
    }

    /// Logs a call at the place it took; or here, if that place was given up or it failed.
    pub(super) fn settle(&self, place: &Place, mut record: LogRecord) {
        let mut line = self.line.lock();
        let index = place.number.checked_sub(line.first).and_then(|index| index.try_into().ok());
        let failed = record.result.is_err();
        match index.and_then(|index: usize| line.slots.get_mut(index)) {
            Some(slot) if !failed => {
                record.time_ns = place.time_ns;
                *slot = Slot::Ready(record);
            }
            slot => {
                if let Some(slot) = slot {
                    *slot = Slot::Empty;
                }
                record.time_ns = now_ns();
                self.add(&mut line, Slot::Ready(record));
            }
        }
        self.advance(&mut line);
    }

    /// Logs calls that have returned.
    pub(super) fn append(&self, records: impl IntoIterator<Item = LogRecord>) {
        let mut line = self.line.lock();
        let time_ns = now_ns();
        for mut record in records {
            record.time_ns = time_ns;
            if line.slots.is_empty() {
                self.emit(&mut line, record);
            } else {
                self.add(&mut line, Slot::Ready(record));
            }
        }
    }

    /// Hands on what waits, giving up the places of calls that have not returned.
    pub(super) fn release(&self) {
        let mut line = self.line.lock();
        while let Some(slot) = line.slots.pop_front() {
            line.first += 1;
            if let Slot::Ready(record) = slot {
                self.emit(&mut line, record);
            }
        }
    }

    pub(super) fn flush(&self) {
        self.release();
        self.sink.flush();
    }

    fn add(&self, line: &mut Line, slot: Slot) {
        line.slots.push_back(slot);
        if line.slots.len() > MOST_WAITING {
            line.slots.pop_front();
            line.first += 1;
            self.advance(line);
        }
    }

    /// Hands on what no longer waits for anything.
    fn advance(&self, line: &mut Line) {
        while let Some(slot) = line.slots.pop_front() {
            match slot {
                Slot::Waiting => {
                    line.slots.push_front(slot);
                    return;
                }
                Slot::Ready(record) => self.emit(line, record),
                Slot::Empty => {}
            }
            line.first += 1;
        }
    }

    fn emit(&self, line: &mut Line, mut record: LogRecord) {
        record.sequence = line.next_sequence;
        line.next_sequence += 1;
        self.sink.record(record);
    }
}
