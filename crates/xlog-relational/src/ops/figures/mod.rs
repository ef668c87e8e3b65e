//! The columns that aggregates of groups become.
//!
//! A figure of a group without a value is missing: its count says so. Counts of one column are made
//! once, however many figures go by them.

mod kernels;

use std::sync::Arc;

use xlog_cuda::{
    LaunchDims,
    device_runtime::StreamId,
    memory::{SliceView, TrackedCudaSlice},
};

use self::kernels::SumKind;
use super::{
    keys::{Key, Words, map_codes, validity},
    rows::host_count,
};
use crate::{
    Engine,
    aggregate::{Aggregate, AggregateFunction},
    column::{Column, ColumnParts, Dictionary, Values, validity_words},
    error::{RelationalError, RelationalResult},
    primitives::{self, AggregateWords, Grouping, Values as Numbers},
    table::Table,
    types::{DataType, Field, Physical},
};

/// Works out figures, one after the other.
pub(super) struct Figures<'f> {
    engine: &'f Engine,
    table: &'f Table,
    grouping: &'f Grouping<'f>,
    stream: StreamId,
    /// How many figures there will be at most.
    most: usize,
    /// How many values of a column each group has; of all rows under no name.
    counts: Vec<(Option<String>, Arc<TrackedCudaSlice<u64>>)>,
    /// A word for each sum that may not fit, and what to say if it does not.
    overflow: Option<TrackedCudaSlice<u32>>,
    sums: Vec<String>,
}

impl<'f> Figures<'f> {
    pub(super) fn new(
        table: &'f Table,
        grouping: &'f Grouping<'f>,
        most: usize,
        stream: StreamId,
    ) -> Self {
        let (counts, sums) = (Vec::new(), Vec::new());
        let engine = table.engine();
        Self { engine, table, grouping, stream, most, counts, overflow: None, sums }
    }

    /// One figure of every group, as the column `field` says.
    pub(super) fn column(
        &mut self,
        aggregate: &Aggregate,
        field: &Field,
    ) -> RelationalResult<Column> {
        use AggregateFunction as F;
        let column = match &aggregate.column {
            Some(name) if aggregate.function != F::CountRows => {
                Some((name.as_str(), self.table.column(name)?))
            }
            _ => None,
        };
        let Some((name, column)) = column else {
            let counts = self.row_counts()?;
            return self.finish(Values::Longs(counts), None, field.data_type, None);
        };
        let (values, bits) = match aggregate.function {
            F::CountRows | F::Count => (Values::Longs(self.counts(name, column)?), None),
            F::CountDistinct => {
                let key = Key::of(column, self.stream)?;
                let counts = self.grouping.count_distinct(key.column(), key.validity())?;
                (counts.words.into(), None)
            }
            F::Sum => {
                let sums = self.sum(column)?;
                if let Some(high) = &sums.high {
                    let of = format!("{}({name}) in {}", F::Sum.name(), field.data_type);
                    let is_signed = column.data_type() == DataType::I64;
                    self.watch_overflow(&sums.words, high, is_signed, of)?;
                }
                (sums.words.into(), self.counted(name, column)?)
            }
            F::Mean => (self.mean(name, column)?, self.counted(name, column)?),
            F::Min | F::Max => {
                let extreme = self.extreme(column, aggregate.function == F::Max)?;
                (extreme, self.counted(name, column)?)
            }
        };
        let dictionary = column.dictionary().filter(|_| field.data_type == DataType::Utf8);
        self.finish(values, bits, field.data_type, dictionary)
    }

    /// Waits for the device if a sum may not have fitted, and only then; refuses the first one that
    /// did not.
    pub(super) fn refuse_overflow(self) -> RelationalResult<()> {
        let Some(flags) = &self.overflow else { return Ok(()) };
        let flags = flags.start_download(self.stream)?.wait()?;
        match self.sums.into_iter().zip(flags).find(|(_, flag)| *flag != 0) {
            Some((operation, _)) => Err(RelationalError::Overflow { operation }),
            None => Ok(()),
        }
    }

    fn groups(&self) -> u64 {
        self.grouping.count()
    }

