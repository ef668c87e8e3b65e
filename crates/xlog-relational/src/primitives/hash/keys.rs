//! Key columns, and the words they become.

use std::sync::Arc;

use xlog_cuda::{
    device_runtime::{ResourceError, ResourceResult, StreamId},
    memory::{SliceView, TrackedCudaSlice},
};

use super::{Memory, TILE, Table, check_rows, dims, kernels, or_none};
use crate::Engine;

/// The words of a key column. Equal values have equal words: floats are normalised before.
#[derive(Clone, Copy, Debug)]
pub enum KeyWords<'a> {
    /// Values of 32 bits or less.
    U32(SliceView<'a, u32>),
    /// Values of 64 bits.
    U64(SliceView<'a, u64>),
}

impl KeyWords<'_> {
    fn len(&self) -> usize {
        match self {
            Self::U32(words) => words.len(),
            Self::U64(words) => words.len(),
        }
    }
}

/// One column of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn<'a> {
    /// Its words, one for each row at least.
    pub words: KeyWords<'a>,
    /// A bit for each row, the lowest of the first word first; a row whose bit is not set is null.
    pub validity: Option<SliceView<'a, u32>>,
}

/// The key of a table: one column or more.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// The columns, in order.
    pub columns: &'a [KeyColumn<'a>],
    /// How many rows there are.
    pub rows: u64,
}

impl Keys<'_> {
    /// The rows, if there are not too many and every column has them.
    pub(in crate::primitives) fn check(&self, what: &str) -> ResourceResult<usize> {
        let rows = check_rows(self.rows, what)?;
        let misuse = |text| Err(ResourceError::StreamMisuse(text));
        if self.columns.is_empty() {
            return misuse(format!("{what} has 0 key columns; name one at least"));
        }
        for (index, column) in self.columns.iter().enumerate() {
            let (len, bits) = (column.words.len(), column.validity.map(|words| words.len() * 32));
            if len < rows || bits.is_some_and(|bits| bits < rows) {
                return misuse(format!(
                    "{what}: key column {index} has {len} words and {bits:?} validity bits for \
                     {rows} rows; each row needs one of both"
                ));
            }
        }
        Ok(rows)
    }
}

/// The words of one side, ready to be hashed.
pub(in crate::primitives) enum SideKeys<'a> {
    Words(Memory<'a, u32>),
    Longs { keys: Memory<'a, u64>, extra: Option<Memory<'a, u32>> },
}

impl SideKeys<'_> {
    /// Whether keys of two sides can be compared.
    pub(in crate::primitives) fn are_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Words(_), Self::Words(_)) => true,
            (Self::Longs { extra: own, .. }, Self::Longs { extra, .. }) => {
                own.is_some() == extra.is_some()
            }
            _ => false,
        }
    }
}

/// One side of an operator, ready to be hashed.
pub(in crate::primitives) struct Prepared<'a> {
    pub(in crate::primitives) keys: SideKeys<'a>,
    /// Rows that have a key; all without.
    pub(in crate::primitives) valid: Option<Memory<'a, u32>>,
    /// What stands for each row in the output; its number without.
    pub(in crate::primitives) values: Option<Memory<'a, u32>>,
    /// The counts of the parts of a side that was split.
    pub(in crate::primitives) used: Option<Memory<'a, u32>>,
    pub(in crate::primitives) rows: u64,
}

/// What a null in a key means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::primitives) enum Purpose {
    /// The row has no key.
    Join,
    /// Null is a value of its own.
    Group,
}

/// Bit of the extra word that is never set: the row's nulls are not part of its key.
const NO_NULL_BIT: u32 = 32;

/// The keys of several sides, comparable with each other. All have the same columns.
pub(in crate::primitives) fn prepare<'a, const SIDES: usize>(
    engine: &Engine,
    stream: StreamId,
    sides: [&Keys<'a>; SIDES],
    purpose: Purpose,
    mask: u32,
) -> ResourceResult<[Prepared<'a>; SIDES]> {
    let columns = sides[0].columns.len();
    let long = |c: usize| matches!(sides[0].columns[c].words, KeyWords::U64(_));
    for side in &sides[1..] {
        let alike = side.columns.len() == columns
            && (0..columns).all(|c| matches!(side.columns[c].words, KeyWords::U64(_)) == long(c));
        if !alike {
            return Err(ResourceError::StreamMisuse(
                "both sides of a join need as many key columns, of the same word sizes".into(),
            ));
        }
    }
    let nulls = sides.iter().any(|side| side.columns.iter().any(|c| c.validity.is_some()));
    let counted_nulls = purpose == Purpose::Group && nulls;
    if columns == 1 && !counted_nulls {
        return Ok(sides.map(|side| Prepared::of(side.columns[0], side.rows)));
    }
    let lanes = lanes(sides[0]);
    let at_once = lanes <= if counted_nulls { 2 } else { MOST_LANES };
    let has_extra = counted_nulls || at_once && lanes > 2;
    let mut packer = Packer::new(engine, stream, sides, nulls, purpose, mask, has_extra)?;
    if at_once {
        packer.add_all()?;
    } else {
        packer.fold(columns, long)?;
    }
    Ok(packer.finish())
}

