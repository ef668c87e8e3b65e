//! One limit, and everything that counts against it.
//!
//! What a stack holds is never counted twice over: the account asks each stack's resource what is
//! outstanding, and adds what is just being asked for. An allocation moves from the second number
//! to the first while it is made, so for a moment it may stand in both; whoever finds too little
//! left just then looks again before it is refused.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Weak},
};

use parking_lot::Mutex;

use crate::device_runtime::{DeviceMemoryResource, ResourceResult};

/// What an account knows of one stack.
pub(super) trait Stack: Send + Sync {
    /// The resource whose bytes are counted.
    fn resource(&self) -> &dyn DeviceMemoryResource;
    /// Gives back what is kept for later.
    fn trim(&self) -> ResourceResult<()>;
    /// Asks the program for memory; true if it freed some.
    fn call_back(&self, requested: usize, remaining: usize) -> bool;
}

/// Too little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) remaining: usize,
    /// Somebody is allocating at this moment: the number may be too low.
    pub(super) moving: bool,
}

/// One limit.
#[derive(Default)]
pub(super) struct Account {
    books: Mutex<Books>,
}

type ByDevice = HashMap<(u8, u32), Weak<Account>>;

#[derive(Default)]
struct Books {
    limit: usize,
    /// Bytes that are being asked for.
    asked: usize,
    /// Bytes set aside, for reservations and for others' allocations.
    reserved: usize,
    stacks: Vec<Weak<dyn Stack>>,
}

impl Account {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { books: Mutex::new(Books { limit, ..Books::default() }) })
    }

    /// The account of a device, shared by the whole process; the limit is the one given last.
    pub(super) fn of_device(device: (u8, u32), limit: usize) -> Arc<Self> {
        static ACCOUNTS: LazyLock<Mutex<ByDevice>> = LazyLock::new(Mutex::default);
        let mut accounts = ACCOUNTS.lock();
        if let Some(account) = accounts.get(&device).and_then(Weak::upgrade) {
            account.books.lock().limit = limit;
            return account;
        }
        let account = Self::new(limit);
        accounts.insert(device, Arc::downgrade(&account));
        account
    }

    pub(super) fn add_stack(&self, stack: Weak<dyn Stack>) {
        let mut books = self.books.lock();
        books.stacks.retain(|stack| stack.strong_count() > 0);
        books.stacks.push(stack);
    }

    /// Every stack that counts against the limit.
    pub(super) fn stacks(&self) -> Vec<Arc<dyn Stack>> {
        self.books.lock().stacks.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn limit(&self) -> usize {
        self.books.lock().limit
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.books.lock().limit = limit;
    }

    pub(super) fn reserved(&self) -> usize {
        self.books.lock().reserved
    }

    /// Bytes that count against the limit.
    pub(super) fn used(&self) -> usize {
        self.books.lock().used()
    }

    /// Counts bytes that are about to be asked for, unless they are too many.
    pub(super) fn begin(&self, bytes: usize) -> Result<(), Short> {
        let mut books = self.books.lock();
        books.check(bytes)?;
        books.asked += bytes;
        Ok(())
    }

    /// The same for bytes that were reserved before.
    pub(super) fn begin_reserved(&self, bytes: usize) {
        let mut books = self.books.lock();
        books.reserved -= bytes;
        books.asked += bytes;
    }

    /// The bytes were granted, and the stack's own resource counts them; or they were not.
    pub(super) fn end(&self, bytes: usize) {
        self.books.lock().asked -= bytes;
    }

    /// Sets bytes aside, unless they are too many.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), Short> {
        let mut books = self.books.lock();
        books.check(bytes)?;
        books.reserved += bytes;
        Ok(())
    }

    /// Puts bytes that were not granted after all back into a reservation.
    pub(super) fn end_unreserved(&self, bytes: usize) {
        let mut books = self.books.lock();
        books.asked -= bytes;
        books.reserved += bytes;
    }

    pub(super) fn unreserve(&self, bytes: usize) {
        self.books.lock().reserved -= bytes;
    }
}

impl Books {
    fn used(&self) -> usize {
        let stacks = self.stacks.iter().filter_map(Weak::upgrade);
        let held: usize = stacks.map(|stack| stack.resource().bytes_outstanding()).sum();
        held + self.asked + self.reserved
    }

    fn check(&self, bytes: usize) -> Result<(), Short> {
        let remaining = self.limit.saturating_sub(self.used());
        if bytes <= remaining {
            return Ok(());
        }
        Err(Short { remaining, moving: self.asked > 0 })
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let books = self.books.lock();
        f.debug_struct("Account")
            .field("limit", &books.limit)
            .field("asked", &books.asked)
            .field("reserved", &books.reserved)
            .field("stacks", &books.stacks.len())
            .finish()
    }
}
