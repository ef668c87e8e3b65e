//! Reads a table and prints how many rows it has, and how long that took.
//!
//! ```sh
//! cargo run --release -p xlog-io --example read_file -- sales.csv --columns id,amount --threads 2
//! ```

use std::{error::Error, num::NonZeroUsize, time::Instant};

use xlog_io::{InputSpec, open};

fn main() -> Result<(), Box<dyn Error>> {
    let mut spec = InputSpec::new(Vec::<String>::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--columns" => {
                let names = arguments.next().ok_or("--columns needs names")?;
                spec.columns = Some(names.split(',').map(str::to_owned).collect());
            }
            "--threads" => {
                let threads = arguments.next().ok_or("--threads needs a number")?;
                spec.threads = Some(threads.parse::<NonZeroUsize>()?);
            }
            "--block" => {
                spec.block_bytes = arguments.next().ok_or("--block needs bytes")?.parse()?;
            }
            path => spec.paths.push(path.to_owned()),
        }
    }
    let start = Instant::now();
    let mut reader = open(&spec)?;
    let (mut rows, mut batches) = (0, 0);
    while let Some(batch) = reader.next_batch()? {
        rows += batch.num_rows();
        batches += 1;
    }
    let taken = start.elapsed().as_secs_f64();
    println!("{}", reader.schema());
    println!("{rows} rows in {batches} batches, {taken:.3} seconds");
    Ok(())
}