    fn len(&self) -> RelationalResult<usize> {
        host_count(self.groups(), "groups")
    }

    fn finish(
        &self,
        values: Values,
        bits: Option<TrackedCudaSlice<u32>>,
        data_type: DataType,
        dictionary: Option<&Arc<Dictionary>>,
    ) -> RelationalResult<Column> {
        let parts = ColumnParts {
            data_type,
            len: self.len()?,
            values,
            validity: bits.map(Arc::new),
            null_count: None,
            dictionary: dictionary.cloned(),
        };
        Column::from_parts(self.engine, parts)
    }

    /// How many rows each group has.
    fn row_counts(&mut self) -> RelationalResult<Arc<TrackedCudaSlice<u64>>> {
        self.counts_of(None, None)
    }

    /// How many values of a column each group has.
    fn counts(
        &mut self,
        name: &str,
        column: &Column,
    ) -> RelationalResult<Arc<TrackedCudaSlice<u64>>> {
        match validity(column) {
            Some(bits) => self.counts_of(Some(name), Some(bits.as_view())),
            None => self.row_counts(),
        }
    }

    fn counts_of(
        &mut self,
        name: Option<&str>,
        validity: Option<SliceView<'_, u32>>,
    ) -> RelationalResult<Arc<TrackedCudaSlice<u64>>> {
        if let Some((_, counts)) = self.counts.iter().find(|(known, _)| known.as_deref() == name) {
            return Ok(Arc::clone(counts));
        }
        let counts = self.grouping.aggregate(&primitives::Aggregate::Count { validity })?;
        let counts = Arc::new(counts.words);
        self.counts.push((name.map(str::to_owned), Arc::clone(&counts)));
        Ok(counts)
    }

    /// Which groups have a value of a column; `None` if all have.
    fn counted(
        &mut self,
        name: &str,
        column: &Column,
    ) -> RelationalResult<Option<TrackedCudaSlice<u32>>> {
        // The one group of a table without keys may have no rows at all.
        let all = validity(column).is_none() && self.table.rows() > 0;
        let groups = self.len()?;
        if all || groups == 0 {
            return Ok(None);
        }
        let counts = self.counts(name, column)?;
        let words = validity_words(groups);
        let bits = self.engine.alloc::<u32>(words, self.stream, "column validity")?;
        self.engine
            .launch(&kernels::COUNTED, self.stream)?
            .input(&*counts)
            .output(&bits)
            .value(groups as u64)
            .value(words as u64)
            .launch(LaunchDims::for_elements(groups))?;
        Ok(Some(bits))
    }

    fn sum(&self, column: &Column) -> RelationalResult<AggregateWords> {
        let values = numbers(column)?;
        let validity = validity(column).map(|bits| bits.as_view());
        Ok(self.grouping.aggregate(&primitives::Aggregate::Sum { values, validity })?)
    }

    fn watch_overflow(
        &mut self,
        low: &TrackedCudaSlice<u64>,
        high: &TrackedCudaSlice<u64>,
        is_signed: bool,
        operation: String,
    ) -> RelationalResult<()> {
        if self.overflow.is_none() {
            let mut flags = self.engine.alloc::<u32>(self.most, self.stream, "overflow flags")?;
            flags.fill_bytes(0, self.stream)?;
            self.overflow = Some(flags);
        }
        let groups = self.len()?;
        let place = self.sums.len();
        self.sums.push(operation);
        if let Some(flags) = self.overflow.as_ref().filter(|_| groups > 0) {
            self.engine
                .launch(&kernels::OVERFLOW, self.stream)?
                .input(low)
                .input(high)
                .in_out(&flags.view(place..place + 1)?)
                .value(u32::from(is_signed))
                .value(groups as u64)
                .launch(LaunchDims::for_elements(groups))?;
        }
        Ok(())
    }

