//! Every kind of finding: a small program that has it, the same one mended, and the words.

use std::sync::Arc;

use xlog_core::{Access, ScalarType::U32};
use xlog_cuda::LaunchDims;
use xlog_driver::{
    Arguments, BlockChange, BlockNote, Declared, DeclaredUse, DeviceWatcher, Driver,
    KernelDefinition, KernelModule, Parameter, RawEvent, RawStream,
    host::{
        HostDriver, HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy, SimulatedDriver,
    },
};
use xlog_testkit::oracle::{Edit, Finding, FindingKind, Oracle, Step};

const BYTES: usize = 64;

/// A watched device with two streams and an event.
struct Bench {
    oracle: Arc<Oracle>,
    driver: Box<dyn Driver>,
    a: RawStream,
    b: RawStream,
    event: RawEvent,
}

impl Bench {
    fn simulated(seed: u64) -> Self {
        let oracle = Arc::new(Oracle::new());
        let driver = SimulatedDriver::new(0, seed).with_memory(1 << 20);
        let driver = driver.ask_without_steps().watched_by(Arc::clone(&oracle) as _);
        Self::over(oracle, Box::new(driver))
    }

    fn parallel() -> Self {
        let oracle = Arc::new(Oracle::new());
        let driver = HostDriver::new(0).watched_by(Arc::clone(&oracle) as _);
        Self::over(oracle, Box::new(driver))
    }

    fn over(oracle: Arc<Oracle>, driver: Box<dyn Driver>) -> Self {
        let stream = || driver.create_stream().expect("a stream");
        let (a, b) = (stream(), stream());
        let event = driver.create_event().expect("an event");
        Self { oracle, driver, a, b, event }
    }

    fn memory(&self) -> u64 {
        self.driver.allocate(BYTES).expect("memory")
    }

    fn memory_on(&self, stream: RawStream) -> u64 {
        // SAFETY: the stream is the device's.
        unsafe { self.driver.allocate_on(BYTES, stream) }.expect("memory")
    }

    fn free_on(&self, memory: u64, stream: RawStream) {
        // SAFETY: the memory is the device's; whether it is still used is what is tested.
        unsafe { self.driver.free_on(memory, stream) }.expect("a free");
    }

    fn write(&self, memory: u64, stream: RawStream) {
        // SAFETY: the memory is there; whether the order is right is what is tested.
        unsafe { self.driver.fill_bytes(memory, 1, BYTES, stream) }.expect("a fill");
    }

    fn copy(&self, to: u64, from: u64, stream: RawStream) {
        // SAFETY: as in `write`.
        unsafe { self.driver.copy_on_device(to, from, BYTES, stream) }.expect("a copy");
    }

    /// Has the second stream follow the first.
    fn fence(&self) {
        // SAFETY: streams and event are the device's.
        unsafe {
            self.driver.record_event(self.event, self.a).expect("a record");
            self.driver.wait_event(self.b, self.event).expect("a wait");
        }
    }

    fn launch(&self, kernel: &'static KernelDefinition, pointers: &[u64], stream: RawStream) {
        let function = self.driver.load_kernel(kernel).expect("a kernel");
        let mut arguments = Arguments::new();
        pointers.iter().for_each(|pointer| arguments.push_pointer(*pointer));
        // SAFETY: the arguments are the kernel's; what it does with them is what is tested.
        let launched =
            unsafe { self.driver.launch(function, LaunchDims::linear(1, 1), &arguments, stream) };
        launched.expect("a launch");
    }

    fn findings(&self) -> Vec<Finding> {
        self.driver.synchronize_device().expect("the end");
        self.oracle.findings()
    }

