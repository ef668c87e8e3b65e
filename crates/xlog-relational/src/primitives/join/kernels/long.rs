//! The long way: the build rows of each key listed side by side, and every output row found by
//! itself.

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{MODULE, NONE, TILE, Values, control, find, kind, rows_of};
use crate::primitives::hash::{HostKeys, Longs, Words, count_of, length, slot_of};

/// How many rows of its slot came before each row, and how many each slot has.
pub(in super::super) static RANK: KernelDefinition = KernelDefinition {
    name: "xlog_join_rank",
    module: &MODULE,
    parameters: &[
        Parameter::input("slots", U32).counted_by(5),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::in_out("ranges", U64),
        Parameter::output("ranks", U32).counted_by(5),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Rank>(),
};

/// Slots a kernel may find named: as many as a 32-bit word can name.
const ANY_SLOT: usize = u32::MAX as usize;

struct Rank;

impl KernelBody for Rank {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(5)?)?;
        let (slots, ranks) = (call.input::<u32>(0, n)?, call.output::<u32>(4, n)?);
        let (ranges, out) = (call.input::<u64>(3, ANY_SLOT)?, call.output::<u64>(3, ANY_SLOT)?);
        for at in 0..count_of(call, 1, n)? {
            let slot = slots.get(at);
            if slot != NONE {
                let before = ranges.get(slot as usize);
                ranks.set(at, before as u32);
                out.set(slot as usize, before + 1);
            }
        }
        Ok(())
    }
}

/// Where the list of each slot starts.
pub(in super::super) static OFFSETS: KernelDefinition = KernelDefinition {
    name: "xlog_join_offsets",
    module: &MODULE,
    parameters: &[
        Parameter::in_out("ranges", U64).counted_by(1),
        Parameter::value("capacity", U64),
        Parameter::in_out("control", U64).elements(8),
    ],
    host: HostKernel::of::<Offsets>(),
};

struct Offsets;

impl KernelBody for Offsets {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let capacity = length(call.value(1)?)?;
        let (ranges, out) = (call.input::<u64>(0, capacity)?, call.output::<u64>(0, capacity)?);
        let mut start = call.input::<u64>(2, control::WORDS)?.get(control::LISTED);
        ranges.for_each_piece(|first, piece| {
            for (slot, &count) in piece.iter().enumerate().filter(|(_, count)| **count != 0) {
                out.set(first + slot, start << 32 | count);
                start += count;
            }
        });
        call.output::<u64>(2, control::WORDS)?.set(control::LISTED, start);
        Ok(())
    }
}

/// The build rows' values, those of one key side by side.
pub(in super::super) static PLACE: KernelDefinition = KernelDefinition {
    name: "xlog_join_place",
    module: &MODULE,
    parameters: &[
        Parameter::input("slots", U32).counted_by(8),
        Parameter::input("ranks", U32).counted_by(8),
        Parameter::input("ranges", U64),
        Parameter::input("values", U32).optional(),
        Parameter::value("has_values", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::output("list", U32).counted_by(8),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Place>(),
};

struct Place;

impl KernelBody for Place {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(8)?)?;
        let (slots, ranks) = (call.input::<u32>(0, n)?, call.input::<u32>(1, n)?);
        let (ranges, values) = (call.input::<u64>(2, ANY_SLOT)?, Values::of(call, 3, n)?);
        let list = call.output::<u32>(7, n)?;
        for at in 0..count_of(call, 5, n)? {
            let slot = slots.get(at);
            if slot != NONE {
                let start = (ranges.get(slot as usize) >> 32) as usize;
                list.set(start + ranks.get(at) as usize, values.get(at));
            }
        }
        Ok(())
    }
}

/// Which part of the list each probe row with a 32-bit key meets.
pub(in super::super) static MATCH_U32: KernelDefinition = KernelDefinition {
    name: "xlog_join_match_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U32).counted_by(14),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::input("table", U64).counted_by(6),
        Parameter::value("capacity", U64),
        Parameter::value("mask", U32),
        Parameter::input("ranges", U64).counted_by(6),
        Parameter::value("kind", U32),
        Parameter::in_out("matched", U32).optional(),
        Parameter::output("row_ranges", U64).counted_by(14),
        Parameter::output("tile_matches", U32),
        Parameter::output("tile_outputs", U64),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<MatchWords>(),
};

struct MatchWords;

