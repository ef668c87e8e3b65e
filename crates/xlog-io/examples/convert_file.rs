//! Reads a table and writes it in the format that the output's name ends in.
//!
//! ```sh
//! cargo run --release -p xlog-io --example convert_file -- sales.csv sales.parquet
//! ```

use xlog_io::{FileError, InputSpec, OutputSpec, create, open};

fn main() -> Result<(), FileError> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = names.as_slice() else {
        return Err(FileError::new("convert_file", "name an input and an output"));
    };
    let mut reader = open(&InputSpec::new([input]))?;
    let mut writer = create(&OutputSpec::new(output), reader.schema())?;
    while let Some(batch) = reader.next_batch()? {
        writer.write(&batch)?;
    }
    writer.finish()
}
