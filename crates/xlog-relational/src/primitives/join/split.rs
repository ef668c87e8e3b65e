//! Both sides in the order of parts.

use xlog_cuda::device_runtime::ResourceResult;

use super::{Plan, Sides, kernels};
use crate::primitives::hash::{Memory, Prepared, SideKeys, dims};

/// Rows a block sorts at a time.
const WORDS_TILE: u64 = 4096;
const LONGS_TILE: u64 = 2048;

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
        let (engine, stream, rows) = (self.engine, self.stream, side.rows);
        let mask = self.tuning.hash_mask;
        let counts = self.zeroed::<u32>(257)?;
        let cursors = self.zeroed::<u32>(256)?;
        let out_values = self.alloc::<u32>(rows)?;
        let keys = {
            let (valid, has_valid) = self.absent.or(side.valid.as_ref());
            let (values, has_values) = self.absent.or(side.values.as_ref());
            match &side.keys {
                SideKeys::Words(keys) => {
                    engine
                        .launch(&kernels::HISTOGRAM_U32, stream)?
                        .input(&keys.view())
                        .input(&valid)
                        .value(has_valid)
                        .value(mask)
                        .in_out(&counts)
                        .value(rows)
                        .launch(dims(engine, rows, WORDS_TILE))?;
                    let out_keys = self.alloc::<u32>(rows)?;
                    engine
                        .launch(&kernels::SCATTER_U32, stream)?
                        .input(&keys.view())
                        .input(&values)
                        .value(has_values)
                        .input(&valid)
                        .value(has_valid)
                        .value(mask)
                        .input(&counts)
                        .in_out(&cursors)
                        .output(&out_keys)
                        .output(&out_values)
                        .value(rows)
                        .launch(dims(engine, rows, WORDS_TILE))?;
                    SideKeys::Words(Memory::Own(out_keys))
                }
                SideKeys::Longs { keys, .. } => {
                    engine
                        .launch(&kernels::HISTOGRAM_U64, stream)?
                        .input(&keys.view())
                        .input(&valid)
                        .value(has_valid)
                        .value(mask)
                        .in_out(&counts)
                        .value(rows)
                        .launch(dims(engine, rows, LONGS_TILE))?;
                    let out_keys = self.alloc::<u64>(rows)?;
                    engine
                        .launch(&kernels::SCATTER_U64, stream)?
                        .input(&keys.view())
                        .input(&values)
                        .value(has_values)
                        .input(&valid)
                        .value(has_valid)
                        .value(mask)
                        .input(&counts)
                        .in_out(&cursors)
                        .output(&out_keys)
                        .output(&out_values)
                        .value(rows)
                        .launch(dims(engine, rows, LONGS_TILE))?;
                    SideKeys::Longs { keys: Memory::Own(out_keys), extra: None }
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
}
