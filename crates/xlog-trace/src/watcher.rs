//! What the runtime tells a trace: which blocks work declares, and which it hands out.
//!
//! Whoever watches the driver underneath, a checked device say, is told the same.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use xlog_driver::{BlockNote, Declared, DeviceCall, DeviceWatcher, OperationId};

use crate::{
    driver::Notes,
    log::{Call, Declaration, Span},
};

/// The ear of a trace.
#[derive(Debug)]
pub(crate) struct TraceWatcher {
    notes: Arc<Notes>,
    inner: Option<Arc<dyn DeviceWatcher>>,
    open: Mutex<Open>,
}

/// Declarations whose work is still to come.
#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// By the number the runtime has: the log's number, and the number of the watcher underneath.
    declarations: FxHashMap<u64, (Option<u32>, Option<u64>)>,
}

impl TraceWatcher {
    pub(crate) fn new(notes: Arc<Notes>, inner: Option<Arc<dyn DeviceWatcher>>) -> Self {
        Self { notes, inner, open: Mutex::default() }
    }

    fn instant(&self) -> Span {
        let now = self.notes.now();
        Span { begin: now, end: now }
    }

    fn write_down(&self, declared: &Declared<'_>) -> Option<u32> {
        let stream = self.notes.stream(declared.stream).number;
        let span = self.instant();
        let mut log = self.notes.log();
        if !log.has_room() {
            return None;
        }
        log.name_stream(stream, declared.stream_name);
        let declaration = log.declarations.len() as u32;
        let uses = declared.uses.to_vec();
        log.declarations.push(Declaration { stream, uses, place: declared.place });
        log.push(span, Call::Declared { declaration });
        Some(declaration)
    }
}

impl DeviceWatcher for TraceWatcher {
    fn called(&self, call: &DeviceCall<'_>) {
        if let Some(inner) = &self.inner {
            inner.called(call);
        }
    }

    fn may_read(&self, operation: OperationId, address: u64, bytes: usize) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.may_read(operation, address, bytes))
    }

    fn may_write(&self, operation: OperationId, address: u64, bytes: usize) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.may_write(operation, address, bytes))
    }

    fn declared(&self, declared: &Declared<'_>) -> u64 {
        let below = self.inner.as_ref().map(|inner| inner.declared(declared));
        let ours = self.write_down(declared);
        let mut open = self.open.lock();
        open.last += 1;
        let number = open.last;
        open.declarations.insert(number, (ours, below));
        number
    }

    fn declaration_over(&self, number: u64) {
        let Some((ours, below)) = self.open.lock().declarations.remove(&number) else { return };
        if let (Some(inner), Some(below)) = (&self.inner, below) {
            inner.declaration_over(below);
        }
        if let Some(declaration) = ours {
            let span = self.instant();
            self.notes.log().push(span, Call::DeclarationOver { declaration });
        }
    }

    fn block(&self, note: &BlockNote) {
        if let Some(inner) = &self.inner {
            inner.block(note);
        }
        let stream = note.stream.map(|stream| self.notes.stream(stream).number);
        let span = self.instant();
        self.notes.log().push_block(span, note, stream);
    }
}
