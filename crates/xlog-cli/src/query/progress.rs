//! A bar on standard error while a query takes long.

use std::{
    io::{self, IsTerminal, Write, stderr, stdout},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use xlog_io::ReadProgress;
use xlog_query::{Bytes, run::Monitor};

/// Whether progress is shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Progress")]
pub(crate) struct ProgressOptions {
    /// Show how far a long query is, on standard error: auto is where that is a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: When,
    /// Show nothing but results and errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// How long a query runs before a bar appears.
const PATIENCE: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(100);
const WIDTH: usize = 28;

/// The line that the bar is drawn on. There is one, as there is one terminal.
#[derive(Debug, Default)]
struct Line {
    is_drawn: bool,
    is_over: bool,
}

static LINE: Mutex<Line> = Mutex::new(Line { is_drawn: false, is_over: false });

impl Line {
    fn draw(&mut self, text: &str) {
        if !self.is_over {
            self.is_drawn = say(&format!("\r{text}\x1b[K")).is_ok();
        }
    }

    /// What is left of the bar would stand in the way of whatever comes next.
    fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = say("\r\x1b[K");
        }
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut out = stderr();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// A result is about to be written to standard output: if that is a terminal, the bar ends here.
pub(super) fn make_way() {
    if stdout().is_terminal() {
        let mut line = LINE.lock();
        line.is_over = true;
        line.erase();
    }
}

/// A bar that is drawn until it is dropped, or a result is shown.
#[derive(Debug)]
pub(super) struct ProgressBar {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl ProgressBar {
    pub(super) fn start(options: &ProgressOptions, monitor: &Arc<Monitor>) -> Self {
        let shown = match options.progress {
            _ if options.quiet => false,
            When::Auto => stderr().is_terminal(),
            When::Always => true,
            When::Never => false,
        };
        if !shown {
            return Self { running: None };
        }
        let (stop, stopped) = channel::<()>();
        let monitor = Arc::clone(monitor);
        let began = Instant::now();
        let draw = move || {
            let mut wait = PATIENCE;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = EVERY;
                let text = bar(monitor.progress(), monitor.rows_read(), began.elapsed());
                LINE.lock().draw(&text);
            }
            LINE.lock().erase();
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(draw);
        Self { running: thread.ok().map(|thread| (stop, thread)) }
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// One line about a query.
fn bar(progress: ReadProgress, rows: u64, elapsed: Duration) -> String {
    let rate = Bytes((progress.bytes_read as f64 / elapsed.as_secs_f64().max(1e-3)) as u64);
    let read = Bytes(progress.bytes_read);
    let counted = format!("{rows} rows, {rate}/s");
    match progress.bytes_total.filter(|total| *total > 0) {
        None => format!("{read} read, {counted}"),
        Some(total) => {
            let part = (progress.bytes_read as f64 / total as f64).clamp(0.0, 1.0);
            let full = (part * WIDTH as f64) as usize;
            let (done, left) = ("━".repeat(full), "─".repeat(WIDTH - full));
            format!("{done}{left} {:3.0}% of {}, {counted}", part * 100.0, Bytes(total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_once_a_result_is_shown() {
        let mut line = Line::default();
        line.draw("half of it");
        assert!(line.is_drawn);
        line.is_over = true;
        line.erase();
        line.draw("more of it");
        assert!(!line.is_drawn);
    }

    #[test]
    fn a_bar_says_how_much_of_how_much() {
        let progress = ReadProgress { bytes_read: 1 << 20, bytes_total: Some(4 << 20) };
        let text = bar(progress, 1000, Duration::from_secs(2));
        assert!(text.contains(" 25% of 4.0 MiB, 1000 rows, 512.0 KiB/s"), "{text}");
        assert_eq!(text.matches('━').count(), 7);
        let progress = ReadProgress { bytes_read: 10, bytes_total: None };
        assert!(bar(progress, 1, Duration::from_secs(1)).starts_with("10 bytes read"));
    }
}
