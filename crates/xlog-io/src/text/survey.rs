//! Samples of a file, so that types fit more than its first rows.

use std::io::{Read, Seek, SeekFrom};

use super::HEAD_BYTES;
use crate::{error::FileResult, source::Input};

/// Bytes of a sample, and how many of those there are.
const SAMPLE_BYTES: u64 = 32 << 10;
const SAMPLES: u64 = 8;

/// Texts from all over a file behind its head, the last of them from its end. They may start and
/// end in the middle of a row. What cannot be read in any order has none.
pub(crate) fn samples_within(input: &Input) -> FileResult<Vec<Vec<u8>>> {
    let (Some(mut file), Some(size)) = (input.open_file()?, input.size) else {
        return Ok(Vec::new());
    };
    let beyond = size.saturating_sub(HEAD_BYTES as u64);
    let mut samples = Vec::new();
    for number in 1..=SAMPLES {
        let end = HEAD_BYTES as u64 + beyond * number / SAMPLES;
        let mut text = Vec::new();
        let read = file
            .seek(SeekFrom::Start(end.saturating_sub(SAMPLE_BYTES)))
            .and_then(|_| (&mut file).take(SAMPLE_BYTES).read_to_end(&mut text));
        read.map_err(|error| input.io(&error))?;
        if number == SAMPLES && text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        samples.push(text);
    }
    Ok(samples)
}