/// Words of 32 bits that a key without folding has at most.
const MOST_LANES: u32 = 3;

/// How many words of 32 bits a key has.
fn lanes(keys: &Keys<'_>) -> u32 {
    let lanes = |column: &KeyColumn<'_>| match column.words {
        KeyWords::U32(_) => 1,
        KeyWords::U64(_) => 2,
    };
    keys.columns.iter().map(lanes).sum()
}

/// The keys of one side of a join, comparable with those of any other side that was prepared like
/// this. `None` for keys that only both sides together can be made comparable for.
pub(in crate::primitives) fn prepare_alone<'a>(
    engine: &Engine,
    stream: StreamId,
    side: &Keys<'a>,
    mask: u32,
) -> ResourceResult<Option<Prepared<'a>>> {
    if let [column] = side.columns {
        return Ok(Some(Prepared::of(*column, side.rows)));
    }
    let lanes = lanes(side);
    if lanes > MOST_LANES {
        return Ok(None);
    }
    let nulls = side.columns.iter().any(|column| column.validity.is_some());
    let (purpose, has_extra) = (Purpose::Join, lanes > 2);
    let mut packer = Packer::new(engine, stream, [side], nulls, purpose, mask, has_extra)?;
    packer.add_all()?;
    let [prepared] = packer.finish();
    Ok(Some(prepared))
}

impl<'a> Prepared<'a> {
    /// Keys of one column, as they are.
    fn of(column: KeyColumn<'a>, rows: u64) -> Self {
        let keys = match column.words {
            KeyWords::U32(words) => SideKeys::Words(Memory::Lent(words)),
            KeyWords::U64(words) => SideKeys::Longs { keys: Memory::Lent(words), extra: None },
        };
        Self { keys, valid: column.validity.map(Memory::Lent), values: None, used: None, rows }
    }

    /// What was made of a table's columns; `None` if they are keys as they are.
    pub(in crate::primitives) fn into_own(self) -> Option<Prepared<'static>> {
        let keys = match self.keys {
            SideKeys::Longs { keys, extra } => {
                let extra = match extra {
                    Some(extra) => Some(extra.into_own()?),
                    None => None,
                };
                SideKeys::Longs { keys: keys.into_own()?, extra }
            }
            SideKeys::Words(keys) => SideKeys::Words(keys.into_own()?),
        };
        let valid = match self.valid {
            Some(valid) => Some(valid.into_own()?),
            None => None,
        };
        Some(Prepared { keys, valid, values: None, used: None, rows: self.rows })
    }

    /// The same, lent.
    pub(in crate::primitives) fn lent(&self) -> Prepared<'_> {
        Prepared {
            keys: match &self.keys {
                SideKeys::Words(keys) => SideKeys::Words(Memory::Lent(keys.view())),
                SideKeys::Longs { keys, extra } => {
                    let extra = extra.as_ref().map(|extra| Memory::Lent(extra.view()));
                    SideKeys::Longs { keys: Memory::Lent(keys.view()), extra }
                }
            },
            valid: self.valid.as_ref().map(|bits| Memory::Lent(bits.view())),
            values: self.values.as_ref().map(|values| Memory::Lent(values.view())),
            used: self.used.as_ref().map(|used| Memory::Lent(used.view())),
            rows: self.rows,
        }
    }
}

