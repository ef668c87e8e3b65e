//! Rows for people and rows for programs.

use serde_json::{Value, json};

/// One measured row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: &'static str,
    /// What was measured: the default stack, or a part of it.
    pub(super) resource: &'static str,
    pub(super) size: usize,
    pub(super) threads: usize,
    /// Nanoseconds for an allocation and its free.
    pub(super) ns_per_pair: f64,
    /// The driver's own calls, the same way; `None` where there is no such thing.
    pub(super) driver_ns_per_pair: Option<f64>,
    /// What else the case is about: a name, and a number.
    pub(super) also: Option<(&'static str, f64)>,
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
        if self.json {
            return;
        }
        crate::say!(
            "allocations beside the driver's own on {} ({name}), nanoseconds\n",
            self.device
        );
        crate::say!(
            "{:<16} {:<12} {:>9} {:>7} {:>11} {:>11} {:>7}",
            "case",
            "resource",
            "size",
            "threads",
            "a pair",
            "the driver",
            "times"
        );
    }

    pub(super) fn add(&mut self, row: &Row) {
        let mut object = json!({
            "bench": "alloc",
            "device": self.device,
            "case": row.case,
            "resource": row.resource,
            "size": row.size,
            "threads": row.threads,
            "ns_per_pair": row.ns_per_pair,
            "driver_ns_per_pair": row.driver_ns_per_pair,
        });
        if let Some((name, value)) = row.also {
            object[name] = json!(value);
        }
        if self.json {
            crate::say!("{object}");
        }
        self.rows.push(object);
        if self.json {
            return;
        }
        let (driver, times) = match row.driver_ns_per_pair {
            Some(ns) => (format!("{ns:.0}"), format!("{:.1}", ns / row.ns_per_pair)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        crate::say!(
            "{:<16} {:<12} {:>9} {:>7} {:>11.0} {driver:>11} {times:>7}",
            row.case,
            row.resource,
            row.size,
            row.threads,
            row.ns_per_pair,
        );
        if let Some((name, value)) = row.also {
            crate::say!("{:<16} {} {value:.2}", "", name.replace('_', " "));
        }
    }

    /// Every row, as it is printed for programs.
    pub(super) fn rows(&self) -> &[Value] {
        &self.rows
    }

    pub(super) fn close(&self) {
        if !self.json {
            crate::say!("\n{} rows, every block checked", self.rows.len());
        }
    }
}
