//! The simulated device keeps the rules that programs for CUDA rely on.

use std::sync::Arc;

use xlog_cuda::{LaunchDims, kernels};
use xlog_driver::{
    Arguments, Driver, KernelDefinition, KernelModule, RawStream, StreamProgress,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy, SimulatedDriver},
};
use xlog_testkit::{DriverCall, LayeredDriver, oracle::Oracle};

/// Poison of fresh and of freed memory.
const FRESH: u8 = 0xA5;
const FREED: u8 = 0xDD;

fn device(seed: u64) -> SimulatedDriver {
    SimulatedDriver::new(0, seed).ask_without_steps().with_memory(1 << 20)
}

fn stream(driver: &SimulatedDriver) -> RawStream {
    driver.create_stream().expect("a stream")
}

/// The byte at an address of the device.
fn byte(address: u64) -> u8 {
    // SAFETY: the tests pass addresses of the arena, which lives as long as the driver.
    unsafe { (address as *const u8).read() }
}

/// Runs `work`, all of whose calls must succeed.
macro_rules! calls {
    ($($call:expr);* $(;)?) => {
        // SAFETY: streams, events and memory in these tests are the driver's own, and stay.
        $(unsafe { $call }.expect(stringify!($call));)*
    };
}

#[test]
fn nothing_runs_until_somebody_steps() {
    let driver = device(1);
    let (a, b) = (stream(&driver), stream(&driver));
    let memory = driver.allocate(256).expect("memory");
    assert_eq!(driver.runnable(), 0);
    calls! { driver.fill_bytes(memory, 1, 8, a); driver.fill_bytes(memory + 8, 2, 8, b) }
    assert_eq!((driver.runnable(), byte(memory)), (2, FRESH));
    assert!(driver.step_choice(1), "the second stream's turn");
    assert_eq!((byte(memory), byte(memory + 8)), (FRESH, 2));
    assert!(!driver.step_choice(1), "only one is left");
    assert!(driver.step() && !driver.step());
    assert_eq!((byte(memory), driver.runnable()), (1, 0));
}

#[test]
fn an_event_captures_its_place_and_a_wait_what_the_event_stood_for() {
    let driver = device(1);
    let (a, b) = (stream(&driver), stream(&driver));
    let memory = driver.allocate(256).expect("memory");
    let event = driver.create_event().expect("an event");
    calls! {
        driver.fill_bytes(memory, 1, 1, a);
        driver.record_event(event, a);
        driver.fill_bytes(memory, 2, 1, a);
        driver.wait_event(b, event);
        // Overwritten before the wait is over: that wait is for the first place all the same.
        driver.record_event(event, a);
        driver.fill_bytes(memory + 1, 3, 1, b);
    }
    assert_eq!(driver.runnable(), 1, "the second stream waits");
    driver.step();
    assert_eq!(driver.runnable(), 2, "the first fill is all it waited for");
    // SAFETY: the event is the driver's.
    let done = || unsafe { driver.event_done(event) }.expect("an answer");
    assert!(!done(), "the event stands for the second fill now");
    driver.step_choice(1);
    assert_eq!((byte(memory), byte(memory + 1)), (1, 3));
    driver.step();
    assert!(done() && byte(memory) == 2);
}

#[test]
fn a_wait_for_an_event_that_was_never_recorded_does_nothing() {
    let driver = device(1);
    let a = stream(&driver);
    let memory = driver.allocate(256).expect("memory");
    let event = driver.create_event().expect("an event");
    calls! {
        driver.wait_event(a, event);
        driver.fill_bytes(memory, 1, 1, a);
        driver.synchronize_event(event);
    }
    assert_eq!((driver.runnable(), byte(memory)), (1, FRESH));
    // SAFETY: the event is the driver's.
    assert!(unsafe { driver.event_done(event) }.expect("an answer"));
}

#[test]
fn events_and_streams_may_go_while_work_refers_to_them() {
    let driver = device(1);
    let (a, b) = (stream(&driver), stream(&driver));
    let memory = driver.allocate(256).expect("memory");
    let event = driver.create_event().expect("an event");
    calls! {
        driver.fill_bytes(memory, 1, 1, a);
        driver.record_event(event, a);
        driver.wait_event(b, event);
        driver.copy_on_device(memory + 1, memory, 1, b);
        driver.destroy_event(event);
        driver.destroy_stream(a);
    }
    assert_eq!(driver.runnable(), 1);
    calls! { driver.synchronize_stream(b) }
    assert_eq!((byte(memory), byte(memory + 1)), (1, 1));
    // SAFETY: a handle that is stale by intent; the driver only looks it up.
    let error = unsafe { driver.record_event(event, b) }.expect_err("it is gone");
    assert!(error.message().contains("destroyed"), "{error}");
}

#[test]
fn freed_memory_is_reused_at_once_on_its_stream_and_elsewhere_once_the_free_has_run() {
    let driver = device(1);
    let (a, b) = (stream(&driver), stream(&driver));
    // SAFETY: the streams are the driver's.
    let allocate = |on| unsafe { driver.allocate_on(1000, on) }.expect("memory");
    let (first, second) = (allocate(a), allocate(a));
    calls! { driver.free_on(first, a); driver.free_on(second, a) }
    let elsewhere = allocate(b);
    assert!(elsewhere != first && elsewhere != second, "neither free has run");
    assert_eq!(allocate(a), second, "the latest first, at once");
    driver.drain();
    assert_eq!(allocate(b), first, "its free has run");
}