    fn kinds(&self) -> Vec<FindingKind> {
        let mut kinds: Vec<_> = self.findings().iter().map(|finding| finding.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

/// Runs a program with and without its fence, with many seeds: mended it is clean, and otherwise
/// each finding is one of `kinds`, and all of them turn up.
fn needs_a_fence(kinds: &[FindingKind], program: impl Fn(&Bench, &dyn Fn())) {
    let mut seen = Vec::new();
    for seed in 0..20 {
        let bench = Bench::simulated(seed);
        program(&bench, &|| bench.fence());
        assert_eq!(bench.findings(), [], "seed {seed}, mended");
        assert_eq!(bench.oracle.trace().races(None), [], "seed {seed}, mended");
        let bench = Bench::simulated(seed);
        program(&bench, &|| ());
        let found = bench.kinds();
        assert!(!found.is_empty(), "seed {seed} found nothing");
        assert_ne!(bench.oracle.trace().races(None), [], "seed {seed}");
        seen.extend(found);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, kinds);
}

#[test]
fn a_read_that_does_not_follow_the_write() {
    use FindingKind::{ReadAfterWrite, UninitialisedRead, WriteAfterRead};
    // Run the wrong way round, the same program writes what was read already, and the reader got
    // bytes that nobody had written yet.
    needs_a_fence(&[ReadAfterWrite, WriteAfterRead, UninitialisedRead], |bench, fence| {
        let (from, to) = (bench.memory(), bench.memory());
        bench.write(from, bench.a);
        fence();
        bench.copy(to, from, bench.b);
    });
}

#[test]
fn a_write_that_does_not_follow_the_read() {
    use FindingKind::{ReadAfterWrite, WriteAfterRead};
    needs_a_fence(&[ReadAfterWrite, WriteAfterRead], |bench, fence| {
        let (from, to) = (bench.memory(), bench.memory());
        bench.write(from, bench.a);
        bench.driver.synchronize_device().expect("the first write");
        bench.copy(to, from, bench.a);
        fence();
        bench.write(from, bench.b);
    });
}

#[test]
fn a_write_that_does_not_follow_the_write() {
    needs_a_fence(&[FindingKind::WriteAfterWrite], |bench, fence| {
        let memory = bench.memory();
        bench.write(memory, bench.a);
        fence();
        bench.write(memory, bench.b);
    });
}

#[test]
fn a_use_that_does_not_follow_the_allocation() {
    needs_a_fence(&[FindingKind::UseBeforeAllocation], |bench, fence| {
        let memory = bench.memory_on(bench.a);
        fence();
        bench.write(memory, bench.b);
    });
}

#[test]
fn a_use_that_the_free_does_not_follow() {
    needs_a_fence(&[FindingKind::UseAfterFree], |bench, fence| {
        let memory = bench.memory_on(bench.b);
        // SAFETY: the stream is the device's.
        unsafe { bench.driver.synchronize_stream(bench.b) }.expect("the allocation");
        bench.write(memory, bench.a);
        fence();
        bench.free_on(memory, bench.b);
    });
}

#[test]
fn a_use_that_has_run_when_an_unordered_free_comes() {
    let bench = Bench::simulated(1);
    let memory = bench.memory_on(bench.b);
    // SAFETY: the stream is the device's.
    unsafe { bench.driver.synchronize_stream(bench.b) }.expect("the allocation");
    bench.write(memory, bench.a);
    run_all_but_the_last(&bench);
    // It has run, but nothing in the program says so: the free is as wrong as before it ran.
    bench.free_on(memory, bench.b);
    assert_eq!(bench.kinds(), [FindingKind::UseAfterFree]);
}

/// Fills the first stream's queue until what is in front has run: the host learns nothing by it.
fn run_all_but_the_last(bench: &Bench) {
    let other = bench.memory();
    (0..1200).for_each(|_| bench.write(other, bench.a));
}

#[test]
fn a_use_enqueued_after_the_free() {
    for seed in 0..10 {
        let bench = Bench::simulated(seed);
        let memory = bench.memory_on(bench.a);
        bench.free_on(memory, bench.a);
        bench.write(memory, bench.a);
        let findings = bench.findings();
        assert_eq!(findings.len(), 1);
        let text = findings[0].to_string();
        assert!(text.starts_with("use after free:"), "{text}");
        assert!(text.contains("given back before the use was enqueued"), "{text}");
    }
}

#[test]
fn memory_that_was_handed_out_again_has_no_past() {
    // Reuse on the freeing stream while the former owner's work is still to run, and elsewhere
    // once the free has run: neither is a finding.
    let bench = Bench::simulated(1);
    let first = bench.memory_on(bench.a);
    for _ in 0..5 {
        let again = bench.memory_on(bench.a);
        bench.write(again, bench.a);
        bench.free_on(again, bench.a);
    }
    bench.free_on(first, bench.a);
    assert_eq!(bench.findings(), []);
    let elsewhere = bench.memory_on(bench.b);
    bench.write(elsewhere, bench.b);
    assert_eq!(bench.findings(), []);
    // What nobody wrote since it was handed out again is not what its former owner wrote.
    let (fresh, to) = (bench.memory_on(bench.b), bench.memory());
    bench.copy(to, fresh, bench.b);
    assert_eq!(bench.kinds(), [FindingKind::UninitialisedRead]);
}

#[test]
fn what_the_host_waited_for_or_was_told_needs_no_wait() {
    for way in 0..4 {
        let bench = Bench::simulated(way);
        let memory = bench.memory();
        bench.write(memory, bench.a);
        // SAFETY: streams and events are the device's.
        unsafe {
            bench.driver.record_event(bench.event, bench.a).expect("a record");
            match way {
                0 => bench.driver.synchronize_stream(bench.a).expect("a wait"),
                1 => bench.driver.synchronize_event(bench.event).expect("a wait"),
                2 => bench.driver.synchronize_device().expect("a wait"),
                _ => {
                    assert!(!bench.driver.event_done(bench.event).expect("an answer"));
                    bench.write(bench.memory(), bench.b);
                    while !bench.driver.event_done(bench.event).expect("an answer") {
                        bench.driver.synchronize_stream(bench.a).expect("a wait");
                    }
                }
            }
        }
        bench.write(memory, bench.b);
        assert_eq!(bench.findings(), [], "way {way}");
    }
}

static MODULE: KernelModule = KernelModule { name: "test", ptx: "" };

/// Writes one value more than its memory has.
static OVERRUN: KernelDefinition = KernelDefinition {
    name: "overrun",
    module: &MODULE,
    parameters: &[Parameter::output("out", U32)],
    host: HostKernel::of::<Overrun>(),
};

struct Overrun;

impl KernelBody for Overrun {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let out = call.output::<u32>(0, BYTES / 4 + 1)?;
        (0..=BYTES / 4).for_each(|index| out.set(index, 7));
        Ok(())
    }
}

/// Reads the first value behind its pointer, and writes it.
static TOUCH: KernelDefinition = KernelDefinition {
    name: "touch",
    module: &MODULE,
    parameters: &[Parameter::in_out("data", U32)],
    host: HostKernel::of::<Touch>(),
};

struct Touch;

impl KernelBody for Touch {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let value = call.input::<u32>(0, 1)?.get(0);
        call.output::<u32>(0, 1)?.set(0, value + 1);
        Ok(())
    }
}

#[test]
fn an_access_past_the_end_of_an_allocation_is_found_and_not_made() {
    let bench = Bench::simulated(1);
    let (memory, _neighbour) = (bench.memory(), bench.memory());
    bench.launch(&OVERRUN, &[memory], bench.a);
    let findings = bench.findings();
    let text = findings[0].to_string();
    assert_eq!(bench.kinds(), [FindingKind::OutOfBounds]);
    assert!(text.contains("overrun on raw stream 0 writes bytes 64..68"), "{text}");
    assert!(text.contains("no allocation holds all of these bytes"), "{text}");
    // SAFETY: the arena's ranges are 256 bytes at least.
    let behind = unsafe { ((memory + BYTES as u64) as *const u32).read() };
    assert_eq!(behind, 0xA5A5_A5A5, "poison, and no 7");
}

#[test]
fn an_address_that_was_never_allocated_is_found_and_not_touched() {
    let bench = Bench::simulated(1);
    bench.launch(&TOUCH, &[64], bench.a);
    assert_eq!(bench.kinds(), [FindingKind::OutOfBounds]);
}

/// What the runtime would say of a block of half the memory.
fn note(change: BlockChange, address: u64, generation: u64, stream: RawStream) -> BlockNote {
    BlockNote {
        change,
        address,
        bytes: BYTES / 2,
        tag: "orders",
        generation,
        stream: Some(stream),
        stream_name: 5,
        place: Some(std::panic::Location::caller()),
    }
}

/// Declares one block for what `work` enqueues.
fn declare(bench: &Bench, address: u64, generation: u64, access: Access, work: impl FnOnce()) {
    let uses = [DeclaredUse { address, generation, access }];
    let place = std::panic::Location::caller();
    let declared = Declared { stream: bench.a, stream_name: 5, uses: &uses, place };
    let declaration = bench.oracle.declared(&declared);
    work();
    bench.oracle.declaration_over(declaration);
}

#[test]
fn an_undeclared_access_is_told_from_a_declared_one() {
    use BlockChange::HandedOut;
    let run = |touched: u64, access| {
        let bench = Bench::simulated(1);
        let slab = bench.memory();
        bench.write(slab, bench.a);
        bench.oracle.block(&note(HandedOut, slab, 1, bench.a));
        bench.oracle.block(&note(HandedOut, slab + 32, 2, bench.a));
        declare(&bench, slab, 1, Access::Write, || {
            // SAFETY: the memory is the device's.
            unsafe { bench.driver.fill_bytes(slab, 0, 32, bench.a) }.expect("a fill");
        });
        let launch = || bench.launch(&TOUCH, &[slab + touched], bench.a);
        declare(&bench, slab, 1, access, launch);
        bench.findings()
    };
    assert_eq!(run(0, Access::ReadWrite), []);
    let other = run(32, Access::ReadWrite);
    assert_eq!(other[0].kind, FindingKind::Undeclared);
    let text = other[0].to_string();
    assert!(text.contains("touch on stream 5 reads bytes 0..4 of block \"orders\""), "{text}");
    assert!(text.contains("generation 2") && text.contains("oracle.rs:"), "{text}");
    assert!(text.contains("what to do: declare the block for this launch"), "{text}");
    let written = run(0, Access::Read);
    assert_eq!(written.len(), 1);
    assert!(written[0].to_string().contains("not for this kind of access"), "{}", written[0]);
}

#[test]
fn a_block_of_a_pool_has_a_life_of_its_own() {
    use BlockChange::{HandedOut, TakenBack};
    let bench = Bench::simulated(1);
    let slab = bench.memory();
    bench.write(slab, bench.a);
    bench.oracle.block(&note(HandedOut, slab, 1, bench.a));
    bench.launch(&TOUCH, &[slab], bench.a);
    bench.oracle.block(&note(TakenBack, slab, 1, bench.a));
    assert_eq!(bench.findings(), [], "the block was there when the launch was enqueued");
    bench.launch(&TOUCH, &[slab], bench.a);
    assert_eq!(bench.kinds(), [FindingKind::UseAfterFree]);
    // The next owner's bytes are fresh, whoever wrote them before.
    let bench = Bench::simulated(1);
    let slab = bench.memory();
    bench.write(slab, bench.a);
    bench.oracle.block(&note(HandedOut, slab, 3, bench.a));
    declare(&bench, slab, 3, Access::ReadWrite, || bench.launch(&TOUCH, &[slab], bench.a));
    assert_eq!(bench.kinds(), [FindingKind::UninitialisedRead]);
}

#[test]
fn a_race_says_who_where_why_and_what_to_do() {
    let bench = Bench::simulated(1);
    let memory = bench.memory();
    bench.write(memory, bench.a);
    bench.fence();
    bench.write(memory, bench.a);
    run_all_but_the_last(&bench);
    bench.launch(&TOUCH, &[memory], bench.b);
    let findings = bench.findings();
    let race = findings.iter().find(|one| one.kind == FindingKind::WriteAfterWrite);
    let race = race.expect("a race");
    assert_eq!((race.first.name, race.second.name), ("fill", "touch"));
    let text = race.to_string();
    for part in [
        "write-after-write race:",
        "first:  fill on raw stream 0 writes bytes 0..4 of memory that no block names",
        "second: touch on raw stream 1 writes bytes 0..4",
        "raw stream 1 follows raw stream 0 only up to number 1 of what was enqueued there",
        "and the first is number 2",
        "what to do: declare both uses",
    ] {
        assert!(text.contains(part), "no \"{part}\" in\n{text}");
    }
}

#[test]
fn findings_come_once() {
    let bench = Bench::simulated(1);
    let memory = bench.memory();
    bench.write(memory, bench.a);
    bench.launch(&OVERRUN, &[memory], bench.b);
    let mut kinds: Vec<_> = bench.findings().iter().map(|finding| finding.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [FindingKind::WriteAfterWrite, FindingKind::OutOfBounds]);
}

#[test]
fn the_parallel_device_is_checked_by_the_same_oracle() {
    for _ in 0..20 {
        let bench = Bench::parallel();
        let (from, to) = (bench.memory_on(bench.a), bench.memory_on(bench.b));
        bench.write(from, bench.a);
        bench.fence();
        bench.copy(to, from, bench.b);
        assert_eq!(bench.findings(), []);
        // SAFETY: the memory is the device's, and the device is at rest.
        assert_eq!(unsafe { (to as *const u8).read() }, 1);
        bench.write(to, bench.a);
        bench.copy(from, to, bench.b);
        assert!(!bench.findings().is_empty(), "nothing orders the two");
    }
}

#[test]
fn a_trace_is_judged_again_with_a_wait_left_out_or_weakened() {
    let bench = Bench::simulated(1);
    let (one, two) = (bench.memory(), bench.memory());
    bench.write(one, bench.a);
    bench.write(two, bench.a);
    bench.fence();
    bench.write(one, bench.b);
    bench.fence(); // superfluous
    bench.write(two, bench.b);
    assert_eq!(bench.findings(), []);
    let trace = bench.oracle.trace();
    let waits: Vec<_> = trace.waits().collect();
    assert_eq!((waits.len(), trace.races(None).len()), (2, 0));
    // Without the first wait both streams write the first block; the second is still in time.
    let races = trace.races(Some(Edit::Remove(waits[0])));
    assert_eq!(races.len(), 1);
    assert_eq!(races[0].kind, FindingKind::WriteAfterWrite);
    assert!(matches!(trace.steps[races[0].earlier], Step::Operation { stream: 0, .. }));
    assert_eq!(trace.races(Some(Edit::Remove(waits[1]))), []);
    // One operation earlier, the first still covers the first block, and the second the second.
    assert_eq!(trace.races(Some(Edit::EndEarlier(waits[0]))), []);
    assert_eq!(trace.races(Some(Edit::EndEarlier(waits[1]))), []);
    let analysis = trace.analysis();
    assert!(analysis.has_race(Some(Edit::Remove(waits[0]))) && !analysis.has_race(None));
}
