//! Pairs of an allocation and its free: on one stream, in bursts, on two streams in turn, and with
//! a use on another stream in between.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, DeviceStack, StreamId},
    kernels,
    launch::LaunchRecorder,
    memory::TrackedCudaSlice,
};
use xlog_driver::RawStream;

use super::{
    Lab,
    report::{Report, Row},
};
use crate::{
    Failure,
    bench::measure::{Effort, Timing, alternate},
};

const TAG: AllocTag = AllocTag("bench");

/// Pairs in a batch.
pub(super) const BATCH: usize = 256;

/// One block of `size` bytes and back, on the stack that users get.
#[inline]
pub(super) fn pair(stack: &DeviceStack, size: usize, stream: StreamId) -> Result<(), Failure> {
    let block = stack.runtime.allocate(size, stream, TAG)?;
    stack.runtime.deallocate(block)?;
    Ok(())
}

/// The same with the driver's calls.
#[inline]
pub(super) fn driver_pair(lab: &Lab, size: usize, stream: RawStream) -> Result<(), Failure> {
    let driver = lab.device.driver();
    // SAFETY: the stream is the driver's and alive, and nothing uses the memory.
    unsafe {
        let ptr = driver.allocate_on(size, stream)?;
        driver.free_on(ptr, stream)?;
    }
    Ok(())
}

