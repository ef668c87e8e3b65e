//! Where a thread says which blocks its launches are using right now.
//!
//! Every thread that launches has a desk, and on it a ticket for each launch between its preflight
//! and its commit: the blocks it claims, one word each. Only the launch's owner writes a ticket,
//! with plain stores, so claiming a block costs no atomic exchange; whoever must know all claims on
//! a block reads the tickets of every desk.

use std::{cell::Cell, panic::Location, sync::atomic::compiler_fence};

use xlog_core::Access;

use super::{chunked::Chunked, claims::Holder, slot::pause};
use crate::{
    device_runtime::StreamId,
    sync::{
        Mutex, Step,
        atomic::{AtomicPtr, AtomicU32, Ordering, fence},
        leaves_out, own, shared, sized,
    },
};

/// A number for each thread, small, and used again after the thread is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DeskId(pub(crate) u32);

shared! {
    static VACANT_DESKS: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));
}

own! {
    /// The calling thread's number; `u32::MAX` before it has one.
    static CURRENT: Cell<u32> = const { Cell::new(u32::MAX) };
    static OWN: Cell<Option<OwnDesk>> = const { Cell::new(None) };
}

/// Gives the number back when the thread ends. Whatever of the thread still runs after that gets
/// another one: nobody shares a desk.
#[derive(Debug)]
struct OwnDesk(u32);

impl Drop for OwnDesk {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| {
            if current.get() == self.0 {
                current.set(u32::MAX);
            }
        });
        VACANT_DESKS.lock().0.push(self.0);
    }
}

impl DeskId {
    /// The calling thread's desk.
    #[inline]
    pub(crate) fn current() -> Self {
        let current = CURRENT.with(Cell::get);
        if current != u32::MAX {
            return Self(current);
        }
        let desk = Self::sit_down();
        CURRENT.with(|current| current.set(desk.0));
        desk
    }

    /// The number of a desk at which nobody sits.
    fn vacant() -> u32 {
        let mut vacant = VACANT_DESKS.lock();
        vacant.0.pop().unwrap_or_else(|| {
            vacant.1 += 1;
            vacant.1 - 1
        })
    }

    #[cold]
    fn sit_down() -> Self {
        let number = Self::vacant();
        // A thread that is already ending keeps this one for good.
        let _ = OWN.try_with(|own| own.set(Some(OwnDesk(number))));
        Self(number)
    }
}

/// A thread of a simulation. Several of them take turns on one real thread, and to the runtime each
/// is a thread of its own: claims of one stand in the way of the others, and a builder of one waits
/// for them, for good if that thread never gets its turn. So a simulation lets nobody launch what a
/// claim of another one stands against.
///
/// ```
/// use xlog_cuda::device_runtime::VirtualThread;
///
/// let (writer, reader) = (VirtualThread::new(), VirtualThread::new());
/// writer.run(|| { /* preflight a launch */ });
/// reader.run(|| { /* try one that conflicts: refused, as on another thread */ });
/// writer.run(|| { /* commit */ });
/// ```
#[derive(Debug)]
pub struct VirtualThread(OwnDesk);

impl VirtualThread {
    /// Another thread, which has done nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(OwnDesk(DeskId::vacant()))
    }

    /// Does `work` as this thread.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Makes the calling thread itself again, whatever happens to the work.
        struct Back(u32);
        impl Drop for Back {
            fn drop(&mut self) {
                CURRENT.with(|current| current.set(self.0));
            }
        }
        let _back = Back(CURRENT.with(|current| current.replace(self.0.0)));
        work()
    }
}

impl Default for VirtualThread {
    fn default() -> Self {
        Self::new()
    }
}

/// A place in a ticket that claims nothing.
const NOTHING: u32 = u32::MAX;

/// A ticket's phase is the low two bits of its word; the rest counts its launches.
const IDLE: u32 = 0;
const TENTATIVE: u32 = 1;
const GRANTED: u32 = 2;
const PHASE: u32 = 3;

/// The claims of one launch.
#[derive(Debug)]
#[repr(C, align(64))] // a line of its own: others' tickets are written all the time
pub(crate) struct Ticket {
    word: AtomicU32,
    len: AtomicU32,
    stream: AtomicU32,
    place: AtomicPtr<Location<'static>>,
    /// Slot numbers, shifted by one; the lowest bit says that it is written.
    entries: Chunked<AtomicU32, { sized(16, 2) }>,
}

impl Default for Ticket {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(IDLE),
            len: AtomicU32::new(0),
            stream: AtomicU32::new(0),
            place: AtomicPtr::default(),
            entries: Chunked::new(),
        }
    }
}

/// The order in which a ticket is filled for its next launch. Whoever reads a claim of that one,
/// and so finds none of the launch before it, has to see all that was done under that launch: the
/// store that closed it may arrive later than these.
#[inline(always)]
fn hands_on() -> Ordering {
    if leaves_out(Step::FillingRelease) { Ordering::Relaxed } else { Ordering::Release }
}

#[inline]
fn entry(slot: u32, access: Access) -> u32 {
    slot << 1 | u32::from(access.writes())
}

