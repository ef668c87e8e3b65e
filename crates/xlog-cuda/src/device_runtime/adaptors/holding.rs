//! What is held, one by one and for a person to read.

use std::{backtrace::Backtrace, cmp::Reverse, fmt, fmt::Write as _, sync::Arc};

use rustc_hash::FxHashMap;

use crate::device_runtime::{AllocTag, Generation, StreamId};

/// How many blocks of one tag a report lists one by one.
const LISTED: usize = 10;

/// One block that has not been handed back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holding {
    /// Its address.
    pub ptr: u64,
    /// Its bytes, as granted.
    pub bytes: usize,
    /// The stream it was allocated on.
    pub stream: StreamId,
    /// The label it was allocated under.
    pub tag: AllocTag,
    /// Which allocation at that address.
    pub generation: Generation,
    /// Which allocation of the resource, counted from 1: the smaller, the older.
    pub sequence: u64,
    /// Where it was allocated, if the resource captures that. Printing it looks the names up.
    pub backtrace: Option<Arc<Backtrace>>,
}

/// Blocks and bytes under each tag, the most bytes first.
pub(super) fn by_tag(holders: &[Holding]) -> Vec<(AllocTag, usize, usize)> {
    let mut sums: FxHashMap<AllocTag, (usize, usize)> = FxHashMap::default();
    for holding in holders {
        let (blocks, bytes) = sums.entry(holding.tag).or_default();
        *blocks += 1;
        *bytes += holding.bytes;
    }
    let mut sums: Vec<_> = sums.into_iter().map(|(tag, (n, bytes))| (tag, n, bytes)).collect();
    sums.sort_unstable_by_key(|(tag, _, bytes)| (Reverse(*bytes), tag.0));
    sums
}

/// The tags by bytes, and under each its oldest blocks.
pub(super) fn report(ordinal: u32, holders: &[Holding]) -> String {
    if holders.is_empty() {
        return format!("device {ordinal}: no block is held");
    }
    let mut text = format!("device {ordinal}: ");
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, holders);
    text
}

fn write_report(text: &mut String, holders: &[Holding]) -> fmt::Result {
    let bytes: usize = holders.iter().map(|holding| holding.bytes).sum();
    write!(text, "{} held, {bytes} bytes", blocks(holders.len()))?;
    for (tag, count, bytes) in by_tag(holders) {
        write!(text, "\n  {:?}: {}, {bytes} bytes", tag.0, blocks(count))?;
        for holding in holders.iter().filter(|holding| holding.tag == tag).take(LISTED) {
            let Holding { ptr, bytes, stream, generation, sequence, .. } = holding;
            write!(text, "\n    {bytes} bytes at {ptr:#x} on stream {}, ", stream.0)?;
            write!(text, "generation {}, allocation number {sequence}", generation.0)?;
            for line in holding.backtrace.iter().flat_map(|trace| lines_of(trace)) {
                write!(text, "\n      {line}")?;
            }
        }
        if count > LISTED {
            write!(text, "\n    and {} more", count - LISTED)?;
        }
    }
    Ok(())
}

fn blocks(count: usize) -> String {
    if count == 1 { "1 block".into() } else { format!("{count} blocks") }
}

fn lines_of(backtrace: &Backtrace) -> Vec<String> {
    backtrace.to_string().lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(sequence: u64, bytes: usize, tag: &'static str) -> Holding {
        Holding {
            ptr: 0x1000 * sequence,
            bytes,
            stream: StreamId(2),
            tag: AllocTag(tag),
            generation: Generation(100 + sequence),
            sequence,
            backtrace: None,
        }
    }

    #[test]
    fn a_report_names_tags_by_bytes_and_their_blocks_by_age() {
        let holders = [holding(1, 100, "rows"), holding(2, 300, "keys"), holding(3, 50, "rows")];
        let expected = "device 7: 3 blocks held, 450 bytes\
            \n  \"keys\": 1 block, 300 bytes\
            \n    300 bytes at 0x2000 on stream 2, generation 102, allocation number 2\
            \n  \"rows\": 2 blocks, 150 bytes\
            \n    100 bytes at 0x1000 on stream 2, generation 101, allocation number 1\
            \n    50 bytes at 0x3000 on stream 2, generation 103, allocation number 3";
        assert_eq!(report(7, &holders), expected);
        assert_eq!(report(7, &[]), "device 7: no block is held");
    }

    #[test]
    fn tags_of_equal_bytes_come_in_the_order_of_their_names() {
        let holders = [holding(1, 10, "b"), holding(2, 10, "a"), holding(3, 20, "c")];
        let expected = [(AllocTag("c"), 1, 20), (AllocTag("a"), 1, 10), (AllocTag("b"), 1, 10)];
        assert_eq!(by_tag(&holders), expected);
    }

    #[test]
    fn a_report_lists_some_blocks_of_a_tag_and_counts_the_others() {
        let holders: Vec<_> = (1..=13).map(|n| holding(n, 1, "many")).collect();
        let text = report(0, &holders);
        assert_eq!(text.lines().count(), 2 + LISTED + 1, "{text}");
        assert!(text.contains("allocation number 10\n") && text.ends_with("and 3 more"), "{text}");
    }
}
