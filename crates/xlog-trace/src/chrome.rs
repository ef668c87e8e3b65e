//! The recording in Chrome's trace format, which Perfetto and Chrome open.
//!
//! The device is a process whose threads are streams, the host another whose threads are the
//! program's. Waits are flows from work to work; memory is counters.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::{Operation, OperationKind, Recording, WaitCause};

const DEVICE: u32 = 1;
const HOST: u32 = 2;

/// Reasons of a wait that are spelt out; the rest are counted.
const REASONS: usize = 8;

impl Recording {
    /// Writes the recording in Chrome's trace format.
    pub fn write_chrome(&self, output: &mut dyn Write) -> io::Result<()> {
        let mut list = List { output, first: true };
        list.open()?;
        self.write_names(&mut list)?;
        for operation in &self.operations {
            self.write_operation(&mut list, operation)?;
        }
        self.write_waits(&mut list)?;
        for call in &self.calls {
            list.slice(HOST, call.thread, call.kind.name(), (call.begin, call.end), &json!({}))?;
        }
        self.write_memory(&mut list)?;
        list.close()
    }

    fn write_names(&self, list: &mut List<'_>) -> io::Result<()> {
        let mut name = |what: &str, process: u32, thread: u32, name: &str| {
            list.push(&json!({
                "ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name},
            }))
        };
        name("process_name", DEVICE, 0, &format!("device: {}", self.device))?;
        name("process_name", HOST, 0, "host")?;
        for stream in 0..self.streams.len() as u32 {
            name("thread_name", DEVICE, stream, &self.stream_name(stream))?;
        }
        for (thread, known_as) in self.threads.iter().enumerate() {
            name("thread_name", HOST, thread as u32, known_as)?;
        }
        Ok(())
    }

    fn write_operation(&self, list: &mut List<'_>, operation: &Operation) -> io::Result<()> {
        let mut more = match operation.kind {
            OperationKind::Kernel(dims) => json!({
                "grid": dims.grid, "block": dims.block, "shared bytes": dims.shared_bytes,
            }),
            OperationKind::Copy(_, bytes) | OperationKind::Fill(bytes) => json!({"bytes": bytes}),
        };
        if let Some(place) = operation.place {
            more["place"] = json!(place.to_string());
        }
        let uses: Vec<String> = operation
            .uses
            .iter()
            .filter_map(|one| {
                let block = self.blocks.get(one.block as usize)?;
                Some(format!("{:?} {} (generation {})", one.access, block.tag, block.generation))
            })
            .collect();
        if !uses.is_empty() {
            more["uses"] = json!(uses);
        }
        if let Some(times) = operation.device {
            list.slice(DEVICE, operation.stream, operation.name, times, &more)?;
        }
        let call = format!("enqueue {}", operation.name);
        let stream = json!({"stream": self.stream_name(operation.stream)});
        list.slice(HOST, operation.thread, &call, operation.call, &stream)
    }

    fn write_waits(&self, list: &mut List<'_>) -> io::Result<()> {
        for (number, wait) in self.waits.iter().enumerate() {
            let operation = |index: Option<u32>| self.operations.get(index? as usize);
            let ends = operation(wait.from).zip(operation(wait.to));
            let Some((from, to)) = ends else { continue };
            let Some((source, target)) = from.device.zip(to.device) else { continue };
            let why = self.cause_lines(&wait.cause, REASONS);
            // A flow begins and ends at slices that its times are within.
            for (phase, stream, at) in
                [("s", from.stream, source.1.max(1) - 1), ("f", to.stream, target.0)]
            {
                list.push(&json!({
                    "ph": phase, "bp": "e", "id": number, "cat": "wait", "name": "wait",
                    "pid": DEVICE, "tid": stream, "ts": micros(at), "args": {"why": why},
                }))?;
            }
        }
        Ok(())
    }

    /// What a wait was for, a line for each reason, the first `most` of them.
    pub(crate) fn cause_lines(&self, cause: &WaitCause, most: usize) -> Vec<String> {
        match cause {
            WaitCause::Fence => vec!["the host waits for every stream at once".to_owned()],
            WaitCause::Undeclared => {
                vec!["nobody said: no declared use needs it".to_owned()]
            }
            WaitCause::Blocks(reasons) => {
                let shown = reasons.iter().take(most).map(|reason| self.reason_text(reason));
                let mut lines: Vec<String> = shown.collect();
                if reasons.len() > most {
                    lines.push(format!("and {} more", reasons.len() - most));
                }
                lines
            }
        }
    }

    fn write_memory(&self, list: &mut List<'_>) -> io::Result<()> {
        let mut counter = |name: &str, at: u64, values: Value| {
            list.push(&json!({
                "ph": "C", "name": name, "pid": DEVICE, "ts": micros(at), "args": values,
            }))
        };
        for sample in &self.memory {
            let free = sample.reserved.saturating_sub(sample.in_use);
            counter(
                "device memory",
                sample.at,
                json!({"in use": sample.in_use, "kept free": free}),
            )?;
            let largest = json!({"bytes": sample.largest_free});
            counter("largest free range", sample.at, largest)?;
        }
        let mut now = std::collections::HashMap::<&str, i64>::new();
        for change in &self.tags {
            let bytes = now.entry(change.tag).or_default();
            *bytes += change.change;
            let bytes = *bytes;
            counter(&format!("tag {}", change.tag), change.at, json!({"bytes": bytes}))?;
        }
        Ok(())
    }
}

/// A JSON list that is written as it grows.
struct List<'o> {
    output: &'o mut dyn Write,
    first: bool,
}

impl List<'_> {
    fn open(&mut self) -> io::Result<()> {
        self.output.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")
    }

    fn close(&mut self) -> io::Result<()> {
        self.output.write_all(b"\n]}\n")
    }

    fn push(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.output.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.output, event).map_err(io::Error::from)
    }

    fn slice(
        &mut self,
        process: u32,
        thread: u32,
        name: &str,
        (begin, end): (u64, u64),
        more: &Value,
    ) -> io::Result<()> {
        self.push(&json!({
            "ph": "X", "name": name, "pid": process, "tid": thread,
            "ts": micros(begin), "dur": micros(end.saturating_sub(begin)), "args": more,
        }))
    }
}

/// Microseconds, which the format counts in.
fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
