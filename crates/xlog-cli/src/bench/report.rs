//! Rows for people and rows for programs.

use serde_json::{Value, json};

/// One measured row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) pattern: String,
    /// `recorder`, `builder`, or what else was measured.
    pub(super) form: &'static str,
    pub(super) access: &'static str,
    pub(super) blocks: usize,
    pub(super) streams: usize,
    pub(super) threads: usize,
    /// What the raw driver takes for the same; `None` where there is no such thing.
    pub(super) raw_ns: Option<f64>,
    pub(super) recorded_ns: f64,
    /// The median of the paired differences.
    pub(super) above_raw_ns: Option<f64>,
    pub(super) records_per_launch: f64,
    pub(super) waits_per_launch: f64,
    /// Rounds that count, and rounds left out because somebody else used the core.
    pub(super) rounds: usize,
    pub(super) rounds_left_out: usize,
    /// Growth of the process's memory over the pattern, where that is the point.
    pub(super) memory_growth_bytes: Option<i64>,
}

/// Collects rows; prints each as it comes.
#[derive(Debug)]
pub(super) struct Report {
    device: String,
    json: bool,
    /// As they are printed for programs, to compare with others.
    rows: Vec<Value>,
    left_out: usize,
}

impl Report {
    pub(super) fn new(device: String, json: bool) -> Self {
        Self { device, json, rows: Vec::new(), left_out: 0 }
    }

    pub(super) fn open(&self, name: &str) {
        if self.json {
            return;
        }
        crate::say!("recorded launches beside raw ones on {} ({name}), nanoseconds\n", self.device);
        crate::say!(
            "{:<22} {:<9} {:<6} {:>6} {:>7} {:>7} {:>9} {:>9} {:>9} {:>8} {:>7}",
            "pattern",
            "form",
            "access",
            "blocks",
            "streams",
            "threads",
            "raw",
            "recorded",
            "above",
            "records",
            "waits"
        );
    }

    pub(super) fn add(&mut self, row: &Row) {
        self.left_out += row.rounds_left_out;
        let object = json!({
            "bench": "launch",
            "device": self.device,
            "pattern": row.pattern,
            "form": row.form,
            "access": row.access,
            "blocks": row.blocks,
            "streams": row.streams,
            "threads": row.threads,
            "raw_ns": row.raw_ns,
            "recorded_ns": row.recorded_ns,
            "above_raw_ns": row.above_raw_ns,
            "records_per_launch": row.records_per_launch,
            "waits_per_launch": row.waits_per_launch,
            "rounds": row.rounds,
            "rounds_left_out": row.rounds_left_out,
            "memory_growth_bytes": row.memory_growth_bytes,
        });
        if self.json {
            crate::say!("{object}");
        }
        self.rows.push(object);
        if self.json {
            return;
        }
        let number = |value: Option<f64>| value.map_or("–".to_owned(), |ns| format!("{ns:.0}"));
        crate::say!(
            "{:<22} {:<9} {:<6} {:>6} {:>7} {:>7} {:>9} {:>9.0} {:>9} {:>8.2} {:>7.2}",
            row.pattern,
            row.form,
            row.access,
            row.blocks,
            row.streams,
            row.threads,
            number(row.raw_ns),
            row.recorded_ns,
            number(row.above_raw_ns),
            row.records_per_launch,
            row.waits_per_launch,
        );
        if let Some(bytes) = row.memory_growth_bytes {
            crate::say!("{:<22} memory grew by {bytes} bytes", "");
        }
    }

    /// Every row, as it is printed for programs.
    pub(super) fn rows(&self) -> &[Value] {
        &self.rows
    }

    pub(super) fn close(&self) {
        if !self.json {
            crate::say!("\n{} rows, every result verified", self.rows.len());
            if self.left_out > 0 {
                crate::say!(
                    "{} rounds were left out: somebody else used the core meanwhile",
                    self.left_out
                );
            }
        }
    }
}
