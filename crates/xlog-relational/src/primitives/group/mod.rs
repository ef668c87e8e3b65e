//! Groups by hash, and their aggregates.
//!
//! Every row learns the slot of its key in a table of distinct keys, the slots that are taken are
//! numbered, and each aggregate adds up by number. For small tables one block does both of the
//! first. The order of the groups is not specified, and differs from run to run.

mod kernels;
pub(super) mod small;

use kernels::{Operation, first_bytes};
use xlog_cuda::{
    device_runtime::{ResourceError, ResourceResult, StreamId},
    launch::LaunchBatch,
    memory::{SliceView, TrackedCudaSlice},
};

use super::{
    gather::{gather, gather_bits},
    hash::{
        KeyColumn, KeyWords, Keys, Memory, Pairs, Prepared, Purpose, Table, Tuning, dims, or_none,
        prepare,
    },
};
use crate::Engine;

/// The values an aggregate takes, by type.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the variants are the types")]
pub enum Values<'a> {
    U32(SliceView<'a, u32>),
    I32(SliceView<'a, u32>),
    F32(SliceView<'a, u32>),
    U64(SliceView<'a, u64>),
    I64(SliceView<'a, u64>),
    F64(SliceView<'a, u64>),
}

/// One aggregate of a group-by. A row whose bit in `validity` is not set counts for nothing.
#[derive(Clone, Copy, Debug)]
pub enum Aggregate<'a> {
    /// Rows of the group.
    Count {
        /// Rows to count; all without.
        validity: Option<SliceView<'a, u32>>,
    },
    /// The sum: exact in 64 bits for 32-bit integers, exact in 128 bits for 64-bit ones. Floats
    /// are added as `f64` in no particular order, so that the last bits differ from run to run:
    /// by less than the number of rows times 2^-53 of the sum of all magnitudes. Sums of integers
    /// below 2^53 are exact.
    Sum {
        /// What is added.
        values: Values<'a>,
        /// Rows that count; all without.
        validity: Option<SliceView<'a, u32>>,
    },
    /// The least value; floats in total order. Without one, what compares above all others.
    Min {
        /// What is compared.
        values: Values<'a>,
        /// Rows that count; all without.
        validity: Option<SliceView<'a, u32>>,
    },
    /// The greatest value; floats in total order. Without one, what compares below all others.
    Max {
        /// What is compared.
        values: Values<'a>,
        /// Rows that count; all without.
        validity: Option<SliceView<'a, u32>>,
    },
}

/// What an aggregate came to, a word for each group.
#[derive(Debug)]
pub struct AggregateWords {
    /// Counts; sums as `u64`, `i64` or `f64` bits; least and greatest values in the low half or
    /// all of the word, as they were given. For 64-bit sums, the low half of the sum.
    pub words: TrackedCudaSlice<u64>,
    /// The high half of a sum of 64-bit integers: it fits 64 bits if this is 0 (unsigned), or
    /// repeats the low half's sign (signed).
    pub high: Option<TrackedCudaSlice<u64>>,
}

/// The groups of a table.
#[derive(Debug)]
pub struct Groups {
    /// How many there are. The memory below may be longer; what follows has no meaning.
    pub count: u64,
    /// One row of each group, to read its key from; which one is not specified.
    pub rows: TrackedCudaSlice<u32>,
    /// The aggregates, in the order they were asked for.
    pub aggregates: Vec<AggregateWords>,
}

/// Groups rows by their keys; nulls are equal to each other, and to nothing else.
///
/// Waits for the device once, to learn the number of groups; a second time if there are millions
/// of them, and the first table was too small.
pub fn group_by(
    engine: &Engine,
    stream: StreamId,
    keys: &Keys<'_>,
    aggregates: &[Aggregate<'_>],
) -> ResourceResult<Groups> {
    group_by_tuned(engine, stream, keys, aggregates, Tuning::default())
}

/// [`group_by`], tuned by hand.
pub fn group_by_tuned(
    engine: &Engine,
    stream: StreamId,
    keys: &Keys<'_>,
    aggregates: &[Aggregate<'_>],
    tuning: Tuning,
) -> ResourceResult<Groups> {
    let rows = keys.check("the table")?;
    for (index, aggregate) in aggregates.iter().enumerate() {
        aggregate.check(index, rows)?;
    }
    let grouping = Grouping::of(engine, stream, keys, tuning)?;
    let aggregates =
        aggregates.iter().map(|one| grouping.aggregate(one)).collect::<ResourceResult<_>>()?;
    Ok(Groups { count: grouping.count(), rows: grouping.numbered.rows, aggregates })
}

/// Every row's slot, and every slot's number.
struct Numbered {
    slots: TrackedCudaSlice<u32>,
    numbers: TrackedCudaSlice<u32>,
    rows: TrackedCudaSlice<u32>,
    count: u64,
}

/// How far from its place a key may lie in a table that may be too small.
const FARTHEST: u64 = 512;

fn number(
    engine: &Engine,
    stream: StreamId,
    side: &Prepared<'_>,
    tuning: Tuning,
    at_most: bool,
) -> ResourceResult<Numbered> {
    if tuning.one_block && !at_most && side.rows <= small::MOST_ROWS {
        return small::number(engine, stream, side, tuning.hash_mask);
    }
    let enough = Table::slots_for(side.rows);
    let mut capacity = enough.min(tuning.first_slots.max(64));
    let slots = engine.alloc::<u32>((side.rows as usize).max(1), stream, "group slots")?;
    loop {
        let mut batch = engine.batch(stream);
        let table = Table::new(engine, &mut batch, capacity)?;
        // Groups, and whether the table was too small.
        let state = engine.alloc::<u32>(2, stream, "group count")?;
        batch.fill_bytes(&state.as_view(), 0)?;
        let farthest = if capacity == enough { capacity } else { FARTHEST };
        let (mask, full) = (tuning.hash_mask, state.view(1..2)?);
        table.insert(engine, &mut batch, side, farthest, mask, &slots, &full)?;
        let slots_taken = Taken { entries: &table.entries, row_of: None, capacity };
        let (numbers, rows) = slots_taken.number(engine, &mut batch, side.rows, &state)?;
        if at_most && capacity == enough {
            batch.submit()?;
            return Ok(Numbered { slots, numbers, rows, count: side.rows });
        }
        let words = batch.submit_and_download(&state.as_view())?.wait()?;
        if words[1] == 0 {
            return Ok(Numbered { slots, numbers, rows, count: u64::from(words[0]) });
        }
        capacity = enough;
    }
}

/// The same for keys of two 32-bit columns, whose table needs no packed keys; `None` for others,
/// and for more groups than its first table takes.
fn number_pairs(
    engine: &Engine,
    stream: StreamId,
    keys: &Keys<'_>,
    tuning: Tuning,
) -> ResourceResult<Option<Numbered>> {
    let Some(pairs) = Pairs::of(keys) else { return Ok(None) };
    let capacity = Table::slots_for(keys.rows).min(tuning.first_slots.max(64));
    let slots = engine.alloc::<u32>((keys.rows as usize).max(1), stream, "group slots")?;
    let state = engine.alloc::<u32>(2, stream, "group count")?;
    let mut batch = engine.batch(stream);
    batch.fill_bytes(&state.as_view(), 0)?;
    let (mask, full) = (tuning.hash_mask, state.view(1..2)?);
    let table = pairs.table(engine, &mut batch, capacity, FARTHEST, mask, &slots, &full)?;
    let row_of = Some(Memory::Lent(table.row_of.as_view()));
    let taken = Taken { entries: &table.entries, row_of, capacity: table.slots };
    let (numbers, rows) = taken.number(engine, &mut batch, keys.rows, &state)?;
    let words = batch.submit_and_download(&state.as_view())?.wait()?;
    let count = u64::from(words[0]);
    Ok((words[1] == 0).then_some(Numbered { slots, numbers, rows, count }))
}

/// A table whose slots are to be numbered.
struct Taken<'t> {
    entries: &'t TrackedCudaSlice<u64>,
    /// A row of each slot, where the entries do not say it.
    row_of: Option<Memory<'t, u32>>,
    capacity: u64,
}

impl Taken<'_> {
    /// The numbers of the slots that are taken, and for each number a row. The first word of
    /// `state` becomes how many there are.
    fn number(
        &self,
        engine: &Engine,
        batch: &mut LaunchBatch<'_>,
        rows: u64,
        state: &TrackedCudaSlice<u32>,
    ) -> ResourceResult<(TrackedCudaSlice<u32>, TrackedCudaSlice<u32>)> {
        let stream = batch.stream();
        let numbers = engine.alloc::<u32>(self.capacity as usize, stream, "group numbers")?;
        let most = self.capacity.min(rows).max(1) as usize;
        let of_number = engine.alloc::<u32>(most, stream, "group rows")?;
        let (row_of, has_row_of) = or_none(self.row_of.as_ref());
        engine
            .launch(&kernels::NUMBER, stream)?
            .input(self.entries)
            .value(self.capacity)
            .input(&row_of)
            .value(has_row_of)
            .output(&numbers)
            .output(&of_number)
            .in_out(state)
            .launch_in(batch, dims(engine, self.capacity, 2048))?;
        Ok((numbers, of_number))
    }
}

impl<'a> Aggregate<'a> {
    fn validity(&self) -> Option<SliceView<'a, u32>> {
        match *self {
            Self::Count { validity }
            | Self::Sum { validity, .. }
            | Self::Min { validity, .. }
            | Self::Max { validity, .. } => validity,
        }
    }

    fn values(&self) -> Option<Values<'a>> {
        match *self {
            Self::Count { .. } => None,
            Self::Sum { values, .. } | Self::Min { values, .. } | Self::Max { values, .. } => {
                Some(values)
            }
        }
    }

    fn operation(&self) -> Operation {
        use Operation as Op;
        match self {
            Self::Count { .. } => Op::Count,
            Self::Sum { values, .. } => values.pick([
                Op::SumU32,
                Op::SumI32,
                Op::SumF32,
                Op::SumU64,
                Op::SumI64,
                Op::SumF64,
            ]),
            Self::Min { values, .. } => values.pick([
                Op::MinU32,
                Op::MinI32,
                Op::MinF32,
                Op::MinU64,
                Op::MinI64,
                Op::MinF64,
            ]),
            Self::Max { values, .. } => values.pick([
                Op::MaxU32,
                Op::MaxI32,
                Op::MaxF32,
                Op::MaxU64,
                Op::MaxI64,
                Op::MaxF64,
            ]),
        }
    }

    fn check(&self, index: usize, rows: usize) -> ResourceResult<()> {
        let len = self.values().map_or(rows, |values| match values {
            Values::U32(words) | Values::I32(words) | Values::F32(words) => words.len(),
            Values::U64(words) | Values::I64(words) | Values::F64(words) => words.len(),
        });
        let bits = self.validity().map(|words| words.len() * 32);
        if len < rows || bits.is_some_and(|bits| bits < rows) {
            return Err(ResourceError::StreamMisuse(format!(
                "aggregate {index} has {len} values and {bits:?} validity bits for {rows} rows; \
                 each row needs one of both"
            )));
        }
        Ok(())
    }
}

impl Values<'_> {
    fn pick(&self, [u32, i32, f32, u64, i64, f64]: [Operation; 6]) -> Operation {
        match self {
            Self::U32(_) => u32,
            Self::I32(_) => i32,
            Self::F32(_) => f32,
            Self::U64(_) => u64,
            Self::I64(_) => i64,
            Self::F64(_) => f64,
        }
    }
}

/// Rows with their groups, ready to be added up.
pub(crate) struct Grouping<'e> {
    engine: &'e Engine,
    stream: StreamId,
    numbered: Numbered,
    rows: u64,
}

