//! Freed blocks that are kept for a while, and how they go.

use std::sync::Arc;

use super::{books::Guarded, core::Core};
use crate::device_runtime::{ResourceResult, tracker::HoldsBlocks};

impl Core {
    /// Looks at the blocks that came into quarantine without a look, and poisons them. A block
    /// whose free waits for a launch is not there yet.
    pub(super) fn settle(&self) -> ResourceResult<()> {
        let (queue, mut answer) = (self.books.lock().queue(), Ok(()));
        for block in queue {
            let mut state = block.state.lock();
            if state.below.is_some() && !state.poisoned {
                let looked = self.examine(&block, &mut state).map(drop);
                answer = answer.and(looked).and(self.poison(&block, &mut state));
            }
        }
        answer
    }

    /// Lets the oldest blocks leave quarantine while there are too many.
    pub(super) fn make_room(&self) -> ResourceResult<()> {
        loop {
            let Some(block) = self.books.lock().pop_over(&self.options) else { return Ok(()) };
            self.let_go(&block).inspect_err(|_| self.books.lock().put_back(block))?;
        }
    }

    pub(super) fn empty_quarantine(&self) -> ResourceResult<()> {
        self.let_go_all(|_| true).map(drop)
    }

    /// Lets every block leave quarantine that is asked for. Answers how many did.
    fn let_go_all(&self, wanted: impl Fn(&Guarded) -> bool) -> ResourceResult<usize> {
        let (blocks, mut gone, mut answer) =
            (self.books.lock().take(wanted, usize::MAX), 0, Ok(()));
        for block in blocks.into_iter().rev() {
            match self.let_go(&block) {
                Ok(()) => gone += 1,
                Err(error) => {
                    self.books.lock().put_back(block);
                    answer = answer.and(Err(error));
                }
            }
        }
        answer.map(|()| gone)
    }

    /// Looks at a block for the last time, and gives it back. Everything that ever used it is over
    /// then, so the resource below has nothing to wait for.
    fn let_go(&self, block: &Arc<Guarded>) -> ResourceResult<()> {
        let mut state = block.state.lock();
        self.check()?;
        self.examine(block, &mut state)?;
        let tracker = self.tracker();
        let Some(below) = state.below.take() else { return Ok(()) };
        let retired = tracker.retired(block.ptr);
        // The address is out of the books before anybody else can get it.
        self.books.lock().remove(block);
        if let Some(retired) = &retired {
            tracker.detach(retired);
        }
        if let Err((below, error)) = self.inner.try_deallocate(below) {
            if let Some(retired) = &retired {
                tracker.attach(retired);
            }
            self.books.lock().add(Arc::clone(block));
            state.below = Some(below);
            return Err(error);
        }
        if let Some(retired) = &retired {
            tracker.unregister(retired);
        }
        Ok(())
    }

    /// Looks at every block; the first error is the answer.
    pub(super) fn check_all(&self) -> ResourceResult<()> {
        let all = self.books.lock().all();
        let mut answer = Ok(());
        for block in all {
            let mut state = block.state.lock();
            if state.below.is_none() {
                continue;
            }
            let looked = match self.examine(&block, &mut state) {
                Ok(None) => Ok(()),
                Ok(Some(error)) | Err(error) => Err(error),
            };
            answer = answer.and(looked);
        }
        answer.and(self.settle())
    }
}

impl HoldsBlocks for Core {
    fn blocks_on(&self, index: usize) -> usize {
        // A resource that knows of streams counts its own blocks.
        if self.inner.supports_block_use_tracking() { 0 } else { self.books.lock().homed_on(index) }
    }

    fn make_way(&self, index: usize) {
        let gone = self.let_go_all(|block| block.home == index);
        let reaped =
            gone.and_then(|gone| if gone > 0 { self.inner.reap_pending() } else { Ok(()) });
        if let Err(error) = reaped {
            log::warn!("blocks in quarantine keep their stream: {error}");
        }
    }
}
