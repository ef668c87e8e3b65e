//! What a launch declared, told to whoever watches the device.

use std::{fmt, panic::Location, sync::Arc};

use smallvec::SmallVec;
use xlog_driver::{Declared, DeclaredUse, DeviceWatcher, RawStream};

use crate::device_runtime::{BlockUse, StreamId};

/// Uses that the watcher holds the next work on a stream against, until this is dropped.
pub(crate) struct OpenDeclaration {
    watcher: Arc<dyn DeviceWatcher>,
    number: u64,
}

impl OpenDeclaration {
    pub(super) fn new(
        watcher: &Arc<dyn DeviceWatcher>,
        uses: &[BlockUse],
        (raw, stream): (RawStream, StreamId),
        place: &'static Location<'static>,
    ) -> Self {
        let uses: SmallVec<[DeclaredUse; 8]> = uses.iter().map(declared_use).collect();
        let declared = Declared { stream: raw, stream_name: stream.0, uses: &uses, place };
        Self { watcher: Arc::clone(watcher), number: watcher.declared(&declared) }
    }
}

fn declared_use(one: &BlockUse) -> DeclaredUse {
    let block = one.block();
    DeclaredUse { address: block.ptr, generation: block.generation.0, access: one.access() }
}

impl Drop for OpenDeclaration {
    fn drop(&mut self) {
        self.watcher.declaration_over(self.number);
    }
}

impl fmt::Debug for OpenDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDeclaration").field("number", &self.number).finish_non_exhaustive()
    }
}
