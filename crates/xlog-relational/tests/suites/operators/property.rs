//! What property tests of operators share.

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{DataType, Field, strategies};

/// Runs `test` for `cases` values of a strategy, and ends the test at the smallest that fails.
pub fn for_all<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Fields of these types called `prefix` with a number, each nullable or not.
pub fn fields_of(prefix: &'static str, types: Vec<DataType>) -> impl Strategy<Value = Vec<Field>> {
    prop::collection::vec(any::<bool>(), types.len()).prop_map(move |nullable| {
        let numbered = types.iter().zip(nullable).enumerate();
        numbered
            .map(|(index, (data_type, nullable))| Field {
                name: format!("{prefix}{index}"),
                data_type: *data_type,
                nullable,
            })
            .collect()
    })
}

/// `least` to `most` types.
pub fn types(least: usize, most: usize) -> impl Strategy<Value = Vec<DataType>> {
    prop::collection::vec(strategies::data_type(), least..=most)
}

/// The stream that tests of operators work on where one is enough.
pub const STREAM: StreamId = StreamId::DEFAULT;
