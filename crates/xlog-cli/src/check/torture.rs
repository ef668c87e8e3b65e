//! Real threads on a real device.

use std::sync::Arc;

use serde_json::json;
use xlog_testkit::{
    LayeredDriver,
    check::{Stack, Torture, plant, torture},
};

use super::{CheckOptions, Found, progress::Progress};
use crate::Failure;

pub(super) fn run(options: &CheckOptions) -> Result<(), Failure> {
    let driver = options.device.open_driver()?;
    if let Some(mistake) = options.plant {
        plant(&driver, mistake)?;
        say!("planted: {mistake:?}");
        return Ok(());
    }
    let (name, layered) = (driver.info().name.clone(), Arc::new(LayeredDriver::new(driver)));
    layered.set_deaf(options.deaf);
    layered.set_spelled_out(options.spell_out);
    let plan = Torture {
        threads: usize::from(options.threads.unwrap_or(8)),
        streams: usize::from(options.streams.unwrap_or(15)),
        launches: options.launches,
        seed: options.first_seed,
        stack: options.stack.unwrap_or(Stack::Production),
    };
    let progress = Progress::new("launches", plan.launches);
    let report = torture(layered, &plan, &|done| {
        progress.show(done);
    });
    progress.clear();
    let seconds = report.elapsed.as_secs_f64();
    let rate = report.launches as f64 / seconds.max(1e-9);
    if options.json {
        let object = json!({
            "check": "torture",
            "device": name,
            "stack": plan.stack.name(),
            "threads": plan.threads,
            "streams": plan.streams + 1,
            "launches": report.launches,
            "blocks": report.blocks,
            "words_compared": report.words_compared,
            "seconds": seconds,
            "launches_per_second": rate,
            "failure": report.failure,
        });
        say!("{object}");
    } else {
        say!(
            "{name}: {} threads on {} streams, {} stack: {} launches and copies, {} blocks",
            plan.threads,
            plan.streams + 1,
            plan.stack,
            report.launches,
            report.blocks
        );
        say!("{} words were compared with a serial run", report.words_compared);
        say!("{seconds:.1} s: {rate:.0} launches a second");
    }
    match report.failure {
        None => {
            if !options.json {
                say!("no wrong byte, no leak");
            }
            Ok(())
        }
        Some(failure) => Err(Box::new(Found(failure))),
    }
}
