//! Joins by hash.
//!
//! Three ways lead to the same rows. For small tables one block does all but write the output: what
//! they cost is launches. For others, the short way holds if no build key repeats, which is tried
//! first: one table, one look for each probe row, output at once. If a key does repeat, the long
//! way lists the build rows of each key side by side, counts, and then finds every output row by
//! itself, so that a key with a million partners is spread over as many threads.
//!
//! The host waits once, for the number of output rows; a second time if build keys repeat and the
//! tables are not small, because that is learnt at the same moment. The order of the output rows is
//! not specified, and differs from run to run.

mod built;
mod kernels;
mod long;
mod short;
mod small;
mod split;

pub use built::BuiltSide;
pub use split::{PARTS, PartRows, part_rows};

use kernels::{control, kind};
use xlog_cuda::{
    device_runtime::{ResourceError, ResourceResult, StreamId},
    launch::LaunchBatch,
    memory::{SliceView, TrackedCudaSlice},
};
use xlog_driver::DeviceKind;

use super::hash::{
    KeyColumn, KeyWords, Keys, Memory, Prepared, Purpose, SideKeys, Table, Tuning, or_none, prepare,
};
use crate::Engine;

/// Stands for the row of a side that has no partner.
pub const NO_ROW: u32 = u32::MAX;

/// Which rows a join yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs with equal keys.
    Inner,
    /// Those, and every probe row without a partner, paired with [`NO_ROW`].
    Left,
    /// Those, and every build row without a partner, paired with [`NO_ROW`].
    Full,
    /// Probe rows that have a partner, once each.
    Semi,
    /// Probe rows that have none.
    Anti,
}

impl JoinKind {
    fn code(self) -> u32 {
        match self {
            Self::Inner => kind::INNER,
            Self::Left => kind::LEFT,
            Self::Full => kind::FULL,
            Self::Semi => kind::SEMI,
            Self::Anti => kind::ANTI,
        }
    }

    /// Whether the output names build rows.
    fn has_build(self) -> bool {
        !matches!(self, Self::Semi | Self::Anti)
    }

    /// Whether a probe row without a partner belongs to the output.
    fn keeps_probe(self) -> bool {
        matches!(self, Self::Left | Self::Full | Self::Anti)
    }
}

/// The rows a join yields, as row numbers of both sides.
#[derive(Debug)]
pub struct JoinRows {
    /// How many there are. The memory below may be longer; what follows has no meaning.
    pub count: u64,
    /// The build row of each; `None` for semi and anti joins.
    pub build: Option<TrackedCudaSlice<u32>>,
    /// The probe row of each.
    pub probe: TrackedCudaSlice<u32>,
}

/// The rows of an inner join, with what was asked for in place of row numbers.
#[derive(Debug)]
pub struct JoinedPayloads {
    /// How many there are. The memory below may be longer; what follows has no meaning.
    pub count: u64,
    /// The key of each.
    pub keys: TrackedCudaSlice<u32>,
    /// The build row's payload.
    pub build: TrackedCudaSlice<u32>,
    /// The probe row's payload.
    pub probe: TrackedCudaSlice<u32>,
}

/// Joins `build` and `probe` by their keys; nulls match nothing, not even each other. A right join
/// is a left join with the sides exchanged. The smaller side is the better one to build from.
///
/// Waits for the device once, to learn the number of rows; twice if keys of `build` repeat and
/// there are more than 2,048 build rows or 4,096 probe rows.
pub fn join(
    engine: &Engine,
    stream: StreamId,
    kind: JoinKind,
    build: &Keys<'_>,
    probe: &Keys<'_>,
) -> ResourceResult<JoinRows> {
    join_tuned(engine, stream, kind, build, probe, Tuning::default())
}

/// [`join`], tuned by hand.
pub fn join_tuned(
    engine: &Engine,
    stream: StreamId,
    kind: JoinKind,
    build: &Keys<'_>,
    probe: &Keys<'_>,
    tuning: Tuning,
) -> ResourceResult<JoinRows> {
    build.check("the build side")?;
    probe.check("the probe side")?;
    let sides = prepare(engine, stream, [build, probe], Purpose::Join, tuning.hash_mask)?;
    let [build, probe] = sides;
    let plan = Plan { engine, stream, kind, tuning, emit_keys: false };
    let (count, output) = plan.run(build, probe, Ok)?;
    Ok(JoinRows { count, build: output.build, probe: output.probe })
}

