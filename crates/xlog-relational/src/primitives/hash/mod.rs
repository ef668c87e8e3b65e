//! Keys and the tables they are looked up in.
//!
//! Any set of key columns becomes one word of 32 bits a row, or one of 64 with an optional third
//! half beside it, compared exactly. Columns that need more bits are folded: those so far are
//! replaced by the number of their slot in a table of distinct keys, which is 32 bits again.

mod first_rows;
mod host;
pub(super) mod kernels;
mod keys;
mod memory;
mod pairs;

pub use keys::{KeyColumn, KeyWords, Keys};
pub(super) use {
    first_rows::{FirstRows, ONE_BLOCK, SmallKey, long_keys, word_keys},
    host::{Bits, HostKeys, Longs, SPAN, Words, count_of, length, slot_after, slot_of},
    keys::{Prepared, Purpose, SideKeys, prepare, prepare_alone, words_of_keys},
    memory::{Memory, or_none},
    pairs::Pairs,
};

use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceError, ResourceResult},
    launch::LaunchBatch,
    memory::{SliceView, TrackedCudaSlice},
};

use crate::Engine;

/// How the hashed primitives go about it, for tests and measurements; the results are the same.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bits of each hash that are used. Zero puts every key into one chain.
    pub hash_mask: u32,
    /// From how many build rows on both sides of a join are split into parts first; `None` for what
    /// suits the device.
    pub split_from: Option<u64>,
    /// The most slots a group-by first tries with; more groups than fit take a second round.
    pub first_slots: u64,
    /// Whether one block does all of the work on tables that are small enough for that.
    pub one_block: bool,
}

impl Tuning {
    /// What suits the device.
    pub const DEFAULT: Self =
        Self { hash_mask: u32::MAX, split_from: None, first_slots: 1 << 22, one_block: true };
}

impl Default for Tuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The most rows of one side: slots and positions are 32-bit words, and tables have twice as many
/// slots as rows.
const MOST_ROWS: u64 = (1 << 31) - 64;

pub(super) fn check_rows(rows: u64, what: &str) -> ResourceResult<usize> {
    if rows > MOST_ROWS {
        return Err(ResourceError::StreamMisuse(format!(
            "{what} has {rows} rows; hashed operators take {MOST_ROWS} at most, so split it"
        )));
    }
    usize::try_from(rows).map_err(|_| format!("{what}: {rows} rows do not fit this machine").into())
}

/// Threads of a block in every kernel here.
const THREADS: u32 = 256;
/// Rows a block takes at a time in most kernels.
pub(super) const TILE: u64 = 1024;

/// Blocks for `rows` rows of which each takes `tile`: no more than the device runs at once, so that
/// several streams share it.
pub(super) fn dims(engine: &Engine, rows: u64, tile: u64) -> LaunchDims {
    let most = u64::from(engine.runtime().device().info().multiprocessors.max(1)) * 8;
    let blocks = rows.div_ceil(tile).clamp(1, most);
    LaunchDims::linear(u32::try_from(blocks).unwrap_or(u32::MAX), THREADS)
}

/// A table of distinct keys.
pub(super) struct Table {
    pub(super) entries: TrackedCudaSlice<u64>,
    pub(super) capacity: u64,
}

impl Table {
    /// A table of `capacity` slots, empty once a batch has run.
    pub(super) fn new(
        engine: &Engine,
        batch: &mut LaunchBatch<'_>,
        capacity: u64,
    ) -> ResourceResult<Self> {
        let slots = usize::try_from(capacity)
            .map_err(|_| format!("a table of {capacity} slots does not fit this machine"))?;
        let entries = engine.alloc::<u64>(slots, batch.stream(), "hash table")?;
        batch.fill_bytes(&entries.as_view(), 0xff)?;
        Ok(Self { entries, capacity })
    }

    /// Slots for `rows` rows at most half full.
    pub(super) fn slots_for(rows: u64) -> u64 {
        (2 * rows).max(64)
    }

    /// Has a batch insert the keys of `side`; `slots[i]` becomes the slot of row `i`, all ones
    /// without a key. `full` becomes 1 if a key found no place within `farthest` slots.
    #[expect(clippy::too_many_arguments, reason = "one launch, argument by argument")]
    pub(super) fn insert(
        &self,
        engine: &Engine,
        batch: &mut LaunchBatch<'_>,
        side: &Prepared<'_>,
        farthest: u64,
        mask: u32,
        slots: &TrackedCudaSlice<u32>,
        full: &SliceView<'_, u32>,
    ) -> ResourceResult<()> {
        let stream = batch.stream();
        let (valid, has_valid) = or_none(side.valid.as_ref());
        let (used, has_used) = or_none(side.used.as_ref());
        let dims = dims(engine, side.rows, TILE);
        match &side.keys {
            SideKeys::Words(keys) => engine
                .launch(&kernels::INSERT_U32, stream)?
                .input(&keys.view())
                .input(&valid)
                .value(has_valid)
                .input(&used)
                .value(has_used)
                .in_out(&self.entries)
                .value(self.capacity)
                .value(farthest)
                .value(mask)
                .output(slots)
                .in_out(full)
                .value(side.rows)
                .launch_in(batch, dims),
            SideKeys::Longs { keys, extra } => {
                let (extra, has_extra) = or_none(extra.as_ref());
                engine
                    .launch(&kernels::INSERT_U64, stream)?
                    .input(&keys.view())
                    .input(&extra)
                    .value(has_extra)
                    .input(&valid)
                    .value(has_valid)
                    .input(&used)
                    .value(has_used)
                    .in_out(&self.entries)
                    .value(self.capacity)
                    .value(farthest)
                    .value(mask)
                    .output(slots)
                    .in_out(full)
                    .value(side.rows)
                    .launch_in(batch, dims)
            }
        }
    }
}