impl<'e> Grouping<'e> {
    /// The groups of `keys`. Waits for the device as [`group_by`] does.
    pub(crate) fn of(
        engine: &'e Engine,
        stream: StreamId,
        keys: &Keys<'_>,
        tuning: Tuning,
    ) -> ResourceResult<Self> {
        keys.check("the table")?;
        let numbered = match number_pairs(engine, stream, keys, tuning)? {
            Some(numbered) => numbered,
            None => {
                let mask = tuning.hash_mask;
                let [side] = prepare(engine, stream, [keys], Purpose::Group, mask)?;
                number(engine, stream, &side, tuning, false)?
            }
        };
        Ok(Self { engine, stream, numbered, rows: keys.rows })
    }

    /// The groups of `keys`, counted as many as there may be where the first table is large enough
    /// for all: then nothing is waited for, and groups behind the last one have no rows.
    pub(crate) fn at_most(
        engine: &'e Engine,
        stream: StreamId,
        keys: &Keys<'_>,
    ) -> ResourceResult<Self> {
        keys.check("the table")?;
        let tuning = Tuning::default();
        let [side] = prepare(engine, stream, [keys], Purpose::Group, tuning.hash_mask)?;
        let numbered = number(engine, stream, &side, tuning, true)?;
        Ok(Self { engine, stream, numbered, rows: keys.rows })
    }

