//! The short way: a table of build keys that do not repeat, and one look for each probe row.

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy, Output},
};

use super::{EMPTY, MODULE, NONE, Values, control, find, kind, may_repeat, rows_of};
use crate::primitives::hash::{Bits, HostKeys, Longs, SPAN, Words, length, slot_after, slot_of};

/// The table of (key, value) for 32-bit keys.
pub(in super::super) static BUILD_U32: KernelDefinition = KernelDefinition {
    name: "xlog_join_build_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U32).counted_by(12),
        Parameter::input("values", U32).optional(),
        Parameter::value("has_values", U32),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::in_out("table", U64).counted_by(8),
        Parameter::value("capacity", U64),
        Parameter::value("mask", U32),
        Parameter::value("kind", U32),
        Parameter::in_out("control", U64).elements(8),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<BuildWords>(),
};

struct BuildWords;

impl KernelBody for BuildWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(12)?)?;
        let keys = Words { keys: call.input(0, n)?, mask: call.value(9)? };
        let values = Values::of(call, 1, n)?;
        let (valid, count) = rows_of(call, 3, n)?;
        let capacity = length(call.value(8)?)?;
        let table = (call.input(7, capacity)?, call.output(7, capacity)?);
        let mut ones = None;
        let fresh = build(&keys, &valid, count, &table, may_repeat(call.value(10)?), |at, key| {
            if key != NONE {
                return Some(values.get(at));
            }
            let first = ones.is_none();
            ones = Some((values.get(at), ones.map_or(1, |(_, rows)| rows + 1)));
            if first { None } else { Some(NONE) }
        });
        let control = call.output::<u64>(11, control::WORDS)?;
        if let Some((value, rows)) = ones {
            control.set(control::ONES_COUNT, rows);
            control.set(control::ONES_VALUE, u64::from(value));
        }
        if !fresh {
            control.set(control::REPEATS, 1);
        }
        Ok(())
    }
}

/// The table of (half of the hash, position) for 64-bit keys.
pub(in super::super) static BUILD_U64: KernelDefinition = KernelDefinition {
    name: "xlog_join_build_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U64).counted_by(12),
        Parameter::input("extra", U32).optional(),
        Parameter::value("has_extra", U32),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::in_out("table", U64).counted_by(8),
        Parameter::value("capacity", U64),
        Parameter::value("mask", U32),
        Parameter::value("kind", U32),
        Parameter::in_out("control", U64).elements(8),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<BuildLongs>(),
};

struct BuildLongs;

impl KernelBody for BuildLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(12)?)?;
        let extra = if call.value::<u32>(2)? == 0 { None } else { Some(call.input(1, n)?) };
        let keys = Longs { keys: call.input(0, n)?, extra, mask: call.value(9)? };
        let (valid, count) = rows_of(call, 3, n)?;
        let capacity = length(call.value(8)?)?;
        let table = (call.input(7, capacity)?, call.output(7, capacity)?);
        let repeat = may_repeat(call.value(10)?);
        if !build(&keys, &valid, count, &table, repeat, |at, _| Some(at as u32)) {
            call.output::<u64>(11, control::WORDS)?.set(control::REPEATS, 1);
        }
        Ok(())
    }
}

/// Puts each row's key with the low half that `low` gives into the table; `low` keeps a row out of
/// it with `None`. False if a key came twice and must not.
fn build<K: HostKeys, M: MemoryPolicy>(
    keys: &K,
    valid: &Bits<'_, M>,
    count: usize,
    table: &(Input<'_, u64, M>, Output<'_, u64, M>),
    may_repeat: bool,
    mut low: impl FnMut(usize, K::Key) -> Option<u32>,
) -> bool {
    let (entries, out) = table;
    let capacity = entries.len();
    let mut key = [K::Key::default(); SPAN];
    let mut first = [0usize; SPAN];
    for start in (0..count).step_by(SPAN) {
        let span = SPAN.min(count - start);
        for k in 0..span {
            key[k] = keys.key(start + k);
            first[k] = slot_of(keys.hash(key[k]), capacity);
            entries.prefetch(first[k]);
        }
        for k in 0..span {
            if !valid.get(start + k) {
                continue;
            }
            let tag = keys.tag(key[k]);
            let Some(low) = low(start + k, key[k]) else { continue };
            let mine = u64::from(tag) << 32 | u64::from(low);
            if mine == EMPTY {
                // A second row whose 32-bit key is all ones.
                if may_repeat {
                    continue;
                }
                return false;
            }
            let mut slot = first[k];
            loop {
                let entry = entries.get(slot);
                if entry == EMPTY {
                    out.set(slot, mine);
                    break;
                }
                if (entry >> 32) as u32 == tag && keys.same(key[k], entry as u32 as usize) {
                    if may_repeat {
                        break;
                    }
                    return false;
                }
                slot = slot_after(slot, capacity);
            }
        }
    }
    true
}

