//! What no device is needed for: the order, the writers and the reader.

mod order;
mod reading;
mod round_trip;
mod writing;

use std::{
    io::{self, Write},
    sync::Arc,
};

use parking_lot::Mutex;

/// A writer whose text the test can see, and whose next answers it can choose.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Page>>);

#[derive(Default)]
struct Page {
    text: Vec<u8>,
    /// Takes this many bytes more, then fails.
    room: Option<usize>,
    panics: bool,
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().text.clone()).unwrap()
    }

    fn set_room(&self, room: Option<usize>) {
        self.0.lock().room = room;
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut page = self.0.lock();
        assert!(!page.panics, "the writer panics, as told");
        let room = page.room.unwrap_or(usize::MAX);
        if room == 0 {
            return Err(io::Error::other("no room on the paper"));
        }
        let count = bytes.len().min(room);
        page.room = page.room.map(|room| room - count);
        page.text.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