    /// All of `rows` rows as one group, also if there are none. Waits for nothing.
    pub(crate) fn single(engine: &'e Engine, stream: StreamId, rows: u64) -> ResourceResult<Self> {
        let len = super::hash::check_rows(rows, "the table")?.max(1);
        let zeros = |len: usize| -> ResourceResult<TrackedCudaSlice<u32>> {
            let mut slice = engine.alloc::<u32>(len, stream, "group slots")?;
            slice.fill_bytes(0, stream)?;
            Ok(slice)
        };
        let numbered =
            Numbered { slots: zeros(len)?, numbers: zeros(1)?, rows: zeros(1)?, count: 1 };
        Ok(Self { engine, stream, numbered, rows })
    }

    /// How many groups there are.
    pub(crate) fn count(&self) -> u64 {
        self.numbered.count
    }

    /// One row of each group, and unspecified numbers behind them.
    pub(crate) fn rows(&self) -> &TrackedCudaSlice<u32> {
        &self.numbered.rows
    }

    /// Every row's slot, and every taken slot's group.
    pub(crate) fn slots(&self) -> (&TrackedCudaSlice<u32>, &TrackedCudaSlice<u32>) {
        (&self.numbered.slots, &self.numbered.numbers)
    }

    /// One aggregate of every group.
    pub(crate) fn aggregate(&self, aggregate: &Aggregate<'_>) -> ResourceResult<AggregateWords> {
        self.aggregate_slots(&self.numbered.slots, self.rows, aggregate)
    }

