//! Reading what was written gives the same calls, and no input makes the reader panic.

use proptest::prelude::*;

use super::super::{CsvSink, JsonLinesSink, LogAction, LogRecord, LogSink, LoggedCall, read_log};
use crate::device_runtime::{Access, AllocTag, Generation, StreamId};

fn any_access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::ReadWrite)]
}

fn any_record() -> impl Strategy<Value = LogRecord> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
    let sizes = (any::<usize>(), 0..1000usize, 0..10_000_000_000_000u64);
    let tags = prop_oneof![Just("plain"), Just("a,\"b\"\n\\"), Just("")];
    let words =
        (0..LogAction::ALL.len(), any_access(), tags, proptest::option::of(any::<String>()));
    (numbers, sizes, words).prop_map(|(numbers, sizes, words)| {
        let (thread, stream, address, generation) = numbers;
        let (bytes, slack, time_ns) = sizes;
        let (action, access, tag, error) = words;
        let action = LogAction::ALL[action];
        let result = error.map_or(Ok(()), |error| Err(error.into()));
        let is_use = matches!(action, LogAction::Prepare | LogAction::Finish);
        let is_memory = matches!(action, LogAction::Allocate | LogAction::Free);
        let failed_allocation = action == LogAction::Allocate && result.is_err();
        LogRecord {
            sequence: 0,
            time_ns,
            thread,
            action,
            stream: (is_use || is_memory).then_some(StreamId(stream)),
            tag: is_memory.then_some(AllocTag(tag)),
            bytes: is_memory.then_some(bytes),
            asked: (action == LogAction::Allocate).then_some(bytes.saturating_sub(slack)),
            address: ((is_use || is_memory) && !failed_allocation).then_some(address),
            generation: (!failed_allocation).then_some(Generation(generation)),
            access: is_use.then_some(access),
            result,
        }
    })
}

fn expected_of_json(line: usize, record: &LogRecord) -> LoggedCall {
    LoggedCall {
        line,
        thread: u64::from(record.thread),
        time_ns: Some(record.time_ns),
        action: record.action,
        ok: record.result.is_ok(),
        pointer: record.address.unwrap_or_default(),
        bytes: record.asked.or(record.bytes).unwrap_or_default() as u64,
        stream: record.stream.map_or(0, |stream| u64::from(stream.0)),
        access: record.access,
    }
}

proptest! {
    #[test]
    fn json_lines_come_back_as_they_were(
        records in proptest::collection::vec(any_record(), 1..20),
    ) {
        let sink = JsonLinesSink::new(Vec::new());
        records.iter().for_each(|record| sink.record(record.clone()));
        let text = sink.into_inner().expect("a vector takes everything");
        let expected: Vec<_> = records
            .iter()
            .enumerate()
            .map(|(index, record)| expected_of_json(index + 1, record))
            .collect();
        prop_assert_eq!(read_log(&text[..]), Ok(expected));
    }

    #[test]
    fn csv_lines_come_back_as_they_were(
        records in proptest::collection::vec(any_record(), 0..20),
    ) {
        let sink = CsvSink::new(Vec::new());
        records.iter().for_each(|record| sink.record(record.clone()));
        let text = sink.into_inner().expect("a vector takes everything");
        let mut found = read_log(&text[..]).expect("a good log");
        // The time of day depends on when the test runs.
        for call in &mut found {
            prop_assert!(call.time_ns.take().is_some_and(|ns| ns < 86_400_000_000_000));
        }
        let expected: Vec<_> = records
            .iter()
            .filter(|record| match record.action {
                LogAction::Allocate => true,
                LogAction::Free => record.result.is_ok(),
                _ => false,
            })
            .enumerate()
            .map(|(index, record)| LoggedCall {
                time_ns: None,
                bytes: record.bytes.unwrap_or_default() as u64,
                ..expected_of_json(index + 2, record)
            })
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_log(&bytes[..]);
    }

    #[test]
    fn no_line_makes_the_reader_panic(
        line in "[-0-9a-fx:.,\" {}\\[\\]a-zé\0]{0,80}",
        cut in 0..200usize,
    ) {
        let csv = format!("Thread,Time,Action,Pointer,Size,Stream\n{line}\n");
        let _ = read_log(csv.as_bytes());
        let _ = read_log(format!("{{{line}").as_bytes());
        // A good line with a piece of that in it, and one cut short.
        let good = "Thread,Time,Action,Pointer,Size,Stream\n1,10:43:21.5,free,0x1,2,0x3\n";
        let cut = cut.min(good.len());
        let _ = read_log(format!("{}{line}{}", &good[..cut], &good[cut..]).as_bytes());
        let _ = read_log(&good.as_bytes()[..cut]);
    }
}
