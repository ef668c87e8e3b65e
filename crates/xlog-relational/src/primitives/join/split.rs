//! Rows in the order of parts: both sides of a join, or one table.

use xlog_cuda::{
    device_runtime::{ResourceResult, StreamId},
    launch::DeviceElement,
    memory::{SliceView, TrackedCudaSlice},
};
use xlog_driver::KernelDefinition;

use super::{JoinKind, Plan, Sides, kernels};
use crate::{
    Engine,
    primitives::hash::{Keys, Memory, Prepared, SideKeys, Tuning, dims, or_none, words_of_keys},
};

/// Rows a block sorts at a time.
const WORDS_TILE: u64 = 4096;
const LONGS_TILE: u64 = 2048;

/// Parts that rows are split into.
pub const PARTS: usize = 256;

/// Row numbers in the order of the parts that their keys belong to.
#[derive(Debug)]
pub struct PartRows {
    /// The row numbers.
    pub rows: TrackedCudaSlice<u32>,
    /// How many rows each of the [`PARTS`] parts has.
    pub counts: Vec<u32>,
}

/// Which part each row belongs to, by a hash of its key. Rows with equal keys belong to the same
/// part, also rows of other tables with keys of the same sizes. Nulls are equal to each other.
///
/// Waits for the device once, to learn how many rows each part has.
pub fn part_rows(engine: &Engine, stream: StreamId, keys: &Keys<'_>) -> ResourceResult<PartRows> {
    keys.check("the table")?;
    let side = words_of_keys(engine, stream, keys)?;
    let tuning = Tuning::default();
    let plan = Plan { engine, stream, kind: JoinKind::Inner, tuning, emit_keys: false };
    let (split, _) = plan.split(side)?;
    match (split.values, split.used) {
        (Some(Memory::Own(rows)), Some(Memory::Own(counts))) => {
            let mut counts = counts.start_download(stream)?.wait()?;
            counts.truncate(PARTS);
            Ok(PartRows { rows, counts })
        }
        _ => Err("rows that are split have numbers and counts".into()),
    }
}

impl Plan<'_> {
    pub(super) fn split_sides<'a>(&self, sides: Sides<'a>) -> ResourceResult<Sides<'a>> {
        let rows = sides.probe.rows;
        let (build, _) = self.split(sides.build)?;
        let (probe, valid) = self.split(sides.probe)?;
        Ok(Sides { build, probe, nulls: valid.map(|bits| (bits, rows)) })
    }

    /// A side in the order of parts, without its nulls, and the bits of those.
    fn split<'a>(
        &self,
        side: Prepared<'a>,
    ) -> ResourceResult<(Prepared<'a>, Option<Memory<'a, u32>>)> {
        let rows = side.rows;
        let counts = self.zeroed::<u32>(PARTS + 1)?;
        let cursors = self.zeroed::<u32>(PARTS)?;
        let out_values = self.alloc::<u32>(rows)?;
        let keys = {
            let scatter = Scatter {
                valid: or_none(side.valid.as_ref()),
                values: or_none(side.values.as_ref()),
                counts: &counts,
                cursors: &cursors,
                out_values: &out_values,
                rows,
            };
            match &side.keys {
                SideKeys::Words(keys) => {
                    let kernels = (&kernels::HISTOGRAM_U32, &kernels::SCATTER_U32, WORDS_TILE);
                    SideKeys::Words(Memory::Own(self.scatter(&scatter, keys, kernels)?))
                }
                SideKeys::Longs { keys, .. } => {
                    let kernels = (&kernels::HISTOGRAM_U64, &kernels::SCATTER_U64, LONGS_TILE);
                    let keys = Memory::Own(self.scatter(&scatter, keys, kernels)?);
                    SideKeys::Longs { keys, extra: None }
                }
            }
        };
        let split = Prepared {
            keys,
            valid: None,
            values: Some(Memory::Own(out_values)),
            used: Some(Memory::Own(counts)),
            rows,
        };
        Ok((split, side.valid))
    }

    /// Keys of either width in the order of parts, and their values beside them.
    fn scatter<T: DeviceElement>(
        &self,
        side: &Scatter<'_>,
        keys: &Memory<'_, T>,
        (histogram, scatter, tile): (&'static KernelDefinition, &'static KernelDefinition, u64),
    ) -> ResourceResult<TrackedCudaSlice<T>> {
        let (engine, stream, rows) = (self.engine, self.stream, side.rows);
        let mask = self.tuning.hash_mask;
        let ((valid, has_valid), (values, has_values)) = (&side.valid, &side.values);
        engine
            .launch(histogram, stream)?
            .input(&keys.view())
            .input(valid)
            .value(*has_valid)
            .value(mask)
            .in_out(side.counts)
            .value(rows)
            .launch(dims(engine, rows, tile))?;
        let out_keys = self.alloc::<T>(rows)?;
        engine
            .launch(scatter, stream)?
            .input(&keys.view())
            .input(values)
            .value(*has_values)
            .input(valid)
            .value(*has_valid)
            .value(mask)
            .input(side.counts)
            .in_out(side.cursors)
            .output(&out_keys)
            .output(side.out_values)
            .value(rows)
            .launch(dims(engine, rows, tile))?;
        Ok(out_keys)
    }
}

/// What goes with the keys of a side: which are there and what they stand for, or stand-ins and 0;
/// the counts of the parts and where each goes on.
struct Scatter<'s> {
    valid: (Option<SliceView<'s, u32>>, u32),
    values: (Option<SliceView<'s, u32>>, u32),
    counts: &'s TrackedCudaSlice<u32>,
    cursors: &'s TrackedCudaSlice<u32>,
    out_values: &'s TrackedCudaSlice<u32>,
    rows: u64,
}