impl Ticket {
    fn is_idle(&self) -> bool {
        self.word.load(Ordering::Acquire) & PHASE == IDLE
    }

    /// Begins a launch: what is announced from here on is undecided.
    #[inline]
    pub(crate) fn open(&self, stream: StreamId, place: &'static Location<'static>) {
        self.stream.store(stream.0, Ordering::Relaxed);
        self.place.store(std::ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
        self.len.store(0, hands_on());
        let word = self.word.load(Ordering::Relaxed);
        self.word.store((word & !PHASE).wrapping_add(PHASE + 1) | TENTATIVE, Ordering::Release);
    }

    /// Announces all claims of a launch at once, before the fence; false if there is no room.
    #[inline(always)]
    pub(crate) fn announce_all(
        &self,
        claims: impl ExactSizeIterator<Item = (u32, Access)>,
    ) -> bool {
        let (places, len) = (self.entries.first(), claims.len());
        if len > places.len() {
            return false;
        }
        for (place, (slot, access)) in places.iter().zip(claims) {
            place.store(entry(slot, access), hands_on());
        }
        self.len.store(len as u32, Ordering::Release);
        true
    }

    /// Announces a claim, or leaves place `index` empty. False if there is no room for it.
    #[inline]
    pub(crate) fn announce(&self, index: usize, claim: Option<(u32, Access)>) -> bool {
        let Some(place) = self.entries.grow(index as u32) else { return false };
        let value = claim.map_or(NOTHING, |(slot, access)| entry(slot, access));
        place.store(value, hands_on());
        self.len.store(index as u32 + 1, Ordering::Release);
        true
    }

    /// Whether a claim stands at place `index`.
    pub(crate) fn has_announced(&self, index: usize) -> bool {
        let place = self.entries.get(index as u32);
        place.is_some_and(|place| place.load(Ordering::Relaxed) != NOTHING)
    }

    /// Takes the announcement at place `index` back.
    #[inline]
    pub(crate) fn withdraw(&self, index: usize) {
        if let Some(place) = self.entries.get(index as u32) {
            place.store(NOTHING, Ordering::Release);
        }
    }

    /// Claims a block at place `index` of a granted ticket; the block's word is locked.
    pub(crate) fn announce_again(&self, index: usize, slot: u32, access: Access) {
        if let Some(place) = self.entries.get(index as u32) {
            place.store(entry(slot, access), Ordering::Release);
        }
    }

    /// Makes everything announced count.
    #[inline]
    pub(crate) fn grant(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !PHASE | GRANTED, Ordering::Release);
    }

    /// Gives every claim up.
    #[inline]
    pub(crate) fn close(&self) {
        let word = self.word.load(Ordering::Relaxed);
        let releases = !leaves_out(Step::ClosingRelease);
        self.word
            .store(word & !PHASE, if releases { Ordering::Release } else { Ordering::Relaxed });
    }

    /// Whether this ticket claims a slot so that `access` has to wait. An undecided ticket is
    /// decided soon, without waiting for anybody: its owner finds a locked word and withdraws, or
    /// was granted before.
    pub(crate) fn stands_against(&self, slot: u32, access: Access) -> bool {
        let mut looks = 0;
        loop {
            let word = self.word.load(Ordering::Acquire);
            match word & PHASE {
                IDLE => return false,
                TENTATIVE if leaves_out(Step::UndecidedTicket) => return false,
                TENTATIVE => {
                    looks += 1;
                    pause(looks);
                    continue;
                }
                _ => {}
            }
            let len = self.len.load(Ordering::Acquire);
            let claims = (0..len).filter_map(|index| self.entries.get(index));
            let found = claims.map(|claim| claim.load(Ordering::Acquire)).any(|claim| {
                claim >> 1 == slot && claim != NOTHING && (claim & 1 == 1 || access.writes())
            });
            // Entries of a later launch may have been read: it decides for itself.
            if !found || self.word.load(Ordering::Acquire) == word {
                return found;
            }
        }
    }

    /// Whether the ticket's launch is on `stream`, if it is one.
    pub(crate) fn is_on(&self, stream: StreamId) -> bool {
        !self.is_idle() && self.stream.load(Ordering::Relaxed) == stream.0
    }

    /// The launch behind the ticket, for messages.
    pub(crate) fn holder(&self, desk: DeskId) -> Holder {
        let place = self.place.load(Ordering::Relaxed).cast_const();
        // SAFETY: only ever set from a `&'static Location`; null before the first launch.
        let place = unsafe { place.as_ref() }.unwrap_or(Location::caller());
        Holder { desk, stream: StreamId(self.stream.load(Ordering::Relaxed)), place }
    }
}

/// One thread's launches on one tracker.
#[derive(Debug)]
#[repr(C, align(64))] // as for tickets
pub(crate) struct Desk {
    tickets: Chunked<Ticket, { sized(4, 1) }>,
    /// Tickets ever used are below this.
    used: AtomicU32,
    fence: AtomicU32,
}

