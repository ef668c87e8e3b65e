//! Parts of slices, and columns.

use std::{ops::Bound, sync::Arc};

use xlog_core::MemoryBudget;
use xlog_cuda::{
    GpuMemoryManager, LaunchDims,
    device_runtime::{AllocTag, ResourceError},
    kernels,
    launch::LaunchBuilder,
    memory::{ArrowDeviceColumn, CudaColumn, DlpackColumn, TrackedCudaSlice},
};

use super::super::support::{block_of, untracked};
use crate::{Rig, TestDevice, fail};

pub(super) fn views_name_a_range_of_a_slice(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (tracked, bare) = (rig.zeros(10, stream), untracked(&rig, 10));
    for slice in [&tracked, &bare] {
        let check = |range: (Bound<usize>, Bound<usize>), start: u64, len: usize| {
            let view = slice.view(range).unwrap_or_else(fail);
            assert_eq!((view.ptr(), view.len()), (slice.ptr() + start * 4, len));
            assert_eq!(view.is_empty(), len == 0);
            assert!(std::ptr::eq(view.slice(), slice));
        };
        use Bound::{Excluded, Included, Unbounded};
        check((Unbounded, Unbounded), 0, 10);
        check((Included(3), Excluded(7)), 3, 4);
        check((Included(3), Included(9)), 3, 7);
        check((Excluded(3), Unbounded), 4, 6);
        check((Included(10), Unbounded), 10, 0);
        check((Included(5), Excluded(5)), 5, 0);
        assert_eq!(slice.as_view().len(), 10);
    }
}

pub(super) fn views_that_leave_the_slice_are_out_of_bounds(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (tracked, bare) = (rig.zeros(10, stream), untracked(&rig, 10));
    let generation = block_of(&tracked).generation;
    let check = |range: (Bound<usize>, Bound<usize>)| {
        let refused = tracked.view(range).map(|view| view.len());
        assert_eq!(refused, Err(ResourceError::OutOfBounds { generation }), "{range:?}");
        let refused = bare.view(range).map(|view| view.len());
        assert!(matches!(&refused, Err(ResourceError::Driver(_))), "{range:?}: {refused:?}");
    };
    use Bound::{Excluded, Included, Unbounded};
    check((Unbounded, Excluded(11)));
    check((Unbounded, Included(10)));
    check((Included(11), Unbounded));
    check((Included(7), Excluded(3)));
    check((Excluded(usize::MAX), Unbounded));
    check((Unbounded, Included(usize::MAX)));
    check((Included(usize::MAX), Excluded(0)));
    assert!(tracked.view(0..10).is_ok());
}

pub(super) fn copies_of_views_touch_only_the_view(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let slice = rig.zeros(100, a);
    let view = |range| slice.view(range).unwrap_or_else(fail);
    view(10..13).upload_on(&[1, 2, 3], b).unwrap_or_else(fail);
    view(98..100).fill_bytes(0xff, a).unwrap_or_else(fail);
    assert!(view(10..13).upload_on(&[1, 2], b).is_err(), "two values for three");
    let mut expected = vec![0u32; 100];
    expected[10..13].copy_from_slice(&[1, 2, 3]);
    expected[98..].fill(u32::MAX);
    assert_eq!(view(9..14).download().unwrap_or_else(fail), [0, 1, 2, 3, 0]);
    let later = view(12..99).start_download(b).unwrap_or_else(fail);
    view(0..100).fill_bytes(7, a).unwrap_or_else(fail);
    assert_eq!(later.wait().unwrap_or_else(fail), expected[12..99], "from before the fill");
}

pub(super) fn kernels_over_views_touch_only_the_view(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let slice = rig.zeros(1000, a);
    let fill = rig.kernel(&kernels::FILL_U32);
    let run = |start: usize, end: usize, value: u32, stream| {
        let view = slice.view(start..end).unwrap_or_else(fail);
        let mut builder = LaunchBuilder::new(&rig.runtime, &fill, stream);
        builder.output(&view);
        let builder = builder.value(value).value(view.len() as u64);
        builder.launch(LaunchDims::for_elements(view.len())).unwrap_or_else(fail);
    };
    // Two views of one slice are one block to the runtime: the overlap is the later one's.
    run(0, 1000, 1, a);
    run(100, 301, 2, b);
    run(300, 999, 3, a);
    let expected: Vec<u32> = (0..1000)
        .map(|i| match i {
            300..=998 => 3,
            100..=299 => 2,
            _ => 1,
        })
        .collect();
    assert_eq!(slice.download().unwrap_or_else(fail), expected);
}

pub(super) fn columns_of_all_three_kinds_say_what_they_are(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let bytes = |manager: &GpuMemoryManager| -> TrackedCudaSlice<u8> {
        manager.alloc_on(100, stream, AllocTag("column")).unwrap_or_else(fail)
    };
    let slice = bytes(&rig.manager);
    let (at, generation) = (slice.ptr(), block_of(&slice).generation);
    let owned = CudaColumn::owned(slice);
    assert!(!owned.is_external() && matches!(owned, CudaColumn::Owned(_)));
    assert_eq!(owned.runtime_block().map(|block| block.generation), Some(generation));
    assert_eq!((owned.ptr(), owned.bytes()), (at, 100));
    assert!(matches!(CudaColumn::from(bytes(&rig.manager)), CudaColumn::Owned(_)));
    let plain = GpuMemoryManager::new(Arc::clone(&rig.device), MemoryBudget::unlimited());
    let bare = CudaColumn::owned(bytes(&plain));
    assert!(!bare.is_external() && bare.runtime_block().is_none());
    let dlpack = CudaColumn::Dlpack(DlpackColumn { ptr: 0x100, bytes: 7 });
    let arrow = CudaColumn::ArrowDevice(ArrowDeviceColumn { ptr: 0x200, bytes: 9 });
    for (column, ptr, bytes) in [(&dlpack, 0x100, 7), (&arrow, 0x200, 9)] {
        assert!(column.is_external() && column.runtime_block().is_none());
        assert_eq!((column.ptr(), column.bytes()), (ptr, bytes));
    }
    // Dropping an owned column frees its memory through the runtime; an external one is not ours.
    let live = rig.resource.live_bytes();
    drop((owned, dlpack, arrow));
    assert_eq!(rig.resource.live_bytes(), live - 100);
}