/// The inner join of two sides with one 32-bit key and one 32-bit payload each, none of them null:
/// key and both payloads of every pair, written where the pair is found.
///
/// Waits for the device as [`join`] does.
pub fn inner_join_payloads(
    engine: &Engine,
    stream: StreamId,
    build: [SliceView<'_, u32>; 2],
    probe: [SliceView<'_, u32>; 2],
) -> ResourceResult<JoinedPayloads> {
    inner_join_payloads_tuned(engine, stream, build, probe, Tuning::default())
}

/// [`inner_join_payloads`], tuned by hand.
pub fn inner_join_payloads_tuned(
    engine: &Engine,
    stream: StreamId,
    build: [SliceView<'_, u32>; 2],
    probe: [SliceView<'_, u32>; 2],
    tuning: Tuning,
) -> ResourceResult<JoinedPayloads> {
    let (count, columns) =
        join_payloads(engine, stream, [build, probe], tuning, |columns| columns)?;
    let [keys, build, probe] = columns;
    Ok(JoinedPayloads { count, keys, build, probe })
}

/// The same, with something made of the columns (keys, payloads of the build side, payloads of the
/// probe side) before the number of their rows is known: while the device is at it. It is made a
/// second time, of other columns, if build keys repeat.
pub(crate) fn join_payloads<R>(
    engine: &Engine,
    stream: StreamId,
    [build, probe]: [[SliceView<'_, u32>; 2]; 2],
    tuning: Tuning,
    mut make: impl FnMut([TrackedCudaSlice<u32>; 3]) -> R,
) -> ResourceResult<(u64, R)> {
    let side = |[keys, payload]: [SliceView<'_, u32>; 2], what| -> ResourceResult<()> {
        let column = [KeyColumn { words: KeyWords::U32(keys), validity: None }];
        Keys { columns: &column, rows: keys.len() as u64 }.check(what)?;
        if payload.len() == keys.len() {
            return Ok(());
        }
        let (keys, payload) = (keys.len(), payload.len());
        Err(ResourceError::StreamMisuse(format!(
            "{what} has {keys} keys and {payload} payloads; each row has one of both"
        )))
    };
    side(build, "the build side")?;
    side(probe, "the probe side")?;
    let plan = Plan { engine, stream, kind: JoinKind::Inner, tuning, emit_keys: true };
    let [build, probe] = [build, probe].map(|[keys, payload]| Prepared {
        keys: SideKeys::Words(Memory::Lent(keys)),
        valid: None,
        values: Some(Memory::Lent(payload)),
        used: None,
        rows: keys.len() as u64,
    });
    plan.run(build, probe, |output| match (output.keys, output.build) {
        (Some(keys), Some(build)) => Ok(make([keys, build, output.probe])),
        _ => Err("an inner join with keys yields keys and build values".into()),
    })
}

/// What all steps of one join share.
struct Plan<'p> {
    engine: &'p Engine,
    stream: StreamId,
    kind: JoinKind,
    tuning: Tuning,
    emit_keys: bool,
}

/// The columns of the output.
struct Output {
    keys: Option<TrackedCudaSlice<u32>>,
    build: Option<TrackedCudaSlice<u32>>,
    probe: TrackedCudaSlice<u32>,
}

/// The whole of memory that there may be.
fn view<T: bytemuck::Pod>(memory: &Option<TrackedCudaSlice<T>>) -> Option<SliceView<'_, T>> {
    memory.as_ref().map(TrackedCudaSlice::as_view)
}

/// What the probe rows meet, before it is written out pair by pair.
struct Matches {
    /// What stands for the build rows, those of one key side by side.
    list: TrackedCudaSlice<u32>,
    /// For each probe row with output, where that starts; which part of the list the row meets;
    /// which row it is.
    starts: TrackedCudaSlice<u64>,
    ranges: TrackedCudaSlice<u64>,
    positions: TrackedCudaSlice<u32>,
}

/// From how many build rows on both sides are split on a GPU. At 10 million different keys that
/// takes a little longer (1.36 ms) than looking them up all over memory (1.19 ms, on an H200); but
/// with one key a million times on the build side it takes half as long (2.5 ms and 4.8 ms).
const SPLIT_FROM: u64 = 1 << 21;

impl Plan<'_> {
    /// The number of rows, and what is made of the columns.
    fn run<R>(
        &self,
        build: Prepared<'_>,
        probe: Prepared<'_>,
        mut make: impl FnMut(Output) -> ResourceResult<R>,
    ) -> ResourceResult<(u64, R)> {
        let mut sides = Sides { nulls: None, build, probe };
        if self.splits(&sides) {
            sides = self.split_sides(sides)?;
        } else if self.is_small(&sides) {
            let (count, output) = self.small(&sides)?;
            return Ok((count, make(output)?));
        }
        let mut batch = self.engine.batch(self.stream);
        let control = self.zeroed_in(&mut batch, control::WORDS)?;
        let table = Table::new(self.engine, &mut batch, Table::slots_for(sides.build.rows))?;
        self.build(&sides.build, &table, &control, &mut batch)?;
        let output = self.look_up(&sides, &table, &control, &mut batch)?;
        let words = batch.submit_and_download(&control.as_view())?;
        // While the device is at it: memory is freed behind the batch, and columns become whatever
        // they are wanted for.
        drop((control, table));
        let made = make(output)?;
        let words = words.wait()?;
        if words[control::REPEATS] == 0 {
            return Ok((words[control::OUTPUT], made));
        }
        drop(made);
        let (count, output) = self.long(&sides)?;
        Ok((count, make(output)?))
    }

    /// Whether both sides are split first. Keys with a third half are not, nor are full joins,
    /// which need the build rows in their own order.
    fn splits(&self, sides: &Sides<'_>) -> bool {
        let from = self.tuning.split_from.unwrap_or_else(|| {
            match self.engine.runtime().device().info().kind {
                DeviceKind::Cuda => SPLIT_FROM,
                DeviceKind::Host => u64::MAX,
            }
        });
        sides.build.rows >= from
            && sides.probe.rows > 0
            && self.kind != JoinKind::Full
            && !matches!(sides.build.keys, SideKeys::Longs { extra: Some(_), .. })
    }

    fn alloc<T: bytemuck::Pod>(&self, len: u64) -> ResourceResult<TrackedCudaSlice<T>> {
        let len = usize::try_from(len).map_err(|_| {
            ResourceError::StreamMisuse(format!("{len} rows do not fit this machine"))
        })?;
        self.engine.alloc(len.max(1), self.stream, "join")
    }

    fn zeroed<T: bytemuck::Pod>(&self, len: usize) -> ResourceResult<TrackedCudaSlice<T>> {
        let mut slice = self.alloc::<T>(len as u64)?;
        slice.fill_bytes(0, self.stream)?;
        Ok(slice)
    }

    /// Memory that is zeroes once a batch has run.
    fn zeroed_in<T: bytemuck::Pod>(
        &self,
        batch: &mut LaunchBatch<'_>,
        len: usize,
    ) -> ResourceResult<TrackedCudaSlice<T>> {
        let slice = self.alloc::<T>(len as u64)?;
        batch.fill_bytes(&slice.as_view(), 0)?;
        Ok(slice)
    }

    /// Memory for `count` rows of both sides.
    fn output(&self, count: u64) -> ResourceResult<Output> {
        Ok(Output {
            keys: self.emit_keys.then(|| self.alloc(count)).transpose()?,
            build: Some(self.alloc(count)?),
            probe: self.alloc(count)?,
        })
    }

    /// Every pair of what was found, of which there are `pairs`.
    fn expand(
        &self,
        sides: &Sides<'_>,
        found: &Matches,
        (rows, pairs): (u64, u64),
        output: &Output,
    ) -> ResourceResult<()> {
        if pairs == 0 {
            return Ok(());
        }
        let probe = &sides.probe;
        let (values, has_values) = or_none(probe.values.as_ref());
        let keys = match &probe.keys {
            SideKeys::Words(keys) if self.emit_keys => Some(keys),
            _ => None,
        };
        let (keys, has_keys) = or_none(keys);
        self.engine
            .launch(&kernels::EXPAND, self.stream)?
            .input(&found.starts)
            .input(&found.ranges)
            .input(&found.positions)
            .input(&found.list)
            .input(&values)
            .value(has_values)
            .value(rows)
            .input(&keys)
            .value(has_keys)
            .output(&view(&output.keys))
            .output(&view(&output.build))
            .output(&output.probe)
            .value(pairs)
            .launch(super::hash::dims(self.engine, pairs, super::hash::TILE))
    }

    /// Has a batch append the rows without a bit to the output, which `control` counts.
    #[expect(clippy::too_many_arguments, reason = "one launch, argument by argument")]
    fn append(
        &self,
        batch: &mut LaunchBatch<'_>,
        bits: &SliceView<'_, u32>,
        build_side: bool,
        short_way: bool,
        control: &TrackedCudaSlice<u64>,
        output: &Output,
        rows: u64,
    ) -> ResourceResult<()> {
        self.engine
            .launch(&kernels::APPEND, self.stream)?
            .input(bits)
            .value(u32::from(build_side))
            .value(u32::from(output.build.is_some()))
            .value(u32::from(short_way))
            .in_out(control)
            .output(&view(&output.build))
            .output(&output.probe)
            .value(rows)
            .launch_in(batch, super::hash::dims(self.engine, rows, super::hash::TILE))
    }
}

/// Both sides of a join.
struct Sides<'a> {
    build: Prepared<'a>,
    probe: Prepared<'a>,
    /// The validity of the probe side before it was split, and its rows.
    nulls: Option<(Memory<'a, u32>, u64)>,
}

impl<'a> Sides<'a> {
    /// Bits of the probe rows that have a key, and how many rows there are; `None` if all have one.
    fn probe_nulls(&self) -> Option<(SliceView<'_, u32>, u64)> {
        match (&self.nulls, &self.probe.valid) {
            (Some((bits, rows)), _) => Some((bits.view(), *rows)),
            (None, Some(bits)) => Some((bits.view(), self.probe.rows)),
            (None, None) => None,
        }
    }
}
