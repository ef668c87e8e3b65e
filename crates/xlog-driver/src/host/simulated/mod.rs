//! The host device, simulated: one thread, and a seed that decides what runs next.
//!
//! Streams are queues, and nothing in them runs until somebody steps. A call that blocks on a real
//! device steps until what it waits for is done; a call that only asks may step a little first, so
//! that "done already" can happen at any moment. Which stream steps is drawn from the seed, so the
//! same seed and the same calls give the same run, and different seeds give different ones: any
//! order that the streams and their waits allow. Addresses come from one arena of fixed layout.
//!
//! The caller validates, as [`Driver`](crate::Driver) says. A kernel that faults, or panics, loses
//! the device, as on the parallel device and on a GPU. A kernel that polls memory until another
//! stream writes it never ends here, since one thread runs everything:
//! [`hold_while_zero`](SimulatedDriver::hold_while_zero) is the same without the polling.

mod driver;
mod memory;
mod random;
mod schedule;
mod touched;

use std::{fmt, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

pub use self::touched::{Streams, Touched};
use self::{
    memory::SimulatedMemory,
    schedule::{Entry, Schedule},
    touched::bit,
};
use super::{fault::FaultCell, operation::Operation, stream::QUEUE_DEPTH};
use crate::{
    DeviceCall, DeviceInfo, DeviceKind, DeviceWatcher, DriverResult, OperationId, RawStream,
};

/// Memory of a simulated device if nobody says otherwise. Only what is used is ever touched.
const DEFAULT_MEMORY: u64 = 1 << 30;

/// The host device, in its simulated mode.
///
/// ```
/// use xlog_driver::{Driver, StreamProgress, host::SimulatedDriver};
///
/// let driver = SimulatedDriver::new(0, 7).ask_without_steps();
/// let stream = driver.create_stream()?;
/// // SAFETY: stream and memory are this driver's, and stay until the end.
/// unsafe {
///     let memory = driver.allocate_on(64, stream)?;
///     driver.fill_bytes(memory, 1, 64, stream)?;
///     assert_eq!(driver.stream_progress(stream)?, StreamProgress::Busy); // nobody stepped
///     assert_eq!(driver.runnable(), 1);
///     driver.synchronize_stream(stream)?;
///     assert_eq!(driver.stream_progress(stream)?, StreamProgress::Idle);
/// }
/// # Ok::<(), xlog_driver::DriverError>(())
/// ```
pub struct SimulatedDriver {
    info: DeviceInfo,
    schedule: Mutex<Schedule>,
    fault: FaultCell,
    watcher: Option<Arc<dyn DeviceWatcher>>,
    settings: Settings,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    seed: u64,
    memory: u64,
    poisoned_at_most: usize,
    steps_when_asked: bool,
    runs_ahead: bool,
}

impl SimulatedDriver {
    /// A simulated device that goes by `ordinal`, and whose every choice comes from `seed`.
    #[must_use]
    pub fn new(ordinal: u32, seed: u64) -> Self {
        let settings = Settings {
            seed,
            memory: DEFAULT_MEMORY,
            poisoned_at_most: usize::MAX,
            steps_when_asked: true,
            runs_ahead: true,
        };
        Self {
            info: DeviceInfo {
                kind: DeviceKind::Host,
                ordinal,
                name: format!("simulated host device (seed {seed})"),
                driver_version: 0,
                compute_capability: (0, 0),
                multiprocessors: 1,
                stream_ordered_memory: true,
            },
            schedule: Mutex::new(settings.schedule()),
            fault: FaultCell::default(),
            watcher: None,
            settings,
        }
    }

    /// The same device with `bytes` bytes of memory, and as many pinned ones. Comes before
    /// anything is made on it.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.settings.memory = bytes;
        self.restart()
    }

    /// The same device, writing poison only over both ends of ranges longer than `bytes`: for
    /// large slabs, where all of it would take longer than the program. Comes before anything is
    /// made on it.
    #[must_use]
    pub fn poisoning_at_most(mut self, bytes: usize) -> Self {
        self.settings.poisoned_at_most = bytes;
        self.restart()
    }

    /// The same device, on which nothing runs when the host only asks or allocates. Then work runs
    /// where the host waits, and where somebody steps.
    #[must_use]
    pub fn ask_without_steps(mut self) -> Self {
        self.settings.steps_when_asked = false;
        self
    }

    /// The same device, on which nothing runs ahead: nothing when the host asks or allocates, and
    /// only what it waits for when it waits. Everything else runs where somebody steps. Comes
    /// before anything is made on it.
    #[must_use]
    pub fn never_ahead(mut self) -> Self {
        self.settings.runs_ahead = false;
        self.ask_without_steps().restart()
    }

    /// The same device, with every call and every access told to `watcher`. Comes before anything
    /// is made on it.
    #[must_use]
    pub fn watched_by(mut self, watcher: Arc<dyn DeviceWatcher>) -> Self {
        self.watcher = Some(watcher);
        self
    }

    fn restart(self) -> Self {
        *self.schedule.lock() = self.settings.schedule();
        self
    }

    /// The seed it was made with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// How many streams can run their next operation now.
    #[must_use]
    pub fn runnable(&self) -> usize {
        self.schedule.lock().runnable(&self.fault)
    }

    /// The streams that can run their next operation now.
    #[must_use]
    pub fn runnable_streams(&self) -> Streams {
        self.schedule.lock().runnable_streams(&self.fault)
    }

    /// What the calls and steps since the last look had to do with.
    pub fn take_touched(&self) -> Touched {
        std::mem::take(&mut self.schedule.lock().touched)
    }

    /// How many entries each stream was given so far, and how many of them are over.
    #[must_use]
    pub fn progress(&self) -> Vec<(u64, u64)> {
        self.schedule.lock().progress()
    }

    /// What the last operation that ran had to come after, as streams and numbers of their entries:
    /// its own, and those that its stream waited for. Only a device that is
    /// [`never_ahead`](Self::never_ahead) knows.
    #[must_use]
    pub fn last_causes(&self) -> Vec<(usize, u64)> {
        let schedule = self.schedule.lock();
        schedule.causes.iter().map(|place| (place.stream, place.number)).collect()
    }

    /// Runs the next operation of one stream that can, chosen by the seed. False if none can.
    pub fn step(&self) -> bool {
        self.schedule.lock().step(&self.fault, self.watcher.as_deref())
    }

    /// Runs the next operation of stream number `choice` among those that can, in the order in
    /// which they were created. False if there are not that many.
    pub fn step_choice(&self, choice: usize) -> bool {
        self.schedule.lock().step_choice(choice, &self.fault, self.watcher.as_deref())
    }

    /// Runs the next operation of the stream that was created after `stream` others. False if it
    /// cannot.
    pub fn step_stream(&self, stream: usize) -> bool {
        self.schedule.lock().step_stream(stream, &self.fault, self.watcher.as_deref())
    }

    /// Steps until nothing can run any more.
    pub fn drain(&self) {
        while self.step() {}
    }

    /// What was waiting for what when a call that blocks could not go on, if that ever happened.
    #[must_use]
    pub fn deadlock(&self) -> Option<String> {
        self.schedule.lock().deadlock.clone()
    }

    /// Holds everything that is enqueued on `stream` from here on while the four bytes at
    /// `address` are zero: a kernel that ends only after another one has run.
    ///
    /// # Safety
    /// As [`Driver`](crate::Driver) says; the address is a multiple of four.
    pub unsafe fn hold_while_zero(&self, stream: RawStream, address: u64) -> DriverResult<()> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let stream = schedule.stream(stream, "hold_while_zero")?;
        schedule.push(stream, Entry::Hold(address));
        Ok(())
    }

    fn tell(&self, call: &DeviceCall<'_>) {
        if let Some(watcher) = &self.watcher {
            watcher.called(call);
        }
    }

    /// The schedule, after a few steps if the seed says so: the device did not wait for the
    /// question.
    fn asked(&self) -> MutexGuard<'_, Schedule> {
        let mut schedule = self.schedule.lock();
        if self.settings.steps_when_asked && !schedule.is_idle() {
            while schedule.random.coin() && schedule.step(&self.fault, self.watcher.as_deref()) {}
        }
        schedule
    }

    /// Steps until `holds`, which is about `stream` if it is about one, or says why that never
    /// happens.
    fn run_until(
        &self,
        schedule: &mut Schedule,
        call: &'static str,
        stream: Option<usize>,
        holds: impl Fn(&Schedule) -> bool,
    ) -> DriverResult<()> {
        schedule.touched.asked |= stream.map_or_else(|| schedule.busy_streams(), bit);
        let only = if self.settings.runs_ahead { None } else { stream };
        schedule.run_until(call, only, &self.fault, self.watcher.as_deref(), holds)?;
        self.fault.check()
    }

    fn enqueue(
        &self,
        stream: RawStream,
        operation: Operation,
        call: &'static str,
    ) -> DriverResult<()> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let index = schedule.stream(stream, call)?;
        self.make_room(&mut schedule, index, call)?;
        let number = OperationId(schedule.next_operation);
        schedule.next_operation += 1;
        self.tell(&operation.call(number, stream));
        schedule.push(index, Entry::Run { operation, number });
        Ok(())
    }

    /// A full queue blocks, as on every device.
    fn make_room(
        &self,
        schedule: &mut Schedule,
        stream: usize,
        call: &'static str,
    ) -> DriverResult<()> {
        let has_room = |schedule: &Schedule| schedule.pending(stream) < QUEUE_DEPTH;
        if has_room(schedule) {
            return Ok(());
        }
        self.run_until(schedule, call, Some(stream), has_room)
    }
}

impl Settings {
    fn schedule(&self) -> Schedule {
        let memory = SimulatedMemory::new(self.memory, self.memory, self.poisoned_at_most);
        let mut schedule = Schedule::new(self.seed, memory);
        schedule.keeps_causes = !self.runs_ahead;
        schedule
    }
}

impl fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDriver")
            .field("info", &self.info)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
