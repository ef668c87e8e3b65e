//! Claims: no two that conflict are held at once, none is refused for nothing, and whoever gets
//! one sees what was done under those before it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32 as PlainU32, Ordering},
};

use loom::sync::atomic::AtomicU32;
use xlog_core::Access::{self, Read, Write};

use super::{OWNER, OnConflict, Rig, two_threads};
use crate::{
    device_runtime::{BlockId, BlockUse, StreamId, VirtualThread},
    sync::{
        Step,
        models::{at_once, explore, must_fail_without},
    },
};

/// What holders of claims on one block find there.
#[derive(Default)]
struct Inside {
    /// One for each reader, sixteen for a writer. Changed so that threads see each other's changes
    /// at once, and nothing else by them.
    holders: AtomicU32,
    /// How often the block was written: what claims have to hand on.
    written: AtomicU32,
    /// The same, known to all.
    truly_written: PlainU32,
    /// Two were in there that should not have been, or one did not see what another had done.
    wrong: AtomicBool,
}

const WRITER: u32 = 16;

const WRONG: &str = "claims that conflict were both held, or one did not see what was done before";

impl Inside {
    /// Uses the block as a holder of a claim does.
    fn visit(&self, access: Access) {
        let weight = if access.writes() { WRITER } else { 1 };
        let before = self.holders.fetch_add(weight, Ordering::Relaxed);
        let alone = if access.writes() { before == 0 } else { before < WRITER };
        let seen = self.written.load(Ordering::Relaxed);
        if !alone || seen != self.truly_written.load(Ordering::Relaxed) {
            self.wrong.store(true, Ordering::Relaxed);
        }
        if access.writes() {
            self.truly_written.store(seen + 1, Ordering::Relaxed);
            self.written.store(seen + 1, Ordering::Relaxed);
        }
        self.holders.fetch_sub(weight, Ordering::Relaxed);
    }

    fn check(&self) {
        assert!(!self.wrong.load(Ordering::Relaxed), "{WRONG}");
    }
}

/// Claims a block, uses it, and gives the claim up. Says whether it was granted.
fn claim(rig: &Rig, one: BlockUse, on_conflict: OnConflict, inside: &Inside) -> bool {
    let launch = rig.launch(one, StreamId::DEFAULT, (false, on_conflict), |launch| {
        inside.visit(one.access);
        rig.tracker().release(launch.ticket);
    });
    launch.is_ok()
}

/// Two threads claim one block, which is biased to the first. Answers who was granted.
fn meet(accesses: [Access; 2], on_conflict: OnConflict) -> (bool, bool) {
    let (rig, (one, other)) = (Rig::new(1, true), two_threads());
    let block = one.run(|| rig.block(4096));
    let inside = Arc::new(Inside::default());
    let [first, second] = accesses.map(|access| rig.one_use(block, access));
    let (their_rig, theirs) = (rig.clone(), Arc::clone(&inside));
    let answers = at_once(
        (one, move || claim(&their_rig, first, on_conflict, &theirs)),
        (other, || claim(&rig, second, on_conflict, &inside)),
    );
    inside.check();
    answers
}

/// Two threads read a block, and a third writes it.
fn three_meet() {
    let (rig, threads) = (Rig::new(1, true), [(); 3].map(|()| VirtualThread::new()));
    let block = threads[0].run(|| rig.block(4096));
    let inside = Arc::new(Inside::default());
    let begin = |(thread, access): (VirtualThread, Access)| {
        let (rig, inside, one) = (rig.clone(), Arc::clone(&inside), rig.one_use(block, access));
        let work = move || thread.run(|| claim(&rig, one, OnConflict::Refuse, &inside));
        loom::thread::spawn(move || (work(), work))
    };
    let [first, second, third] = threads;
    let working = [(first, Read), (second, Write), (third, Read)].map(begin);
    let done = working.map(|thread| thread.join().expect("a thread of the model"));
    inside.check();
    assert!(done.iter().any(|(granted, _)| *granted), "all were turned away");
}

