//! The recording as compact JSON: a list for each figure, times as differences, names by number.

use std::{
    fmt::Display,
    io::{self, Write},
    panic::Location,
};

use rustc_hash::FxHashMap;
use xlog_core::Access;
use xlog_driver::{CopyKind, LaunchDims};

use super::Hazard;
use crate::{CallKind, Dependency, Operation, OperationKind, Reason, Recording, Wait, WaitCause};

/// Reasons of a wait that go into the page; the rest are counted.
const REASONS: usize = 8;

/// Every dependency, by the number it has in the page.
const DEPENDENCIES: [Dependency; 6] = [
    Dependency::ReadAfterWrite,
    Dependency::WriteAfterRead,
    Dependency::WriteAfterWrite,
    Dependency::UseAfterAllocation,
    Dependency::FreeAfterUse,
    Dependency::ReuseAfterUse,
];

/// Every kind of call, by the number it has in the page: those that wait come first.
const CALLS: [CallKind; 7] = [
    CallKind::AwaitStream,
    CallKind::AwaitEvent,
    CallKind::AwaitDevice,
    CallKind::Allocate,
    CallKind::Free,
    CallKind::AllocatePinned,
    CallKind::FreePinned,
];

/// Writes everything that the page shows.
pub(super) fn write(
    recording: &Recording,
    hazards: Option<&[Hazard]>,
    output: &mut dyn Write,
) -> io::Result<()> {
    let mut object = Object { output, first: true };
    object.open()?;
    object.string("device", &recording.device)?;
    object.number("end", recording.end)?;
    object.number("records", recording.records)?;
    object.number("leftOut", recording.left_out)?;
    let streams = 0..recording.streams.len() as u32;
    object.strings("streams", streams.map(|stream| recording.stream_name(stream)))?;
    // As the runtime numbers them, and those it does not know last.
    let mut order: Vec<u32> = (0..recording.streams.len() as u32).collect();
    order.sort_by_key(|stream| recording.streams[*stream as usize].id.map_or(u64::MAX, u64::from));
    object.numbers("order", order)?;
    object.strings("threads", recording.threads.iter())?;
    object.strings("dependencies", DEPENDENCIES.iter().map(|one| one.name()))?;
    object.strings("callKinds", CALLS.iter().map(|kind| kind.name()))?;
    write_operations(recording, &mut object)?;
    write_waits(recording, &mut object)?;
    write_calls(recording, &mut object)?;
    write_memory(recording, &mut object)?;
    object.key("hazards")?;
    let list = hazards.map(|hazards| {
        let pair = |one: &Hazard| serde_json::json!({"title": one.title, "text": one.text});
        hazards.iter().map(pair).collect::<Vec<_>>()
    });
    serde_json::to_writer(&mut *object.output, &list)?;
    object.close()
}

fn write_operations(recording: &Recording, object: &mut Object<'_>) -> io::Result<()> {
    let operations = &recording.operations;
    let mut names = Numbered::default();
    let mut places: Numbered<&'static Location<'static>> = Numbered::default();
    let mut dims: Numbered<LaunchDims> = Numbered::default();
    let name: Vec<_> = operations.iter().map(|one| names.number(one.name)).collect();
    let place: Vec<i64> = operations
        .iter()
        .map(|one| one.place.map_or(-1, |place| i64::from(places.number(place))))
        .collect();
    let size: Vec<u64> = operations
        .iter()
        .map(|one| match one.kind {
            OperationKind::Kernel(threads) => u64::from(dims.number(threads)),
            OperationKind::Copy(_, bytes) | OperationKind::Fill(bytes) => bytes,
        })
        .collect();
    object.strings("names", names.list.iter())?;
    object.strings("places", places.list.iter())?;
    object.strings("dims", dims.list.iter().map(dims_text))?;
    object.begin("operations")?;
    object.numbers("name", name)?;
    object.numbers("kind", operations.iter().map(kind_number))?;
    object.numbers("stream", operations.iter().map(|one| one.stream))?;
    object.numbers("thread", operations.iter().map(|one| one.thread))?;
    let begin = |one: &Operation| one.device.map_or(one.call.0, |device| device.0);
    object.numbers("begin", differences(operations.iter().map(begin)))?;
    let length = |one: &Operation| one.device.map_or(-1, |(begin, end)| (end - begin) as i64);
    object.numbers("length", operations.iter().map(length))?;
    object.numbers("call", differences(operations.iter().map(|one| one.call.0)))?;
    object.numbers("callLength", operations.iter().map(|one| one.call.1 - one.call.0))?;
    object.numbers("size", size)?;
    object.numbers("place", place)?;
    object.numbers("uses", operations.iter().map(|one| one.uses.len()))?;
    object.end()?;
    let uses = || operations.iter().flat_map(|one| &one.uses);
    object.begin("uses")?;
    object.numbers("block", uses().map(|one| one.block))?;
    object.numbers("access", uses().map(|one| access_number(one.access)))?;
    object.end()
}

