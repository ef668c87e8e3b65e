//! The pages that `ci/report-test` looks at in a browser, and what must be in them, as JSON.

mod joins;

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    sync::Arc,
};

use serde_json::{Value, json};
use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{AllocTag, StreamId},
    kernels,
    launch::LaunchBuilder,
};
use xlog_driver::host::HostDriver;
use xlog_trace::{Hazard, Recording, Trace};

use self::joins::Failure;

/// A tag that is a script, and an image that would run one.
const HOSTILE: &str =
    "</script><script>window.wasRun = 1</script><img src=x onerror='window.wasRun = 2'>";

fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1).ok_or("name the folder to write to")?;
    let folder = Path::new(&folder);

    let small = traced(|trace| joins::run(trace.driver(), 3, 100_000))?;
    write(&small, None, &folder.join("small.html"))?;
    let hostile = traced(|trace| hand_over(trace, 6, 3, HOSTILE))?;
    let hazard = Hazard { title: HOSTILE.to_owned(), text: format!("about {HOSTILE}") };
    write(&hostile, Some(&[hazard]), &folder.join("hostile.html"))?;
    let large = traced(|trace| hand_over(trace, 100_000, 8, "handed over"))?;
    write(&large, None, &folder.join("large.html"))?;

    let facts = json!({
        "small": facts(&small, "radix_sweep", "hash table"),
        "hostile": facts(&hostile, "fill", HOSTILE),
        "large": facts(&large, "fill", "handed over"),
    });
    writeln!(std::io::stdout(), "{facts}")?;
    Ok(())
}

fn traced(work: impl FnOnce(&Trace) -> Result<(), Failure>) -> Result<Recording, Failure> {
    let trace = Trace::new(Arc::new(HostDriver::new(0)));
    work(&trace)?;
    Ok(trace.finish())
}

fn write(recording: &Recording, hazards: Option<&[Hazard]>, path: &Path) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(path)?);
    recording.write_report(&mut file, hazards)?;
    Ok(file.flush()?)
}

/// Launches on several streams in turn; every few, a buffer goes on to the next stream.
fn hand_over(
    trace: &Trace,
    launches: usize,
    streams: usize,
    tag: &'static str,
) -> Result<(), Failure> {
    let stack = CudaDevice::with_driver(trace.driver()).into_stack()?;
    let (runtime, manager) = (&stack.runtime, stack.manager());
    let streams: Vec<StreamId> =
        (0..streams).map(|_| stack.streams().acquire()).collect::<Result<_, _>>()?;
    let fill = runtime.load_kernel(&kernels::FILL_U32)?;
    let increment = runtime.load_kernel(&kernels::INCREMENT_U32)?;
    let mut shared = manager.alloc_on::<u32>(512, streams[0], AllocTag(tag))?;
    for index in 0..launches {
        let stream = streams[index % streams.len()];
        if index % 6 == 0 || launches < 10 {
            LaunchBuilder::new(runtime, &increment, stream)
                .in_out(&shared)
                .value(1u32)
                .value(shared.len() as u64)
                .launch(LaunchDims::for_elements(shared.len()))?;
        } else {
            // Of different lengths, as real work is.
            let length = 256 << (index % 5);
            let own = manager.alloc_on::<u32>(length, stream, AllocTag("scratch"))?;
            LaunchBuilder::new(runtime, &fill, stream)
                .output(&own)
                .value(7u32)
                .value(length as u64)
                .launch(LaunchDims::for_elements(length))?;
        }
        if index % 4096 == 4095 {
            shared = manager.alloc_on::<u32>(512, stream, AllocTag(tag))?;
        }
    }
    runtime.fence()?;
    Ok(())
}

/// What the page must show, and how often a kernel and a tag are to be found.
fn facts(recording: &Recording, kernel: &str, tag: &str) -> Value {
    let timed = |index: Option<u32>| {
        index.is_some_and(|index| recording.operations[index as usize].device.is_some())
    };
    let found = |text: &str| {
        let text = text.to_lowercase();
        let holds = |name: &str| name.to_lowercase().contains(&text);
        let operations = recording.operations.iter().filter(|operation| {
            let tagged = |one: &xlog_trace::Use| holds(recording.blocks[one.block as usize].tag);
            holds(operation.name) || operation.uses.iter().any(tagged)
        });
        operations.count()
    };
    let used: std::collections::BTreeSet<u32> =
        recording.operations.iter().map(|operation| operation.stream).collect();
    json!({
        "launches": recording.launches(),
        "streams": used.len(),
        "waits": recording.waits.len(),
        "arrows": recording.waits.iter().filter(|w| timed(w.from) && timed(w.to)).count(),
        "kernel": kernel,
        "kernel_uses": found(kernel),
        "tag": tag,
        "tag_uses": found(tag),
    })
}
