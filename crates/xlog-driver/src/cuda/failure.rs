//! What the driver's result codes mean, as errors.
//!
//! Owns the table of codes after which the device is lost, and the next steps for those a reader
//! of the error can do something about. Orders nothing.

use std::{borrow::Cow, ffi::CStr, ptr};

use cudarc::driver::sys::{self, CUresult};

use crate::{DriverError, DriverResult};

/// The driver has shut down, or is doing so, because the process ends.
pub(super) const DEINITIALIZED: i32 = CUresult::CUDA_ERROR_DEINITIALIZED as i32;

/// The answer of a driver call.
#[inline]
pub(super) fn check(call: &'static str, result: CUresult) -> DriverResult<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, result)) }
}

/// The answer of a driver call that gives something back. A driver that has shut down took
/// everything with it, so there is nothing left to give back and nothing that failed.
pub(super) fn check_given_back(call: &'static str, result: CUresult) -> DriverResult<()> {
    if result == CUresult::CUDA_ERROR_DEINITIALIZED { Ok(()) } else { check(call, result) }
}

/// The error for a failed call.
#[cold]
pub(super) fn failure(call: &'static str, result: CUresult) -> DriverError {
    error(call, result as i32, message(result))
}

/// The error for a failed call, where `tell` puts the code's meaning among more that is known.
#[cold]
pub(super) fn failure_of(
    call: &'static str,
    result: CUresult,
    tell: impl FnOnce(&str) -> String,
) -> DriverError {
    error(call, result as i32, tell(&message(result)).into())
}

/// Says that something could not be given back, where no caller is left to tell.
pub(super) fn report_drop(answer: DriverResult<()>) {
    if let Err(error) = answer {
        log::warn!("while closing a CUDA device: {error}");
    }
}

fn error(call: &'static str, code: i32, message: Cow<'static, str>) -> DriverError {
    let error = DriverError::new(call, code, message);
    if is_sticky(code) { error.sticky() } else { error }
}

/// Whether no later call on the context can succeed.
///
/// Codes that describe one refused request are left out, and so is 999, which says nothing either
/// way: the next call tells. The launch and memory codes of a *kernel* are in, because they
/// surface at whatever call comes next and leave every allocation undefined.
const fn is_sticky(code: i32) -> bool {
    match code {
        // The driver is gone with the process.
        DEINITIALIZED => true,
        // A memory error ECC could not correct, one on NVLink, and one the GPU contained: the
        // driver answers everything with it until the process is restarted.
        214 | 220 | 226 => true,
        // Illegal address; launch timeout.
        700 | 702 => true,
        // The context was destroyed under us (a reset of the primary context by someone else):
        // every handle we gave out died with it.
        709 => true,
        // A failed device-side assert.
        710 => true,
        // Hardware stack error, illegal instruction, misaligned address, invalid address space,
        // invalid program counter, and the launch failure that is none of these.
        714..=719 => true,
        // A kernel ended without giving its tensor memory back.
        721 => true,
        // The MPS server stopped answering, or ended this client. Not 805 and 807 to 809: those
        // refuse a new connection, and trying again later is right.
        806 | 810 => true,
        // An external device signalled an error. Only its asynchronous form, which ends the
        // context, can reach a driver that imports no external semaphores.
        911 => true,
        _ => false,
    }
}

fn message(result: CUresult) -> Cow<'static, str> {
    match advice(result as i32) {
        Some(advice) => advice.into(),
        None => driver_words(result).into(),
    }
}

/// What the driver itself calls the code.
fn driver_words(result: CUresult) -> String {
    let mut text = ptr::null();
    // SAFETY: a code came back from the driver, so its library is loaded; `text` is a place for
    // one pointer.
    let answer = unsafe { sys::cuGetErrorString(result, &mut text) };
    if answer != CUresult::CUDA_SUCCESS || text.is_null() {
        return "a code this driver has no words for".to_owned();
    }
    // SAFETY: on success the driver points at a constant, NUL-terminated string of its own.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The meaning and the next step, for codes that have one.
const fn advice(code: i32) -> Option<&'static str> {
    Some(match code {
        2 => "out of memory: free some, or ask for less at a time",
        DEINITIALIZED => {
            "the CUDA driver has shut down with the process: finish device work before main returns"
        }
        34 => {
            "the library found is the CUDA toolkit's stub, not the driver's: install the NVIDIA \
             driver, and take the toolkit's stubs folder off the library path"
        }
        46 => {
            "the device is held by another process: end that one, or lift its exclusive compute \
             mode with nvidia-smi -c DEFAULT"
        }
        100 => {
            "the NVIDIA driver sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and that a \
             container was started with GPUs"
        }
        201 => "no valid CUDA context on this thread: another library reset the device",
        218 => "the kernel's PTX does not compile for this device",
        221 => {
            "the driver's PTX compiler is missing: install libnvidia-ptxjitcompiler of the same \
             version as the driver"
        }
        222 => "the kernel's PTX is newer than this driver: install a newer NVIDIA driver",
        223 => "compiling PTX is switched off: unset CUDA_DISABLE_PTX_JIT",
        400 => "a stream, event or kernel that is destroyed or belongs to another device",
        500 => "no such name in the module",
        700 => {
            "a kernel touched memory that is not allocated, and the device is lost to this \
             process: start again, under compute-sanitizer to find the access"
        }
        701 => "the launch asks for more threads, registers or shared memory than the device has",
        702 => "a kernel ran past the display's time limit, and the device is lost to this process",
        710 => "a kernel's assert failed, and the device is lost to this process",
        714..=719 => {
            "a kernel failed, and the device is lost to this process: start again, under \
             compute-sanitizer to find the cause"
        }
        802 => "the GPUs are not ready: start nvidia-fabricmanager, or wait until it is up",
        803 => {
            "the driver's library and kernel module differ in version: reboot, or reload the \
             nvidia module"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_end_the_context_are_sticky() {
        let sticky: Vec<i32> = (0..1000).filter(|code| is_sticky(*code)).collect();
        let listed = [
            4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810, 911,
        ];
        assert_eq!(sticky, listed);
        assert!(failure("cuLaunchKernel", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).is_sticky());
        assert!(!failure("cuMemAlloc_v2", CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_sticky());
    }

    #[test]
    fn out_of_memory_is_recognised_as_such() {
        let error = failure("cuMemAlloc_v2", CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert!(error.is_out_of_memory());
        assert_eq!(
            error.to_string(),
            "cuMemAlloc_v2 failed with code 2: out of memory: free some, or ask for less at a time",
        );
    }

    #[test]
    fn giving_back_to_a_driver_that_is_gone_succeeds() {
        let gone = CUresult::CUDA_ERROR_DEINITIALIZED;
        assert_eq!(check_given_back("cuEventDestroy_v2", gone), Ok(()));
        assert!(check("cuEventRecord", gone).is_err_and(|error| error.is_sticky()));
        assert!(
            check_given_back("cuEventDestroy_v2", CUresult::CUDA_ERROR_INVALID_HANDLE).is_err()
        );
    }
}