fn write_waits(recording: &Recording, object: &mut Object<'_>) -> io::Result<()> {
    let waits = &recording.waits;
    let optional = |number: Option<u32>| number.map_or(-1, i64::from);
    let all = |wait: &Wait| match &wait.cause {
        WaitCause::Blocks(reasons) => reasons.len(),
        WaitCause::Fence | WaitCause::Undeclared => 0,
    };
    object.begin("waits")?;
    object.numbers("stream", waits.iter().map(|wait| wait.stream))?;
    object.numbers("source", waits.iter().map(|wait| optional(wait.source)))?;
    object.numbers("from", waits.iter().map(|wait| optional(wait.from)))?;
    object.numbers("to", waits.iter().map(|wait| optional(wait.to)))?;
    object.numbers("at", differences(waits.iter().map(|wait| wait.at)))?;
    let cause = |wait: &Wait| match wait.cause {
        WaitCause::Blocks(_) => 0,
        WaitCause::Fence => 1,
        WaitCause::Undeclared => 2,
    };
    object.numbers("cause", waits.iter().map(cause))?;
    object.numbers("reasons", waits.iter().map(|wait| all(wait).min(REASONS)))?;
    object.numbers("all", waits.iter().map(all))?;
    object.end()?;
    let reasons = || {
        waits.iter().flat_map(|wait| -> &[Reason] {
            match &wait.cause {
                WaitCause::Blocks(reasons) => &reasons[..reasons.len().min(REASONS)],
                WaitCause::Fence | WaitCause::Undeclared => &[],
            }
        })
    };
    let number = |dependency: Dependency| {
        DEPENDENCIES.iter().position(|one| *one == dependency).unwrap_or_default()
    };
    object.begin("reasons")?;
    object.numbers("dependency", reasons().map(|reason| number(reason.dependency)))?;
    object.numbers("block", reasons().map(|reason| optional(reason.block)))?;
    object.numbers("earlierBlock", reasons().map(|reason| optional(reason.earlier_block)))?;
    object.numbers("earlier", reasons().map(|reason| optional(reason.earlier)))?;
    object.end()
}

fn write_calls(recording: &Recording, object: &mut Object<'_>) -> io::Result<()> {
    let calls = &recording.calls;
    let number = |kind: CallKind| CALLS.iter().position(|one| *one == kind).unwrap_or_default();
    object.begin("calls")?;
    object.numbers("kind", calls.iter().map(|call| number(call.kind)))?;
    object.numbers("thread", calls.iter().map(|call| call.thread))?;
    object.numbers("begin", differences(calls.iter().map(|call| call.begin)))?;
    object.numbers("length", calls.iter().map(|call| call.end - call.begin))?;
    object.end()
}

