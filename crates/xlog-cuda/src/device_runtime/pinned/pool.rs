//! Pinned memory that is kept for the next copy.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use super::{
    LastCopy, PinnedBuffer, PinnedHostResource, PinnedPoolOptions, PinnedReport,
    buffer::{After, Home, Memory},
    resource::{check_size, too_large},
    shelf::{SHELVES, Shelf, shelf_of},
};
use crate::device_runtime::{ResourceError, ResourceResult};

/// Keeps buffers of pinned memory, and hands them out again once their last copy is over.
///
/// Sizes are powers of two, from 4 KiB. Nothing here waits for the device but
/// [`trim`](Self::trim), and the end of the pool: memory goes back to the driver nowhere else. At
/// the maximum, an idle buffer that is larger serves too; if there is none, the answer is
/// [`ResourceError::OutOfBudget`], and a `trim` makes room if other sizes are idle.
///
/// Handles are shared as they are cloned. A buffer keeps its pool: it may outlive every handle, and
/// be dropped on any thread.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let pinned = PinnedHostResource::new(Arc::new(CudaDevice::auto()));
/// let pool = PinnedPoolResource::new(pinned, PinnedPoolOptions::default().with_maximum(1 << 20));
/// let buffer = pool.allocate(5000)?;
/// assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
/// let address = buffer.as_ptr();
/// drop(buffer);
/// assert_eq!((pool.report().in_use_bytes, pool.report().held_bytes), (0, 8192));
/// assert_eq!(pool.allocate(8000)?.as_ptr(), address); // the same one again
/// pool.trim()?;
/// assert_eq!(pool.report().held_bytes, 0);
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Clone)]
pub struct PinnedPoolResource {
    core: Arc<Core>,
}

struct Core {
    /// Locked over the question whether a copy is over, which does not wait.
    books: Mutex<Books>,
    inner: PinnedHostResource,
}

struct Books {
    shelves: [Shelf; SHELVES],
    maximum: Option<usize>,
    /// Bytes that the driver is just being asked for.
    asked_for: usize,
    report: PinnedReport,
}

impl PinnedPoolResource {
    /// A pool over `inner`.
    #[must_use]
    pub fn new(inner: PinnedHostResource, options: PinnedPoolOptions) -> Self {
        let books = Mutex::new(Books {
            shelves: std::array::from_fn(|_| Shelf::default()),
            maximum: options.maximum,
            asked_for: 0,
            report: PinnedReport::default(),
        });
        Self { core: Arc::new(Core { books, inner }) }
    }

    /// A buffer of `bytes` bytes that no copy uses. Zero bytes are [`ResourceError::Driver`], and
    /// so are more than there are.
    pub fn allocate(&self, bytes: usize) -> ResourceResult<PinnedBuffer> {
        self.core.inner.device().check_alive()?;
        check_size(bytes)?;
        let (shelf, size) = shelf_of(bytes).ok_or_else(|| too_large(bytes))?;
        let kept = self.core.books.lock().take(shelf, size)?;
        let memory = match kept {
            Some(memory) => memory,
            None => self.core.grow(size)?,
        };
        Ok(PinnedBuffer::new(memory, bytes, Arc::clone(&self.core) as Arc<dyn Home>))
    }

    /// How full the pool is at this moment.
    #[must_use]
    pub fn report(&self) -> PinnedReport {
        self.core.books.lock().report
    }

    /// Gives every buffer that nobody has, and no copy uses, back to the driver. Waits for the
    /// device, as freeing pinned memory does. What the driver does not take back stays in the pool.
    pub fn trim(&self) -> ResourceResult<()> {
        self.core.inner.device().check_alive()?;
        let (unused, mut answer) = self.core.books.lock().take_unused();
        for memory in unused {
            answer = answer.and(self.core.free(memory));
        }
        answer
    }

    /// Changes the maximum. What is held already stays.
    pub fn set_maximum(&self, maximum: Option<usize>) {
        self.core.books.lock().maximum = maximum;
    }

    /// The resource below.
    #[must_use]
    pub fn inner(&self) -> &PinnedHostResource {
        &self.core.inner
    }
}

impl Books {
    /// A buffer that is there already; `None` if there is none and room for another, which then is
    /// counted as asked for.
    fn take(&mut self, shelf: usize, size: usize) -> ResourceResult<Option<Memory>> {
        if let Some(memory) = self.take_from(shelf)? {
            return Ok(Some(memory));
        }
        let taken = self.report.held_bytes + self.asked_for;
        let remaining = self.maximum.map_or(usize::MAX, |most| most.saturating_sub(taken));
        if size <= remaining {
            self.asked_for += size;
            return Ok(None);
        }
        for larger in shelf + 1..SHELVES {
            if let Some(memory) = self.take_from(larger)? {
                return Ok(Some(memory));
            }
        }
        Err(ResourceError::OutOfBudget { requested: size, remaining })
    }

