//! Records as text, written by a thread of its own.
//!
//! Callers only put their record into a bounded queue. The thread formats and writes, so a slow
//! writer slows nobody down: what finds the queue full is dropped and counted. A write that fails
//! costs the records it was about, never half a line: the rest of a line that was begun goes out
//! before anything else.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use super::LogRecord;

/// How many records wait for the writer, unless told otherwise.
pub(super) const DEFAULT_CAPACITY: usize = 1 << 16;

/// How long the thread lets records gather before it writes them.
const GATHER: Duration = Duration::from_millis(20);

/// How much text goes to the writer at once.
const CHUNK: usize = 1 << 16;

/// Adds a record's line to a text, or nothing.
pub(super) type Format = Box<dyn Fn(&LogRecord, &mut Vec<u8>) + Send>;

/// The queue, the thread behind it, and what went wrong there.
pub(super) struct TextWriter<W> {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<W>>,
}

struct Shared {
    capacity: usize,
    desk: Mutex<Desk>,
    /// The thread waits here for work.
    work: Condvar,
    /// Flushes wait here for the thread.
    done: Condvar,
}

#[derive(Default)]
struct Desk {
    queue: VecDeque<LogRecord>,
    dropped: u64,
    last_error: Option<String>,
    /// Flushes asked for, and flushes done.
    flushes: (u64, u64),
    closing: bool,
    /// The thread is gone; nothing will be written any more.
    gone: bool,
}

impl<W: Write + Send + 'static> TextWriter<W> {
    /// Writes `header`, then what `format` makes of each record.
    pub(super) fn new(writer: W, capacity: usize, header: &[u8], format: Format) -> Self {
        let shared = Arc::new(Shared {
            capacity,
            desk: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let lines = Lines {
            shared: Arc::clone(&shared),
            writer,
            format,
            text: header.to_vec(),
            ends: Vec::new(),
            begun: header.len(),
        };
        let spawned =
            std::thread::Builder::new().name("xlog-log".into()).spawn(move || lines.run());
        let thread = spawned.map_err(|error| {
            let mut desk = shared.desk.lock();
            desk.gone = true;
            desk.last_error = Some(format!("no thread to write the log with: {error}"));
        });
        Self { shared, thread: thread.ok() }
    }
}

impl<W> TextWriter<W> {
    pub(super) fn push(&self, record: LogRecord) {
        let mut desk = self.shared.desk.lock();
        if desk.gone || desk.queue.len() >= self.shared.capacity {
            desk.dropped += 1;
            return;
        }
        desk.queue.push_back(record);
        // Whoever finds the queue empty wakes the thread, and whoever finds it half full keeps it
        // from waiting for more; the others have no need to.
        if desk.queue.len() == 1 || desk.queue.len() == self.shared.capacity / 2 {
            drop(desk);
            self.shared.work.notify_one();
        }
    }

    pub(super) fn flush(&self) {
        let mut desk = self.shared.desk.lock();
        desk.flushes.0 += 1;
        let mine = desk.flushes.0;
        self.shared.work.notify_one();
        while desk.flushes.1 < mine && !desk.gone {
            self.shared.done.wait(&mut desk);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.shared.desk.lock().dropped
    }

    pub(super) fn last_error(&self) -> Option<String> {
        self.shared.desk.lock().last_error.clone()
    }

    /// Writes the rest and gives the writer back; `None` if it panicked.
    pub(super) fn close(&mut self) -> Option<W> {
        self.shared.desk.lock().closing = true;
        self.shared.work.notify_one();
        self.thread.take()?.join().ok()
    }
}

impl<W> Drop for TextWriter<W> {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl<W> fmt::Debug for TextWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let desk = self.shared.desk.lock();
        f.debug_struct("TextWriter")
            .field("waiting", &desk.queue.len())
            .field("dropped", &desk.dropped)
            .field("last_error", &desk.last_error)
            .finish_non_exhaustive()
    }
}

/// The thread's side.
struct Lines<W> {
    shared: Arc<Shared>,
    writer: W,
    format: Format,
    /// What is to be written next.
    text: Vec<u8>,
    /// Where, in the text, the line of each record ends.
    ends: Vec<usize>,
    /// How much of the text is the rest of a line that was begun; or the header, at first.
    begun: usize,
}

/// Says that the thread is gone, also if the writer panicked.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let mut desk = self.0.desk.lock();
        desk.gone = true;
        desk.dropped += desk.queue.len() as u64;
        desk.queue.clear();
        if std::thread::panicking() {
            desk.last_error = Some("the writer panicked; nothing more is logged".into());
        }
        self.0.done.notify_all();
    }
}

impl<W: Write> Lines<W> {
    fn run(mut self) -> W {
        let shared = Arc::clone(&self.shared);
        let _farewell = Farewell(Arc::clone(&shared));
        let mut batch = VecDeque::new();
        loop {
            let (flushes, closing) = {
                let mut desk = shared.desk.lock();
                while desk.queue.is_empty() && desk.flushes.0 == desk.flushes.1 && !desk.closing {
                    shared.work.wait(&mut desk);
                }
                if desk.flushes.0 == desk.flushes.1 && !desk.closing {
                    shared.work.wait_for(&mut desk, GATHER);
                }
                std::mem::swap(&mut desk.queue, &mut batch);
                (desk.flushes.0, desk.closing)
            };
            self.write_batch(&mut batch);
            if (closing || flushes > shared.desk.lock().flushes.1)
                && let Err(error) = self.writer.flush()
            {
                self.lose(0, &error);
            }
            let mut desk = shared.desk.lock();
            desk.flushes.1 = flushes;
            shared.done.notify_all();
            if closing && desk.queue.is_empty() {
                break;
            }
        }
        self.writer
    }

    fn write_batch(&mut self, batch: &mut VecDeque<LogRecord>) {
        for record in batch.drain(..) {
            let before = self.text.len();
            (self.format)(&record, &mut self.text);
            if self.text.len() > before {
                self.ends.push(self.text.len());
            }
            if self.text.len() >= CHUNK {
                self.write_text();
            }
        }
        self.write_text();
    }

    /// Writes the text. If that fails, the rest of a line that was begun stays, and whole lines
    /// after it are lost.
    fn write_text(&mut self) {
        let (written, error) = write_all(&mut self.writer, &self.text);
        let mut stays = written;
        if let Some(error) = error {
            if written < self.begun {
                stays = self.begun;
            } else if written > self.begun && !self.ends.contains(&written) {
                stays = self.ends.iter().copied().find(|end| *end > written).unwrap_or(written);
            }
            let lost = self.ends.iter().filter(|end| **end > stays).count();
            self.lose(lost as u64, &error);
        }
        self.text.truncate(stays);
        self.text.drain(..written);
        self.begun = self.text.len();
        self.ends.clear();
    }

    fn lose(&self, records: u64, error: &io::Error) {
        let mut desk = self.shared.desk.lock();
        desk.dropped += records;
        desk.last_error = Some(error.to_string());
    }
}

/// How much of `text` was written, and why not all of it.
fn write_all(writer: &mut impl Write, text: &[u8]) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        match writer.write(rest) {
            Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
            // A writer that claims more than it was given took all of it.
            Ok(count) => written = (written + count).min(text.len()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}
