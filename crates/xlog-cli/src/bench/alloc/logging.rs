//! What a log adds to a pair: one in memory, and one that is there and switched off. A stack
//! without one pays nothing: that is the pair of the default stack, beside which both are timed.

use std::sync::Arc;

use xlog_cuda::device_runtime::{
    DeviceStack, LogAction, LoggingResource, MemorySink, ResourceStack,
};

use super::{
    Lab,
    pairs::{BATCH, driver_pair, pair},
    report::{Report, Row},
};
use crate::{
    Failure,
    bench::measure::{Effort, alternate},
};

/// The records that are kept: as many as a program would keep to look back at.
const KEPT: usize = 10_000;
const SIZE: usize = 64 << 10;

/// The default stack with a log on top.
fn logged(lab: &Lab, enabled: bool) -> Result<(DeviceStack, Arc<MemorySink>), Failure> {
    let sink = Arc::new(MemorySink::new(KEPT));
    let shared = Arc::clone(&sink);
    let stack = ResourceStack::production(Arc::clone(&lab.device))?
        .with(move |inner| {
            let log = LoggingResource::without_uses(inner, shared);
            log.set_enabled(enabled);
            Box::new(log)
        })
        .build()?;
    Ok((stack, sink))
}

/// Pairs through the default stack, and through it with a log, on and off.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let ((on, kept), (off, nothing)) = (logged(lab, true)?, logged(lab, false)?);
    let (plain, raw) = lab.stream(&lab.default)?;
    let ((with, _), (without, _)) = (lab.stream(&on)?, lab.stream(&off)?);
    let effort = Effort { batch: BATCH, ..Effort::new(lab.quick) };
    let settle = || Ok(lab.device.synchronize()?);
    let (timings, _) = alternate(
        &lab.core,
        effort,
        &mut [
            &mut |n| (0..n).try_for_each(|_| pair(&lab.default, SIZE, plain)),
            &mut |n| (0..n).try_for_each(|_| driver_pair(lab, SIZE, raw)),
            &mut |n| (0..n).try_for_each(|_| pair(&on, SIZE, with)),
            &mut |n| (0..n).try_for_each(|_| pair(&off, SIZE, without)),
        ],
        settle,
    )?;
    let records = kept.records();
    let pairs = records.chunks(2).all(|pair| {
        matches!(pair, [a, b] if a.action == LogAction::Allocate && b.action == LogAction::Free
            && a.generation == b.generation)
    });
    // A quick run has fewer pairs than the log keeps records.
    let all = if lab.quick { !records.is_empty() } else { records.len() == KEPT };
    if !all || !pairs {
        Err("the log has not every pair")?;
    }
    if !nothing.records().is_empty() {
        Err("a log that is switched off has records")?;
    }
    let [_, driver, on, off] = &timings[..] else { Err("four ways, four timings")? };
    for (case, timing) in [("logging", on), ("logging-off", off)] {
        report.add(&Row {
            case,
            resource: "logged",
            size: SIZE,
            threads: 1,
            ns_per_pair: timing.ns,
            driver_ns_per_pair: Some(driver.ns),
            also: Some(("added_ns_per_pair", timing.above_first)),
        });
    }
    Ok(())
}