/// A refusal names a launch that really holds a claim: one of two always gets through.
fn one_of_two_writers() {
    let (first, second) = meet([Write, Write], OnConflict::Refuse);
    assert!(first || second, "each was turned away by the other");
}

fn two_readers() {
    assert_eq!(meet([Read, Read], OnConflict::Refuse), (true, true), "readers share");
}

fn writer_waits_for_reader() {
    assert_eq!(meet([Read, Write], OnConflict::Wait), (true, true), "who waits is let in");
}

#[test]
fn of_two_writers_one_is_refused_at_most() {
    explore("claims, write against write", None, one_of_two_writers);
}

#[test]
fn a_reader_and_a_writer_take_turns() {
    explore("claims, read against write", Some(4), || {
        let (first, second) = meet([Read, Write], OnConflict::Refuse);
        assert!(first || second, "each was turned away by the other");
    });
    explore("claims, write against read", Some(4), || {
        let (first, second) = meet([Write, Read], OnConflict::Refuse);
        assert!(first || second, "each was turned away by the other");
    });
}

#[test]
fn readers_never_turn_each_other_away() {
    explore("claims, read against read", None, two_readers);
}

#[test]
fn two_readers_and_a_writer_take_turns() {
    explore("claims, three threads", Some(1), three_meet);
}

#[test]
fn whoever_waits_gets_the_claim() {
    explore("claims, a writer waits", Some(3), writer_waits_for_reader);
}

#[test]
fn claims_need_both_fences_and_a_decision() {
    must_fail_without(Step::AnnouncersFence, WRONG, None, one_of_two_writers);
    must_fail_without(Step::LockersFence, WRONG, None, one_of_two_writers);
    must_fail_without(Step::UndecidedTicket, WRONG, None, one_of_two_writers);
    must_fail_without(Step::ClosingRelease, WRONG, None, one_of_two_writers);
}

/// A thread that launches twice, on a block and then on another, and one that wants the first.
fn a_ticket_is_used_again() {
    let (rig, (one, other)) = (Rig::new(1, true), two_threads());
    let blocks = one.run(|| [4096, 8192].map(|ptr| rig.block(ptr)));
    let inside = Arc::new([Inside::default(), Inside::default()]);
    let uses = blocks.map(|block| rig.one_use(block, Write));
    let (their_rig, theirs) = (rig.clone(), Arc::clone(&inside));
    let launches = move || {
        for (one, inside) in uses.iter().zip(&*theirs) {
            claim(&their_rig, *one, OnConflict::Refuse, inside);
        }
    };
    at_once((one, launches), (other, || claim(&rig, uses[0], OnConflict::Refuse, &inside[0])));
    inside.iter().for_each(Inside::check);
}

#[test]
fn a_ticket_must_release_when_it_is_filled_again() {
    must_fail_without(Step::FillingRelease, WRONG, Some(3), a_ticket_is_used_again);
}

#[test]
fn a_ticket_hands_on_what_its_earlier_launch_did() {
    explore("claims, a ticket used again", Some(4), a_ticket_is_used_again);
}

/// A thread claims on a stream that another releases. Once released, nobody launches there.
fn claim_meets_release() {
    let (rig, (one, other)) = (Rig::new(2, true), two_threads());
    let block = one.run(|| rig.block(4096));
    let inside = Arc::new(Inside::default());
    let (read, stream) = (rig.one_use(block, Read), StreamId(1));
    let (their_rig, theirs) = (rig.clone(), Arc::clone(&inside));
    let launch = move || {
        // Refused if the stream is closed by then.
        let _ = their_rig.launch(read, stream, (false, OnConflict::Refuse), |launch| {
            theirs.visit(Read);
            their_rig.tracker().release(launch.ticket);
        });
    };
    let release = || {
        // Refused if there is a launch on it.
        let released = rig.pool.release(stream).is_ok();
        if released && inside.holders.fetch_add(WRITER, Ordering::Relaxed) != 0 {
            inside.wrong.store(true, Ordering::Relaxed);
        }
    };
    at_once((one, launch), (other, release));
    inside.check();
}

