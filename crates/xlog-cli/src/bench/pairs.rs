//! One launch at a time, raw and recorded: on one stream, on one of several, and back and forth
//! between two.

use xlog_cuda::{
    LaunchDims,
    device_runtime::StreamId,
    launch::{LaunchBuilder, LaunchRecorder},
};
use xlog_driver::RawStream;

use super::{
    lab::{Lab, Subject, Touch},
    measure::{Effort, alternate},
    report::{Report, Row},
};
use crate::Failure;

const DIMS: LaunchDims = LaunchDims::linear(1, 1);
const BLOCKS: [usize; 3] = [1, 4, 8];

/// The pool has its default stream and no other.
pub(super) fn single_stream(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    all_subjects(lab, "single-stream", &[StreamId::DEFAULT], report)
}

/// The pool has several streams; one of them does all the work.
pub(super) fn one_of_several(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams = lab.streams(4)?;
    all_subjects(lab, "one-of-several", &streams[..1], report)
}

/// Two streams hand the blocks to each other with every launch.
pub(super) fn ping_pong(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams = lab.streams(2)?;
    for blocks in BLOCKS {
        measure(lab, "ping-pong", &streams, Touch::Write, blocks, report)?;
    }
    Ok(())
}

fn all_subjects(
    lab: &Lab,
    pattern: &str,
    streams: &[StreamId],
    report: &mut Report,
) -> Result<(), Failure> {
    for touch in Touch::BOTH {
        for blocks in BLOCKS {
            measure(lab, pattern, streams, touch, blocks, report)?;
        }
    }
    Ok(())
}

/// Launches in turn on `streams`: raw, raw with the events this pattern takes written by hand (the
/// driver's own share), through the recorder, through the builder.
pub(super) fn measure(
    lab: &Lab,
    pattern: &str,
    streams: &[StreamId],
    touch: Touch,
    blocks: usize,
    report: &mut Report,
) -> Result<(), Failure> {
    let subject = lab.subject(touch, blocks)?;
    let raw_streams = lab.raw_streams(streams.len())?;
    // Raw launches on two streams have no order, so each stream gets blocks of its own.
    let raw_subjects: Vec<Subject> =
        streams.iter().map(|_| lab.subject(touch, blocks)).collect::<Result<_, _>>()?;
    let events = lab.raw_events(streams.len())?;
    let several = lab.pool.stats().streams > 1;
    let before = lab.pool.stats();
    let mut raw = |n: usize| {
        for launch in 0..n {
            let turn = launch % raw_streams.len();
            launch_raw(lab, &raw_subjects[turn], raw_streams[turn])?;
        }
        Ok(())
    };
    let mut driver = |n: usize| {
        for launch in 0..n {
            let turn = launch % raw_streams.len();
            let before = (turn + raw_streams.len() - 1) % raw_streams.len();
            if before != turn {
                events.wait(raw_streams[turn], before)?;
            }
            launch_raw(lab, &raw_subjects[turn], raw_streams[turn])?;
            if several {
                events.record(raw_streams[turn], turn)?;
            }
        }
        Ok(())
    };
    let mut recorder = |n: usize| {
        for launch in 0..n {
            launch_recorded(lab, &subject, streams[launch % streams.len()])?;
        }
        Ok(())
    };
    let mut builder = |n: usize| {
        for launch in 0..n {
            launch_built(lab, &subject, streams[launch % streams.len()])?;
        }
        Ok(())
    };
    let effort = Effort::new(lab.quick);
    let ways: &mut [super::measure::Way<'_>] =
        &mut [&mut raw, &mut driver, &mut recorder, &mut builder];
    let (timings, launches) = alternate(&lab.core, effort, ways, || Ok(lab.settle()?))?;
    let after = lab.pool.stats();
    if !lab.idle {
        subject.verify(2 * launches)?;
        for raw_subject in &raw_subjects {
            raw_subject.verify(2 * launches / streams.len() as u64)?;
        }
    }
    // The runtime's counters see only its own two ways, which share them.
    let recorded = 2.0 * launches as f64;
    for (form, timing) in ["driver", "recorder", "builder"].into_iter().zip(&timings[1..]) {
        report.add(&Row {
            pattern: pattern.to_owned(),
            form,
            access: touch.name(),
            blocks,
            streams: streams.len(),
            threads: 1,
            raw_ns: Some(timings[0].ns),
            recorded_ns: timing.ns,
            above_raw_ns: Some(timing.above_first),
            records_per_launch: (after.records - before.records) as f64 / recorded,
            waits_per_launch: (after.waits - before.waits) as f64 / recorded,
            rounds: timing.rounds,
            rounds_left_out: timing.left_out,
            memory_growth_bytes: None,
        });
    }
    Ok(())
}

#[inline]
pub(super) fn launch_raw(lab: &Lab, subject: &Subject, stream: RawStream) -> Result<(), Failure> {
    let driver = lab.device.driver();
    // SAFETY: the subject's own arguments, over blocks that outlive the launch.
    unsafe { driver.launch(subject.kernel.function(), DIMS, &subject.arguments, stream)? };
    Ok(())
}

#[inline]
fn launch_recorded(lab: &Lab, subject: &Subject, stream: StreamId) -> Result<(), Failure> {
    let mut recorder = LaunchRecorder::new_strict(stream);
    for block in &subject.blocks {
        match subject.touch {
            Touch::Read => recorder.read(block),
            Touch::Write => recorder.read_write(block),
        };
    }
    recorder.preflight(&lab.runtime)?;
    // SAFETY: the subject's own arguments, over the blocks recorded above.
    unsafe { lab.runtime.enqueue(&subject.kernel, DIMS, &subject.arguments, stream)? };
    recorder.commit(&lab.runtime)?;
    Ok(())
}

#[inline]
pub(super) fn launch_built(lab: &Lab, subject: &Subject, stream: StreamId) -> Result<(), Failure> {
    let mut builder = LaunchBuilder::new(&lab.runtime, &subject.kernel, stream);
    for block in &subject.blocks {
        match subject.touch {
            Touch::Read => builder.input(block),
            Touch::Write => builder.in_out(block),
        };
    }
    if subject.touch == Touch::Write {
        builder.value(1u32);
    }
    builder.launch(DIMS)?;
    Ok(())
}
