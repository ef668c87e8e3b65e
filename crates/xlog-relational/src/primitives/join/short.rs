//! The short way: build keys that do not repeat.

use xlog_cuda::{device_runtime::ResourceResult, launch::LaunchBatch, memory::TrackedCudaSlice};

use super::{JoinKind, Output, Plan, Sides, kernels, view};
use crate::primitives::hash::{Prepared, SideKeys, TILE, Table, dims, or_none};

impl Plan<'_> {
    /// Has a batch look every probe row up in a table that was built. What that yields holds if
    /// `control` says that no key repeats.
    pub(super) fn look_up(
        &self,
        sides: &Sides<'_>,
        table: &Table,
        control: &TrackedCudaSlice<u64>,
        batch: &mut LaunchBatch<'_>,
    ) -> ResourceResult<Output> {
        let (build, probe) = (&sides.build, &sides.probe);
        let full = self.kind == JoinKind::Full;
        let nulls = sides.probe_nulls().filter(|_| self.kind.keeps_probe());
        // Every probe row yields one row at most, and a full join one for each build row.
        let rows = nulls.map_or(probe.rows, |(_, rows)| rows.max(probe.rows));
        let most = rows + if full { build.rows } else { 0 };
        let output = Output {
            keys: self.emit_keys.then(|| self.alloc(most)).transpose()?,
            build: self.kind.has_build().then(|| self.alloc(most)).transpose()?,
            probe: self.alloc(most)?,
        };
        let matched =
            full.then(|| self.zeroed_in::<u32>(batch, (build.rows as usize).div_ceil(32)));
        let matched = matched.transpose()?;
        self.probe(sides, table, control, matched.as_ref(), &output, batch)?;
        if let Some((bits, rows)) = nulls {
            self.append(batch, &bits, false, true, control, &output, rows)?;
        }
        if let Some(matched) = matched {
            self.append(batch, &matched.as_view(), true, true, control, &output, build.rows)?;
            batch.keep(matched);
        }
        Ok(output)
    }

    /// Has a batch enter the rows of the build side into a table.
    pub(super) fn build(
        &self,
        side: &Prepared<'_>,
        table: &Table,
        control: &TrackedCudaSlice<u64>,
        batch: &mut LaunchBatch<'_>,
    ) -> ResourceResult<()> {
        let (engine, stream) = (self.engine, self.stream);
        let (valid, has_valid) = or_none(side.valid.as_ref());
        let (used, has_used) = or_none(side.used.as_ref());
        let (values, has_values) = or_none(side.values.as_ref());
        let (mask, kind) = (self.tuning.hash_mask, self.kind.code());
        let dims = dims(engine, side.rows, TILE);
        match &side.keys {
            SideKeys::Words(keys) => engine
                .launch(&kernels::BUILD_U32, stream)?
                .input(&keys.view())
                .input(&values)
                .value(has_values)
                .input(&valid)
                .value(has_valid)
                .input(&used)
                .value(has_used)
                .in_out(&table.entries)
                .value(table.capacity)
                .value(mask)
                .value(kind)
                .in_out(control)
                .value(side.rows)
                .launch_in(batch, dims),
            SideKeys::Longs { keys, extra } => {
                let (extra, has_extra) = or_none(extra.as_ref());
                engine
                    .launch(&kernels::BUILD_U64, stream)?
                    .input(&keys.view())
                    .input(&extra)
                    .value(has_extra)
                    .input(&valid)
                    .value(has_valid)
                    .input(&used)
                    .value(has_used)
                    .in_out(&table.entries)
                    .value(table.capacity)
                    .value(mask)
                    .value(kind)
                    .in_out(control)
                    .value(side.rows)
                    .launch_in(batch, dims)
            }
        }
    }

    fn probe(
        &self,
        sides: &Sides<'_>,
        table: &Table,
        control: &TrackedCudaSlice<u64>,
        matched: Option<&TrackedCudaSlice<u32>>,
        output: &Output,
        batch: &mut LaunchBatch<'_>,
    ) -> ResourceResult<()> {
        let (engine, stream, side) = (self.engine, self.stream, &sides.probe);
        let (valid, has_valid) = or_none(side.valid.as_ref());
        let (used, has_used) = or_none(side.used.as_ref());
        let (values, has_values) = or_none(side.values.as_ref());
        let (mask, kind) = (self.tuning.hash_mask, self.kind.code());
        let (matched, out_build) = (matched.map(TrackedCudaSlice::as_view), view(&output.build));
        let dims = dims(engine, side.rows, TILE);
        match (&side.keys, &sides.build.keys) {
            (SideKeys::Words(keys), _) => engine
                .launch(&kernels::PROBE_U32, stream)?
                .input(&keys.view())
                .input(&values)
                .value(has_values)
                .input(&valid)
                .value(has_valid)
                .input(&used)
                .value(has_used)
                .input(&table.entries)
                .value(table.capacity)
                .value(mask)
                .value(kind)
                .in_out(&matched)
                .in_out(control)
                .output(&view(&output.keys))
                .value(u32::from(output.keys.is_some()))
                .output(&out_build)
                .output(&output.probe)
                .value(side.rows)
                .launch_in(batch, dims),
            (
                SideKeys::Longs { keys, extra },
                SideKeys::Longs { keys: build_keys, extra: build_extra },
            ) => {
                let (extra, has_extra) = or_none(extra.as_ref());
                let (build_extra, _) = or_none(build_extra.as_ref());
                let (build_values, has_build) = or_none(sides.build.values.as_ref());
                engine
                    .launch(&kernels::PROBE_U64, stream)?
                    .input(&keys.view())
                    .input(&extra)
                    .input(&values)
                    .value(has_values)
                    .input(&valid)
                    .value(has_valid)
                    .input(&used)
                    .value(has_used)
                    .input(&build_keys.view())
                    .input(&build_extra)
                    .value(has_extra)
                    .input(&build_values)
                    .value(has_build)
                    .input(&table.entries)
                    .value(table.capacity)
                    .value(mask)
                    .value(kind)
                    .in_out(&matched)
                    .in_out(control)
                    .output(&out_build)
                    .output(&output.probe)
                    .value(side.rows)
                    .launch_in(batch, dims)
            }
            _ => Err("both sides of a join have keys of one size".into()),
        }
    }
}