#[test]
fn poison_comes_in_stream_order() {
    let driver = device(1);
    let a = stream(&driver);
    // SAFETY: the stream is the driver's.
    let memory = unsafe { driver.allocate_on(256, a) }.expect("memory");
    assert_eq!(byte(memory), 0, "the allocation's place is yet to be run");
    calls! { driver.fill_bytes(memory, 7, 256, a); driver.free_on(memory, a) }
    let steps = [FRESH, 7, FREED].map(|_| driver.step().then(|| byte(memory)));
    assert_eq!(steps, [Some(FRESH), Some(7), Some(FREED)]);
    let pinned = driver.allocate_pinned(64).expect("memory") as u64;
    assert_eq!(byte(pinned + 63), FRESH);
    calls! { driver.free_pinned(pinned as *mut u8) }
    assert_eq!(byte(pinned + 63), FREED);
    let plain = driver.allocate(512).expect("memory");
    assert_eq!(byte(plain), FRESH);
    calls! { driver.free(plain) }
    assert_eq!(byte(plain), FREED);
}

#[test]
fn memory_ends_and_joins_again() {
    let driver = device(1);
    let a = stream(&driver);
    let total = driver.memory().expect("its memory").total;
    // SAFETY: the stream is the driver's.
    let allocate = |bytes| unsafe { driver.allocate_on(bytes, a) };
    let small: Vec<_> = (0..1024).map(|_| allocate(1024).expect("memory")).collect();
    assert_eq!(driver.memory().expect("its memory").free, 0);
    let error = allocate(1).expect_err("all is taken");
    assert!(error.is_out_of_memory(), "{error}");
    for pointer in small {
        calls! { driver.free_on(pointer, a) }
    }
    assert_eq!(driver.memory().expect("its memory").free, total);
    assert!(allocate(512 << 10).is_err(), "the frees have not run");
    driver.drain();
    allocate(512 << 10).expect("neighbours that are free are one range");
}

#[test]
fn a_call_that_blocks_runs_what_it_waits_for() {
    let driver = device(3);
    let (a, b) = (stream(&driver), stream(&driver));
    let memory = driver.allocate(256).expect("memory");
    let event = driver.create_event().expect("an event");
    calls! {
        driver.fill_bytes(memory, 1, 1, a);
        driver.record_event(event, a);
        driver.fill_bytes(memory, 2, 1, b);
        driver.synchronize_event(event);
    }
    // SAFETY: the stream is the driver's.
    let progress = unsafe { driver.stream_progress(a) }.expect("an answer");
    assert_eq!(progress, StreamProgress::Idle);
    calls! { driver.free(memory) }
    assert_eq!(driver.runnable(), 0, "a plain free waits for the device");
}

#[test]
fn a_stream_held_forever_is_a_deadlock_that_says_who_waits_for_whom() {
    let driver = device(1);
    let (a, b) = (stream(&driver), stream(&driver));
    let flag = driver.allocate_pinned(4).expect("memory") as u64;
    // SAFETY: the flag is pinned memory of the driver's.
    unsafe { (flag as *mut u32).write(0) };
    let event = driver.create_event().expect("an event");
    calls! {
        driver.hold_while_zero(a, flag);
        driver.record_event(event, a);
        driver.wait_event(b, event);
    }
    assert_eq!((driver.runnable(), driver.deadlock()), (0, None));
    let error = driver.synchronize_device().expect_err("nothing can go on");
    let text = error.message();
    assert!(text.contains("stream 1 is held until the word"), "{text}");
    assert!(text.contains("stream 2 waits for entry 1 of stream 1"), "{text}");
    assert!(driver.deadlock().is_some_and(|told| told.contains("synchronize_device")));
    // SAFETY: as above.
    unsafe { (flag as *mut u32).write(1) };
    driver.synchronize_device().expect("the gate is open");
}

#[test]
fn a_full_queue_makes_room_by_running() {
    let driver = device(1);
    let a = stream(&driver);
    let memory = driver.allocate(256).expect("memory");
    for _ in 0..3000 {
        calls! { driver.fill_bytes(memory, 1, 1, a) }
    }
    assert_eq!(byte(memory), 1);
}

static MODULE: KernelModule = KernelModule { name: "test", ptx: "" };

static FAULTY: KernelDefinition = KernelDefinition {
    name: "faulty",
    module: &MODULE,
    parameters: &[],
    host: HostKernel::of::<Faulty>(),
};

struct Faulty;

impl KernelBody for Faulty {
    fn run<M: MemoryPolicy>(_: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        Err(KernelFault("it faults".into()))
    }
}

