//! The long way: build keys that repeat.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceError, ResourceResult},
    memory::TrackedCudaSlice,
};

use super::{JoinKind, Matches, Output, Plan, Sides, control, kernels};
use crate::primitives::hash::{SideKeys, TILE, Table, dims, or_none};

/// The build side, listed by key.
struct Listed {
    table: Table,
    slots: TrackedCudaSlice<u32>,
    ranges: TrackedCudaSlice<u64>,
    list: TrackedCudaSlice<u32>,
}

/// The probe side: what each row meets, and the sums of its tiles.
struct Met {
    row_ranges: TrackedCudaSlice<u64>,
    tile_matches: TrackedCudaSlice<u32>,
    tile_outputs: TrackedCudaSlice<u64>,
}

impl Plan<'_> {
    /// The number of rows, and the rows. Waits for the device once.
    pub(super) fn long(&self, sides: &Sides<'_>) -> ResourceResult<(u64, Output)> {
        let (engine, stream) = (self.engine, self.stream);
        let (build, probe) = (&sides.build, &sides.probe);
        let full = self.kind == JoinKind::Full;
        let nulls = sides.probe_nulls().filter(|_| self.kind.keeps_probe());
        let control = self.zeroed::<u64>(control::WORDS)?;
        let listed = self.list(sides, &control)?;
        let slot_bits = full
            .then(|| self.zeroed::<u32>((listed.table.capacity as usize).div_ceil(32)))
            .transpose()?;
        let met = self.meet(sides, &listed, slot_bits.as_ref(), &control)?;
        let row_bits = match &slot_bits {
            Some(bits) => Some(self.mark(&listed.slots, bits, build.rows, &control)?),
            None => None,
        };
        if let Some((bits, rows)) = nulls {
            self.count_unset(&bits, rows, &control)?;
        }
        let (used, has_used) = or_none(probe.used.as_ref());
        let found = Matches {
            list: listed.list,
            starts: self.alloc(probe.rows)?,
            ranges: self.alloc(probe.rows)?,
            positions: self.alloc(probe.rows)?,
        };
        engine
            .launch(&kernels::COMPACT, stream)?
            .input(&met.row_ranges)
            .input(&used)
            .value(has_used)
            .input(&met.tile_matches)
            .input(&met.tile_outputs)
            .output(&found.starts)
            .output(&found.ranges)
            .output(&found.positions)
            .value(probe.rows)
            .launch(dims(engine, probe.rows, TILE))?;

        let words = control.start_download(stream)?.wait()?;
        let pairs = words[control::OUTPUT];
        let count = pairs + words[control::APPENDED];
        let output = self.output(count)?;
        self.expand(sides, &found, (words[control::MATCHES], pairs), &output)?;
        let mut batch = engine.batch(stream);
        if let Some((bits, rows)) = nulls {
            self.append(&mut batch, &bits, false, false, &control, &output, rows)?;
        }
        if let Some(bits) = &row_bits {
            let bits = bits.as_view();
            self.append(&mut batch, &bits, true, false, &control, &output, build.rows)?;
        }
        batch.submit()?;
        Ok((count, output))
    }

    /// The build rows of each key, side by side.
    fn list(&self, sides: &Sides<'_>, control: &TrackedCudaSlice<u64>) -> ResourceResult<Listed> {
        let (engine, stream, side) = (self.engine, self.stream, &sides.build);
        let (used, has_used) = or_none(side.used.as_ref());
        let (values, has_values) = or_none(side.values.as_ref());
        let slots = self.alloc::<u32>(side.rows)?;
        let mut batch = engine.batch(stream);
        let table = Table::new(engine, &mut batch, Table::slots_for(side.rows))?;
        let full = self.zeroed_in::<u32>(&mut batch, 1)?;
        let (mask, all) = (self.tuning.hash_mask, table.capacity);
        let full = full.as_view();
        table.insert(engine, &mut batch, side, all, mask, &slots, &full)?;
        batch.submit()?;
        let slot_count = usize::try_from(table.capacity)
            .map_err(|_| ResourceError::from("the table does not fit this machine"))?;
        let ranges = self.zeroed::<u64>(slot_count)?;
        let ranks = self.alloc::<u32>(side.rows)?;
        engine
            .launch(&kernels::RANK, stream)?
            .input(&slots)
            .input(&used)
            .value(has_used)
            .in_out(&ranges)
            .output(&ranks)
            .value(side.rows)
            .launch(dims(engine, side.rows, 256))?;
        engine
            .launch(&kernels::OFFSETS, stream)?
            .in_out(&ranges)
            .value(table.capacity)
            .in_out(control)
            .launch(dims(engine, table.capacity, TILE))?;
        let list = self.alloc::<u32>(side.rows)?;
        engine
            .launch(&kernels::PLACE, stream)?
            .input(&slots)
            .input(&ranks)
            .input(&ranges)
            .input(&values)
            .value(has_values)
            .input(&used)
            .value(has_used)
            .output(&list)
            .value(side.rows)
            .launch(dims(engine, side.rows, 256))?;
        Ok(Listed { table, slots, ranges, list })
    }

    /// What each probe row meets, and the sums before each tile.
    fn meet(
        &self,
        sides: &Sides<'_>,
        listed: &Listed,
        slot_bits: Option<&TrackedCudaSlice<u32>>,
        control: &TrackedCudaSlice<u64>,
    ) -> ResourceResult<Met> {
        let (engine, stream, side) = (self.engine, self.stream, &sides.probe);
        let (valid, has_valid) = or_none(side.valid.as_ref());
        let (used, has_used) = or_none(side.used.as_ref());
        let (mask, kind) = (self.tuning.hash_mask, self.kind.code());
        let slot_bits = slot_bits.map(TrackedCudaSlice::as_view);
        let tiles = side.rows.div_ceil(TILE);
        let row_ranges = self.alloc::<u64>(side.rows)?;
        let (tile_matches, tile_outputs) = (self.alloc::<u32>(tiles)?, self.alloc::<u64>(tiles)?);
        let dims = dims(engine, side.rows, TILE);
        let table = &listed.table;
        match (&side.keys, &sides.build.keys) {
            (SideKeys::Words(keys), _) => engine
                .launch(&kernels::MATCH_U32, stream)?
                .input(&keys.view())
                .input(&valid)
                .value(has_valid)
                .input(&used)
                .value(has_used)
                .input(&table.entries)
                .value(table.capacity)
                .value(mask)
                .input(&listed.ranges)
                .value(kind)
                .in_out(&slot_bits)
                .output(&row_ranges)
                .output(&tile_matches)
                .output(&tile_outputs)
                .value(side.rows)
                .launch(dims)?,
            (
                SideKeys::Longs { keys, extra },
                SideKeys::Longs { keys: build_keys, extra: build_extra },
            ) => {
                let (extra, has_extra) = or_none(extra.as_ref());
                let (build_extra, _) = or_none(build_extra.as_ref());
                engine
                    .launch(&kernels::MATCH_U64, stream)?
                    .input(&keys.view())
                    .input(&extra)
                    .input(&valid)
                    .value(has_valid)
                    .input(&used)
                    .value(has_used)
                    .input(&build_keys.view())
                    .input(&build_extra)
                    .value(has_extra)
                    .input(&table.entries)
                    .value(table.capacity)
                    .value(mask)
                    .input(&listed.ranges)
                    .value(kind)
                    .in_out(&slot_bits)
                    .output(&row_ranges)
                    .output(&tile_matches)
                    .output(&tile_outputs)
                    .value(side.rows)
                    .launch(dims)?;
            }
            _ => return Err("both sides of a join have keys of one size".into()),
        }
        engine
            .launch(&kernels::SCAN, stream)?
            .in_out(&tile_matches)
            .in_out(&tile_outputs)
            .in_out(control)
            .value(tiles)
            .launch(LaunchDims::linear(1, 256))?;
        Ok(Met { row_ranges, tile_matches, tile_outputs })
    }

    /// Bits of the build rows that have a partner; the others are counted.
    fn mark(
        &self,
        slots: &TrackedCudaSlice<u32>,
        slot_bits: &TrackedCudaSlice<u32>,
        rows: u64,
        control: &TrackedCudaSlice<u64>,
    ) -> ResourceResult<TrackedCudaSlice<u32>> {
        let row_bits = self.alloc::<u32>(rows.div_ceil(32))?;
        self.engine
            .launch(&kernels::MARK, self.stream)?
            .input(slots)
            .input(slot_bits)
            .output(&row_bits)
            .value(rows)
            .launch(dims(self.engine, rows, 256))?;
        self.count_unset(&row_bits.as_view(), rows, control)?;
        Ok(row_bits)
    }

    fn count_unset(
        &self,
        bits: &xlog_cuda::memory::SliceView<'_, u32>,
        rows: u64,
        control: &TrackedCudaSlice<u64>,
    ) -> ResourceResult<()> {
        self.engine
            .launch(&kernels::COUNT_UNSET, self.stream)?
            .input(bits)
            .in_out(control)
            .value(rows)
            .launch(dims(self.engine, rows.div_ceil(32), 256))
    }
}