    /// How many different words of `column` each group has; nulls do not count. `validity` is the
    /// column's once more, as the memory it lies in.
    ///
    /// Rows of one slot and one word are grouped, and one row of each is counted: waits for the
    /// device as [`group_by`] does.
    pub(crate) fn count_distinct(
        &self,
        column: KeyColumn<'_>,
        validity: Option<&TrackedCudaSlice<u32>>,
    ) -> ResourceResult<AggregateWords> {
        let (engine, stream, rows) = (self.engine, self.stream, self.rows);
        let slots = self.numbered.slots.as_view();
        let slots = KeyColumn { words: KeyWords::U32(slots), validity: None };
        let keys = Keys { columns: &[slots, column], rows };
        let tuning = Tuning::default();
        let pairs = Grouping::of(engine, stream, &keys, tuning)?.numbered;
        let slots = gather(engine, stream, &self.numbered.slots, rows, &pairs.rows, pairs.count)?;
        let bits = match validity {
            Some(bits) => Some(gather_bits(engine, stream, bits, rows, &pairs.rows, pairs.count)?),
            None => None,
        };
        let validity = bits.as_ref().map(TrackedCudaSlice::as_view);
        self.aggregate_slots(&slots, pairs.count, &Aggregate::Count { validity })
    }

    /// One aggregate over `rows` rows whose slots are `slots`.
    fn aggregate_slots(
        &self,
        slots: &TrackedCudaSlice<u32>,
        rows: u64,
        aggregate: &Aggregate<'_>,
    ) -> ResourceResult<AggregateWords> {
        let (engine, stream, count) = (self.engine, self.stream, self.numbered.count);
        let operation = aggregate.operation();
        let len = (count as usize).max(1);
        let mut low = engine.alloc::<u64>(len, stream, "aggregate")?;
        low.fill_bytes(first_bytes(operation), stream)?;
        let mut high = if operation.is_wide() {
            Some(engine.alloc::<u64>(len, stream, "aggregate")?)
        } else {
            None
        };
        if let Some(high) = &mut high {
            high.fill_bytes(0, stream)?;
        }
        let validity = aggregate.validity().map(Memory::Lent);
        let (valid, has_valid) = or_none(validity.as_ref());
        let dims = dims(engine, rows, 2048);
        let narrow = match aggregate.values() {
            None => Some(slots.as_view()),
            Some(Values::U32(words) | Values::I32(words) | Values::F32(words)) => Some(words),
            Some(_) => None,
        };
        let definition =
            if narrow.is_some() { &kernels::AGGREGATE_U32 } else { &kernels::AGGREGATE_U64 };
        let mut launch = engine.launch(definition, stream)?;
        launch.input(slots).input(&self.numbered.numbers);
        match (narrow, aggregate.values()) {
            (Some(words), _) => launch.input(&words),
            (None, Some(Values::U64(words) | Values::I64(words) | Values::F64(words))) => {
                launch.input(&words)
            }
            (None, _) => return Err("an aggregate of 64-bit values has values".into()),
        };
        launch
            .input(&valid)
            .value(has_valid)
            .value(operation as u32)
            .in_out(&low)
            // Words that only wide sums have; others hand in the low ones and leave them alone.
            .in_out(high.as_ref().unwrap_or(&low))
            .value(count)
            .value(rows)
            .launch(dims)?;
        if operation.is_ordered() {
            engine
                .launch(&kernels::FINISH, stream)?
                .in_out(&low)
                .value(operation as u32)
                .value(count)
                .launch(super::hash::dims(engine, count, 256))?;
        }
        Ok(AggregateWords { words: low, high })
    }
}
