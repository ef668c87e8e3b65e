//! A build side that is made once and looked up many times.

use xlog_cuda::{
    device_runtime::{ResourceError, ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};

use super::{JoinKind, JoinRows, Plan, Sides, kernels::control};
use crate::{
    Engine,
    primitives::hash::{Keys, Prepared, Table, Tuning, prepare_alone},
};

/// A table of build rows whose keys do not repeat.
pub struct BuiltSide {
    kind: JoinKind,
    table: Table,
    /// What building left there, from which every probe starts.
    control: TrackedCudaSlice<u64>,
    /// Keys of several columns, as words.
    packed: Option<Prepared<'static>>,
    rows: u64,
}

impl std::fmt::Debug for BuiltSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, rows, .. } = self;
        f.debug_struct("BuiltSide").field("kind", kind).field("rows", rows).finish_non_exhaustive()
    }
}

impl BuiltSide {
    /// The build side of joins of a kind. `None` if there is none that [`probe`](Self::probe) could
    /// use: keys repeat (which semi and anti joins do not mind), they have more than 96 bits, or
    /// the join is a full one, whose last rows are known when all others are.
    ///
    /// Waits for the device once.
    pub fn new(
        engine: &Engine,
        stream: StreamId,
        kind: JoinKind,
        build: &Keys<'_>,
    ) -> ResourceResult<Option<Self>> {
        build.check("the build side")?;
        let plan = Plan::of(engine, stream, kind)?;
        let mask = plan.tuning.hash_mask;
        let side = prepare_alone(engine, stream, build, mask)?;
        let Some(side) = side.filter(|_| kind != JoinKind::Full) else { return Ok(None) };
        let mut batch = engine.batch(stream);
        let control = plan.zeroed_in(&mut batch, control::WORDS)?;
        let table = Table::new(engine, &mut batch, Table::slots_for(side.rows))?;
        plan.build(&side, &table, &control, &mut batch)?;
        let words = batch.submit_and_download(&control.as_view())?.wait()?;
        if words[control::REPEATS] != 0 {
            return Ok(None);
        }
        let (rows, packed) = (side.rows, side.into_own());
        Ok(Some(Self { kind, table, control, packed, rows }))
    }

    /// Joins it with `probe`, as [`join`](super::join) does. `build` are the keys it was made from.
    ///
    /// Waits for the device once, to learn the number of rows.
    pub fn probe(
        &self,
        engine: &Engine,
        stream: StreamId,
        build: &Keys<'_>,
        probe: &Keys<'_>,
    ) -> ResourceResult<JoinRows> {
        build.check("the build side")?;
        probe.check("the probe side")?;
        let plan = Plan::of(engine, stream, self.kind)?;
        let mask = plan.tuning.hash_mask;
        let prepared = |keys| prepare_alone(engine, stream, keys, mask);
        let own = match &self.packed {
            Some(packed) => Some(packed.lent()),
            None => prepared(build)?,
        };
        let (Some(own), Some(probe)) = (own, prepared(probe)?) else {
            return Err(ResourceError::StreamMisuse(
                "both sides of a join need as many key columns, of the same word sizes".into(),
            ));
        };
        if build.rows != self.rows || !own.keys.are_like(&probe.keys) {
            return Err(ResourceError::StreamMisuse(format!(
                "a side built from {} rows was probed with the keys of {}, or with keys of other \
                 word sizes; hand in those that it was made from",
                self.rows, build.rows
            )));
        }
        let sides = Sides { nulls: None, build: own, probe };
        let control = plan.alloc::<u64>(control::WORDS as u64)?;
        let mut batch = engine.batch(stream);
        batch.copy(&self.control.as_view(), &control.as_view())?;
        let output = plan.look_up(&sides, &self.table, &control, &mut batch)?;
        let words = batch.submit_and_download(&control.as_view())?.wait()?;
        let count = words[control::OUTPUT];
        Ok(JoinRows { count, build: output.build, probe: output.probe })
    }
}

impl<'p> Plan<'p> {
    fn of(engine: &'p Engine, stream: StreamId, kind: JoinKind) -> ResourceResult<Self> {
        let tuning = Tuning::default();
        Ok(Self { engine, stream, kind, tuning, emit_keys: false })
    }
}