#[test]
fn a_stream_is_released_before_a_launch_or_after_it() {
    explore("claims, a stream is released", Some(4), claim_meets_release);
}

#[test]
fn a_release_needs_its_fence() {
    must_fail_without(Step::ReleasersFence, WRONG, Some(4), claim_meets_release);
    must_fail_without(Step::AnnouncersFence, WRONG, Some(4), claim_meets_release);
}

/// Threads that come and go: the second may get the desk of the first.
fn a_desk_is_used_again() {
    let (rig, setting_up) = (Rig::new(1, true), VirtualThread::new());
    let write = rig.one_use(setting_up.run(|| rig.block(4096)), Write);
    let inside = Arc::new(Inside::default());
    let threads = [(); 2].map(|()| {
        let (rig, inside) = (rig.clone(), Arc::clone(&inside));
        loom::thread::spawn(move || {
            let thread = VirtualThread::new();
            thread.run(|| claim(&rig, write, OnConflict::Refuse, &inside))
        })
    });
    let granted = threads.map(|thread| thread.join().expect("a thread of the model"));
    inside.check();
    assert!(granted[0] || granted[1], "each was turned away by the other");
}

#[test]
fn a_desk_goes_to_the_next_thread_with_all_that_is_on_it() {
    explore("claims, a desk used again", Some(2), a_desk_is_used_again);
}

/// What a free does: it enters as a writer, for good.
fn free(inside: &Inside, frees: &PlainU32) {
    inside.visit(Write);
    frees.fetch_add(1, Ordering::Relaxed);
}

/// A block is freed by one thread while another claims it.
fn free_meets_claim(biased_to_claimer: bool) {
    let (rig, (one, other)) = (Rig::new(1, true), two_threads());
    let owner = if biased_to_claimer { &other } else { &one };
    let block = owner.run(|| rig.block(4096));
    let found = Arc::new((Inside::default(), PlainU32::new(0)));
    let read = rig.one_use(block, Read);
    let (their_rig, theirs) = (rig.clone(), Arc::clone(&found));
    let late = VirtualThread::new();
    let (_, granted) = at_once(
        (one, move || give_back(&their_rig, block, &theirs)),
        (other, || claim(&rig, read, OnConflict::Refuse, &found.0)),
    );
    // What the last claim missed, the next reap runs.
    rig.tracker().run_deferred_frees();
    found.0.check();
    assert_eq!(found.1.load(Ordering::Relaxed), 1, "freed once (claim granted: {granted})");
    let late = late.run(|| claim(&rig, read, OnConflict::Refuse, &found.0));
    assert!(!late, "a stale handle is refused");
}

fn give_back(rig: &Rig, block: BlockId, found: &Arc<(Inside, PlainU32)>) {
    let now = match rig.tracker().retire_quickly(block, OWNER) {
        Some(_) => true,
        None => {
            let later = Arc::clone(found);
            let on_release =
                || -> super::super::OnRelease { Box::new(move || free(&later.0, &later.1)) };
            rig.tracker().retire(block, OWNER, on_release).expect("not stale").is_some()
        }
    };
    if now {
        free(&found.0, &found.1);
    }
}

#[test]
fn a_free_waits_for_claims_and_happens_once() {
    explore("claims, a free by the owner", Some(5), || free_meets_claim(false));
    explore("claims, a free by another thread", Some(5), || free_meets_claim(true));
}

#[test]
fn a_free_must_look_for_claims() {
    must_fail_without(Step::HeldBlock, WRONG, Some(3), || free_meets_claim(true));
    must_fail_without(Step::LockersFence, WRONG, Some(3), || free_meets_claim(true));
}
