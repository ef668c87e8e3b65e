//! Programs over tables: one launch each.

use std::sync::Arc;

use xlog_cuda::{
    LaunchDims,
    device_runtime::StreamId,
    launch::LaunchBuilder,
    memory::{ByteView, TrackedCudaSlice},
};

use super::{
    Program, kernel,
    program::{MOST_SLOTS, Opcode, Slot, overflow_names},
};
use crate::{
    Engine,
    column::{Column, ColumnParts, Values, validity_words},
    error::{RelationalError, RelationalResult},
    table::Table,
    types::{DataType, Physical},
};

/// Rows that one thread of the device works on at a time, as in `kernels/expression.cu`.
const ROWS_PER_THREAD: usize = 4;

/// What an evaluation is called where it fails.
const STEP: &str = "an expression";

/// What the memory of masks is called.
const MASK: &str = "predicate mask";

/// A column that an expression was evaluated to.
#[derive(Debug)]
pub struct Evaluated {
    column: Column,
    overflow: Option<TrackedCudaSlice<u32>>,
}

impl Evaluated {
    /// The column, once it is known that nothing overflowed. Waits for the device where the
    /// program can overflow, and only there.
    pub fn finish(self) -> RelationalResult<Column> {
        refuse_overflow(self.overflow.as_ref())?;
        Ok(self.column)
    }

    /// The column, and a word that is not 0 if the program overflowed in some row, if it can: for
    /// whoever waits for several at once.
    pub(crate) fn into_parts(self) -> (Column, Option<TrackedCudaSlice<u32>>) {
        (self.column, self.overflow)
    }
}

/// For which rows a predicate is true.
#[derive(Debug)]
pub struct Mask {
    words: TrackedCudaSlice<u32>,
    overflow: Option<TrackedCudaSlice<u32>>,
}

impl Mask {
    /// One bit a row, laid out like [`ColumnParts::validity`](crate::ColumnParts::validity): set
    /// if the predicate is true, so not if it is missing.
    #[must_use]
    pub fn words(&self) -> &TrackedCudaSlice<u32> {
        &self.words
    }

    /// One word that is not 0 if the predicate overflowed in some row; `None` if it cannot. To be
    /// downloaded with whatever else the host has to wait for.
    #[must_use]
    pub fn overflow(&self) -> Option<&TrackedCudaSlice<u32>> {
        self.overflow.as_ref()
    }

    /// The error for a word of [`overflow`](Self::overflow) that was downloaded.
    pub fn refuse(flags: u32) -> RelationalResult<()> {
        if flags == 0 {
            return Ok(());
        }
        Err(RelationalError::Overflow { operation: overflow_names(flags) })
    }

    /// Waits for the device where the program can overflow, and only there, and refuses then.
    pub fn refuse_overflow(&self) -> RelationalResult<()> {
        refuse_overflow(self.overflow.as_ref())
    }
}

fn refuse_overflow(flags: Option<&TrackedCudaSlice<u32>>) -> RelationalResult<()> {
    match flags {
        Some(flags) => Mask::refuse(flags.download()?.first().copied().unwrap_or(0)),
        None => Ok(()),
    }
}

impl Program {
    /// Evaluates the program for every row of `table` on `stream`. An expression that is a column
    /// is that column, without a copy.
    pub fn evaluate(&self, table: &Table, stream: StreamId) -> RelationalResult<Evaluated> {
        let result = table.rows().saturating_mul(self.data_type.size() as u64);
        let evaluated = self.evaluate_rows(table, stream);
        evaluated.map_err(|error| error.needing(STEP, Some(self.needed(table, result, 1))))
    }

    /// Bytes that a launch takes: the result, so many masks, and what the program itself uses.
    fn needed(&self, table: &Table, result: u64, masks: usize) -> u64 {
        let words = validity_words(table.rows() as usize).saturating_mul(masks);
        let tables = self.slots.iter().map(|slot| match slot {
            Slot::Table(ranks) => ranks.len(),
            Slot::Column { .. } => 0,
        });
        let words = words.saturating_add(tables.sum()).saturating_add(1);
        let program = self.words.len().saturating_mul(8);
        result.saturating_add(words.saturating_mul(4).saturating_add(program) as u64)
    }

