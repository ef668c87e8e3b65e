//! The runtime as one facade: it forwards everything, and never mixes parts of different devices.

use std::sync::Arc;

use xlog_cuda::device_runtime::{
    Access, AllocTag, AsyncCudaResource, BlockId, BlockUse, DeviceMemoryResource,
    DirectCudaResource, ResourceError, ResourceResult, StreamId, StreamPool, XlogDeviceRuntime,
};

use super::super::support::handle_of;
use crate::{Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    the_runtime_forwards_every_method_without_a_trait_import,
    parts_that_belong_together_make_a_runtime,
    a_pool_of_another_device_is_refused_by_every_call,
    a_resource_of_another_pool_is_refused_by_every_call,
    a_resource_of_another_ordinal_is_refused_by_every_call,
    a_resource_over_another_devices_pool_refuses_by_itself,
    the_host_device_takes_any_ordinal,
];

/// Without the trait in scope: the runtime's methods are its own.
mod inherent {
    use xlog_cuda::device_runtime::{
        Access, AllocTag, BlockId, BlockUse, ResourceResult, StreamId, XlogDeviceRuntime,
    };

    pub(super) fn every_method(rt: &XlogDeviceRuntime, stream: StreamId) -> ResourceResult<usize> {
        let block = rt.allocate(1024, stream, AllocTag("every"))?;
        let (id, granted) = (BlockId::from_block(&block), block.bytes);
        rt.prepare_block_use(id, stream, Access::Write)?;
        rt.finish_block_use(id, stream, Access::Write)?;
        rt.record_block_use(&block, stream)?;
        rt.prepare_uses(&[BlockUse::new(id, Access::Read)], stream)?;
        rt.finish_uses(&[BlockUse::new(id, Access::Read)], stream)?;
        assert_eq!((rt.device_ordinal(), rt.bytes_outstanding()), (0, granted));
        assert!(rt.supports_block_use_tracking());
        rt.deallocate(block)?;
        let second = rt.allocate(1024, stream, AllocTag("every"))?;
        rt.try_deallocate(second).map_err(|(_, error)| error)?;
        rt.try_reap()?;
        rt.reap_pending()?;
        Ok(rt.bytes_outstanding())
    }
}

fn the_runtime_forwards_every_method_without_a_trait_import(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    assert_eq!(inherent::every_method(&rig.runtime, stream), Ok(0));
    assert!(Arc::ptr_eq(rig.runtime.device(), &rig.device));
    assert!(Arc::ptr_eq(rig.runtime.stream_pool(), &rig.pool));
    assert_eq!(rig.runtime.resource().device_ordinal(), 0);
}

fn resource(rig: &Rig) -> Box<dyn DeviceMemoryResource + Send + Sync> {
    Box::new(Arc::clone(&rig.resource))
}

fn parts_that_belong_together_make_a_runtime(device: TestDevice) {
    let rig = Rig::new(device);
    let (dev, pool) = (Arc::clone(&rig.device), Arc::clone(&rig.pool));
    let runtime =
        XlogDeviceRuntime::try_with_resource(dev, 0, pool, resource(&rig)).unwrap_or_else(fail);
    assert_eq!(inherent::every_method(&runtime, StreamId::DEFAULT), Ok(0));
}

