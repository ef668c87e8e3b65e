//! What the machine has: the driver's library, its version, and how many devices it sees.
//!
//! Validates the machine, so that nothing after it calls into a library that is missing or lacks a
//! function: those calls would panic. Orders nothing.

use cudarc::driver::sys::{self, CUresult};

use super::{CudaDriver, failure};
use crate::{DriverError, DriverResult};

const NO_LIBRARY: &str = "the CUDA driver is missing: its library (libcuda.so.1, nvcuda.dll on \
                          Windows) was not found; install the NVIDIA driver R580 (CUDA 13.0) or \
                          newer, or use the host device";

/// The CUDA driver of this machine, whether or not it is new enough.
///
/// ```
/// use xlog_driver::cuda::CudaDriver;
///
/// match CudaDriver::probe() {
///     Ok(found) => println!("CUDA {}, {} devices", found.version(), found.device_count),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaProbe {
    /// The newest CUDA version the driver supports as CUDA counts it, 13000 for 13.0.
    pub driver_version: u32,
    /// How many devices it sees.
    pub device_count: u32,
}

impl CudaProbe {
    /// Asks the machine. The order matters: each question may be asked once the one before it is
    /// answered.
    pub(super) fn new() -> DriverResult<Self> {
        // SAFETY: loads and unloads a library by its name; the driver's has no other condition.
        if !unsafe { sys::is_culib_present() } {
            return Err(NO_LIBRARY.into());
        }
        // SAFETY: the library is there, and every version of it has this function; no flags.
        let result = unsafe { sys::cuInit(0) };
        if result != CUresult::CUDA_SUCCESS {
            return Err(failure::failure_of("cuInit", result, |meaning| {
                format!("the CUDA driver does not start (check that nvidia-smi does): {meaning}")
            }));
        }
        let mut version = 0;
        // SAFETY: as above; `version` is a place for one number.
        let result = unsafe { sys::cuDriverGetVersion(&mut version) };
        failure::check("cuDriverGetVersion", result)?;
        let mut count = 0;
        // SAFETY: as above, and the driver is initialised; `count` is a place for one number.
        let result = unsafe { sys::cuDeviceGetCount(&mut count) };
        failure::check("cuDeviceGetCount", result)?;
        Ok(Self {
            driver_version: u32::try_from(version).unwrap_or(0),
            device_count: u32::try_from(count).unwrap_or(0),
        })
    }

    /// The driver's version as people write it: `13.0`.
    #[must_use]
    pub fn version(&self) -> String {
        written(self.driver_version)
    }

    /// An error with the next step if the driver is older than
    /// [`CudaDriver::MINIMUM_DRIVER_VERSION`].
    ///
    /// ```
    /// use xlog_driver::cuda::CudaProbe;
    ///
    /// let old = CudaProbe { driver_version: 12_080, device_count: 1 };
    /// assert!(old.require_supported().is_err_and(|error| error.message().contains("12.8")));
    /// ```
    pub fn require_supported(&self) -> DriverResult<()> {
        if self.driver_version >= CudaDriver::MINIMUM_DRIVER_VERSION {
            return Ok(());
        }
        Err(DriverError::from(format!(
            "the CUDA driver is too old: it supports CUDA {}, and the kernels need CUDA {}; \
             install the NVIDIA driver R580 or newer",
            self.version(),
            written(CudaDriver::MINIMUM_DRIVER_VERSION),
        )))
    }

    /// An error with the next step if there is no device `ordinal`.
    pub(super) fn require_device(&self, ordinal: usize) -> DriverResult<u32> {
        match u32::try_from(ordinal) {
            Ok(ordinal) if ordinal < self.device_count => Ok(ordinal),
            _ => Err(DriverError::from(format!(
                "there is no CUDA device {ordinal}: the driver sees {}, counted from 0; check \
                 nvidia-smi and CUDA_VISIBLE_DEVICES",
                self.device_count,
            ))),
        }
    }
}

fn written(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceKind, Driver};

    const FOUND: CudaProbe = CudaProbe { driver_version: 13_010, device_count: 2 };

    #[test]
    fn an_old_driver_is_refused_with_both_versions_and_the_one_to_install() {
        let old = CudaProbe { driver_version: 12_090, ..FOUND };
        let error = old.require_supported().unwrap_err().to_string();
        assert!(["12.9", "13.0", "R580"].iter().all(|part| error.contains(part)), "{error}");
        assert_eq!(CudaProbe { driver_version: 13_000, ..FOUND }.require_supported(), Ok(()));
        assert_eq!(FOUND.version(), "13.1");
    }

    #[test]
    fn an_ordinal_past_the_last_device_is_refused() {
        assert_eq!(FOUND.require_device(1), Ok(1));
        let error = FOUND.require_device(2).unwrap_err().to_string();
        assert!(error.contains("no CUDA device 2") && error.contains("nvidia-smi"), "{error}");
        assert!(FOUND.require_device(usize::MAX).is_err());
    }

    /// Holds on every machine: nowhere are there ten thousand devices.
    #[test]
    fn a_device_that_is_not_there_is_an_error_that_says_what_to_do() {
        let error = CudaDriver::open(9999).unwrap_err();
        match CudaDriver::probe() {
            Err(missing) => assert_eq!(error, missing, "both stop at the same missing part"),
            Ok(probe) => {
                let said = match probe.require_supported() {
                    Ok(()) => error.message().contains("no CUDA device 9999"),
                    Err(_) => error.message().contains("R580"),
                };
                assert!(said, "{error}");
            }
        }
        let (said, steps) = (error.message(), ["install", "check"]);
        assert!(said.contains("driver") && steps.iter().any(|step| said.contains(step)), "{said}");
    }

    #[test]
    fn the_first_device_opens_or_the_error_names_the_driver_to_install() {
        // SAFETY: loads and unloads the driver's library by name.
        if unsafe { sys::is_culib_present() } {
            match (CudaDriver::probe(), CudaDriver::open(0)) {
                (Ok(probe), Ok(driver)) => {
                    assert_eq!(driver.info().kind, DeviceKind::Cuda);
                    assert_eq!(driver.info().driver_version, probe.driver_version);
                    assert!(driver.memory().unwrap().total > 0);
                }
                (Ok(probe), Err(error)) => {
                    let refused = probe.require_supported().err();
                    assert!(refused.is_none_or(|refused| refused == error), "{error}");
                }
                (probe, opened) => assert_eq!(opened.err(), probe.err()),
            }
            return;
        }
        for error in [CudaDriver::open(0).unwrap_err(), CudaDriver::probe().unwrap_err()] {
            let said = error.to_string();
            let parts = ["CUDA driver is missing", "libcuda", "install", "R580", "host device"];
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
