//! Panics of other crates as errors.
//!
//! The crates that read Parquet and Arrow check most of what they are given, and panic on some of
//! the rest. A damaged file is no reason to end a program, nor to fill its error output.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::Once,
};

use crate::error::{FileError, FileResult};

thread_local! {
    /// Whether a panic of this thread becomes an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` on a file, and takes a panic of it as an error.
pub(crate) fn guarded<T>(file: &str, work: impl FnOnce() -> FileResult<T>) -> FileResult<T> {
    be_quiet_when_guarded();
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        let message = format!(
            "it cannot be read ({text}); it may be cut off or damaged: write or fetch it again"
        );
        Err(FileError::new(file, message))
    })
}

/// Passes over the panics that become errors, once and for all; every other goes to whoever was
/// told of panics before.
fn be_quiet_when_guarded() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                others(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_the_file() {
        let outcome: FileResult<()> = guarded("f", || guarded("g", || panic!("{} is odd", 7)));
        let expected = "g: it cannot be read (7 is odd); it may be cut off or damaged: write or \
                        fetch it again";
        assert_eq!(outcome.unwrap_err().to_string(), expected);
        assert!(!GUARDED.get());
    }
}