/// The output of each probe row with a 32-bit key.
pub(in super::super) static PROBE_U32: KernelDefinition = KernelDefinition {
    name: "xlog_join_probe_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U32).counted_by(17),
        Parameter::input("values", U32).optional(),
        Parameter::value("has_values", U32),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::input("table", U64).counted_by(8),
        Parameter::value("capacity", U64),
        Parameter::value("mask", U32),
        Parameter::value("kind", U32),
        Parameter::in_out("matched", U32).optional(),
        Parameter::in_out("control", U64).elements(8),
        Parameter::output("out_keys", U32).optional(),
        Parameter::value("has_out_keys", U32),
        Parameter::output("out_build", U32).optional(),
        Parameter::output("out_probe", U32).counted_by(17),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<ProbeWords>(),
};

struct ProbeWords;

impl KernelBody for ProbeWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let control = call.input::<u64>(12, control::WORDS)?;
        if control.get(control::REPEATS) != 0 {
            return Ok(());
        }
        let n = length(call.value(17)?)?;
        let keys = Words { keys: call.input(0, n)?, mask: call.value(9)? };
        let (valid, count) = rows_of(call, 3, n)?;
        let table = call.input(7, length(call.value(8)?)?)?;
        let kind = call.value::<u32>(10)?;
        let ones = (control.get(control::ONES_COUNT) != 0)
            .then(|| control.get(control::ONES_VALUE) as u32);
        let has_out_keys = call.value::<u32>(14)? != 0;
        let writer = Writer {
            values: Values::of(call, 1, n)?,
            keys: if has_out_keys { Some(call.output(13, n)?) } else { None },
            build: if may_repeat(kind) { None } else { Some(call.output(15, n)?) },
            probe: call.output(16, n)?,
            matched: Matched::of(call, 11, kind)?,
            kind,
            start: length(control.get(control::OUTPUT))?,
        };
        let count = writer.run(
            (&keys, &keys),
            &valid,
            count,
            &table,
            |key, entry| if key == NONE { ones } else { entry.map(|entry| entry as u32) },
            |key| key,
        );
        call.output::<u64>(12, control::WORDS)?.set(control::OUTPUT, count as u64);
        Ok(())
    }
}

/// The output of each probe row with a 64-bit key.
pub(in super::super) static PROBE_U64: KernelDefinition = KernelDefinition {
    name: "xlog_join_probe_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U64).counted_by(21),
        Parameter::input("extra", U32).optional(),
        Parameter::input("values", U32).optional(),
        Parameter::value("has_values", U32),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::input("build_keys", U64),
        Parameter::input("build_extra", U32).optional(),
        Parameter::value("has_extra", U32),
        Parameter::input("build_values", U32).optional(),
        Parameter::value("has_build_values", U32),
        Parameter::input("table", U64).counted_by(14),
        Parameter::value("capacity", U64),
        Parameter::value("mask", U32),
        Parameter::value("kind", U32),
        Parameter::in_out("matched", U32).optional(),
        Parameter::in_out("control", U64).elements(8),
        Parameter::output("out_build", U32).optional(),
        Parameter::output("out_probe", U32).counted_by(21),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<ProbeLongs>(),
};

struct ProbeLongs;

