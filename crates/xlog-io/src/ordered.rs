//! Work that threads share, handed out in the order it was taken.
//!
//! Jobs come from one source, one at a time; threads do them side by side; results leave in the
//! order of the jobs. No more than a window of them is under way or waiting, so memory is bounded
//! however slow the taker is. A thread that panics is an error to the taker, never a hang.
//!
//! There are two locks, taken in this order: the source's, held while a job is made, and the
//! state's, held for a few instructions. Whoever waits for room holds the source: nobody else could
//! do anything with it.

use std::{collections::VecDeque, fmt, sync::Arc, thread};

use parking_lot::{Condvar, Mutex};

use crate::{
    error::{FileError, FileResult},
    guard::guarded,
};

/// Where jobs come from. One thread at a time asks.
pub(crate) trait JobSource: Send + 'static {
    /// What one thread does in one go.
    type Job: Send + 'static;

    /// The next job, or `None` after the last one. An error is the last answer.
    fn next_job(&mut self) -> FileResult<Option<Self::Job>>;

    /// What to call the input in an error that is nobody's.
    fn name(&self) -> String;
}

/// Results in the order of their jobs.
pub(crate) struct Ordered<R> {
    shared: Arc<Shared<R>>,
    /// Starts the threads, once somebody wants a result.
    launch: Option<Launch<R>>,
    over: bool,
}

type Launch<R> = Box<dyn FnOnce(&Arc<Shared<R>>) -> FileResult<()> + Send>;

struct Shared<R> {
    state: Mutex<State<R>>,
    /// A result is there, or there will be none.
    arrived: Condvar,
    /// There is room for another job, or nobody wants one.
    room: Condvar,
    window: usize,
}

struct State<R> {
    /// One place for each job from the first that was not taken; empty while it is under way.
    results: VecDeque<Option<FileResult<R>>>,
    /// The number of the job whose place is the first.
    first: u64,
    /// The last job was handed out.
    exhausted: bool,
    /// Nobody takes results any more.
    stopped: bool,
}

/// More than any machine has cores; a number from a command line can be anything.
const MOST_THREADS: usize = 1024;

impl<R: Send + 'static> Ordered<R> {
    /// Work for so many threads, which start when the first result is asked for. Each has a
    /// `worker` of its own.
    pub(crate) fn new<S, W>(threads: usize, source: S, worker: impl Fn() -> W) -> Self
    where
        S: JobSource,
        W: FnMut(S::Job) -> FileResult<R> + Send + 'static,
    {
        let threads = threads.clamp(1, MOST_THREADS);
        let workers: Vec<W> = (0..threads).map(|_| worker()).collect();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                results: VecDeque::new(),
                first: 0,
                exhausted: false,
                stopped: false,
            }),
            arrived: Condvar::new(),
            room: Condvar::new(),
            window: 2 * threads,
        });
        let launch = move |shared: &Arc<Shared<R>>| {
            let name = source.name();
            let source = Arc::new(Mutex::new(source));
            for (number, work) in workers.into_iter().enumerate() {
                let (shared, source) = (Arc::clone(shared), Arc::clone(&source));
                let run = move || run(&shared, &source, work);
                let started = thread::Builder::new().name(format!("xlog-io-{number}")).spawn(run);
                started.map_err(|error| {
                    FileError::new(&name, format!("no thread could be started: {error}"))
                })?;
            }
            Ok(())
        };
        Self { shared, launch: Some(Box::new(launch)), over: false }
    }

    /// The next result, or `None` after the last one, or after an error.
    pub(crate) fn next(&mut self) -> FileResult<Option<R>> {
        if self.over {
            return Ok(None);
        }
        if let Some(launch) = self.launch.take() {
            launch(&self.shared).inspect_err(|_| self.stop())?;
        }
        let mut state = self.shared.state.lock();
        loop {
            if let Some(result) = state.results.pop_front_if(|place| place.is_some()) {
                state.first += 1;
                self.shared.room.notify_one();
                self.over = matches!(result, Some(Err(_)));
                return result.transpose();
            }
            if state.results.is_empty() && state.exhausted {
                self.over = true;
                return Ok(None);
            }
            self.shared.arrived.wait(&mut state);
        }
    }
}

