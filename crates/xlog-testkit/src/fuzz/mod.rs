//! Feeds a reader what nobody would write, and sees that it copes.
//!
//! A [`Fuzz`] has good inputs and words that belong to the format. It changes and joins them as
//! [`Mutator`] does, from a seed, so that the same seed gives the same cases; `XLOG_FUZZ_SECONDS`
//! gives it as long as one likes, with other seeds each time. The check it is given says what is
//! wrong with an answer. It may not panic either, and if it takes too long, the process ends with
//! the input that did it: whoever hangs cannot be asked to stop. What is found is made as short as
//! it can be before it is shown.
//!
//! ```
//! use xlog_testkit::fuzz::Fuzz;
//!
//! let fuzz = Fuzz::new("numbers", &["1", "-20"]).with_words(&["+", "0x"]);
//! let finding = fuzz.run(200, &|input| match std::str::from_utf8(input).map(str::parse::<i8>) {
//!     Ok(Err(error)) if error.to_string().is_empty() => Err("an error that says nothing".into()),
//!     _ => Ok(()),
//! });
//! assert!(finding.is_none());
//! ```

mod mutate;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

pub use self::mutate::Mutator;
use crate::check::Draw;

/// No reader takes nearly as long for inputs of this size, even on a machine that is busy.
const TOO_LONG: Duration = Duration::from_secs(30);

/// Tries that making a finding shorter may take.
const MOST_TRIES: usize = 5_000;

/// What is wrong with what a reader made of an input.
pub type Verdict = Result<(), String>;

/// An input that a reader does not cope with.
#[derive(Clone, Debug)]
pub struct FuzzFinding {
    /// Which fuzzing.
    pub name: &'static str,
    /// The seed of the case.
    pub seed: u64,
    /// The input, as short as it could be made.
    pub input: Vec<u8>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for FuzzFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, seed, input, what } = self;
        let input = input.escape_ascii();
        write!(f, "fuzzing {name}, seed {seed}: {what}; the input is b\"{input}\"")
    }
}

/// Good inputs of one reader, to be spoilt.
#[derive(Clone, Debug)]
pub struct Fuzz {
    name: &'static str,
    mutator: Mutator,
}

/// Ends the process if a case takes too long.
struct Watchdog {
    case: Arc<(Mutex<Case>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Case {
    text: String,
    since: Option<Instant>,
    over: bool,
}

impl Fuzz {
    /// Starts from these inputs.
    #[must_use]
    pub fn new(name: &'static str, corpus: &[&str]) -> Self {
        Self { name, mutator: Mutator::new(corpus) }
    }

    /// The same with words that belong to the format.
    #[must_use]
    pub fn with_words(mut self, words: &[&str]) -> Self {
        self.mutator.add_words(words);
        self
    }

    /// Gives `check` the good inputs and as many changed ones as `cases`, or as there is time for
    /// in `XLOG_FUZZ_SECONDS`. The answer is the first that it does not cope with.
    #[must_use]
    pub fn run(&self, cases: u64, check: &dyn Fn(&[u8]) -> Verdict) -> Option<FuzzFinding> {
        let seconds = std::env::var("XLOG_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
        let deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let first = if deadline.is_some() { entropy() } else { 0 };
        let watchdog = Watchdog::start(self.name);
        let silence = Silence::new();
        let mut number = 0;
        while deadline.map_or(number < cases, |deadline| Instant::now() < deadline) {
            let seed = first.wrapping_add(number);
            let input = self.mutator.case(number, &mut Draw::new(seed));
            watchdog.begin(seed, &input);
            if let Err(what) = judged(check, &input) {
                let input = shortest(&input, &|shorter| judged(check, shorter).is_err());
                let what = judged(check, &input).err().unwrap_or(what);
                drop(silence);
                return Some(FuzzFinding { name: self.name, seed, input, what });
            }
            watchdog.end();
            number += 1;
        }
        println!("fuzzing {}: {number} cases", self.name);
        None
    }

    /// The same in a test, which fails with what was found.
    ///
    /// # Panics
    /// If there is a finding.
    #[track_caller]
    #[allow(clippy::panic)] // a test fails here
    pub fn assert_copes(&self, cases: u64, check: &dyn Fn(&[u8]) -> Verdict) {
        if let Some(finding) = self.run(cases, check) {
            panic!("{finding}");
        }
    }
}

/// What is wrong with an input; a panic is.
fn judged(check: &dyn Fn(&[u8]) -> Verdict, input: &[u8]) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| check(input))).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Leaves out of an input what it does not need to be wrong.
fn shortest(input: &[u8], is_wrong: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut shortest = input.to_vec();
    let (mut length, mut tries) = (input.len().div_ceil(2), 0);
    while length > 0 {
        let (before, mut start) = (shortest.len(), 0);
        while start < shortest.len() && tries < MOST_TRIES {
            let end = (start + length).min(shortest.len());
            let shorter = [&shortest[..start], &shortest[end..]].concat();
            tries += 1;
            if is_wrong(&shorter) {
                shortest = shorter;
            } else {
                start = end;
            }
        }
        if length > 1 || shortest.len() == before || tries >= MOST_TRIES {
            length /= 2;
        }
    }
    shortest
}

/// A seed that nobody chose.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// While there is one, panics of this thread are not printed: they are findings, and shown as such.
struct Silence;

thread_local! {
    static SILENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Silence {
    fn new() -> Self {
        static HOOKED: AtomicBool = AtomicBool::new(false);
        if !HOOKED.swap(true, Ordering::SeqCst) {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !SILENT.get() {
                    before(info);
                }
            }));
        }
        SILENT.set(true);
        Self
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        SILENT.set(false);
    }
}

impl Watchdog {
    fn start(name: &'static str) -> Self {
        let case = Arc::new((Mutex::new(Case::default()), Condvar::new()));
        let watched = Arc::clone(&case);
        let thread = std::thread::spawn(move || {
            let (case, changed) = &*watched;
            let mut case = case.lock();
            while !case.over {
                changed.wait_for(&mut case, Duration::from_secs(1));
                if case.since.is_some_and(|since| since.elapsed() > TOO_LONG) {
                    eprintln!("fuzzing {name}: {} took longer than {TOO_LONG:?}", case.text);
                    std::process::abort();
                }
            }
        });
        Self { case, thread: Some(thread) }
    }

    fn begin(&self, seed: u64, input: &[u8]) {
        let mut case = self.case.0.lock();
        case.text = format!("seed {seed}, input b\"{}\",", input.escape_ascii());
        case.since = Some(Instant::now());
    }

    fn end(&self) {
        self.case.0.lock().since = None;
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.case.0.lock().over = true;
        self.case.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: it ends, or the process has.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_is_found_and_made_short() {
        let fuzz =
            Fuzz::new("planted", &["alpha,beta,17\ngamma,delta,18\n"]).with_words(&["omega"]);
        let planted = |input: &[u8]| {
            let wrong = input.windows(5).any(|part| part == b"omega") && input.contains(&b',');
            assert!(!wrong, "a planted panic");
            Ok(())
        };
        let finding = fuzz.run(20_000, &planted).unwrap();
        assert!(finding.what.contains("a planted panic"), "{finding}");
        assert_eq!(finding.input.len(), 6, "{finding}");
        // The same again, from the same seed.
        assert_eq!(fuzz.run(20_000, &planted).unwrap().seed, finding.seed);
        assert!(fuzz.run(100, &|_| Ok(())).is_none());
    }
}