    fn evaluate_rows(&self, table: &Table, stream: StreamId) -> RelationalResult<Evaluated> {
        if let Some(column) = self.bare_column(table)? {
            return Ok(Evaluated { column, overflow: None });
        }
        let (engine, rows) = (table.engine(), table.rows() as usize);
        let physical = self.data_type.physical();
        let values = Values::alloc(engine, physical, rows, stream)?;
        let validity = engine.alloc(validity_words(rows), stream, "expression validity")?;
        let definition = match (physical, self.data_type) {
            (Physical::Byte, _) => &kernel::BYTES,
            (Physical::Word, DataType::F32) => &kernel::FLOAT_WORDS,
            (Physical::Word, _) => &kernel::WORDS,
            (Physical::Long, _) => &kernel::LONGS,
        };
        let mut overflow = None;
        if rows == 0 {
            validity.as_view().fill_bytes(0, stream)?;
        } else {
            let launch = engine.launch(definition, stream)?;
            overflow = self.launch(table, stream, launch, |launch| {
                match &values {
                    Values::Bytes(slice) => launch.output(&**slice),
                    Values::Words(slice) => launch.output(&**slice),
                    Values::Longs(slice) => launch.output(&**slice),
                }
                .output(&validity);
            })?;
        }
        let validity = self.nullable.then(|| Arc::new(validity));
        let parts = ColumnParts {
            data_type: self.data_type,
            len: rows,
            values,
            validity,
            null_count: None,
            dictionary: self.dictionary.clone(),
        };
        Ok(Evaluated { column: Column::from_parts(engine, parts)?, overflow })
    }

    /// Evaluates a predicate for every row of `table` on `stream`.
    pub fn mask(&self, table: &Table, stream: StreamId) -> RelationalResult<Mask> {
        // Of several ranges, two masks are there at a time.
        let masks = self.ranges.len().clamp(1, 2);
        let mask = self.mask_rows(table, stream);
        mask.map_err(|error| error.needing(STEP, Some(self.needed(table, 0, masks))))
    }

    fn mask_rows(&self, table: &Table, stream: StreamId) -> RelationalResult<Mask> {
        if self.data_type != DataType::Bool {
            return Err(RelationalError::type_mismatch("a predicate", "bool", self.data_type));
        }
        let (engine, rows) = (table.engine(), table.rows() as usize);
        if rows > 0 && !self.ranges.is_empty() {
            return self.mask_of_ranges(table, stream);
        }
        let words = engine.alloc(validity_words(rows), stream, MASK)?;
        if rows == 0 {
            words.as_view().fill_bytes(0, stream)?;
            return Ok(Mask { words, overflow: None });
        }
        let launch = engine.launch(&kernel::PREDICATE, stream)?;
        let overflow = self.launch(table, stream, launch, |launch| {
            launch.output(&words);
        })?;
        Ok(Mask { words, overflow })
    }

    /// The mask of a predicate that is no more than ranges: one launch for each.
    fn mask_of_ranges(&self, table: &Table, stream: StreamId) -> RelationalResult<Mask> {
        let words = validity_words(table.rows() as usize);
        let mut mask = table.engine().alloc(words, stream, MASK)?;
        for (position, range) in self.ranges.iter().enumerate() {
            let column = self.slot_of(range.index)?.column_of(table)?;
            if position == 0 {
                range.launch(table.engine(), column, None, &mask, stream)?;
            } else {
                let next = table.engine().alloc(words, stream, MASK)?;
                range.launch(table.engine(), column, Some(&mask), &next, stream)?;
                mask = next;
            }
        }
        Ok(Mask { words: mask, overflow: None })
    }

