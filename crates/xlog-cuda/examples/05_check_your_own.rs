//! Your own code under simulation: two hundred interleavings of it, each judged by an oracle that
//! sees every access, and then the same with one mistake in it.
//!
//! ```text
//! cargo run -p xlog-cuda --example 05_check_your_own
//! ```

use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{DeviceStack, ResourceResult},
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
};
use xlog_driver::Arguments;
use xlog_testkit::CheckedDevice;

type Failure = Box<dyn std::error::Error>;

const LEN: usize = 100;
const SEEDS: u64 = 200;

/// The code under test: one stream fills a buffer, another folds it into a result. It takes the
/// stack it is given, so it runs on a GPU as it runs here.
fn pipeline(stack: &DeviceStack, forget_the_input: bool) -> ResourceResult<Vec<u32>> {
    let (runtime, manager) = (&stack.runtime, stack.manager());
    let (writer, reader) = (stack.streams().acquire()?, stack.streams().acquire()?);
    let (input, mut result) = (manager.alloc::<u32>(LEN)?, manager.alloc::<u32>(LEN)?);
    result.fill_bytes(0, reader)?;
    let fill = runtime.load_kernel(&kernels::FILL_U32)?;
    LaunchBuilder::new(runtime, &fill, writer)
        .output(&input)
        .value(7u32)
        .value(LEN as u64)
        .launch(LaunchDims::for_elements(LEN))?;

    // The builder cannot forget an argument. A recorder, for work that another library enqueues,
    // knows only what it is told.
    let mix = runtime.load_kernel(&kernels::MIX_U32)?;
    let mut arguments = Arguments::new();
    arguments.push_pointer(input.ptr());
    arguments.push_pointer(result.ptr());
    arguments.push_value(3u32);
    arguments.push_value(LEN as u64);
    let mut recorder = LaunchRecorder::new_strict(reader);
    recorder.read_write(&result);
    if !forget_the_input {
        recorder.read(&input);
    }
    recorder.preflight(runtime)?;
    // SAFETY: the arguments are the kernel's. Their memory is recorded, or it is the mistake that
    // the oracle is to find; on the simulated device nothing worse can come of it.
    unsafe { runtime.enqueue(&mix, LaunchDims::for_elements(LEN), &arguments, reader)? };
    recorder.commit(runtime)?;
    result.download()
}

fn main() -> Result<(), Failure> {
    run(CudaDevice::host())
}

pub(crate) fn run(_: CudaDevice) -> Result<(), Failure> {
    let expected = vec![kernels::mix_u32(0, 7, 3); LEN];
    for seed in 0..SEEDS {
        let checked = CheckedDevice::new(seed);
        if pipeline(&checked.production_stack()?, false)? != expected {
            return Err(format!("seed {seed}: the result is wrong").into());
        }
        checked.assert_clean();
    }
    println!("{SEEDS} interleavings, every access in order\n");

    let checked = CheckedDevice::new(1);
    // The result may well be right: this time the timing did not show it.
    let result = pipeline(&checked.production_stack()?, true)?;
    let findings = checked.finish();
    let how = if result == expected { "right" } else { "wrong" };
    println!("with a use left out, the result is {how}, and:");
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Err("the oracle did not see the use that was not declared".into());
    }
    Ok(())
}
