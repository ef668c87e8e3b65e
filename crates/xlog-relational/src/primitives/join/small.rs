//! Small tables: one launch finds what every probe row meets, whatever the keys.

use xlog_cuda::{
    device_runtime::{ResourceError, ResourceResult},
    memory::Download,
};

use super::{JoinKind, Matches, Output, Plan, Sides, control, kernels};
use crate::primitives::hash::{ONE_BLOCK, SideKeys, or_none};

/// The most build rows: what the kernel's shared memory holds.
pub(super) const MOST_BUILD: u64 = 2048;
/// The most probe rows: with more, one block is what takes the time.
pub(super) const MOST_PROBE: u64 = 4096;

impl Plan<'_> {
    /// Whether one block does all of it.
    pub(super) fn is_small(&self, sides: &Sides<'_>) -> bool {
        self.tuning.one_block && sides.build.rows <= MOST_BUILD && sides.probe.rows <= MOST_PROBE
    }

    /// Waits for the device once.
    pub(super) fn small(&self, sides: &Sides<'_>) -> ResourceResult<(u64, Output)> {
        let (build, probe) = (&sides.build, &sides.probe);
        let full = self.kind == JoinKind::Full;
        // Build rows without a partner are listed once more, as those of one more probe row.
        let found = Matches {
            list: self.alloc(if full { 2 } else { 1 } * build.rows)?,
            starts: self.alloc(probe.rows + u64::from(full))?,
            ranges: self.alloc(probe.rows + u64::from(full))?,
            positions: self.alloc(probe.rows + u64::from(full))?,
        };
        let words = self.find(sides, &found)?.wait()?;
        let count = words[control::OUTPUT];
        if !self.kind.has_build() {
            // One output row for each probe row that has any.
            return Ok((count, Output { keys: None, build: None, probe: found.positions }));
        }
        let output = self.output(count)?;
        self.expand(sides, &found, (words[control::MATCHES], count), &output)?;
        Ok((count, output))
    }

    fn find(&self, sides: &Sides<'_>, found: &Matches) -> ResourceResult<Download<u64>> {
        let (engine, stream) = (self.engine, self.stream);
        let (build, probe) = (&sides.build, &sides.probe);
        let (build_valid, has_build_valid) = or_none(build.valid.as_ref());
        let (probe_valid, has_probe_valid) = or_none(probe.valid.as_ref());
        let (mask, kind) = (self.tuning.hash_mask, self.kind.code());
        match (&build.keys, &probe.keys) {
            (SideKeys::Words(build_keys), SideKeys::Words(probe_keys)) => {
                let (values, has_values) = or_none(build.values.as_ref());
                engine
                    .launch(&kernels::SMALL_U32, stream)?
                    .input(&build_keys.view())
                    .input(&values)
                    .value(has_values)
                    .input(&build_valid)
                    .value(has_build_valid)
                    .input(&probe_keys.view())
                    .input(&probe_valid)
                    .value(has_probe_valid)
                    .value(mask)
                    .value(kind)
                    .output(&found.list)
                    .output(&found.starts)
                    .output(&found.ranges)
                    .output(&found.positions)
                    .report::<u64>(control::WORDS)
                    .value(build.rows)
                    .value(probe.rows)
                    .launch_reporting(ONE_BLOCK)
            }
            (
                SideKeys::Longs { keys: build_keys, extra: build_extra },
                SideKeys::Longs { keys: probe_keys, extra: probe_extra },
            ) => {
                let (build_extra, has_extra) = or_none(build_extra.as_ref());
                let (probe_extra, _) = or_none(probe_extra.as_ref());
                engine
                    .launch(&kernels::SMALL_U64, stream)?
                    .input(&build_keys.view())
                    .input(&build_extra)
                    .input(&build_valid)
                    .value(has_build_valid)
                    .input(&probe_keys.view())
                    .input(&probe_extra)
                    .input(&probe_valid)
                    .value(has_probe_valid)
                    .value(has_extra)
                    .value(mask)
                    .value(kind)
                    .output(&found.list)
                    .output(&found.starts)
                    .output(&found.ranges)
                    .output(&found.positions)
                    .report::<u64>(control::WORDS)
                    .value(build.rows)
                    .value(probe.rows)
                    .launch_reporting(ONE_BLOCK)
            }
            _ => Err(ResourceError::from("both sides of a join have keys of one size")),
        }
    }
}