fn measure(
    lab: &Lab,
    mut driver: impl FnMut(usize) -> Result<(), Failure>,
    mut ours: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<[Timing; 2], Failure> {
    let effort = Effort { batch: BATCH, ..Effort::new(lab.quick) };
    let settle = || Ok(lab.device.synchronize()?);
    let (timings, _) = alternate(&lab.core, effort, &mut [&mut driver, &mut ours], settle)?;
    <[Timing; 2]>::try_from(timings).map_err(|_| "two ways, two timings".into())
}

fn row(case: &'static str, size: usize, [driver, ours]: &[Timing; 2]) -> Row {
    Row {
        case,
        resource: "default",
        size,
        threads: 1,
        ns_per_pair: ours.ns,
        driver_ns_per_pair: Some(driver.ns),
        also: None,
    }
}

/// Two live blocks never share a byte, and hold what was written to them.
fn verify(lab: &Lab, sizes: &[usize], stream: StreamId) -> Result<(), Failure> {
    let manager = lab.default.manager();
    let fill = lab.default.runtime.load_kernel(&kernels::FILL_U32)?;
    let slices: Vec<TrackedCudaSlice<u32>> = sizes
        .iter()
        .map(|bytes| manager.alloc_on(bytes.div_ceil(4), stream, TAG))
        .collect::<Result<_, _>>()?;
    for (value, slice) in (1u32..).zip(&slices) {
        xlog_cuda::launch::LaunchBuilder::new(&lab.default.runtime, &fill, stream)
            .output(slice)
            .value(value)
            .value(slice.len() as u64)
            .launch(LaunchDims::for_elements(slice.len()))?;
    }
    for (value, slice) in (1u32..).zip(&slices) {
        if slice.download()?.iter().any(|found| *found != value) {
            Err("a block lost what was written to it")?;
        }
    }
    Ok(())
}

/// Pairs on one stream.
pub(super) fn same_stream(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let (stream, raw) = lab.stream(&lab.default)?;
    for size in [256, 64 << 10, 1 << 20] {
        verify(lab, &[size; 5], stream)?;
        let timings = measure(
            lab,
            |n| (0..n).try_for_each(|_| driver_pair(lab, size, raw)),
            |n| (0..n).try_for_each(|_| pair(&lab.default, size, stream)),
        )?;
        report.add(&row("pair", size, &timings));
    }
    Ok(())
}

/// Sixty-four blocks, then all of them back.
pub(super) fn burst(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    const BURST: usize = 64;
    let size = 4 << 10;
    let (stream, raw) = lab.stream(&lab.default)?;
    verify(lab, &[size; BURST], stream)?;
    let driver = lab.device.driver();
    let mut pointers = Vec::with_capacity(BURST);
    let mut blocks = Vec::with_capacity(BURST);
    let timings = measure(
        lab,
        |n| {
            for _ in 0..n / BURST {
                for _ in 0..BURST {
                    // SAFETY: the stream is the driver's and alive.
                    pointers.push(unsafe { driver.allocate_on(size, raw)? });
                }
                for ptr in pointers.drain(..) {
                    // SAFETY: allocated above, and nothing uses it.
                    unsafe { driver.free_on(ptr, raw)? };
                }
            }
            Ok(())
        },
        |n| {
            for _ in 0..n / BURST {
                for _ in 0..BURST {
                    blocks.push(lab.default.runtime.allocate(size, stream, TAG)?);
                }
                for block in blocks.drain(..) {
                    lab.default.runtime.deallocate(block)?;
                }
            }
            Ok(())
        },
    )?;
    report.add(&row("burst-64", size, &timings));
    Ok(())
}

/// Pairs on two streams in turn.
pub(super) fn alternating(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let size = 64 << 10;
    let ((a, raw_a), (b, raw_b)) = (lab.stream(&lab.default)?, lab.stream(&lab.default)?);
    verify(lab, &[size; 5], b)?;
    let timings = measure(
        lab,
        |n| (0..n).try_for_each(|i| driver_pair(lab, size, [raw_a, raw_b][i % 2])),
        |n| (0..n).try_for_each(|i| pair(&lab.default, size, [a, b][i % 2])),
    )?;
    report.add(&row("alternating", size, &timings));
    Ok(())
}

/// Allocated on one stream, used on another, freed: what the other stream's use costs, launch not
/// counted.
pub(super) fn use_elsewhere(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let size = 64 << 10;
    let ((a, raw_a), (b, raw_b)) = (lab.stream(&lab.default)?, lab.stream(&lab.default)?);
    let manager = lab.default.manager();
    let driver = lab.device.driver();
    let event = driver.create_event()?;
    let timings = measure(
        lab,
        |n| {
            for _ in 0..n {
                // SAFETY: both streams and the event are the driver's and alive; the order is the
                // one that the runtime keeps.
                unsafe {
                    let ptr = driver.allocate_on(size, raw_a)?;
                    driver.record_event(event, raw_a)?;
                    driver.wait_event(raw_b, event)?;
                    driver.record_event(event, raw_b)?;
                    driver.wait_event(raw_a, event)?;
                    driver.free_on(ptr, raw_a)?;
                }
            }
            Ok(())
        },
        |n| {
            for _ in 0..n {
                let slice = manager.alloc_on::<u32>(size / 4, a, TAG)?;
                let mut recorder = LaunchRecorder::new_strict(b);
                recorder.read_write(&slice);
                recorder.preflight(&lab.default.runtime)?;
                recorder.commit(&lab.default.runtime)?;
            }
            Ok(())
        },
    )?;
    // SAFETY: created above, and nothing waits for it any more.
    unsafe { driver.destroy_event(event)? };
    report.add(&row("use-elsewhere", size, &timings));
    Ok(())
}

/// What statistics add to a pair.
pub(super) fn statistics(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let size = 64 << 10;
    let ((with, _), (without, _)) = (lab.stream(&lab.default)?, lab.stream(&lab.plain)?);
    let timings = measure(
        lab,
        |n| (0..n).try_for_each(|_| pair(&lab.plain, size, without)),
        |n| (0..n).try_for_each(|_| pair(&lab.default, size, with)),
    )?;
    let counted = lab.default.statistics.as_ref().map(|part| part.statistics().blocks);
    if counted.is_none_or(|blocks| blocks.current != 0 || blocks.total == 0) {
        Err("the statistics did not count the blocks")?;
    }
    let added = timings[1].above_first;
    report.add(&Row {
        driver_ns_per_pair: None,
        also: Some(("added_ns_per_pair", added)),
        ..row("statistics", size, &timings)
    });
    Ok(())
}