impl<R> Ordered<R> {
    /// No more results are wanted.
    pub(crate) fn stop(&mut self) {
        self.over = true;
        self.shared.state.lock().stopped = true;
        self.shared.room.notify_all();
    }
}

impl<R> Drop for Ordered<R> {
    /// Threads end after the job they are at. Nobody waits for them: one may be reading a terminal.
    fn drop(&mut self) {
        self.stop();
    }
}

impl<R> fmt::Debug for Ordered<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Ordered").field("taken", &state.first).field("over", &self.over).finish()
    }
}

/// What one thread does until there is nothing to do.
fn run<S: JobSource, R>(
    shared: &Shared<R>,
    source: &Mutex<S>,
    mut work: impl FnMut(S::Job) -> FileResult<R>,
) {
    loop {
        // The source stays locked until the job has its place, so places are in order.
        let mut jobs = source.lock();
        {
            let mut state = shared.state.lock();
            while !state.stopped && !state.exhausted && state.results.len() >= shared.window {
                shared.room.wait(&mut state);
            }
            if state.stopped || state.exhausted {
                return;
            }
        }
        let job = guarded(&jobs.name(), || jobs.next_job());
        let name = jobs.name();
        let number = {
            let mut state = shared.state.lock();
            match &job {
                Ok(None) => state.exhausted = true,
                Ok(Some(_)) => state.results.push_back(None),
                Err(error) => {
                    state.exhausted = true;
                    state.results.push_back(Some(Err(error.clone())));
                }
            }
            shared.arrived.notify_one();
            (state.first + state.results.len() as u64).wrapping_sub(1)
        };
        drop(jobs);
        let Ok(Some(job)) = job else {
            shared.room.notify_all();
            return;
        };
        let result = guarded(&name, || work(job));
        let mut state = shared.state.lock();
        let place = (number - state.first) as usize;
        if let Some(place) = state.results.get_mut(place) {
            *place = Some(result);
        }
        shared.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers {
        next: u64,
        end: u64,
        broken: bool,
    }

    impl JobSource for Numbers {
        type Job = u64;

        fn next_job(&mut self) -> FileResult<Option<u64>> {
            if self.next == self.end {
                return match self.broken {
                    true => Err(FileError::new("numbers", "broken")),
                    false => Ok(None),
                };
            }
            self.next += 1;
            Ok(Some(self.next - 1))
        }

        fn name(&self) -> String {
            "numbers".into()
        }
    }

    #[test]
    fn results_leave_in_the_order_of_their_jobs() {
        for threads in 1..6 {
            let source = Numbers { next: 0, end: 500, broken: false };
            let mut ordered = Ordered::new(threads, source, || |job| Ok(job * 2));
            let mut seen = Vec::new();
            while let Some(result) = ordered.next().unwrap() {
                seen.push(result);
            }
            assert_eq!(seen, (0..500).map(|job| job * 2).collect::<Vec<_>>());
            assert_eq!(ordered.next(), Ok(None));
        }
    }

    #[test]
    fn an_error_comes_after_what_was_before_it_and_ends_the_work() {
        for broken in [false, true] {
            let source = Numbers { next: 0, end: 100, broken };
            let work = |job| match job {
                70 => Err(FileError::new("numbers", "seventy")),
                job => Ok(job),
            };
            let mut ordered = Ordered::new(3, source, || work);
            for expected in 0..70 {
                assert_eq!(ordered.next(), Ok(Some(expected)));
            }
            assert_eq!(ordered.next().unwrap_err().message, "seventy");
            assert_eq!(ordered.next(), Ok(None));
        }
        let mut ordered = Ordered::new(2, Numbers { next: 0, end: 3, broken: true }, || Ok);
        assert_eq!((0..3).map(|_| ordered.next()).filter(Result::is_ok).count(), 3);
        assert_eq!(ordered.next().unwrap_err().message, "broken");
    }

    #[test]
    fn a_panic_is_an_error() {
        let source = Numbers { next: 0, end: 9, broken: false };
        let work = |job: u64| if job == 4 { panic!("four") } else { Ok(job) };
        let mut ordered = Ordered::new(2, source, || work);
        (0..4).for_each(|expected| assert_eq!(ordered.next(), Ok(Some(expected))));
        assert!(ordered.next().unwrap_err().message.contains("four"));
    }
}