/// One word of 64 bits a row, made of all columns; a null is a zero. Equal keys have equal words,
/// also in different tables, whether those miss values or not; different keys mostly have different
/// ones. The hashes of the words have nothing to do with those of the keys.
pub(in crate::primitives) fn words_of_keys<'a>(
    engine: &Engine,
    stream: StreamId,
    keys: &Keys<'a>,
) -> ResourceResult<Prepared<'a>> {
    let rows = keys.rows;
    let mixed = |words: &SliceView<'_, u64>| -> ResourceResult<TrackedCudaSlice<u64>> {
        let mixed = engine.alloc::<u64>((rows as usize).max(1), stream, "mixed keys")?;
        if rows > 0 {
            engine
                .launch(&kernels::MIX, stream)?
                .input(words)
                .output(&mixed)
                .value(rows)
                .launch(dims(engine, rows, TILE))?;
        }
        Ok(mixed)
    };
    let words = if let [KeyColumn { words: KeyWords::U64(words), validity: None }] = keys.columns {
        Memory::Own(mixed(words)?)
    } else {
        let (purpose, mask) = (Purpose::Join, u32::MAX);
        let mut packer = Packer::new(engine, stream, [keys], false, purpose, mask, false)?;
        for column in 0..keys.columns.len() {
            // The first two stand beside each other; a further one among the bits of those so far.
            packer.add(column, u32::from(column == 1), column == 0, NO_NULL_BIT)?;
            if column > 0 || keys.columns.len() == 1 {
                packer.keys = Arc::new(mixed(&packer.keys.as_view())?);
            }
        }
        Memory::Part(packer.keys, 0..rows as usize)
    };
    let keys = SideKeys::Longs { keys: words, extra: None };
    Ok(Prepared { keys, valid: None, values: None, used: None, rows })
}

/// Keys under construction: those of all sides one after the other, so that one table holds all.
struct Packer<'p, 'a, const SIDES: usize> {
    engine: &'p Engine,
    stream: StreamId,
    sides: [&'p Keys<'a>; SIDES],
    starts: [usize; SIDES],
    keys: Arc<TrackedCudaSlice<u64>>,
    /// The third half of each key, where keys have one.
    extra: Option<Arc<TrackedCudaSlice<u32>>>,
    valid: [TrackedCudaSlice<u32>; SIDES],
    first_valid: bool,
    nulls: bool,
    purpose: Purpose,
    mask: u32,
    total: usize,
}

impl<'p, 'a, const SIDES: usize> Packer<'p, 'a, SIDES> {
    fn new(
        engine: &'p Engine,
        stream: StreamId,
        sides: [&'p Keys<'a>; SIDES],
        nulls: bool,
        purpose: Purpose,
        mask: u32,
        has_extra: bool,
    ) -> ResourceResult<Self> {
        let mut total = 0;
        let mut valid = Vec::new();
        let starts = sides.map(|side| {
            let start = total;
            total += side.rows as usize;
            start
        });
        for side in sides {
            let words = (side.rows as usize).div_ceil(32).max(1);
            valid.push(engine.alloc::<u32>(words, stream, "key validity")?);
        }
        let valid = valid.try_into().map_err(|_| "as many bitmaps as sides were made")?;
        let keys = Arc::new(engine.alloc::<u64>(total.max(1), stream, "packed keys")?);
        let extra = if has_extra {
            Some(Arc::new(engine.alloc::<u32>(total.max(1), stream, "packed keys")?))
        } else {
            None
        };
        let first_valid = true;
        Ok(Self {
            engine,
            stream,
            sides,
            starts,
            keys,
            extra,
            valid,
            first_valid,
            nulls,
            purpose,
            mask,
            total,
        })
    }

    /// Adds column `c` of every side in a lane.
    fn add(&mut self, c: usize, lane: u32, first_keys: bool, null_bit: u32) -> ResourceResult<()> {
        let null_bit =
            if self.purpose == Purpose::Group && self.nulls { null_bit } else { NO_NULL_BIT };
        for index in 0..SIDES {
            let rows = self.sides[index].rows as usize;
            let column = self.sides[index].columns[c];
            let validity = column.validity.map(Memory::Lent);
            self.launch(index, column.words, validity.as_ref(), lane, null_bit, first_keys, rows)?;
        }
        self.first_valid = false;
        Ok(())
    }

    /// Adds all columns, each in lanes of its own.
    fn add_all(&mut self) -> ResourceResult<()> {
        // 64-bit columns first: they fill the first two lanes.
        let long = |c: &usize| matches!(self.sides[0].columns[*c].words, KeyWords::U64(_));
        let (longs, words): (Vec<_>, Vec<_>) = (0..self.sides[0].columns.len()).partition(long);
        let starts = longs.iter().map(|c| (*c, 2)).chain(words.iter().map(|c| (*c, 1)));
        let mut lane = 0;
        for (step, (c, width)) in starts.enumerate() {
            self.add(c, lane, step == 0, step as u32)?;
            lane += width;
        }
        Ok(())
    }

