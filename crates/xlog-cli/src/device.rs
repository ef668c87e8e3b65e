//! Which device a command runs on.

use std::{fmt, str::FromStr, sync::Arc};

use xlog_cuda::{CudaDevice, device_runtime::ResourceError};
use xlog_driver::{DeviceKind, Driver, DriverResult, cuda::CudaDriver, host::HostDriver};

/// A device as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// The first GPU that works, else the host.
    Auto,
    /// The host device.
    Host,
    /// One GPU.
    Cuda(usize),
}

impl DeviceChoice {
    /// Opens the device.
    pub(crate) fn open(self) -> Result<CudaDevice, ResourceError> {
        match self {
            Self::Auto => Ok(CudaDevice::auto()),
            Self::Host => Ok(CudaDevice::host()),
            Self::Cuda(ordinal) => CudaDevice::new(ordinal),
        }
    }

    /// Opens the device's driver alone.
    pub(crate) fn open_driver(self) -> DriverResult<Arc<dyn Driver>> {
        Ok(match self {
            Self::Host => Arc::new(HostDriver::new(0)),
            Self::Cuda(ordinal) => Arc::new(CudaDriver::open(ordinal)?),
            Self::Auto => match CudaDriver::open(0) {
                Ok(driver) => Arc::new(driver),
                Err(_) => Arc::new(HostDriver::new(0)),
            },
        })
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "host" => Ok(Self::Host),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Self::Cuda)
                // `parse` would also take a sign, and zeros before the number.
                .filter(|choice| choice.to_string() == text)
                .ok_or_else(|| "a device is host, cuda:N (as cuda:0), or auto".to_owned()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Host => f.write_str("host"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// How an open device is named in output.
pub(crate) fn label(device: &CudaDevice) -> String {
    match device.info().kind {
        DeviceKind::Host => "host".to_owned(),
        DeviceKind::Cuda => format!("cuda:{}", device.info().ordinal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_the_help_says() {
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        assert_eq!("host".parse(), Ok(DeviceChoice::Host));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        for wrong in ["", "cuda", "cuda:", "cuda:x", "gpu", "cuda:-1", "HOST"] {
            let error = wrong.parse::<DeviceChoice>().expect_err(wrong);
            assert!(error.contains("cuda:N"), "{wrong}: {error}");
        }
    }
}