impl Default for Desk {
    fn default() -> Self {
        let (used, fence) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { tickets: Chunked::new(), used, fence }
    }
}

impl Desk {
    /// A ticket no launch is using, its number, and whether no other launch is open here. Only the
    /// desk's own thread asks, and most threads have one launch open at a time.
    #[inline(always)]
    pub(crate) fn seat(&self) -> Option<(u32, &Ticket, bool)> {
        match self.tickets.first() {
            [ticket, ..] if self.used.load(Ordering::Relaxed) == 1 && ticket.is_idle() => {
                Some((0, ticket, true))
            }
            _ => self.other_seat(),
        }
    }

    #[cold]
    #[inline(never)]
    fn other_seat(&self) -> Option<(u32, &Ticket, bool)> {
        let (number, ticket) = self.idle_ticket()?;
        Some((number, ticket, self.is_alone(number)))
    }

    fn idle_ticket(&self) -> Option<(u32, &Ticket)> {
        let used = self.used.load(Ordering::Relaxed);
        for number in 0..used {
            if let Some(ticket) = self.tickets.get(number)
                && ticket.is_idle()
            {
                return Some((number, ticket));
            }
        }
        let ticket = self.tickets.grow(used)?;
        self.used.store(used + 1, Ordering::SeqCst);
        Some((used, ticket))
    }

    /// Ticket `number`.
    #[inline]
    pub(crate) fn ticket(&self, number: u32) -> Option<&Ticket> {
        self.tickets.get(number)
    }

    /// Every ticket ever used.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        let used = self.used.load(Ordering::SeqCst);
        (0..used).filter_map(|number| self.tickets.get(number))
    }

    /// Whether no launch but the one of ticket `number` is open here.
    fn is_alone(&self, number: u32) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        (0..used)
            .filter(|other| *other != number)
            .all(|other| self.tickets.get(other).is_none_or(Ticket::is_idle))
    }

    /// Whether no launch is open here.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        (0..used).all(|number| self.tickets.get(number).is_none_or(Ticket::is_idle))
    }

    /// A full fence: every store before it is visible to all before any load after it.
    #[inline]
    pub(crate) fn fence(&self) {
        if leaves_out(Step::AnnouncersFence) {
        } else if cfg!(all(target_arch = "x86_64", not(loom))) {
            // Any locked instruction is a full fence there, and the fence instruction itself takes
            // several times as long. The compiler may move nothing across either.
            compiler_fence(Ordering::SeqCst);
            self.fence.swap(0, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granted_ticket_stands_against_what_conflicts_with_it() {
        let ticket = Ticket::default();
        assert!(!ticket.stands_against(3, Access::Write));
        ticket.open(StreamId(7), Location::caller());
        assert!(ticket.announce(0, Some((3, Access::Read))));
        assert!(ticket.announce(1, None) && ticket.announce(2, Some((40, Access::ReadWrite))));
        ticket.grant();
        let against = |slot, access| ticket.stands_against(slot, access);
        assert!(!against(3, Access::Read) && against(3, Access::Write));
        assert!(against(40, Access::Read) && against(40, Access::Write));
        assert!(!against(41, Access::Write) && !against(NOTHING >> 1, Access::Write));
        ticket.withdraw(2);
        assert!(!against(40, Access::Write));
        assert!(ticket.is_on(StreamId(7)) && !ticket.is_on(StreamId(8)));
        ticket.close();
        assert!(!against(3, Access::Write) && !ticket.is_on(StreamId(7)));
    }

    #[test]
    fn threads_at_work_have_desks_of_their_own() {
        let barrier = std::sync::Barrier::new(8);
        let mut desks: Vec<u32> = std::thread::scope(|scope| {
            let sit = || {
                let desk = DeskId::current();
                barrier.wait();
                assert_eq!(DeskId::current(), desk, "a thread keeps its desk");
                desk.0
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(sit)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a desk")).collect()
        });
        desks.sort_unstable();
        desks.dedup();
        assert_eq!(desks.len(), 8);
    }

    #[test]
    fn virtual_threads_have_desks_of_their_own_and_give_them_back() {
        let mine = DeskId::current();
        let (one, other) = (VirtualThread::new(), VirtualThread::new());
        let desks = [one.run(DeskId::current), other.run(|| one.run(DeskId::current))];
        assert_eq!(desks[0], desks[1], "the same thread again");
        assert!(other.run(DeskId::current) != desks[0] && DeskId::current() == mine);
        let left = std::panic::catch_unwind(|| one.run(|| panic!("on purpose")));
        assert!(left.is_err() && DeskId::current() == mine);
        drop((one, other));
        assert_eq!(DeskId::current(), mine);
    }

    #[test]
    fn tickets_in_use_are_not_handed_out() {
        let desk = Desk::default();
        let (first, ticket) = desk.idle_ticket().expect("room");
        ticket.open(StreamId(1), Location::caller());
        let (second, _) = desk.idle_ticket().expect("room");
        assert_ne!(first, second);
        ticket.close();
        assert_eq!(desk.idle_ticket().map(|(number, _)| number), Some(first));
    }
}
