//! Panics of other crates as errors.
//!
//! The crates that read Parquet and Arrow check most of what they are given, and panic on some of
//! the rest. A damaged file is no reason to end a program.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::error::{FileError, FileResult};

thread_local! {
    /// Whether a panic of this thread becomes an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` on a file, and takes a panic of it as an error.
pub(crate) fn guarded<T>(file: &str, work: impl FnOnce() -> FileResult<T>) -> FileResult<T> {
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

/// Whether a panic of the calling thread becomes a [`FileError`], for a program whose panic hook
/// passes over those: what other crates make of a damaged file is said once, by the error.
#[must_use]
pub fn takes_panics_as_errors() -> bool {
    GUARDED.get()
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
