//! Small tables: one block finds what every probe row meets.

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{NONE, Values, control, kind, may_repeat};
use crate::primitives::hash::{Bits, FirstRows, SmallKey, length, long_keys, word_keys};

static MODULE: KernelModule =
    KernelModule { name: "small_join", ptx: include_str!("../../../../kernels/small_join.ptx") };

/// What every probe row with a 32-bit key meets.
pub(in super::super) static SMALL_U32: KernelDefinition = KernelDefinition {
    name: "xlog_join_small_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("build_keys", U32).counted_by(15),
        Parameter::input("build_values", U32).optional(),
        Parameter::value("has_build_values", U32),
        Parameter::input("build_valid", U32).optional(),
        Parameter::value("has_build_valid", U32),
        Parameter::input("probe_keys", U32).counted_by(16),
        Parameter::input("probe_valid", U32).optional(),
        Parameter::value("has_probe_valid", U32),
        Parameter::value("mask", U32),
        Parameter::value("kind", U32),
        Parameter::output("list", U32).counted_by(15),
        Parameter::output("starts", U64).counted_by(16),
        Parameter::output("ranges", U64).counted_by(16),
        Parameter::output("positions", U32).counted_by(16),
        Parameter::output("control", U64).elements(8),
        Parameter::value("build_rows", U64),
        Parameter::value("probe_rows", U64),
    ],
    host: HostKernel::of::<SmallWords>(),
};

struct SmallWords;

impl KernelBody for SmallWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (build_rows, probe_rows) = (length(call.value(15)?)?, length(call.value(16)?)?);
        let tables = Tables {
            build: word_keys(call, 0, build_rows)?,
            values: Values::of(call, 1, build_rows)?,
            build_valid: Bits::of(call, 3, build_rows)?,
            probe: word_keys(call, 5, probe_rows)?,
            probe_valid: Bits::of(call, 6, probe_rows)?,
        };
        tables.join(call, 9)
    }
}

/// What every probe row with a 64-bit key meets.
pub(in super::super) static SMALL_U64: KernelDefinition = KernelDefinition {
    name: "xlog_join_small_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("build_keys", U64).counted_by(16),
        Parameter::input("build_extra", U32).optional(),
        Parameter::input("build_valid", U32).optional(),
        Parameter::value("has_build_valid", U32),
        Parameter::input("probe_keys", U64).counted_by(17),
        Parameter::input("probe_extra", U32).optional(),
        Parameter::input("probe_valid", U32).optional(),
        Parameter::value("has_probe_valid", U32),
        Parameter::value("has_extra", U32),
        Parameter::value("mask", U32),
        Parameter::value("kind", U32),
        Parameter::output("list", U32).counted_by(16),
        Parameter::output("starts", U64).counted_by(17),
        Parameter::output("ranges", U64).counted_by(17),
        Parameter::output("positions", U32).counted_by(17),
        Parameter::output("control", U64).elements(8),
        Parameter::value("build_rows", U64),
        Parameter::value("probe_rows", U64),
    ],
    host: HostKernel::of::<SmallLongs>(),
};

struct SmallLongs;

impl KernelBody for SmallLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (build_rows, probe_rows) = (length(call.value(16)?)?, length(call.value(17)?)?);
        let extra = call.value::<u32>(8)? != 0;
        let tables = Tables {
            build: long_keys(call, 0, extra.then_some(1), build_rows)?,
            values: Values(None),
            build_valid: Bits::of(call, 2, build_rows)?,
            probe: long_keys(call, 4, extra.then_some(5), probe_rows)?,
            probe_valid: Bits::of(call, 6, probe_rows)?,
        };
        tables.join(call, 10)
    }
}

/// Both sides, as the host reads them.
struct Tables<'c, M> {
    build: Vec<SmallKey>,
    values: Values<'c, M>,
    build_valid: Bits<'c, M>,
    probe: Vec<SmallKey>,
    probe_valid: Bits<'c, M>,
}

impl<M: MemoryPolicy> Tables<'_, M> {
    /// `kind` is where that parameter stands; what is written follows it.
    fn join(&self, call: &KernelCall<'_, M>, kind: usize) -> Result<(), KernelFault> {
        let (build_rows, probe_rows) = (self.build.len(), self.probe.len());
        let (index, kind) = (kind + 1, call.value::<u32>(kind)?);
        let is_full = kind == kind::FULL;
        let list = call.output::<u32>(index, if is_full { 2 } else { 1 } * build_rows)?;
        let most = probe_rows + usize::from(is_full);
        let starts = call.output::<u64>(index + 1, most)?;
        let ranges = call.output::<u64>(index + 2, most)?;
        let positions = call.output::<u32>(index + 3, most)?;

        let mut table = FirstRows::new(build_rows);
        let first: Vec<u32> = (0..build_rows)
            .map(|row| match self.build_valid.get(row) {
                true => table.insert(self.build[row], row as u32),
                false => NONE,
            })
            .collect();
        // By first rows: where the rows of a key start, and how many there are.
        let mut parts = vec![(0u32, 0u32); build_rows];
        if !may_repeat(kind) {
            let known = || (0..build_rows).filter(|row| first[*row] != NONE);
            known().for_each(|row| parts[first[row] as usize].1 += 1);
            let mut listed = 0;
            for (start, count) in &mut parts {
                *start = listed;
                listed += std::mem::take(count);
            }
            for row in known() {
                let (start, count) = &mut parts[first[row] as usize];
                list.set((*start + *count) as usize, self.values.get(row));
                *count += 1;
            }
        }

        let mut met = vec![false; build_rows];
        let (mut matches, mut outputs) = (0, 0u64);
        let mut add = |(start, count): (u32, u32), position: u32| {
            if count > 0 {
                starts.set(matches, outputs);
                ranges.set(matches, u64::from(start) << 32 | u64::from(count));
                positions.set(matches, position);
                matches += 1;
                outputs += u64::from(count);
            }
        };
        for row in 0..probe_rows {
            let key = self.probe_valid.get(row).then(|| self.probe[row]);
            let partner = key.and_then(|key| table.find(key)).map(|first| first as usize);
            let range = match (partner, kind) {
                (Some(_), kind::SEMI) | (None, kind::LEFT | kind::FULL | kind::ANTI) => (NONE, 1),
                (Some(_), kind::ANTI) | (None, _) => (NONE, 0),
                (Some(first), _) => {
                    met[first] = true;
                    parts[first]
                }
            };
            add(range, row as u32);
        }
        if is_full {
            let is_met = |first: u32| met.get(first as usize).is_some_and(|met| *met);
            let lonely = (0..build_rows).filter(|row| !is_met(first[*row]));
            let count =
                lonely.zip(build_rows..).map(|(row, to)| list.set(to, self.values.get(row)));
            add((build_rows as u32, count.count() as u32), NONE);
        }
        let control = call.output::<u64>(index + 4, control::WORDS)?;
        control.fill(0);
        control.set(control::OUTPUT, outputs);
        control.set(control::MATCHES, matches as u64);
        Ok(())
    }
}