impl KernelBody for MatchWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(14)?)?;
        let keys = Words { keys: call.input(0, n)?, mask: call.value(7)? };
        matches(call, &keys, &keys, n, 1, 5)
    }
}

/// Which part of the list each probe row with a 64-bit key meets.
pub(in super::super) static MATCH_U64: KernelDefinition = KernelDefinition {
    name: "xlog_join_match_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U64).counted_by(18),
        Parameter::input("extra", U32).optional(),
        Parameter::input("valid", U32).optional(),
        Parameter::value("has_valid", U32),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::input("build_keys", U64),
        Parameter::input("build_extra", U32).optional(),
        Parameter::value("has_extra", U32),
        Parameter::input("table", U64).counted_by(10),
        Parameter::value("capacity", U64),
        Parameter::value("mask", U32),
        Parameter::input("ranges", U64).counted_by(10),
        Parameter::value("kind", U32),
        Parameter::in_out("matched", U32).optional(),
        Parameter::output("row_ranges", U64).counted_by(18),
        Parameter::output("tile_matches", U32),
        Parameter::output("tile_outputs", U64),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<MatchLongs>(),
};

struct MatchLongs;

impl KernelBody for MatchLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(18)?)?;
        let (build_rows, mask) = (length(call.value(10)?)?, call.value(11)?);
        let has_extra = call.value::<u32>(8)? != 0;
        let extra = |index, rows| -> Result<_, KernelFault> {
            Ok(if has_extra { Some(call.input(index, rows)?) } else { None })
        };
        let probe = Longs { keys: call.input(0, n)?, extra: extra(1, n)?, mask };
        let build = Longs { keys: call.input(6, build_rows)?, extra: extra(7, build_rows)?, mask };
        matches(call, &build, &probe, n, 2, 9)
    }
}

/// `rows` and `table` are where those parameters start; the rest follows the table.
fn matches<K: HostKeys, M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    build: &K,
    probe: &K,
    n: usize,
    rows: usize,
    table: usize,
) -> Result<(), KernelFault> {
    let (valid, count) = rows_of(call, rows, n)?;
    let capacity = length(call.value(table + 1)?)?;
    let entries = call.input(table, capacity)?;
    let ranges = call.input::<u64>(table + 3, capacity)?;
    let kind = call.value::<u32>(table + 4)?;
    let words = if kind == kind::FULL { capacity.div_ceil(32) } else { 0 };
    let marks = (call.input::<u32>(table + 5, words)?, call.output::<u32>(table + 5, words)?);
    let row_ranges = call.output::<u64>(table + 6, n)?;
    let tiles = n.div_ceil(TILE);
    let tile_matches = call.output::<u32>(table + 7, tiles)?;
    let tile_outputs = call.output::<u64>(table + 8, tiles)?;
    for tile in 0..tiles {
        let (mut matched, mut outputs) = (0u32, 0u64);
        for at in tile * TILE..count.min((tile + 1) * TILE) {
            let mut range = 0;
            if valid.get(at) {
                let key = probe.key(at);
                let first = slot_of(probe.hash(key), capacity);
                if let Some((_, slot)) = find(build, key, probe.tag(key), &entries, first) {
                    range = ranges.get(slot);
                    if kind == kind::FULL {
                        marks.1.set(slot / 32, marks.0.get(slot / 32) | 1 << (slot % 32));
                    }
                } else if kind != kind::INNER {
                    range = u64::from(NONE) << 32 | 1;
                }
            }
            row_ranges.set(at, range);
            matched += u32::from(range as u32 != 0);
            outputs += u64::from(range as u32);
        }
        tile_matches.set(tile, matched);
        tile_outputs.set(tile, outputs);
    }
    Ok(())
}

/// The sums before each tile, and those of all.
pub(in super::super) static SCAN: KernelDefinition = KernelDefinition {
    name: "xlog_join_scan",
    module: &MODULE,
    parameters: &[
        Parameter::in_out("tile_matches", U32).counted_by(3),
        Parameter::in_out("tile_outputs", U64).counted_by(3),
        Parameter::in_out("control", U64).elements(8),
        Parameter::value("tiles", U64),
    ],
    host: HostKernel::of::<Scan>(),
};

struct Scan;

