//! What an adaptor passes on to the resource below it.

/// Writes those methods of [`DeviceMemoryResource`](super::DeviceMemoryResource) that an adaptor
/// passes on unchanged: `forward! { this => this.inner; try_reap, reap_pending }`. The word `uses`
/// stands for all six methods that have to do with uses, `direct_tracker` included: for adaptors
/// that do not look at uses.
macro_rules! forward {
    ($this:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::device_runtime::forward::forward!(@ $method, $this, $inner);)+
    };
    (@ allocate, $this:ident, $inner:expr) => {
        fn allocate(
            &self,
            bytes: usize,
            stream: $crate::device_runtime::StreamId,
            tag: $crate::device_runtime::AllocTag,
        ) -> $crate::device_runtime::ResourceResult<$crate::device_runtime::DeviceBlock> {
            let $this = self;
            $inner.allocate(bytes, stream, tag)
        }
    };
    (@ deallocate, $this:ident, $inner:expr) => {
        fn deallocate(
            &self,
            block: $crate::device_runtime::DeviceBlock,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.deallocate(block)
        }
    };
    (@ try_deallocate, $this:ident, $inner:expr) => {
        fn try_deallocate(
            &self,
            block: $crate::device_runtime::DeviceBlock,
        ) -> Result<
            (),
            ($crate::device_runtime::DeviceBlock, $crate::device_runtime::ResourceError),
        > {
            let $this = self;
            $inner.try_deallocate(block)
        }
    };
    (@ device_ordinal, $this:ident, $inner:expr) => {
        fn device_ordinal(&self) -> u32 {
            let $this = self;
            $inner.device_ordinal()
        }
    };
    (@ bytes_outstanding, $this:ident, $inner:expr) => {
        fn bytes_outstanding(&self) -> usize {
            let $this = self;
            $inner.bytes_outstanding()
        }
    };
    (@ reap_pending, $this:ident, $inner:expr) => {
        fn reap_pending(&self) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.reap_pending()
        }
    };
    (@ try_reap, $this:ident, $inner:expr) => {
        fn try_reap(&self) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.try_reap()
        }
    };
    (@ supports_block_use_tracking, $this:ident, $inner:expr) => {
        fn supports_block_use_tracking(&self) -> bool {
            let $this = self;
            $inner.supports_block_use_tracking()
        }
    };
    (@ direct_tracker, $this:ident, $inner:expr) => {
        fn direct_tracker(&self) -> Option<&$crate::device_runtime::UseTracker> {
            let $this = self;
            $inner.direct_tracker()
        }
    };
    (@ uses, $this:ident, $inner:expr) => {
        $crate::device_runtime::forward::forward! {
            $this => $inner; supports_block_use_tracking, direct_tracker
        }
        fn prepare_block_use(
            &self,
            block: $crate::device_runtime::BlockId,
            stream: $crate::device_runtime::StreamId,
            access: $crate::device_runtime::Access,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.prepare_block_use(block, stream, access)
        }
        fn finish_block_use(
            &self,
            block: $crate::device_runtime::BlockId,
            stream: $crate::device_runtime::StreamId,
            access: $crate::device_runtime::Access,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.finish_block_use(block, stream, access)
        }
        fn record_block_use(
            &self,
            block: &$crate::device_runtime::DeviceBlock,
            stream: $crate::device_runtime::StreamId,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.record_block_use(block, stream)
        }
        fn prepare_uses(
            &self,
            uses: &[$crate::device_runtime::BlockUse],
            stream: $crate::device_runtime::StreamId,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.prepare_uses(uses, stream)
        }
        fn finish_uses(
            &self,
            uses: &[$crate::device_runtime::BlockUse],
            stream: $crate::device_runtime::StreamId,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let $this = self;
            $inner.finish_uses(uses, stream)
        }
    };
}

/// Writes the methods of [`DeviceMemoryResource`](super::DeviceMemoryResource) that have to do with
/// uses, for a resource whose blocks are the tracker's: its `core` has `check`, `tracker`,
/// `ordinal` and `mismatch`.
macro_rules! tracked_uses {
    () => {
        fn supports_block_use_tracking(&self) -> bool {
            true
        }

        fn prepare_block_use(
            &self,
            block: $crate::device_runtime::BlockId,
            stream: $crate::device_runtime::StreamId,
            access: $crate::device_runtime::Access,
        ) -> $crate::device_runtime::ResourceResult<()> {
            self.prepare_uses(&[$crate::device_runtime::BlockUse::new(block, access)], stream)
        }

        fn finish_block_use(
            &self,
            block: $crate::device_runtime::BlockId,
            stream: $crate::device_runtime::StreamId,
            access: $crate::device_runtime::Access,
        ) -> $crate::device_runtime::ResourceResult<()> {
            self.finish_uses(&[$crate::device_runtime::BlockUse::new(block, access)], stream)
        }

        fn record_block_use(
            &self,
            block: &$crate::device_runtime::DeviceBlock,
            stream: $crate::device_runtime::StreamId,
        ) -> $crate::device_runtime::ResourceResult<()> {
            let id = $crate::device_runtime::BlockId::from_block(block);
            self.finish_block_use(id, stream, $crate::device_runtime::Access::Read)
        }

        fn prepare_uses(
            &self,
            uses: &[$crate::device_runtime::BlockUse],
            stream: $crate::device_runtime::StreamId,
        ) -> $crate::device_runtime::ResourceResult<()> {
            self.core.check()?;
            self.core.tracker().prepare(uses, stream, self.core.ordinal)
        }

        fn finish_uses(
            &self,
            uses: &[$crate::device_runtime::BlockUse],
            stream: $crate::device_runtime::StreamId,
        ) -> $crate::device_runtime::ResourceResult<()> {
            self.core.check()?;
            self.core.tracker().finish(uses, stream, self.core.ordinal)
        }

        fn direct_tracker(&self) -> Option<&$crate::device_runtime::UseTracker> {
            self.core.mismatch.is_none().then(|| self.core.tracker())
        }
    };
}

pub(crate) use {forward, tracked_uses};