    fn mean(&mut self, name: &str, column: &Column) -> RelationalResult<Values> {
        let (sums, counts) = (self.sum(column)?, self.counts(name, column)?);
        let kind = match column.data_type() {
            DataType::U32 => SumKind::Unsigned,
            DataType::I32 => SumKind::Signed,
            DataType::U64 => SumKind::UnsignedWide,
            DataType::I64 => SumKind::SignedWide,
            _ => SumKind::Float,
        };
        let groups = self.len()?;
        let means = self.engine.alloc::<u64>(groups.max(1), self.stream, "column values")?;
        if groups > 0 {
            self.engine
                .launch(&kernels::MEAN, self.stream)?
                .input(&sums.words)
                // Sums of one word hand it in again; nobody reads it as the second one.
                .input(sums.high.as_ref().unwrap_or(&sums.words))
                .input(&*counts)
                .output(&means)
                .value(kind as u32)
                .value(groups as u64)
                .launch(LaunchDims::for_elements(groups))?;
        }
        Ok(means.into())
    }

    /// The least or the greatest value.
    fn extreme(&self, column: &Column, greatest: bool) -> RelationalResult<Values> {
        let (engine, stream) = (self.engine, self.stream);
        let validity = validity(column).map(|bits| bits.as_view());
        // Truth values compare as words, and text as the places of its strings in their order.
        let words = match (column.values(), column.dictionary()) {
            (Values::Bytes(_), _) => match Key::of(column, stream)?.words {
                Words::Short(words) => Some(words),
                Words::Long(_) => None,
            },
            (Values::Words(codes), Some(dictionary)) => {
                let ranks = dictionary.ranks();
                Some(Arc::new(map_codes(engine, codes, ranks, column.len(), stream)?))
            }
            _ => None,
        };
        let values = match &words {
            Some(words) => Numbers::U32(words.as_view()),
            None => numbers(column)?,
        };
        let aggregate = match greatest {
            true => primitives::Aggregate::Max { values, validity },
            false => primitives::Aggregate::Min { values, validity },
        };
        let found = self.grouping.aggregate(&aggregate)?.words;
        Ok(match (column.data_type().physical(), column.dictionary()) {
            (Physical::Long, _) => found.into(),
            (Physical::Byte, _) => self.narrow::<u8>(&found, &kernels::NARROW_8)?.into(),
            (Physical::Word, None) => self.narrow::<u32>(&found, &kernels::NARROW_32)?.into(),
            (Physical::Word, Some(dictionary)) => {
                let ranks = self.narrow::<u32>(&found, &kernels::NARROW_32)?;
                let mut codes = vec![0; dictionary.len()];
                for (rank, code) in dictionary.ranks().iter().zip(0..) {
                    codes[*rank as usize] = code;
                }
                map_codes(engine, &ranks, &codes, self.len()?, stream)?.into()
            }
        })
    }

    fn narrow<T: xlog_cuda::launch::DeviceElement>(
        &self,
        words: &TrackedCudaSlice<u64>,
        definition: &'static xlog_driver::KernelDefinition,
    ) -> RelationalResult<TrackedCudaSlice<T>> {
        let groups = self.len()?;
        let values = self.engine.alloc::<T>(groups.max(1), self.stream, "column values")?;
        if groups > 0 {
            self.engine
                .launch(definition, self.stream)?
                .input(words)
                .output(&values)
                .value(groups as u64)
                .launch(LaunchDims::for_elements(groups))?;
        }
        Ok(values)
    }
}

/// The values of a column that compares by its own words.
fn numbers(column: &Column) -> RelationalResult<Numbers<'_>> {
    Ok(match (column.values(), column.data_type()) {
        (Values::Words(words), DataType::I32 | DataType::Date32) => Numbers::I32(words.as_view()),
        (Values::Words(words), DataType::F32) => Numbers::F32(words.as_view()),
        (Values::Words(words), _) => Numbers::U32(words.as_view()),
        (Values::Longs(words), DataType::I64 | DataType::Timestamp) => {
            Numbers::I64(words.as_view())
        }
        (Values::Longs(words), DataType::F64) => Numbers::F64(words.as_view()),
        (Values::Longs(words), _) => Numbers::U64(words.as_view()),
        (Values::Bytes(_), found) => {
            return Err(RelationalError::type_mismatch("the column", "a number", found));
        }
    })
}
