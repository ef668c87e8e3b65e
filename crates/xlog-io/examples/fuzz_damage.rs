//! Damages Parquet, Arrow, JSON and compressed files and reads them: an error that names the file,
//! or rows, and never a panic, a crash or a hang.
//!
//! ```sh
//! cargo run --release -p xlog-io --example fuzz_damage -- --seconds 600
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    error::Error,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use support::{Folder, cut};
use xlog_io::{FileError, InputSpec, OutputSpec, create, open};

const NAMES: [&str; 6] = ["t.parquet", "t.arrow", "t.jsonl", "t.csv.gz", "t.csv.zst", "t.tsv"];

fn table(rows: i64) -> Result<RecordBatch, Box<dyn Error>> {
    let text = (0..rows).map(|row| (row % 11 > 0).then(|| format!("text {}", row % 7)));
    let columns: [(&str, ArrayRef); 6] = [
        ("number", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("text", Arc::new(StringArray::from_iter(text))),
        ("flag", Arc::new(BooleanArray::from_iter((0..rows).map(|row| Some(row % 2 > 0))))),
        ("real", Arc::new(Float64Array::from_iter((0..rows).map(|row| row as f64 / 8.0)))),
        ("day", Arc::new(Date32Array::from_iter_values((0..rows).map(|row| row as i32)))),
        ("moment", Arc::new(TimestampMicrosecondArray::from_iter_values(0..rows))),
    ];
    let columns = columns.map(|(name, array)| (name, array, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize
}

fn damage(bytes: &mut Vec<u8>, state: &mut u64) {
    for _ in 0..=next(state) % 4 {
        if bytes.is_empty() {
            return;
        }
        // Where a format keeps what the rest means is more often at its end than elsewhere.
        let from_end = next(state).is_multiple_of(3);
        let reach = if from_end { bytes.len().min(600) } else { bytes.len() };
        let at = bytes.len() - 1 - next(state) % reach;
        match next(state) % 6 {
            0 => bytes.truncate(at),
            1 => bytes[at] = 0xff,
            2 => bytes[at] = 0,
            3 => bytes[at] ^= 1 << (next(state) % 8),
            4 => bytes[at] = next(state) as u8,
            _ => {
                let end = (at + next(state) % 16).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
}

fn read_all(spec: &InputSpec) -> Result<usize, FileError> {
    let mut reader = open(spec)?;
    let mut rows = 0;
    while let Some(batch) = reader.next_batch()? {
        rows += batch.num_rows();
    }
    Ok(rows)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => 10,
        (Some("--seconds"), Some(value)) => value.parse()?,
        _ => return Err("the only option is --seconds N".into()),
    };
    let folder = Folder::new();
    let table = table(500)?;
    let mut whole = Vec::new();
    for name in NAMES {
        let mut writer = create(&OutputSpec::new(folder.name(name)), table.schema())?;
        writer.write(&table)?;
        writer.finish()?;
        whole.push(fs::read(folder.path(name))?);
    }
    let last = std::env::temp_dir().join(format!("fuzz_damage-{}.last", std::process::id()));
    let mut state = 0x1234_5678_9abc_def1 ^ u64::from(std::process::id());
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut cases, mut refused) = (0u64, 0u64);
    while Instant::now() < end {
        let format = next(&mut state) % NAMES.len();
        let mut bytes = whole[format].clone();
        damage(&mut bytes, &mut state);
        // What a crash was about is still there after it.
        fs::write(&last, &bytes)?;
        let spec = cut(&folder.file(NAMES[format], &bytes), 2, 1000);
        if let Err(error) = read_all(&spec) {
            refused += 1;
            if !error.file.ends_with(NAMES[format]) || error.message.is_empty() {
                return Err(format!("{error} says too little").into());
            }
        }
        cases += 1;
    }
    fs::remove_file(last)?;
    println!("{cases} damaged files, {refused} of them refused");
    Ok(())
}
