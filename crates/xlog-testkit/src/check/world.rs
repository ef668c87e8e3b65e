//! A simulated device with a runtime, and a program's variables over it.

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice,
    device_runtime::{AsyncCudaResource, ResourceResult, StreamPool},
};
use xlog_driver::{Driver, host::SimulatedDriver};

use super::{
    bench::{Bench, Variables},
    program::Program,
};
use crate::{LayeredDriver, oracle::Oracle};

/// Device memory of a simulation: room for a slab for every stream, and then some.
const MEMORY: u64 = 256 << 20;

/// Poison is written over blocks, and not over slabs.
const POISONED: usize = 16 << 10;

/// The device, the runtime over it, and the program's variables.
pub(super) struct World {
    pub(super) variables: Variables,
    pub(super) bench: Bench,
    pub(super) resource: Arc<AsyncCudaResource>,
    pub(super) driver: Arc<LayeredDriver>,
    pub(super) simulation: Arc<SimulatedDriver>,
    pub(super) oracle: Arc<Oracle>,
}

impl World {
    pub(super) fn new(program: &Program, simulation: SimulatedDriver) -> ResourceResult<Self> {
        let oracle = Arc::new(Oracle::new());
        let simulation = simulation.with_memory(MEMORY).poisoning_at_most(POISONED);
        let simulation = Arc::new(simulation.watched_by(Arc::clone(&oracle) as _));
        let driver = Arc::new(LayeredDriver::new(Arc::clone(&simulation) as Arc<dyn Driver>));
        let device = Arc::new(CudaDevice::with_driver(Arc::clone(&driver) as Arc<dyn Driver>));
        let pool = Arc::new(StreamPool::with_capacity(Arc::clone(&device), program.streams + 1)?);
        let resource = Arc::new(AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool)));
        let bench = Bench::new(&resource, program.stack, program.streams)?;
        let variables = Variables::new(&bench, program.blocks)?;
        Ok(Self { variables, bench, resource, driver, simulation, oracle })
    }
}