    /// Adds slots of all sides in a lane.
    fn add_slots(
        &mut self,
        slots: &TrackedCudaSlice<u32>,
        lane: u32,
        first_keys: bool,
    ) -> ResourceResult<()> {
        for index in 0..SIDES {
            let rows = self.sides[index].rows as usize;
            let start = self.starts[index];
            let words = KeyWords::U32(slots.view(start..start + rows)?);
            self.launch(index, words, None, lane, NO_NULL_BIT, first_keys, rows)?;
        }
        self.first_valid = false;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one launch, argument by argument")]
    fn launch(
        &self,
        index: usize,
        words: KeyWords<'_>,
        validity: Option<&Memory<'_, u32>>,
        lane: u32,
        null_bit: u32,
        first_keys: bool,
        rows: usize,
    ) -> ResourceResult<()> {
        if rows == 0 {
            return Ok(());
        }
        let definition = match words {
            KeyWords::U32(_) => &kernels::PACK_U32,
            KeyWords::U64(_) => &kernels::PACK_U64,
        };
        let mut launch = self.engine.launch(definition, self.stream)?;
        match &words {
            KeyWords::U32(words) => launch.input(words),
            KeyWords::U64(words) => launch.input(words),
        };
        let (validity, has_validity) = or_none(validity);
        let range = self.starts[index]..self.starts[index] + rows;
        let extra = match &self.extra {
            Some(extra) => Some(extra.view(range.clone())?),
            None => None,
        };
        launch
            .input(&validity)
            .value(has_validity)
            .value(lane)
            .value(null_bit)
            .value(u32::from(first_keys))
            .value(u32::from(self.first_valid))
            .in_out(&self.keys.view(range)?)
            .in_out(&extra)
            .value(u32::from(self.extra.is_some()))
            .in_out(&self.valid[index])
            .value(rows as u64)
            .launch(dims(self.engine, rows as u64, 256))
    }

    /// The slots of the keys as they are now, in a table of all sides.
    fn number(&self) -> ResourceResult<TrackedCudaSlice<u32>> {
        let (engine, stream) = (self.engine, self.stream);
        let rows = self.total as u64;
        // Slots are numbered with 32 bits, over the rows of all sides.
        check_rows(rows, "the input, all sides together,")?;
        let mut batch = engine.batch(stream);
        let table = Table::new(engine, &mut batch, Table::slots_for(rows))?;
        let slots = engine.alloc::<u32>(self.total.max(1), stream, "slots")?;
        let full = engine.alloc::<u32>(1, stream, "slots")?;
        batch.fill_bytes(&full.as_view(), 0)?;
        let side = Prepared {
            keys: SideKeys::Longs {
                keys: Memory::Lent(self.keys.as_view()),
                extra: self.extra.as_ref().map(|extra| Memory::Lent(extra.as_view())),
            },
            valid: None,
            values: None,
            used: None,
            rows,
        };
        let capacity = table.capacity;
        let full = full.as_view();
        table.insert(engine, &mut batch, &side, capacity, self.mask, &slots, &full)?;
        batch.submit()?;
        Ok(slots)
    }

    /// One column after the other: what was there becomes a slot, and the next stands beside it.
    fn fold(&mut self, columns: usize, long: impl Fn(usize) -> bool) -> ResourceResult<()> {
        self.add(0, 0, true, 0)?;
        for c in 1..columns {
            let so_far = self.number()?;
            if long(c) {
                self.add(c, 0, true, 0)?;
                let column = self.number()?;
                self.add_slots(&so_far, 0, true)?;
                self.add_slots(&column, 1, false)?;
            } else {
                self.add_slots(&so_far, 0, true)?;
                self.add(c, 1, false, 0)?;
            }
        }
        Ok(())
    }

    fn finish<'f>(self) -> [Prepared<'f>; SIDES] {
        let mut index = 0;
        let (starts, sides) = (self.starts, self.sides);
        let dropped = self.purpose == Purpose::Join && self.nulls;
        self.valid.map(|valid| {
            let range = starts[index]..starts[index] + sides[index].rows as usize;
            let rows = sides[index].rows;
            index += 1;
            Prepared {
                keys: SideKeys::Longs {
                    keys: Memory::Part(Arc::clone(&self.keys), range.clone()),
                    extra: self.extra.as_ref().map(|extra| Memory::Part(Arc::clone(extra), range)),
                },
                valid: dropped.then_some(Memory::Own(valid)),
                values: None,
                used: None,
                rows,
            }
        })
    }
}
