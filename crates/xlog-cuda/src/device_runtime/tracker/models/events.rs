//! Events: a wait is for what was asked for, an event is not recorded again while somebody holds
//! it, and every use is behind what it depends on.

use std::sync::{Arc, OnceLock};

use xlog_core::Access::{Read, Write};
use xlog_driver::RawStream;

use super::{Asked, OnConflict, Place, Point, Rig, two_threads};
use crate::{
    device_runtime::{BlockUse, StreamId},
    sync::{
        Step,
        models::{at_once, explore, must_fail_without},
    },
};

const STREAMS: [StreamId; 2] = [StreamId(0), StreamId(1)];

impl Rig {
    fn raw(&self, stream: StreamId) -> RawStream {
        let lane = self.tracker().lane(stream).expect("a stream of the pool");
        lane.raw(self.tracker().device()).expect("a stream of the device")
    }

    fn create_streams(&self) {
        STREAMS.iter().for_each(|stream| {
            self.raw(*stream);
        });
    }

    /// Claims, waits, works and records: a launch as the builder makes it.
    pub(super) fn work(&self, one: BlockUse, stream: StreamId) -> Place {
        let place = OnceLock::new();
        let launched = self.launch(one, stream, (true, OnConflict::Wait), |launch| {
            let _ = place.set(self.driver.work(self.raw(stream)));
            self.tracker().finish_claimed(launch).expect("recorded");
        });
        launched.expect("who waits is let in");
        *place.get().expect("worked")
    }
}

/// Two threads write one block, each on a stream of its own.
fn two_launches() {
    let (rig, (one, other)) = (Rig::new(2, false), two_threads());
    let block = one.run(|| rig.block(4096));
    rig.create_streams();
    let write = rig.one_use(block, Write);
    let theirs = rig.clone();
    let (first, second) = at_once(
        (one, move || theirs.work(write, STREAMS[0])),
        (other, || rig.work(write, STREAMS[1])),
    );
    let ordered = rig.driver.follows(first, second) || rig.driver.follows(second, first);
    assert!(ordered, "two writes of one block in no order");
}

#[test]
fn of_two_writes_one_follows_the_other() {
    explore("events, two launches", Some(4), two_launches);
}

#[test]
fn launches_must_claim_to_be_in_order() {
    let what = "in no order";
    must_fail_without(Step::AnnouncersFence, what, Some(3), two_launches);
    must_fail_without(Step::LockersFence, what, Some(3), two_launches);
}

/// One thread waits for a point, while another waits for the stream of that point on the host, and
/// records two more events there: so it prunes, and records the pruned one again.
fn a_wait_meets_pruning() {
    a_wait_meets(2, |rig| {
        rig.tracker().synchronize(&rig.tracker().lanes()[0]).expect("waited");
    });
}

/// The same, while another only goes on recording, finds out that the first event is done, and
/// records it again.
fn a_wait_meets_recording() {
    a_wait_meets(3, |_| ());
}

fn a_wait_meets(records: usize, first: fn(&Rig)) {
    let (rig, (one, other)) = (Rig::new(2, false), two_threads());
    rig.create_streams();
    let lane = &rig.tracker().lanes()[0];
    lane.record(rig.tracker().device(), |_| ()).expect("recorded");
    rig.driver.do_all();
    let asked = Point::new(0, lane.tick());
    let theirs = rig.clone();
    let record = move || {
        let (tracker, lane) = (theirs.tracker(), &theirs.tracker().lanes()[0]);
        first(&theirs);
        (0..records).for_each(|_| lane.record(tracker.device(), |_| ()).expect("recorded"));
    };
    let place = rig.driver.queue(rig.raw(STREAMS[0])).len();
    at_once(
        (one, record),
        (other, || {
            rig.tracker().queue_wait(&rig.tracker().lanes()[1], asked).expect("waited");
        }),
    );
    let waits = rig.driver.queue(rig.raw(STREAMS[1]));
    let waits = waits.iter().filter_map(|asked| match asked {
        Asked::Wait(place) => Some(*place),
        _ => None,
    });
    for waited_for in waits {
        let asked_for = Some((rig.raw(STREAMS[0]).0, place));
        assert_eq!(waited_for, asked_for, "a wait for work that came later");
    }
}

#[test]
fn a_wait_is_for_the_point_asked_for_or_the_point_is_done() {
    explore("events, record, find and prune", Some(4), a_wait_meets_pruning);
    explore("events, record, find and record again", Some(4), a_wait_meets_recording);
}

#[test]
fn held_events_must_rest_and_later_ones_be_passed_over() {
    let what = "a wait for work that came later";
    must_fail_without(Step::HeldEvent, what, Some(2), a_wait_meets_pruning);
    must_fail_without(Step::LaterEvent, what, Some(2), a_wait_meets_pruning);
    must_fail_without(Step::HeldEvent, what, Some(2), a_wait_meets_recording);
    must_fail_without(Step::LaterEvent, what, Some(2), a_wait_meets_recording);
}