    fn take_from(&mut self, shelf: usize) -> ResourceResult<Option<Memory>> {
        let shelf = &mut self.shelves[shelf];
        if let Some(memory) = shelf.take_idle() {
            self.report.handed_out(memory);
            return Ok(Some(memory));
        }
        let done = shelf.take_done()?;
        if let Some(memory) = done {
            self.report.copying_bytes -= memory.bytes;
            self.report.handed_out(memory);
        }
        Ok(done)
    }

    /// Everything that nobody has and no copy uses.
    fn take_unused(&mut self) -> (Vec<Memory>, ResourceResult<()>) {
        let (mut unused, mut answer) = (Vec::new(), Ok(()));
        for shelf in &mut self.shelves {
            unused.extend(std::iter::from_fn(|| shelf.take_idle()));
            loop {
                match shelf.take_done() {
                    Ok(None) => break,
                    Ok(Some(memory)) => {
                        self.report.copying_bytes -= memory.bytes;
                        unused.push(memory);
                    }
                    Err(error) => {
                        answer = answer.and(Err(error));
                        break;
                    }
                }
            }
        }
        (unused, answer)
    }

    fn shelf_for(&mut self, memory: Memory) -> Option<&mut Shelf> {
        shelf_of(memory.bytes).map(|(index, _)| &mut self.shelves[index])
    }

    fn put(&mut self, memory: Memory) {
        if let Some(shelf) = self.shelf_for(memory) {
            shelf.put(memory);
        }
    }

    fn put_behind(&mut self, memory: Memory, copy: LastCopy) {
        self.report.copying_bytes += memory.bytes;
        if let Some(shelf) = self.shelf_for(memory) {
            shelf.put_behind(memory, copy);
        }
    }
}

impl PinnedReport {
    fn handed_out(&mut self, memory: Memory) {
        self.in_use_bytes += memory.bytes;
        self.in_use_buffers += 1;
        self.peak_in_use_bytes = self.peak_in_use_bytes.max(self.in_use_bytes);
    }

    fn handed_back(&mut self, memory: Memory) {
        self.in_use_bytes -= memory.bytes;
        self.in_use_buffers -= 1;
    }
}

impl Core {
    /// A new buffer, counted as asked for; no lock is held while the driver looks for it.
    #[cold]
    fn grow(&self, size: usize) -> ResourceResult<Memory> {
        let answer = self.inner.take(size);
        let mut books = self.books.lock();
        books.asked_for -= size;
        let memory = answer?;
        let report = &mut books.report;
        report.held_bytes += size;
        report.held_buffers += 1;
        report.peak_held_bytes = report.peak_held_bytes.max(report.held_bytes);
        report.handed_out(memory);
        Ok(memory)
    }

    /// Gives a buffer to the driver that is on no shelf; if that fails, it goes back to its own.
    fn free(&self, memory: Memory) -> ResourceResult<()> {
        let freed = self.inner.free(memory);
        let mut books = self.books.lock();
        match &freed {
            Ok(()) => {
                books.report.held_bytes -= memory.bytes;
                books.report.held_buffers -= 1;
            }
            Err(_) => books.put(memory),
        }
        freed
    }
}

impl Home for Core {
    fn take_back(&self, memory: Memory, after: After) {
        let mut books = self.books.lock();
        books.report.handed_back(memory);
        match after {
            After::Nothing => books.put(memory),
            After::Copy(copy) => books.put_behind(memory, copy),
            After::Unknown => {
                log::warn!("leaving {} pinned bytes behind: a copy may still run", memory.bytes);
                books.report.leaked_bytes += memory.bytes;
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        for (memory, copy) in self.books.get_mut().shelves.iter_mut().flat_map(Shelf::empty) {
            let over = copy.map_or(Ok(()), |copy| copy.wait());
            // A copy that may still run keeps its memory: leaked, never pulled away.
            if let Err(error) = over.and_then(|()| self.inner.free(memory)) {
                log::warn!("leaving {} pinned bytes behind: {error}", memory.bytes);
            }
        }
    }
}

impl fmt::Debug for PinnedPoolResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPoolResource").field("report", &self.report()).finish_non_exhaustive()
    }
}
