//! What a recorded launch costs beside its driver calls, whatever the device: the same patterns
//! over a driver whose launches, records and waits do nothing.

use std::sync::Arc;

use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_driver::host::HostDriver;

use super::{
    idle_driver::IdleDriver,
    lab::{Lab, Touch},
    pairs::measure,
    report::Report,
};
use crate::Failure;

/// The three patterns of [`super::pairs`], with eight blocks, and with one to compare.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let fresh = || {
        let driver = IdleDriver(HostDriver::new(0));
        let device = Arc::new(CudaDevice::with_driver(Arc::new(driver)));
        Lab { idle: true, ..Lab::new(device, Arc::clone(&lab.core), lab.quick) }
    };
    let idle = fresh();
    for touch in Touch::BOTH {
        for blocks in [1, 8] {
            measure(&idle, "bookkeeping-single", &[StreamId::DEFAULT], touch, blocks, report)?;
        }
    }
    let idle = fresh();
    let streams = idle.streams(2)?;
    measure(&idle, "bookkeeping-several", &streams[..1], Touch::Write, 8, report)?;
    measure(&idle, "bookkeeping-ping-pong", &streams, Touch::Write, 8, report)?;
    Ok(())
}
