//! Rows for people and rows for programs.

use serde_json::{Value, json};

/// One measured row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) op: &'static str,
    /// The type of the keys, and whatever else tells the case from others.
    pub(super) kind: String,
    /// Input rows, of the larger side.
    pub(super) rows: u64,
    pub(super) output_rows: u64,
    pub(super) ms: f64,
    /// What it is measured beside, in the same run, and how long that took.
    pub(super) peer: Option<(&'static str, f64)>,
    pub(super) launches: Option<usize>,
}

/// Collects rows; prints each as it comes.
#[derive(Debug)]
pub(super) struct Report {
    device: String,
    json: bool,
    /// As they are printed for programs, to compare with others.
    rows: Vec<Value>,
}

impl Report {
    pub(super) fn new(device: String, json: bool) -> Self {
        Self { device, json, rows: Vec::new() }
    }

    pub(super) fn open(&self, name: &str) {
        if !self.json {
            crate::say!("operators on {} ({name}); every result was verified\n", self.device);
            crate::say!(
                "{:<12} {:<24} {:>11} {:>11} {:>9} {:<10} {:>11}",
                "operator",
                "type",
                "rows",
                "ms",
                "Grows/s",
                "beside",
                "ms"
            );
        }
    }

    pub(super) fn add(&mut self, row: &Row) {
        let rate = row.rows as f64 / row.ms / 1e6;
        let object = json!({
            "bench": "ops",
            "op": row.op,
            "type": row.kind,
            "rows": row.rows,
            "output_rows": row.output_rows,
            "ms": row.ms,
            "grows_per_s": rate,
            "device": self.device,
            "peer": row.peer.map(|(name, _)| name),
            "peer_ms": row.peer.map(|(_, ms)| ms),
            "launches": row.launches,
        });
        if self.json {
            crate::say!("{object}");
        }
        self.rows.push(object);
        if self.json {
            return;
        }
        let (peer, peer_ms) = match row.peer {
            Some((name, ms)) => (name, format!("{ms:.4}")),
            None => ("–", "–".to_owned()),
        };
        let (op, kind, rows, ms) = (row.op, &row.kind, row.rows, row.ms);
        crate::say!(
            "{op:<12} {kind:<24} {rows:>11} {ms:>11.4} {rate:>9.2} {peer:<10} {peer_ms:>11}"
        );
    }

    /// Every row, as it is printed for programs.
    pub(super) fn rows(&self) -> &[Value] {
        &self.rows
    }

    pub(super) fn close(&self) {
        if !self.json {
            crate::say!(
                "\n{} rows; `beside` is what was measured in turn with it",
                self.rows.len()
            );
        }
    }
}
