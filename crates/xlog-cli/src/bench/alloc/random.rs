//! RMM's random benchmark: so many allocations of random sizes, frees of random blocks in between,
//! everything freed at the end.

use std::time::Instant;

use xlog_cuda::device_runtime::AllocTag;

use super::{
    Lab,
    report::{Report, Row},
};
use crate::{Failure, bench::measure::median};

/// The largest block.
const LARGEST: usize = 4 << 20;
/// The most bytes at once.
const MOST: usize = 4 << 30;

/// What a step does: allocate so many bytes, or free the block at that place of the list.
#[derive(Clone, Copy)]
enum Step {
    Allocate(usize),
    Free(usize),
}

/// A thousand, and ten thousand allocations.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let (stream, raw) = lab.stream(&lab.default)?;
    let driver = lab.device.driver();
    for (case, allocations) in [("random-1000", 1_000), ("random-10000", 10_000)] {
        let rounds = if lab.quick { 3 } else { 25 };
        let steps = program(allocations);
        let rounds = lab.core.rounds(rounds, |ear| {
            let start = Instant::now();
            let mut blocks = Vec::with_capacity(allocations);
            for step in &steps {
                match *step {
                    Step::Allocate(bytes) => {
                        blocks.push(lab.default.runtime.allocate(
                            bytes,
                            stream,
                            AllocTag("bench"),
                        )?);
                    }
                    Step::Free(at) => lab.default.runtime.deallocate(blocks.swap_remove(at))?,
                }
            }
            let ours = start.elapsed().as_nanos() as f64;
            ear.listen();
            let start = Instant::now();
            let mut pointers = Vec::with_capacity(allocations);
            for step in &steps {
                match *step {
                    Step::Allocate(bytes) => {
                        // SAFETY: the stream is the driver's and alive.
                        pointers.push(unsafe { driver.allocate_on(bytes, raw)? });
                    }
                    // SAFETY: allocated by a step before, and nothing uses it.
                    Step::Free(at) => unsafe { driver.free_on(pointers.swap_remove(at), raw)? },
                }
            }
            Ok((ours, start.elapsed().as_nanos() as f64))
        })?;
        if lab.default.runtime.bytes_outstanding() != 0 {
            Err("blocks were left over")?;
        }
        let of = |value: fn(&(f64, f64)) -> f64| median(rounds.kept.iter().map(value).collect());
        let total = of(|(ours, _)| *ours);
        report.add(&Row {
            case,
            resource: "default",
            size: LARGEST,
            threads: 1,
            ns_per_pair: total / allocations as f64,
            driver_ns_per_pair: Some(of(|(_, driver)| *driver) / allocations as f64),
            also: Some(("total_ms", total / 1e6)),
        });
    }
    Ok(())
}

/// The same steps every time: a coin decides, as long as both are possible.
fn program(allocations: usize) -> Vec<Step> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut draw = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % limit
    };
    let (mut steps, mut live, mut left, mut bytes) = (Vec::new(), Vec::new(), allocations, 0);
    while left > 0 || !live.is_empty() {
        let size = 1 + draw(LARGEST);
        if left > 0 && bytes + size <= MOST && (live.is_empty() || draw(2) == 0) {
            steps.push(Step::Allocate(size));
            live.push(size);
            (left, bytes) = (left - 1, bytes + size);
        } else {
            let at = draw(live.len());
            steps.push(Step::Free(at));
            bytes -= live.swap_remove(at);
        }
    }
    steps
}