/// A use in a pool of one stream, while the pool gets its second one.
fn a_second_stream_comes() {
    let (rig, (one, other)) = (Rig::new(1, false), two_threads());
    let raw = rig.raw(STREAMS[0]);
    let theirs = rig.clone();
    let mark = move || {
        let (tracker, lane) = (theirs.tracker(), &theirs.tracker().lanes()[0]);
        let (work, mut point) = (theirs.driver.work(raw), None);
        tracker.mark(lane, |at, _| point = Some(at)).expect("marked");
        (work, point.expect("a point"))
    };
    let ((work, point), ()) = at_once(
        (one, mark),
        (other, || {
            rig.tracker().begin_several().expect("an event on every stream");
        }),
    );
    let found = rig.tracker().lanes()[0].trail().lock().find(point.tick());
    let found = found.expect("an event for every point");
    assert_eq!(found.tick, point.tick(), "the event of this very point");
    let stands_for = rig.driver.stands_for(found.event.raw).expect("recorded");
    assert!(rig.driver.follows(stands_for, work), "an event before the work it stands for");
}

#[test]
fn an_open_point_is_closed_behind_its_work() {
    explore("events, a second stream comes", None, a_second_stream_comes);
}

#[test]
fn the_tick_must_be_read_before_the_mode() {
    let what = "an event for every point";
    must_fail_without(Step::TickBeforeMode, what, None, a_second_stream_comes);
}

/// A block was used in a pool of one stream. A loop over another one goes on, launches replacing
/// each other, while the pool gets its second stream: one of them may close the open point.
fn a_loop_meets_a_second_stream() {
    let (rig, (one, other)) = (Rig::new(1, false), two_threads());
    let [used, looped] = one.run(|| [4096, 8192].map(|ptr| rig.one_use(rig.block(ptr), Write)));
    one.run(|| rig.work(used, STREAMS[0]));
    let theirs = rig.clone();
    at_once(
        (one, move || {
            (0..3).for_each(|_| {
                theirs.work(looped, STREAMS[0]);
            });
        }),
        (other, || {
            rig.tracker().begin_several().expect("an event on every stream");
        }),
    );
    let slot = rig.tracker().slots.get(used.slot.0).expect("a slot");
    let open = slot.last_write().tick();
    let found = rig.tracker().lanes()[0].trail().lock().find(open);
    assert_eq!(found.map(|found| found.tick), Some(open), "the event of this very point");
}

#[test]
fn no_launch_replaces_the_one_that_closed_an_open_point() {
    explore("events, a loop and a second stream", Some(3), a_loop_meets_a_second_stream);
}

#[test]
fn the_launch_that_closes_an_open_point_must_not_be_counted() {
    let what = "the event of this very point";
    must_fail_without(Step::OpenedTick, what, Some(3), a_loop_meets_a_second_stream);
}

/// A read under a claim is published, while a write that nobody prepared covers an earlier read of
/// the same stream and forgets it.
fn a_read_meets_a_bare_write() {
    let (rig, (one, other)) = (Rig::new(2, false), two_threads());
    rig.create_streams();
    let block = one.run(|| rig.block(4096));
    let [read, write] = [Read, Write].map(|access| rig.one_use(block, access));
    // An earlier read on stream 1, which stream 0 follows.
    one.run(|| rig.work(read, STREAMS[1]));
    rig.pool.join(STREAMS[0]).expect("waited");
    let theirs = rig.clone();
    let (reads, ()) = at_once(
        (one, move || theirs.work(read, STREAMS[1])),
        (other, || {
            rig.tracker().finish(&[write], STREAMS[0], 0).expect("recorded");
        }),
    );
    // Whoever writes next is behind the read.
    let late = super::VirtualThread::new();
    let writes = late.run(|| rig.work(write, STREAMS[0]));
    assert!(rig.driver.follows(writes, reads), "a read was forgotten");
}

#[test]
fn a_bare_write_forgets_no_read_that_it_does_not_cover() {
    explore("events, a read and a bare write", Some(5), a_read_meets_a_bare_write);
}

#[test]
fn reads_must_not_be_forgotten_while_one_is_published() {
    let what = "a read was forgotten";
    must_fail_without(Step::ReadersAtWork, what, Some(3), a_read_meets_a_bare_write);
}

/// Two threads look for an entry of a table that has to grow for it.
fn two_growers() {
    use super::super::chunked::Chunked;
    use crate::sync::atomic::{AtomicU32, Ordering};
    let table: Arc<Chunked<AtomicU32, 1>> = Arc::new(Chunked::new());
    let theirs = Arc::clone(&table);
    let other = loom::thread::spawn(move || {
        let entry = theirs.grow(1).expect("room");
        entry.fetch_add(1, Ordering::Relaxed);
        std::ptr::from_ref(entry).addr()
    });
    if let Some(entry) = table.get(1) {
        assert!(entry.load(Ordering::Relaxed) <= 1, "an entry that is not whole");
    }
    let entry = table.grow(1).expect("room");
    entry.fetch_add(1, Ordering::Relaxed);
    assert_eq!(other.join().expect("a thread"), std::ptr::from_ref(entry).addr(), "one entry");
    assert_eq!(entry.load(Ordering::Relaxed), 2, "both counted in the same place");
}

#[test]
fn a_table_grows_once() {
    explore("table, two growers", None, two_growers);
}