impl KernelBody for ProbeLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let control = call.input::<u64>(18, control::WORDS)?;
        if control.get(control::REPEATS) != 0 {
            return Ok(());
        }
        let n = length(call.value(21)?)?;
        let (capacity, mask) = (length(call.value(14)?)?, call.value(15)?);
        // Nobody says how many build rows there are; entries name none beyond them.
        let build_rows = capacity;
        let has_extra = call.value::<u32>(10)? != 0;
        let extra = |index, rows| -> Result<_, KernelFault> {
            Ok(if has_extra { Some(call.input(index, rows)?) } else { None })
        };
        let probe = Longs { keys: call.input(0, n)?, extra: extra(1, n)?, mask };
        let build = Longs { keys: call.input(8, build_rows)?, extra: extra(9, build_rows)?, mask };
        let build_values = Values::of(call, 11, build_rows)?;
        let (valid, count) = rows_of(call, 4, n)?;
        let table = call.input(13, capacity)?;
        let kind = call.value::<u32>(16)?;
        let writer = Writer {
            values: Values::of(call, 2, n)?,
            keys: None,
            build: if may_repeat(kind) { None } else { Some(call.output(19, n)?) },
            probe: call.output(20, n)?,
            matched: Matched::of(call, 17, kind)?,
            kind,
            start: length(control.get(control::OUTPUT))?,
        };
        let count = writer.run(
            (&build, &probe),
            &valid,
            count,
            &table,
            |_, entry| {
                let at = entry? as u32 as usize;
                Some(if may_repeat(kind) { NONE } else { build_values.get(at) })
            },
            |_| 0,
        );
        call.output::<u64>(18, control::WORDS)?.set(control::OUTPUT, count as u64);
        Ok(())
    }
}

/// Marks of build rows that found a partner; only a full join has them.
struct Matched<'c, M>(Option<(Input<'c, u32, M>, Output<'c, u32, M>)>);

impl<'c, M: MemoryPolicy> Matched<'c, M> {
    fn of(call: &'c KernelCall<'_, M>, index: usize, kind: u32) -> Result<Self, KernelFault> {
        // A build row's number has 32 bits; the words that are touched are those of rows there are.
        let words = 1 << 27;
        Ok(Self(if kind == kind::FULL {
            Some((call.input(index, words)?, call.output(index, words)?))
        } else {
            None
        }))
    }

    #[inline(always)]
    fn set(&self, row: u32) {
        if let Some((bits, out)) = &self.0 {
            let word = row as usize / 32;
            out.set(word, bits.get(word) | 1 << (row % 32));
        }
    }
}

/// Where the short way's output goes.
struct Writer<'c, M> {
    values: Values<'c, M>,
    keys: Option<Output<'c, u32, M>>,
    build: Option<Output<'c, u32, M>>,
    probe: Output<'c, u32, M>,
    matched: Matched<'c, M>,
    kind: u32,
    start: usize,
}

impl<M: MemoryPolicy> Writer<'_, M> {
    /// Looks every row up and writes what it yields; where the output ends.
    fn run<K: HostKeys>(
        &self,
        (build, probe): (&K, &K),
        valid: &Bits<'_, M>,
        count: usize,
        table: &Input<'_, u64, M>,
        partner: impl Fn(K::Key, Option<u64>) -> Option<u32>,
        word: impl Fn(K::Key) -> u32,
    ) -> usize {
        let capacity = table.len();
        let mut to = self.start;
        let mut key = [K::Key::default(); SPAN];
        let mut first = [0usize; SPAN];
        let (mut out_keys, mut out_build, mut out_probe) = ([0; SPAN], [0; SPAN], [0; SPAN]);
        for start in (0..count).step_by(SPAN) {
            let span = SPAN.min(count - start);
            for k in 0..span {
                key[k] = probe.key(start + k);
                first[k] = slot_of(probe.hash(key[k]), capacity);
                table.prefetch(first[k]);
            }
            for k in 0..span {
                let entry = table.get(first[k]);
                if (entry >> 32) as u32 == probe.tag(key[k]) {
                    build.prefetch(entry as u32 as usize);
                }
            }
            let mut taken = 0;
            for k in 0..span {
                if !valid.get(start + k) {
                    continue;
                }
                let entry = find(build, key[k], probe.tag(key[k]), table, first[k]);
                let partner = partner(key[k], entry.map(|(entry, _)| entry));
                if let Some(row) = partner {
                    self.matched.set(row);
                }
                let wanted = match self.kind {
                    kind::LEFT | kind::FULL => true,
                    kind::ANTI => partner.is_none(),
                    _ => partner.is_some(),
                };
                if wanted {
                    out_keys[taken] = word(key[k]);
                    out_build[taken] = partner.unwrap_or(NONE);
                    out_probe[taken] = self.values.get(start + k);
                    taken += 1;
                }
            }
            if let Some(keys) = &self.keys {
                keys.write_from(to, &out_keys[..taken]);
            }
            if let Some(build) = &self.build {
                build.write_from(to, &out_build[..taken]);
            }
            self.probe.write_from(to, &out_probe[..taken]);
            to += taken;
        }
        to
    }
}
