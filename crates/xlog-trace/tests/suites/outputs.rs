//! What a recording is written as.

use serde_json::Value;
use xlog_testkit::{TestCase, TestDevice, cases};
use xlog_trace::{Hazard, Recording};

use super::support::{buffer, fill, streams, traced};

pub(crate) const CASES: &[TestCase] =
    cases![the_chrome_trace_is_valid_and_complete, the_report_holds_the_recording_and_escapes_it,];

const HOSTILE: &str = "</script><script>alert(1)</script>";

/// A buffer that goes from stream to stream, under a tag that is a script.
fn recording(device: TestDevice) -> Recording {
    let (trace, stack) = traced(device);
    let [one, two] = streams(&stack);
    let data = buffer(&stack, one, HOSTILE);
    for value in 0..10 {
        fill(&stack.runtime, &data, value, if value % 2 == 0 { one } else { two });
    }
    drop(data);
    trace.finish()
}

fn the_chrome_trace_is_valid_and_complete(device: TestDevice) {
    let recording = recording(device);
    let mut out = Vec::new();
    recording.write_chrome(&mut out).expect("memory");
    let trace: Value = serde_json::from_slice(&out).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let of = |phase: &str, process: u64| {
        events
            .iter()
            .filter(move |event| event["ph"] == *phase && event["pid"] == process)
            .collect::<Vec<_>>()
    };
    let work = of("X", 1);
    assert_eq!(work.len(), 10);
    assert!(work.iter().all(|event| event["name"] == "xlog_fill_u32"));
    assert!(work.iter().all(|event| event["dur"].as_f64().is_some_and(|length| length >= 0.0)));
    assert_eq!(of("X", 2).len(), 10 + recording.calls.len());
    // A flow begins within the work it comes from, and ends at the work that waits.
    let (starts, ends) = (of("s", 1), of("f", 1));
    assert_eq!((starts.len(), ends.len()), (recording.waits.len(), recording.waits.len()));
    for (start, end) in starts.iter().zip(&ends) {
        assert_eq!(start["id"], end["id"]);
        assert!(start["ts"].as_f64() <= end["ts"].as_f64());
        let why = end["args"]["why"][0].as_str().expect("a reason");
        assert!(why.starts_with("write after write of block </script>"), "{why}");
    }
    let names = of("M", 1);
    assert!(names.iter().any(|event| event["args"]["name"] == "stream 1"));
    let bytes = |event: &&Value| event["args"]["in use"].as_u64();
    let counted: Vec<u64> = of("C", 1).iter().filter_map(bytes).collect();
    assert_eq!(counted.iter().max().copied(), Some(recording.peak_bytes()));
    assert_eq!(counted.last(), Some(&0));
}

fn the_report_holds_the_recording_and_escapes_it(device: TestDevice) {
    let recording = recording(device);
    let hazards = [Hazard { title: "a race".into(), text: HOSTILE.into() }];
    let mut out = Vec::new();
    recording.write_report(&mut out, Some(&hazards)).expect("memory");
    let page = String::from_utf8(out).expect("text");
    assert_eq!(page.matches("</script>").count(), 2, "the data's and the program's");
    assert!(!page.contains("http:") && !page.contains("https:"), "a page that needs the network");
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    let (data, _) = rest.split_once("</script>").expect("its end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["tags"][0], HOSTILE);
    assert_eq!(data["hazards"][0]["text"], HOSTILE);
    let list = |path: &str| data.pointer(path).and_then(Value::as_array).expect(path).len();
    for figure in ["name", "stream", "begin", "length", "call", "uses"] {
        assert_eq!(list(&format!("/operations/{figure}")), 10, "{figure}");
    }
    assert_eq!(list("/waits/from"), recording.waits.len());
    let begin = &recording.operations[0].device.expect("device times").0;
    assert_eq!(data["operations"]["begin"][0], *begin);
}
