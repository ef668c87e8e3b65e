//! Spoils CSV files and reads them, side by side with a reader that is slow and plain to see
//! through: both must find the same rows, or the same line at fault.
//!
//! ```sh
//! cargo run --release -p xlog-io --example fuzz_csv -- --seconds 600
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use support::{Folder, cut, oracle, read};
use xlog_io::open;

/// Well-formed files with everything in them that is special.
const CORPUS: [&str; 9] = [
    "a,b,c\n1,2.5,x\n-3,1e10,\"y,\"\"z\"\"\"\n,,\n",
    "\u{feff}id,na me\r\n1,\"a\r\nb\"\r\n\r\n2,\r\n",
    "day,moment,flag\n2024-02-29,2024-01-01T10:00:00.5,true\n1999-12-31,1970-01-01 00:00,false\n",
    "n\n1\n\n18446744073709551615\n007\n",
    "a\tb\n\"\"\t\"\"\"\"\nx\ty\n",
    "a;b;c\n1;2;3\n4;5;6\n7;8;9",
    "x,y\n\u{e9},\u{1f600}\nNaN,inf\n-0.0,0.1\n",
    "a,b\n12345678,1234.5\n123456789012345678,99999.999\n0,.5\n1,5.\n",
    "key,value\nk1,v\nk2,v\nk1,w\nk3,v\nk1,v\n",
];

/// What belongs to the format, or nearly.
const WORDS: [&[u8]; 24] = [
    b"\"",
    b"\"\"",
    b",",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b";",
    b"\t",
    b"0",
    b"-",
    b".",
    b"1e5",
    b"2024-01-01",
    b"T00:00:00",
    b"true",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\0",
    b" ",
    b"\",\"",
    b"\"\n",
    b"99999999999999999999",
    b"\xc3",
];

/// Numbers without a pattern, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// One spoilt file.
fn case(draw: &mut Draw) -> Vec<u8> {
    let mut text = CORPUS[draw.below(CORPUS.len())].as_bytes().to_vec();
    // Long files are cut into several blocks of 64 bytes and several pieces.
    for _ in 0..draw.below(4) {
        let rows = text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let more = text[rows..].to_vec();
        text.extend_from_slice(&more);
    }
    for _ in 0..draw.below(6) {
        let at = draw.below(text.len() + 1);
        match draw.below(5) {
            0 => {
                let word = WORDS[draw.below(WORDS.len())];
                text.splice(at..at, word.iter().copied());
            }
            1 if at < text.len() => text[at] = draw.next() as u8,
            2 if at < text.len() => {
                let end = (at + 1 + draw.below(8)).min(text.len());
                text.drain(at..end);
            }
            3 => text.truncate(at),
            _ => {
                let end = (at + draw.below(40)).min(text.len());
                let copy = text[at..end].to_vec();
                let to = draw.below(text.len() + 1);
                text.splice(to..to, copy);
            }
        }
    }
    text
}

/// Reads a file in both ways; the answer is what differs.
fn judge(folder: &Folder, text: &[u8], draw: &mut Draw) -> Result<bool, String> {
    let spec = folder.file("fuzz.csv", text);
    let spec = cut(&spec, 1 + draw.below(3), 1 + draw.below(2 * text.len() + 2));
    let schema = match open(&spec) {
        Ok(reader) => reader.schema(),
        Err(error) if error.message.is_empty() => return Err("an error without words".into()),
        Err(_) => return Ok(false),
    };
    let types: Vec<_> =
        schema.fields().iter().map(|field| (field.data_type().clone(), true)).collect();
    let first = text.iter().copied().filter(|byte| b",;\t|".contains(byte));
    let candidates: Vec<u8> = first.collect();
    // The delimiter is what makes as many names as there are columns.
    let delimiter = [b',', b';', b'\t', b'|']
        .into_iter()
        .filter(|byte| types.len() == 1 || candidates.contains(byte))
        .find(|byte| {
            let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            let (records, _) = oracle::records(text, *byte, Some(b'"'));
            let header = records.iter().find(|record| !oracle::is_blank(record));
            header.is_some_and(|record| record.fields.len() == types.len())
        });
    let Some(delimiter) = delimiter else {
        return Err(format!("{} columns, and no delimiter makes so many", types.len()));
    };
    let expected = oracle::read(text, delimiter, Some(b'"'), &types);
    let found = read(&spec);
    match (&expected, &found) {
        (Ok(expected), Ok(found)) if expected == found => Ok(true),
        (Err(wrong), Err(error))
            if Some(wrong.line) == error.line
                && wrong.column.map(|place| schema.field(place).name())
                    == error.column.as_ref() =>
        {
            Ok(false)
        }
        _ => Err(format!("expected {expected:?}, found {found:?}")),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut seconds = 10;
    let mut seed = u64::from(std::process::id());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or("an option needs a value")?;
        match argument.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--seed" => seed = value.parse()?,
            _ => return Err(format!("{argument} is no option; there are --seconds, --seed").into()),
        }
    }
    let folder = Folder::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    let current = Arc::new(AtomicU64::new(seed));
    let watched = Arc::clone(&current);
    std::thread::spawn(move || {
        let mut last = u64::MAX;
        loop {
            std::thread::sleep(Duration::from_secs(60));
            let now = watched.load(Ordering::Relaxed);
            if now == last {
                eprintln!("the case with --seed {now} takes longer than a minute");
                std::process::exit(1);
            }
            last = now;
        }
    });
    let (mut cases, mut read_whole) = (0u64, 0u64);
    while Instant::now() < end {
        current.store(seed, Ordering::Relaxed);
        let mut draw = Draw(seed);
        let text = case(&mut draw);
        let judged = catch_unwind(AssertUnwindSafe(|| judge(&folder, &text, &mut draw)));
        match judged.unwrap_or_else(|_| Err("a panic".into())) {
            Ok(whole) => read_whole += u64::from(whole),
            Err(what) => {
                return Err(format!("--seed {seed}: {what}; b\"{}\"", text.escape_ascii()).into());
            }
        }
        cases += 1;
        seed = seed.wrapping_add(1);
    }
    println!("{cases} cases, {read_whole} of them read to the end, and no difference");
    Ok(())
}