fn write_memory(recording: &Recording, object: &mut Object<'_>) -> io::Result<()> {
    let mut tags = Numbered::default();
    let blocks = &recording.blocks;
    let of_block: Vec<u32> = blocks.iter().map(|block| tags.number(block.tag)).collect();
    let changes = &recording.tags;
    let of_change: Vec<u32> = changes.iter().map(|change| tags.number(change.tag)).collect();
    object.strings("tags", tags.list.iter())?;
    object.begin("blocks")?;
    object.numbers("tag", of_block)?;
    object.numbers("generation", blocks.iter().map(|block| block.generation))?;
    object.numbers("bytes", blocks.iter().map(|block| block.bytes))?;
    object.end()?;
    object.begin("tagChanges")?;
    object.numbers("at", differences(changes.iter().map(|change| change.at)))?;
    object.numbers("tag", of_change)?;
    object.numbers("change", changes.iter().map(|change| change.change))?;
    object.end()?;
    let samples = &recording.memory;
    object.begin("memory")?;
    object.numbers("at", differences(samples.iter().map(|sample| sample.at)))?;
    object.numbers("reserved", samples.iter().map(|sample| sample.reserved))?;
    object.numbers("inUse", samples.iter().map(|sample| sample.in_use))?;
    object.numbers("largestFree", samples.iter().map(|sample| sample.largest_free))?;
    object.end()
}

/// Each value less the one before it.
fn differences(values: impl Iterator<Item = u64>) -> impl Iterator<Item = i64> {
    let mut before = 0;
    values.map(move |value| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        value - std::mem::replace(&mut before, value)
    })
}

fn kind_number(operation: &Operation) -> u32 {
    match operation.kind {
        OperationKind::Kernel(_) => 0,
        OperationKind::Copy(CopyKind::ToDevice, _) => 1,
        OperationKind::Copy(CopyKind::ToHost, _) => 2,
        OperationKind::Copy(CopyKind::OnDevice, _) => 3,
        OperationKind::Fill(_) => 4,
    }
}

fn access_number(access: Access) -> u32 {
    match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::ReadWrite => 2,
    }
}

fn dims_text(dims: &LaunchDims) -> String {
    let size = |[x, y, z]: [u32; 3]| match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x} × {y}"),
        _ => format!("{x} × {y} × {z}"),
    };
    let shared = match dims.shared_bytes {
        0 => String::new(),
        bytes => format!(", {bytes} bytes shared"),
    };
    format!("{} blocks of {} threads{shared}", size(dims.grid), size(dims.block))
}

/// Values and the numbers they got, in the order in which they came.
struct Numbered<T> {
    list: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { list: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Numbered<T> {
    fn number(&mut self, value: T) -> u32 {
        let next = self.list.len() as u32;
        *self.numbers.entry(value).or_insert_with(|| {
            self.list.push(value);
            next
        })
    }
}

/// A JSON object that is written as it grows.
struct Object<'o> {
    output: &'o mut dyn Write,
    first: bool,
}

impl Object<'_> {
    fn open(&mut self) -> io::Result<()> {
        self.first = true;
        self.output.write_all(b"{")
    }

    fn close(&mut self) -> io::Result<()> {
        self.output.write_all(b"}\n")
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        write!(self.output, "{comma}\"{key}\":")
    }

    /// An object inside.
    fn begin(&mut self, key: &str) -> io::Result<()> {
        self.key(key)?;
        self.open()
    }

    fn end(&mut self) -> io::Result<()> {
        self.output.write_all(b"}")
    }

    fn string(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.key(key)?;
        Ok(serde_json::to_writer(&mut *self.output, value)?)
    }

    fn number(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.key(key)?;
        write!(self.output, "{value}")
    }

    fn strings(&mut self, key: &str, values: impl Iterator<Item = impl Display>) -> io::Result<()> {
        self.key(key)?;
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        Ok(serde_json::to_writer(&mut *self.output, &values)?)
    }

    fn numbers(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = impl Display>,
    ) -> io::Result<()> {
        self.key(key)?;
        self.output.write_all(b"[")?;
        for (index, value) in values.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(self.output, "{comma}{value}")?;
        }
        self.output.write_all(b"]")
    }
}
