//! The command line and what it reads, fed what nobody would write.

use std::{fmt::Debug, str::FromStr};

use clap::Parser;
use xlog_core::ScalarType;
use xlog_cuda::device_runtime::{LogAction, read_log};
use xlog_testkit::{
    check::{Plant, Stack, Workload},
    fuzz::{Fuzz, Verdict},
};

use crate::{
    Cli,
    device::DeviceChoice,
    replay::plan::{Call, Plan},
};

/// Cases of each of these tests; `XLOG_FUZZ_SECONDS` makes it more.
const CASES: u64 = if cfg!(debug_assertions) { 30_000 } else { 300_000 };

/// What parses is printed as it was written and parses again; what does not is refused with words.
fn name<T: FromStr<Err: ToString> + PartialEq + Debug>(
    input: &[u8],
    print: impl Fn(&T) -> String,
) -> Verdict {
    let text = String::from_utf8_lossy(input);
    match text.parse::<T>() {
        Ok(value) if print(&value) == text => Ok(()),
        Ok(value) => Err(format!("{text:?} is taken for {value:?}")),
        Err(error) if error.to_string().trim().is_empty() => Err("an error without words".into()),
        Err(_) => Ok(()),
    }
}

#[test]
fn names_that_nobody_would_write() {
    let words = ["cuda:", "host", ":", "+1", "-1", "007", "pool", "u32", "out-of-", "HOST"];
    let corpus = ["cuda:0", "host", "cuda:12", "production", "hand-over", "u64", "out-of-life"];
    let fuzz = Fuzz::new("names", &corpus).with_words(&words);
    fuzz.assert_copes(CASES, &|input| {
        name(input, DeviceChoice::to_string)?;
        name(input, Stack::to_string)?;
        name(input, |workload: &Workload| workload.name().to_owned())?;
        name(input, |scalar: &ScalarType| scalar.name().to_owned())?;
        name(input, |plant: &Plant| match plant {
            Plant::OutOfBounds => "out-of-bounds".into(),
            Plant::OutOfLife => "out-of-life".into(),
            Plant::Nothing => "nothing".into(),
            Plant::Asked => "asked".into(),
            Plant::Waited => "waited".into(),
            Plant::Drained => "drained".into(),
            Plant::Roundabout => "roundabout".into(),
        })
    });
}

#[test]
fn command_lines_that_nobody_would_write() {
    let corpus = [
        "doctor\n--device\ncuda:1",
        "bench\nlaunch\n--device\nhost\n--json",
        "bench\nalloc\n--device\nauto",
        "replay\nlog.csv\n--stack\nasync\n--streams\n62\n--json",
        "check\n--seeds\n1000\n--streams\n8\n--threads\n4\n--faults",
        "check\n--stack\npool\n--steps\n40",
    ];
    let words =
        ["--", "-", "--json", "--device=", "--streams=", "--seeds", "-h", "--help", "check"];
    let fuzz = Fuzz::new("command lines", &corpus).with_words(&words);
    fuzz.assert_copes(CASES / 5, &|input| {
        let text = String::from_utf8_lossy(input);
        let arguments = std::iter::once("xlog").chain(text.split('\n'));
        match Cli::try_parse_from(arguments) {
            Err(error) if error.to_string().trim().is_empty() => Err("no words".into()),
            _ => Ok(()),
        }
    });
}

/// A plan of what was read names blocks and streams that are there, and forgets no call.
fn plan(input: &[u8], at_most: Option<u32>) -> Verdict {
    let Ok(calls) = read_log(input) else { return Ok(()) };
    let plan = match Plan::new(&calls, at_most) {
        Ok(plan) => plan,
        Err(error) => {
            let text = error.to_string();
            let helps = text.starts_with("line ") || text.contains("--streams");
            return if helps { Ok(()) } else { Err(format!("an error without a place: {text}")) };
        }
    };
    let counted = plan.steps.len() + plan.left_out + plan.unknown_frees;
    if counted != calls.len() {
        return Err(format!("{} calls, and {counted} accounted for", calls.len()));
    }
    let mut live = vec![false; plan.blocks];
    for step in &plan.steps {
        let (block, stream) = match step.call {
            Call::Allocate { block, stream, .. } => (Some((block, false)), stream),
            Call::Free { block } => (Some((block, true)), 0),
            Call::Prepare { block, stream, .. } | Call::Finish { block, stream, .. } => {
                (Some((block, true)), stream)
            }
            Call::Reap | Call::TryReap => (None, 0),
        };
        if stream > plan.streams {
            return Err(format!("line {}: stream {stream} of {}", step.line, plan.streams));
        }
        if let Some((block, expected)) = block {
            if live.get(block) != Some(&expected) {
                return Err(format!("line {}: block {block} is live: {}", step.line, !expected));
            }
            live[block] = !matches!(step.call, Call::Free { .. });
        }
    }
    let left = live.iter().filter(|live| **live).count();
    let reaps = |action| calls.iter().filter(|call| call.ok && call.action == action).count();
    let has_reaps = reaps(LogAction::Reap) + reaps(LogAction::TryReap) > 0;
    if left != plan.never_freed || has_reaps != plan.has_reaps() {
        return Err(format!("{left} blocks are left, and {} are said to be", plan.never_freed));
    }
    Ok(())
}

#[test]
fn plans_of_logs_that_nobody_would_write() {
    const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";
    let csv = format!(
        "{HEADER}1,,allocate,0x10,64,0\n1,,allocate,0x20,32,0xff\n1,,free,0x10,64,0xff\n\
         1,,allocate,(nil),0,7\n1,,free,0x30,1,0\n1,,free,0x20,32,0\n"
    );
    let json = concat!(
        r#"{"thread":0,"action":"allocate","stream":1,"bytes":512,"address":"0x10","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"prepare","stream":2,"address":"0x10","access":"read","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"finish","stream":2,"address":"0x10","access":"read","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"free","stream":1,"bytes":512,"address":"0x10","ok":true}"#,
        "\n",
        r#"{"thread":0,"action":"reap","ok":true}"#,
        "\n",
    );
    let streams: String = (1..70).map(|n| format!("1,,allocate,{:#x},8,{n}\n", n * 256)).collect();
    let streams = format!("{HEADER}{streams}");
    let words = ["0x10", "0x20", "(nil)", "free", "allocate", "1,,free,0x10,0,1\n", "\"ok\":false"];
    let fuzz = Fuzz::new("plans", &[&csv, json, &streams]).with_words(&words);
    fuzz.assert_copes(CASES, &|input| {
        [None, Some(1), Some(62), Some(u32::MAX)].into_iter().try_for_each(|at| plan(input, at))
    });
}
