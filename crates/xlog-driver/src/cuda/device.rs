//! One device among those the driver sees, and its fixed properties.
//!
//! Owns nothing: a device is a number. The caller has probed the machine. Orders nothing.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::{CudaProbe, failure};
use crate::{DeviceInfo, DeviceKind, DriverResult};

/// The device `ordinal`, which the caller has checked against the count.
pub(super) fn find(ordinal: u32) -> DriverResult<sys::CUdevice> {
    let mut device = 0;
    // SAFETY: the driver is initialised; `device` is a place for one number.
    let result = unsafe { sys::cuDeviceGet(&mut device, ordinal.cast_signed()) };
    failure::check("cuDeviceGet", result)?;
    Ok(device)
}

/// What the device says about itself.
pub(super) fn describe(
    device: sys::CUdevice,
    ordinal: u32,
    probe: &CudaProbe,
) -> DriverResult<DeviceInfo> {
    Ok(DeviceInfo {
        kind: DeviceKind::Cuda,
        ordinal,
        name: name(device)?,
        driver_version: probe.driver_version,
        compute_capability: (
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        stream_ordered_memory: attribute(
            device,
            Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        )? != 0,
    })
}

fn name(device: sys::CUdevice) -> DriverResult<String> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has as many bytes as the call is told; the driver ends what it writes
    // with a NUL.
    let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 256, device) };
    failure::check("cuDeviceGetName", result)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

fn attribute(device: sys::CUdevice, attribute: Attribute) -> DriverResult<u32> {
    let mut value = 0;
    // SAFETY: `device` came from `cuDeviceGet`; `value` is a place for one number.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
    failure::check("cuDeviceGetAttribute", result)?;
    Ok(u32::try_from(value).unwrap_or(0))
}