#[test]
fn a_kernel_that_faults_loses_the_device() {
    let driver = device(1);
    let (a, b) = (stream(&driver), stream(&driver));
    let memory = driver.allocate(256).expect("memory");
    let event = driver.create_event().expect("an event");
    let function = driver.load_kernel(&FAULTY).expect("a kernel");
    let dims = LaunchDims::linear(1, 1);
    calls! {
        driver.launch(function, dims, &Arguments::new(), a);
        driver.record_event(event, a);
        driver.wait_event(b, event);
        driver.fill_bytes(memory, 1, 1, b);
    }
    driver.drain();
    assert_eq!(byte(memory), FRESH, "what comes after the fault is passed over");
    // SAFETY: the stream is the driver's.
    let error = unsafe { driver.synchronize_stream(b) }.expect_err("the device is lost");
    assert!(error.is_sticky() && error.message().contains("it faults"), "{error}");
    assert!(driver.create_stream().is_err());
}

/// A program whose host asks, waits and allocates: the order in which its kernels ran.
fn order_of_a_run(seed: u64) -> (Vec<u8>, String) {
    let oracle = Arc::new(Oracle::new());
    let driver = SimulatedDriver::new(0, seed).watched_by(Arc::clone(&oracle) as _);
    let streams: Vec<_> = (0..4).map(|_| stream(&driver)).collect();
    let log = driver.allocate(4096).expect("memory");
    let fill = driver.load_kernel(&kernels::FILL_U32).expect("a kernel");
    let mut offsets = Vec::new();
    for round in 0u64..32 {
        let on = streams[round as usize % 4];
        // SAFETY: the stream is the driver's.
        let block = unsafe { driver.allocate_on(256, on) }.expect("memory");
        offsets.push(block - log);
        let mut arguments = Arguments::new();
        arguments.push_pointer(block);
        arguments.push_value(round as u32);
        arguments.push_value(4u64);
        calls! {
            driver.launch(fill, LaunchDims::linear(1, 4), &arguments, on);
            driver.copy_on_device(log + 16, log, 1, on);
            driver.fill_bytes(log, round as u8, 1, on);
            driver.free_on(block, on);
            driver.stream_progress(on)
        }
    }
    driver.drain();
    let memory = (0..32).map(|offset| byte(log + offset)).collect();
    (memory, format!("{:?} {offsets:?} {:?}", oracle.trace(), oracle.findings()))
}

#[test]
fn the_same_seed_gives_the_same_run_and_others_give_others() {
    let runs: Vec<_> = (0..20).map(order_of_a_run).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(order_of_a_run(seed as u64), *run, "seed {seed}");
    }
    let mut different: Vec<_> = runs.iter().map(|(_, text)| text).collect();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 15, "only {} different runs", different.len());
}

#[test]
fn any_call_can_fail_by_its_number_or_by_chance() {
    let layer = LayeredDriver::new(Arc::new(device(1)));
    layer.fail_call(2);
    let answers: Vec<_> = (0..4).map(|_| layer.create_event().is_ok()).collect();
    assert_eq!(answers, [true, true, false, true]);
    assert_eq!((layer.calls(), layer.count(DriverCall::CreateEvent)), (4, 4));
    let by_chance = |seed| {
        layer.heal();
        layer.fail_randomly(seed, 4, 3);
        (0..64).map(|_| layer.memory().is_ok()).collect::<Vec<_>>()
    };
    let (one, other) = (by_chance(1), by_chance(2));
    assert_eq!(one.iter().filter(|ok| !**ok).count(), 3);
    assert_eq!(one, by_chance(1));
    assert_ne!(one, other);
    layer.heal();
    layer.lose_device_at_call(1);
    assert!(layer.memory().is_ok());
    assert!(layer.create_event().expect_err("lost").is_sticky() && layer.memory().is_err());
}

/// Three streams of two fills each into one log of bytes; the answer is what is left at the end of
/// a run that takes `choices`, and how many streams could run at each step.
fn run_by_choices(choices: &[usize]) -> (u8, Vec<usize>) {
    let driver = device(1);
    let memory = driver.allocate(256).expect("memory");
    for on in 0..3u8 {
        let stream = stream(&driver);
        calls! {
            driver.fill_bytes(memory, 2 * on, 1, stream);
            driver.fill_bytes(memory, 2 * on + 1, 1, stream);
        }
    }
    let mut widths = Vec::new();
    loop {
        match driver.runnable() {
            0 => return (byte(memory), widths),
            width => {
                let choice = choices.get(widths.len()).copied().unwrap_or(0);
                widths.push(width);
                assert!(driver.step_choice(choice));
            }
        }
    }
}

#[test]
fn every_interleaving_can_be_visited_by_choices() {
    let (mut runs, mut last, mut choices) = (0, [0; 6], vec![0; 6]);
    loop {
        let (left, widths) = run_by_choices(&choices);
        runs += 1;
        last[usize::from(left)] += 1;
        // The next run takes another turn at the last place where there is one left to take.
        let Some(at) = (0..6).rev().find(|at| choices[*at] + 1 < widths[*at]) else { break };
        choices[at] += 1;
        choices[at + 1..].fill(0);
    }
    assert_eq!(runs, 90, "six operations, of which each stream keeps its two in order");
    assert_eq!(last, [0, 30, 0, 30, 0, 30]);
}