/// Every call of a runtime whose parts do not belong together is refused, and none reaches the
/// resource; `try_with_resource` refuses at once.
#[track_caller]
fn assert_refused(
    rig: &Rig,
    parts: impl Fn() -> (Arc<xlog_cuda::CudaDevice>, u32, Arc<StreamPool>, Box<Resource>),
) {
    let (device, ordinal, pool, stack) = parts();
    let early = XlogDeviceRuntime::try_with_resource(device, ordinal, pool, stack);
    assert!(matches!(early, Err(ResourceError::Driver(_))), "{early:?}");

    let (device, ordinal, pool, stack) = parts();
    let mixed = XlogDeviceRuntime::with_resource(device, ordinal, pool, stack);
    let block = rig.block(1024, StreamId::DEFAULT);
    let (id, stream) = (BlockId::from_block(&block), StreamId::DEFAULT);
    let uses = [BlockUse::new(id, Access::Write)];
    let before = rig.books();
    let answers: [(&str, ResourceResult<()>); 10] = [
        ("allocate", mixed.allocate(64, stream, AllocTag::UNTAGGED).map(drop)),
        ("deallocate", mixed.deallocate(handle_of(&block))),
        ("try_deallocate", mixed.try_deallocate(handle_of(&block)).map_err(|(_, error)| error)),
        ("prepare_block_use", mixed.prepare_block_use(id, stream, Access::Read)),
        ("finish_block_use", mixed.finish_block_use(id, stream, Access::Read)),
        ("record_block_use", mixed.record_block_use(&block, stream)),
        ("prepare_uses", mixed.prepare_uses(&uses, stream)),
        ("finish_uses", mixed.finish_uses(&uses, stream)),
        ("reap_pending", mixed.reap_pending()),
        ("try_reap", mixed.try_reap()),
    ];
    for (call, answer) in answers {
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{call}: {answer:?}");
    }
    mixed.synchronize(stream).expect_err("parts of different devices");
    mixed.fence().expect_err("parts of different devices");
    assert_eq!(rig.books(), before);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

type Resource = dyn DeviceMemoryResource + Send + Sync;

fn a_pool_of_another_device_is_refused_by_every_call(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    assert_refused(&rig, || (Arc::clone(&rig.device), 0, Arc::clone(&other.pool), resource(&rig)));
    assert_refused(&rig, || (Arc::clone(&other.device), 0, Arc::clone(&rig.pool), resource(&rig)));
}

fn a_resource_of_another_pool_is_refused_by_every_call(device: TestDevice) {
    let rig = Rig::new(device);
    // Of another device's pool, and of another pool of the same device: both keep other books.
    let other = Rig::new(device);
    assert_refused(&rig, || (Arc::clone(&rig.device), 0, Arc::clone(&rig.pool), resource(&other)));
    let second = Arc::new(StreamPool::with_defaults(Arc::clone(&rig.device)));
    assert_refused(&rig, || {
        let stack = AsyncCudaResource::new(Arc::clone(&rig.device), 0, Arc::clone(&second));
        (Arc::clone(&rig.device), 0, Arc::clone(&rig.pool), Box::new(stack) as Box<Resource>)
    });
}

fn a_resource_of_another_ordinal_is_refused_by_every_call(device: TestDevice) {
    let rig = Rig::new(device);
    assert_refused(&rig, || {
        let stack = DirectCudaResource::new(Arc::clone(&rig.device), 1);
        (Arc::clone(&rig.device), 0, Arc::clone(&rig.pool), Box::new(stack) as Box<Resource>)
    });
    assert_refused(&rig, || (Arc::clone(&rig.device), 1, Arc::clone(&rig.pool), resource(&rig)));
}

fn a_resource_over_another_devices_pool_refuses_by_itself(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let mixed = AsyncCudaResource::new(Arc::clone(&rig.device), 0, Arc::clone(&other.pool));
    let block = other.block(1024, StreamId::DEFAULT);
    let (id, stream) = (BlockId::from_block(&block), StreamId::DEFAULT);
    let before = other.books();
    let answers = [
        mixed.allocate(64, stream, AllocTag::UNTAGGED).map(drop),
        mixed.deallocate(handle_of(&block)),
        mixed.prepare_block_use(id, stream, Access::Read),
        mixed.finish_block_use(id, stream, Access::Read),
        mixed.record_block_use(&block, stream),
        mixed.reap_pending(),
        mixed.try_reap(),
    ];
    for answer in answers {
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    }
    assert_eq!(other.books(), before);
    other.runtime.deallocate(block).unwrap_or_else(fail);
}

fn the_host_device_takes_any_ordinal(device: TestDevice) {
    let rig = Rig::new(device);
    let (dev, pool) = (&rig.device, &rig.pool);
    let stack = AsyncCudaResource::new(Arc::clone(dev), 7, Arc::clone(pool));
    let made =
        XlogDeviceRuntime::try_with_resource(Arc::clone(dev), 7, Arc::clone(pool), Box::new(stack));
    match device {
        TestDevice::Host => {
            let runtime = made.unwrap_or_else(fail);
            let block = runtime.allocate(64, StreamId::DEFAULT, AllocTag::UNTAGGED).unwrap();
            assert_eq!((runtime.device_ordinal(), block.device_ordinal), (7, 7));
            runtime.deallocate(block).unwrap_or_else(fail);
        }
        TestDevice::Cuda => assert!(matches!(made, Err(ResourceError::Driver(_))), "{made:?}"),
    }
}
