//! Cuts inputs into pieces at the ends of rows.
//!
//! Whether a newline ends a row depends on the quotes before it, so pieces are cut one after the
//! other. That takes one look for quotes at every block, which is far less than reading it does.

use std::sync::Arc;

use parking_lot::Mutex;

use super::scan::{Block, WIDTH, running_parity};
use crate::{
    error::FileResult,
    ordered::JobSource,
    source::{Input, Stream},
};

/// Bytes at the start of a file that its columns are found in.
pub(crate) const HEAD_BYTES: usize = 256 << 10;

/// The longest row. Without a limit, a quote that is never closed would take all memory.
const MOST_ROW_BYTES: usize = 64 << 20;

/// A piece of a file, from the start of a row.
pub(crate) struct Piece {
    pub(crate) file: Arc<str>,
    pub(crate) text: Vec<u8>,
    /// Lines before it, where it is the first of its file.
    pub(crate) first_after: Option<u64>,
    /// One row, and longer than any may be.
    pub(crate) too_long: bool,
    /// Bytes on disk up to its end, of all inputs.
    pub(crate) consumed: u64,
}

/// Memory of pieces that were read, for the next ones.
pub(crate) type Spare = Arc<Mutex<Vec<Vec<u8>>>>;

/// An input whose start may have been read already, if it can be read only once.
pub(crate) struct Opened {
    pub(crate) input: Input,
    pub(crate) head: Option<(Vec<u8>, bool, Stream)>,
}

/// Finds the first row: given a file's name, its first bytes and whether they are all, answers how
/// many bytes and lines stand before it.
pub(crate) type StartOf = Box<dyn Fn(&str, &[u8], bool) -> FileResult<(usize, u64)> + Send>;

/// Cuts inputs, one after the other.
pub(crate) struct Splitter {
    inputs: std::vec::IntoIter<Opened>,
    start_of: StartOf,
    quote: Option<u8>,
    block_bytes: usize,
    spare: Spare,
    current: Option<Current>,
    /// Bytes on disk of the inputs before the current one.
    consumed_before: u64,
}

/// The input that is being cut.
struct Current {
    file: Arc<str>,
    stream: Stream,
    /// What was read and not handed out.
    carried: Vec<u8>,
    over: bool,
    first_after: Option<u64>,
}

impl Splitter {
    pub(crate) fn new(
        inputs: Vec<Opened>,
        start_of: StartOf,
        quote: Option<u8>,
        block_bytes: usize,
        spare: Spare,
    ) -> Self {
        let inputs = inputs.into_iter();
        // Places in a piece are counted with 32 bits.
        let block_bytes = block_bytes.clamp(1, 1 << 30);
        Self { inputs, start_of, quote, block_bytes, spare, current: None, consumed_before: 0 }
    }

    fn open(&self, opened: Opened) -> FileResult<Current> {
        let Opened { input, head } = opened;
        let (mut head, over, stream) = match head {
            Some(opened) => opened,
            None => {
                let mut stream = input.open()?;
                let mut head = Vec::new();
                let over = stream.read_onto(&mut head, HEAD_BYTES)?;
                (head, over, stream)
            }
        };
        let (bytes, lines) = (self.start_of)(&input.name, &head, over)?;
        head.drain(..bytes);
        Ok(Current {
            file: input.name.into(),
            stream,
            carried: head,
            over,
            first_after: Some(lines),
        })
    }

    /// The next piece of the current input, or `None` if it is over.
    fn cut(&self, current: &mut Current) -> FileResult<Option<Piece>> {
        let mut text = self.spare.lock().pop().unwrap_or_default();
        text.clear();
        text.extend_from_slice(&current.carried);
        current.carried.clear();
        let mut wanted = self.block_bytes;
        loop {
            if !current.over && text.len() < wanted {
                let missing = wanted - text.len();
                current.over = current.stream.read_onto(&mut text, missing)?;
            }
            if current.over && text.len() <= wanted {
                if text.is_empty() {
                    return Ok(None);
                }
                if text.last() != Some(&b'\n') {
                    text.push(b'\n');
                }
                return Ok(Some(self.piece(current, text, false)));
            }
            match last_row_end(&text[..wanted.min(text.len())], self.quote) {
                Some(end) => {
                    current.carried.extend_from_slice(&text[end + 1..]);
                    text.truncate(end + 1);
                    return Ok(Some(self.piece(current, text, false)));
                }
                None if wanted > MOST_ROW_BYTES => {
                    return Ok(Some(self.piece(current, text, true)));
                }
                None => wanted *= 2,
            }
        }
    }

    fn piece(&self, current: &mut Current, text: Vec<u8>, too_long: bool) -> Piece {
        Piece {
            file: Arc::clone(&current.file),
            text,
            first_after: current.first_after.take(),
            too_long,
            consumed: self.consumed_before + current.stream.consumed(),
        }
    }
}

impl JobSource for Splitter {
    type Job = Piece;

    fn next_job(&mut self) -> FileResult<Option<Piece>> {
        loop {
            let Some(mut current) = self.current.take() else {
                match self.inputs.next() {
                    Some(opened) => self.current = Some(self.open(opened)?),
                    None => return Ok(None),
                }
                continue;
            };
            if let Some(piece) = self.cut(&mut current)? {
                self.current = Some(current);
                return Ok(Some(piece));
            }
            self.consumed_before += current.stream.consumed();
        }
    }

    fn name(&self) -> String {
        self.current.as_ref().map_or_else(String::new, |current| current.file.to_string())
    }
}

/// The last newline that no quotes are around, in a text that starts outside of them.
pub(crate) fn last_row_end(text: &[u8], quote: Option<u8>) -> Option<usize> {
    let quote = quote.filter(|quote| memchr::memchr(*quote, text).is_some());
    let Some(quote) = quote else {
        return memchr::memrchr(b'\n', text);
    };
    let mut inside = 0;
    let mut last = None;
    for at in (0..text.len()).step_by(WIDTH) {
        let block = Block::at(text, at);
        let within = running_parity(block.equal_to(quote)) ^ inside;
        let newlines = block.equal_to(b'\n') & !within;
        if newlines != 0 {
            last = Some(at + 63 - newlines.leading_zeros() as usize);
        }
        inside = ((within >> 63) as i64).wrapping_neg() as u64;
    }
    last
}