    /// The slot of the column at a place.
    fn slot_of(&self, wanted: usize) -> RelationalResult<&Slot> {
        let is_it = |slot: &&Slot| matches!(slot, Slot::Column { index, .. } if *index == wanted);
        self.slots.iter().find(is_it).ok_or_else(|| RelationalError::UnsupportedExpression {
            expression: format!("column {wanted}"),
            reason: "the program has no slot for it; compile it again".to_owned(),
        })
    }

    /// The column that the program does nothing but load.
    fn bare_column(&self, table: &Table) -> RelationalResult<Option<Column>> {
        let ([word], [slot]) = (&self.words[..], &self.slots[..]) else { return Ok(None) };
        match *word as u8 == Opcode::Load as u8 {
            true => slot.column_of(table).cloned().map(Some),
            false => Ok(None),
        }
    }

    /// Launches a form of the interpreter; `outputs` appends the last arguments.
    fn launch(
        &self,
        table: &Table,
        stream: StreamId,
        mut launch: LaunchBuilder<'_>,
        outputs: impl FnOnce(&mut LaunchBuilder<'_>),
    ) -> RelationalResult<Option<TrackedCudaSlice<u32>>> {
        let engine = table.engine();
        let memory = Memory::prepare(self, table, engine, stream)?;
        let mut overflow = engine.alloc::<u32>(1, stream, "expression overflow")?;
        if self.can_overflow {
            overflow.fill_bytes(0, stream)?;
        }
        launch.input(&memory.program).value(self.words.len() as u64);
        let mut nullable = 0u32;
        // A slot that the program does not use points to the program, and is never read.
        let nothing = memory.program.as_view().as_bytes();
        for slot in &memory.slots {
            launch.input(&slot.values().unwrap_or(nothing));
        }
        for (index, slot) in memory.slots.iter().enumerate() {
            let validity = slot.validity();
            nullable |= u32::from(validity.is_some()) << index;
            launch.input(&validity.unwrap_or(nothing));
        }
        launch.value(nullable).value(table.rows()).in_out(&overflow);
        outputs(&mut launch);
        let threads = (table.rows() as usize).div_ceil(ROWS_PER_THREAD);
        launch.launch(LaunchDims::for_elements(threads))?;
        Ok(self.can_overflow.then_some(overflow))
    }
}

/// What a launch points to.
struct Memory {
    program: TrackedCudaSlice<u64>,
    slots: [Held; MOST_SLOTS],
}

/// The memory of one slot.
#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    Column(Column),
    Table(TrackedCudaSlice<u32>),
}

impl Held {
    fn values(&self) -> Option<ByteView<'_>> {
        match self {
            Self::Nothing => None,
            Self::Column(column) => Some(match column.values() {
                Values::Bytes(slice) => slice.as_view().as_bytes(),
                Values::Words(slice) => slice.as_view().as_bytes(),
                Values::Longs(slice) => slice.as_view().as_bytes(),
            }),
            Self::Table(words) => Some(words.as_view().as_bytes()),
        }
    }

    fn validity(&self) -> Option<ByteView<'_>> {
        match self {
            Self::Column(column) => column.validity().map(|words| words.as_view().as_bytes()),
            _ => None,
        }
    }
}

impl Memory {
    fn prepare(
        program: &Program,
        table: &Table,
        engine: &Engine,
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let mut slots: [Held; MOST_SLOTS] = Default::default();
        for (held, slot) in slots.iter_mut().zip(&program.slots) {
            *held = match slot {
                Slot::Column { .. } => Held::Column(slot.column_of(table)?.clone()),
                Slot::Table(ranks) => {
                    let mut words = engine.alloc(ranks.len(), stream, "expression table")?;
                    words.upload_on(ranks, stream)?;
                    Held::Table(words)
                }
            };
        }
        let mut words = engine.alloc(program.words.len(), stream, "expression program")?;
        words.upload_on(&program.words, stream)?;
        Ok(Self { program: words, slots })
    }
}