impl KernelBody for Scan {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let tiles = length(call.value(3)?)?;
        let (matches, outputs) = (call.input::<u32>(0, tiles)?, call.input::<u64>(1, tiles)?);
        let (out_matches, out_outputs) =
            (call.output::<u32>(0, tiles)?, call.output::<u64>(1, tiles)?);
        let (mut all_matches, mut all_outputs) = (0u64, 0u64);
        for tile in 0..tiles {
            let (mine, output) = (matches.get(tile), outputs.get(tile));
            out_matches.set(tile, all_matches as u32);
            out_outputs.set(tile, all_outputs);
            all_matches += u64::from(mine);
            all_outputs += output;
        }
        let control = call.output::<u64>(2, control::WORDS)?;
        control.set(control::OUTPUT, all_outputs);
        control.set(control::MATCHES, all_matches);
        Ok(())
    }
}

/// The probe rows that have output, side by side.
pub(in super::super) static COMPACT: KernelDefinition = KernelDefinition {
    name: "xlog_join_compact",
    module: &MODULE,
    parameters: &[
        Parameter::input("row_ranges", U64).counted_by(8),
        Parameter::input("used", U32).optional(),
        Parameter::value("has_used", U32),
        Parameter::input("tile_matches", U32),
        Parameter::input("tile_outputs", U64),
        Parameter::output("starts", U64).counted_by(8),
        Parameter::output("ranges", U64).counted_by(8),
        Parameter::output("positions", U32).counted_by(8),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Compact>(),
};

struct Compact;

impl KernelBody for Compact {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(8)?)?;
        let count = count_of(call, 1, n)?;
        let row_ranges = call.input::<u64>(0, n)?;
        let tiles = n.div_ceil(TILE);
        let matches = call.input::<u32>(3, tiles)?;
        let outputs = call.input::<u64>(4, tiles)?;
        let (starts, ranges) = (call.output::<u64>(5, n)?, call.output::<u64>(6, n)?);
        let positions = call.output::<u32>(7, n)?;
        for tile in 0..count.div_ceil(TILE) {
            let (mut to, mut start) = (matches.get(tile) as usize, outputs.get(tile));
            for at in tile * TILE..count.min((tile + 1) * TILE) {
                let range = row_ranges.get(at);
                if range as u32 != 0 {
                    starts.set(to, start);
                    ranges.set(to, range);
                    positions.set(to, at as u32);
                    start += u64::from(range as u32);
                    to += 1;
                }
            }
        }
        Ok(())
    }
}

/// Every output row.
pub(in super::super) static EXPAND: KernelDefinition = KernelDefinition {
    name: "xlog_join_expand",
    module: &MODULE,
    parameters: &[
        Parameter::input("starts", U64),
        Parameter::input("ranges", U64),
        Parameter::input("positions", U32),
        Parameter::input("list", U32),
        Parameter::input("values", U32).optional(),
        Parameter::value("has_values", U32),
        Parameter::value("rows", U64),
        Parameter::input("keys", U32).optional(),
        Parameter::value("has_keys", U32),
        Parameter::output("out_keys", U32).optional(),
        Parameter::output("out_build", U32).counted_by(12),
        Parameter::output("out_probe", U32).counted_by(12),
        Parameter::value("outputs", U64),
    ],
    host: HostKernel::of::<Expand>(),
};

struct Expand;

impl KernelBody for Expand {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let outputs = length(call.value(12)?)?;
        let rows = length(call.value(6)?)?;
        let (ranges, positions) = (call.input::<u64>(1, rows)?, call.input::<u32>(2, rows)?);
        let list = call.input::<u32>(3, ANY_SLOT)?;
        let values = Values::of(call, 4, ANY_SLOT)?;
        let has_keys = call.value::<u32>(8)? != 0;
        let keys = if has_keys {
            Some((call.input::<u32>(7, ANY_SLOT)?, call.output::<u32>(9, outputs)?))
        } else {
            None
        };
        let (out_build, out_probe) =
            (call.output::<u32>(10, outputs)?, call.output::<u32>(11, outputs)?);
        let mut to = 0;
        for row in 0..rows {
            let (range, position) = (ranges.get(row), positions.get(row) as usize);
            let (start, count) = ((range >> 32) as u32, range as u32);
            for k in 0..count {
                let partner = if start == NONE { NONE } else { list.get((start + k) as usize) };
                out_build.set(to, partner);
                out_probe.set(to, values.get(position));
                if let Some((keys, out)) = &keys {
                    out.set(to, keys.get(position));
                }
                to += 1;
            }
        }
        Ok(())
    }
}
