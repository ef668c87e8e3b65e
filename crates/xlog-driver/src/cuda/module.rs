//! Kernel modules: PTX compiled for the device once, and the kernels found in it.
//!
//! Owns the modules it has loaded, until they are unloaded together. Definitions are constants, so
//! their addresses name them. Loading may wait for the device; a kernel is loaded to the end
//! before it is first handed out, so that no launch has to.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_void},
    ptr,
};

use cudarc::driver::sys::{self, CUjit_option as JitOption, CUresult};
use parking_lot::Mutex;

use super::{context::Context, failure};
use crate::{DriverError, DriverResult, KernelDefinition, KernelModule, RawFunction};

/// Room for what the compiler says about PTX it refuses.
const LOG_BYTES: usize = 16 << 10;

/// The modules loaded on one device. The lock is held while one is compiled: whoever asks for the
/// same kernel meanwhile wants that very module.
#[derive(Debug, Default)]
pub(super) struct Modules {
    loaded: Mutex<Loaded>,
}

/// Handles are kept as numbers, which may cross threads.
#[derive(Debug, Default)]
struct Loaded {
    /// By address of the `KernelModule`.
    modules: HashMap<usize, u64>,
    /// By address of the `KernelDefinition`.
    functions: HashMap<usize, RawFunction>,
}

impl Modules {
    /// The kernel's function, loaded at the first asking.
    pub(super) fn function(
        &self,
        context: &Context,
        kernel: &'static KernelDefinition,
    ) -> DriverResult<RawFunction> {
        let mut loaded = self.loaded.lock();
        let key = ptr::from_ref(kernel).addr();
        if let Some(function) = loaded.functions.get(&key) {
            return Ok(*function);
        }
        context.bind()?;
        let module_key = ptr::from_ref(kernel.module).addr();
        let module = match loaded.modules.get(&module_key) {
            Some(module) => *module,
            None => {
                let module = load(kernel.module)? as u64;
                loaded.modules.insert(module_key, module);
                module
            }
        };
        let function = RawFunction(find(module as sys::CUmodule, kernel)? as u64);
        loaded.functions.insert(key, function);
        Ok(function)
    }

    /// Unloads everything; no kernel of it runs any more.
    pub(super) fn unload(&mut self) {
        let loaded = self.loaded.get_mut();
        loaded.functions.clear();
        for (_, module) in loaded.modules.drain() {
            // SAFETY: the context is bound and the module was loaded into it; its owner, who is
            // being dropped, has waited for the kernels.
            let result = unsafe { sys::cuModuleUnload(module as sys::CUmodule) };
            failure::report_drop(failure::check_given_back("cuModuleUnload", result));
        }
    }
}

fn load(source: &KernelModule) -> DriverResult<sys::CUmodule> {
    let image = c_text(source.ptx, source.name)?;
    let mut module = ptr::null_mut();
    // SAFETY: a context is bound; `image` is NUL-terminated text; `module` is a place for one
    // handle.
    let result = unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) };
    if result == CUresult::CUDA_SUCCESS {
        return Ok(module);
    }
    load_with_log(source, &image)
}

/// Loads again, this time with room for the compiler's words: they make the error worth reading,
/// and a module that loads needs none.
#[cold]
fn load_with_log(source: &KernelModule, image: &CStr) -> DriverResult<sys::CUmodule> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options =
        [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] =
        [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = ptr::null_mut();
    // SAFETY: as in `load`; two options with two values, a buffer and its length in the place of a
    // pointer, as the driver documents them.
    let result = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if result == CUresult::CUDA_SUCCESS {
        return Ok(module);
    }
    let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
    Err(failure::failure_of("cuModuleLoadDataEx", result, |meaning| {
        format!("module {}: {meaning}\n{log}", source.name).trim_end().to_owned()
    }))
}

fn find(module: sys::CUmodule, kernel: &KernelDefinition) -> DriverResult<sys::CUfunction> {
    let tell = |meaning: &str| {
        format!("kernel {} of module {}: {meaning}", kernel.name, kernel.module.name)
    };
    let name = c_text(kernel.name, kernel.module.name)?;
    let mut function = ptr::null_mut();
    // SAFETY: the module is loaded in the bound context; `name` is NUL-terminated; `function` is a
    // place for one handle.
    let result = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
    if result != CUresult::CUDA_SUCCESS {
        return Err(failure::failure_of("cuModuleGetFunction", result, tell));
    }
    // Left alone, the driver loads a kernel's code at its first launch, and may wait for the whole
    // device to do so: a launch that blocks behind work that waits for it never returns.
    // SAFETY: the function was just found in a loaded module.
    let result = unsafe { sys::cuFuncLoad(function) };
    if result != CUresult::CUDA_SUCCESS {
        return Err(failure::failure_of("cuFuncLoad", result, tell));
    }
    Ok(function)
}

fn c_text(text: &str, module: &str) -> DriverResult<CString> {
    CString::new(text).map_err(|_| {
        DriverError::from(format!(
            "module {module}: its PTX or a kernel's name has a NUL byte in it; build it again",
        ))
    })
}
