//! What the steps of a program do, each in one turn or several.

use std::collections::BTreeMap;

use xlog_cuda::{
    device_runtime::{Access, BlockId, Generation, ResourceError, ResourceResult},
    launch::LaunchRecorder,
    memory::Download,
};

use super::{
    Stack,
    bench::{Held, MODELLED, Stale},
    failure::Failure,
    judge,
    model::first_difference,
    program::{Step, Stream, Variable, Way, Work},
    run::{Open, Run},
    world::World,
};
use crate::DriverCall;

impl Run<'_> {
    pub(super) fn take_step(&mut self, thread: usize, step: Step) {
        match step {
            Step::Allocate { block, words, stream, first_use } => {
                self.as_thread(thread, |run| run.allocate(block, words, stream, first_use));
            }
            Step::Free { block } => {
                let freed = self.world.variables.blocks[block].take();
                if let Some(held) = &freed {
                    self.stale[block] = held.stale();
                }
                self.threads[thread].itself.run(|| drop(freed));
            }
            Step::Launch { way: Way::Builder, work, stream, salt } => {
                self.as_thread(thread, |run| {
                    let launched = run.operation(|world| {
                        world.variables.launch(&world.bench, work, stream, salt)
                    });
                    if launched {
                        run.world.variables.was_enqueued(
                            run.world.variables.bound(work),
                            stream,
                            salt,
                        );
                    }
                });
            }
            Step::Launch { way, work, stream, salt } => {
                self.open(thread, way, work, stream, salt);
            }
            Step::Upload { block, stream, salt } => self.as_thread(thread, |run| {
                // A block beyond what is modelled is touched by launches alone.
                if run.world.variables.length(block) > MODELLED {
                    return;
                }
                let cell = run.world.variables.cell(block);
                let values: Vec<u32> = (0..run.world.variables.contents.length(cell) as u32)
                    .map(|index| index.wrapping_mul(0x9e37_79b9) ^ salt)
                    .collect();
                let on = run.world.bench.streams[stream];
                let upload = |world: &mut World| match &mut world.variables.blocks[block] {
                    Some(held) => held.slice.upload_on(&values, on),
                    None => Ok(()),
                };
                let done = run.whole_operation(upload, block);
                if done {
                    run.world.variables.contents.set(cell, values);
                }
            }),
            Step::Download { block, stream } => self.as_thread(thread, |run| {
                if run.world.variables.length(block) > MODELLED {
                    return;
                }
                let on = run.world.bench.streams[stream];
                let started = match &run.world.variables.blocks[block] {
                    Some(held) => run.world.faulty(|_| held.slice.start_download(on)),
                    None => return,
                };
                let expected =
                    run.world.variables.contents.get(run.world.variables.cell(block)).to_vec();
                match started {
                    Ok(download) => {
                        let cell = run.world.variables.cell(block);
                        run.world.variables.was_used(&[(cell, Access::Read)], stream);
                        run.counts.launches += 1;
                        run.threads[thread].downloads.push((download, expected, block));
                    }
                    Err(Some(error)) => run.unexpected("a download", &error),
                    Err(None) => {}
                }
            }),
            Step::CopyBlock { from, to, stream } => self.as_thread(thread, |run| {
                let on = run.world.bench.streams[stream];
                // Only blocks of one length are copied whole.
                let cells = [from, to].map(|variable| run.world.variables.cell(variable));
                let [n, room] = [from, to].map(|variable| run.world.variables.length(variable));
                if n != room || n > MODELLED {
                    return;
                }
                let copy = |world: &mut World| {
                    let source = world.variables.blocks[from].take();
                    let answer = match (&mut world.variables.blocks[to], &source) {
                        (Some(to), Some(from)) => to.slice.copy_from(&from.slice, on),
                        _ => Ok(()),
                    };
                    world.variables.blocks[from] = source;
                    answer
                };
                if run.whole_operation(copy, to) {
                    run.world.variables.was_used(&[(cells[0], Access::Read)], stream);
                    run.world.variables.contents.copy(cells[0], cells[1], n);
                }
            }),
            Step::Memset { block, stream, value } => self.as_thread(thread, |run| {
                if run.world.variables.length(block) > MODELLED {
                    return;
                }
                let on = run.world.bench.streams[stream];
                let set = |world: &mut World| match &mut world.variables.blocks[block] {
                    Some(held) => held.slice.fill_bytes(value, on),
                    None => Ok(()),
                };
                if run.whole_operation(set, block) {
                    let cell = run.world.variables.cell(block);
                    let length = run.world.variables.contents.length(cell);
                    run.world
                        .variables
                        .contents
                        .set(cell, vec![u32::from_ne_bytes([value; 4]); length]);
                }
            }),
            Step::Synchronize { stream } => {
                self.call(thread, |world| {
                    world.bench.runtime.synchronize(world.bench.streams[stream])
                });
            }
            Step::Reap => self.call(thread, |world| world.bench.runtime.reap_pending()),
            Step::TryReap => self.call(thread, |world| world.bench.runtime.try_reap()),
            Step::Trim => self.call(thread, |world| world.bench.trim()),
            Step::FreeAgain { block } => {
                if let Some(Stale { block, .. }) = self.stale[block].take() {
                    self.refused(thread, "a second free", |world| {
                        world.bench.runtime.deallocate(block)
                    });
                }
            }
            Step::UseAgain { block, stream } => {
                if let Some(Stale { id, .. }) = self.stale[block] {
                    self.refused(thread, "a use by a stale handle", |world| {
                        let on = world.bench.streams[stream];
                        world.bench.runtime.prepare_block_use(id, on, Access::Read)
                    });
                }
            }
            Step::BareWrite { block, stream } => self.call(thread, |world| {
                let on = world.bench.streams[stream];
                let held = world.variables.blocks[block].as_ref();
                match held.and_then(|held| held.slice.runtime_block()) {
                    Some(block) => {
                        let block = BlockId::from_block(block);
                        world.bench.runtime.finish_block_use(block, on, Access::Write)
                    }
                    None => Ok(()),
                }
            }),
        }
    }

    fn as_thread(&mut self, thread: usize, work: impl FnOnce(&mut Self)) {
        let itself = std::mem::take(&mut self.threads[thread].itself);
        itself.run(|| work(self));
        self.threads[thread].itself = itself;
    }

    fn call(&mut self, thread: usize, call: impl FnOnce(&World) -> ResourceResult<()>) {
        self.as_thread(thread, |run| {
            if let Err(Some(error)) = run.world.faulty(call) {
                run.unexpected("a call", &error);
            }
        });
    }

    /// A call that must be refused because its handle is stale.
    fn refused(
        &mut self,
        thread: usize,
        what: &str,
        call: impl FnOnce(&World) -> ResourceResult<()>,
    ) {
        self.as_thread(thread, |run| match run.world.faulty(call) {
            Err(Some(ResourceError::UseAfterFree { .. }) | None) => {}
            Err(Some(error)) => run.unexpected(what, &error),
            Ok(()) => run.failures.push(Failure::MissingRefusal(format!("{what} was let through"))),
        });
    }

    fn unexpected(&mut self, what: &str, error: &ResourceError) {
        self.failures.push(Failure::UnexpectedError(format!("{what} failed: {error}")));
    }

    /// One operation that is enqueued whole or not at all; says whether it was.
    fn operation(&mut self, call: impl FnOnce(&World) -> ResourceResult<()>) -> bool {
        let before = self.world.enqueued();
        let answer = self.world.faulty(call);
        if let Err(Some(error)) = &answer {
            self.unexpected("a launch", error);
        }
        let enqueued = self.world.enqueued() > before;
        self.counts.launches += u64::from(enqueued);
        enqueued
    }

    /// An operation over a whole block, in several parts perhaps. If a fault cut it short, what the
    /// block holds is anybody's guess: it goes.
    fn whole_operation(
        &mut self,
        call: impl FnOnce(&mut World) -> ResourceResult<()>,
        block: Variable,
    ) -> bool {
        match self.world.faulty_mut(call) {
            Ok(()) => {
                let cell = self.world.variables.cell(block);
                self.world.variables.was_used(&[(cell, Access::Write)], 0);
                self.counts.launches += 1;
                true
            }
            Err(error) => {
                if let Some(error) = error {
                    self.unexpected("a copy", &error);
                }
                self.world.variables.blocks[block] = None;
                false
            }
        }
    }

    fn allocate(&mut self, block: Variable, words: usize, stream: Stream, first_use: Stream) {
        if let Some(held) = self.world.variables.blocks[block].take() {
            self.stale[block] = held.stale();
        }
        let slice = match self.world.faulty(|world| world.bench.allocate(words, stream)) {
            Ok(slice) => slice,
            Err(Some(error)) => return self.refused_memory(words, &error),
            Err(None) => return,
        };
        let cell = self.world.variables.contents.add(words.min(MODELLED));
        self.world.variables.blocks[block] = Some(Held { slice, cell });
        let (fill, value) = (Work::Fill { out: block }, cell as u32 + 1);
        if self.operation(|world| world.variables.launch(&world.bench, fill, first_use, value)) {
            self.world.variables.was_enqueued(Work::Fill { out: cell }, first_use, value);
        } else {
            // Never written: nobody may read it.
            self.world.variables.blocks[block] = None;
        }
    }

    /// An allocation was refused. That is right where less is left than was asked for, exactly, and
    /// where a cramped pool has no range that is long enough.
    fn refused_memory(&mut self, words: usize, error: &ResourceError) {
        let out_of_memory = matches!(error, ResourceError::OutOfBudget { .. });
        // A fault may have left memory that can be neither used nor freed.
        if out_of_memory && self.world.driver.injected() > 0 {
            return;
        }
        let Some(limit) = self.program.stack.limit() else {
            if !(out_of_memory && self.program.stack == Stack::Cramped) {
                self.unexpected("an allocation", error);
            }
            return;
        };
        let held = self.world.variables.blocks.iter().flatten().map(|held| held.slice.len() * 4);
        let live = held.sum::<usize>() + self.world.variables.sums.len() * 8;
        // What was freed under a claim is there until the claim is gone, however many hold one.
        let open = self.threads.iter().filter_map(|thread| thread.open.as_ref());
        let freed: BTreeMap<Generation, usize> = open
            .flat_map(|open| open.claimed.iter().copied())
            .filter(|(generation, _)| !self.world.variables.holds(*generation))
            .collect();
        let requested = words * 4;
        let most = live + freed.values().sum::<usize>();
        let remaining = limit.saturating_sub(most)..=limit - live;
        let exact = matches!(error, ResourceError::OutOfBudget { requested: asked, remaining: left }
            if *asked == requested && remaining.contains(left));
        if !exact || most + requested <= limit {
            let text =
                format!("{requested} bytes were refused with {live} of {limit} live: {error}");
            self.failures.push(Failure::UnexpectedError(text));
        }
    }

    /// Preflights a recorder; its enqueue and its commit are turns of their own.
    fn open(&mut self, thread: usize, way: Way, work: Work, stream: Stream, salt: u32) {
        let claims = self.world.variables.claims_of(work, stream);
        let must_refuse = self.is_held(&claims, thread);
        let on = self.world.bench.streams[stream];
        let mut recorder = match way {
            Way::Permissive => LaunchRecorder::new_permissive(on),
            _ => LaunchRecorder::new_strict(on),
        };
        self.world.variables.record(work, stream, &mut recorder);
        let (commit, enqueue) = match way {
            Way::Abandoned { enqueued } => (false, enqueued),
            _ => (true, true),
        };
        let launch = self.world.variables.kernel(&self.world.bench, work, stream, salt);
        let bound = self.world.variables.bound(work);
        self.as_thread(thread, |run| {
            match run.world.faulty(|world| recorder.preflight(&world.bench.runtime)) {
                Ok(()) if must_refuse => run.failures.push(Failure::MissingRefusal(format!(
                    "{work} on stream {stream} was let through, against the claim of another \
                     thread"
                ))),
                Ok(()) => {
                    let work = bound;
                    let open = Open {
                        claimed: run.world.variables.lengths(&claims),
                        recorder,
                        claims,
                        launch,
                        work,
                        stream,
                        salt,
                        enqueue,
                        commit,
                    };
                    run.threads[thread].open = Some(open);
                }
                Err(Some(_)) if must_refuse => run.counts.refusals += 1,
                Err(Some(error)) => run.unexpected("a preflight", &error),
                Err(None) => {}
            }
        });
    }

    /// The next turn of an open launch: its enqueue, then its commit.
    pub(super) fn go_on(&mut self, thread: usize, mut open: Open) {
        if std::mem::take(&mut open.enqueue) {
            self.as_thread(thread, |run| {
                if run.operation(|world| world.bench.enqueue(&open.launch, open.stream)) {
                    run.world.variables.was_enqueued(open.work, open.stream, open.salt);
                    run.threads[thread].open = Some(open);
                } else {
                    drop(open);
                }
            });
        } else if open.commit {
            self.call(thread, |world| open.recorder.commit(&world.bench.runtime));
        } else {
            self.abandon(thread, open);
        }
    }

    /// Drops a recorder that was not committed: taken for one that launched.
    pub(super) fn abandon(&mut self, thread: usize, open: Open) {
        self.world.variables.was_used(&open.work.uses(), open.stream);
        self.threads[thread].itself.run(|| drop(open));
    }

    pub(super) fn finish_download(
        &mut self,
        download: Download<u32>,
        expected: &[u32],
        variable: Variable,
    ) {
        match self.world.faulty(|_| download.wait()) {
            Ok(found) if found == expected => {}
            Ok(found) => self.failures.push(Failure::WrongBytes(format!(
                "what was downloaded of b{variable} is not what a serial run gives: {}",
                first_difference(&found, expected)
            ))),
            Err(Some(error)) => self.unexpected("a download", &error),
            Err(None) => {}
        }
    }
}

impl World {
    /// Makes a call. An error that no injected fault explains comes as `Some`.
    fn faulty<R>(
        &self,
        call: impl FnOnce(&Self) -> ResourceResult<R>,
    ) -> Result<R, Option<ResourceError>> {
        let before = self.driver.injected();
        call(self).map_err(|error| self.unexplained(error, before))
    }

    /// An error that no fault explains, neither one in this call nor one that left a block with a
    /// use nobody can wait for.
    fn unexplained(&self, error: ResourceError, before: u64) -> Option<ResourceError> {
        let injected = self.driver.injected();
        let explained = injected > before || (injected > 0 && judge::is_given_up(&error));
        (!explained).then_some(error)
    }

    fn faulty_mut<R>(
        &mut self,
        call: impl FnOnce(&mut Self) -> ResourceResult<R>,
    ) -> Result<R, Option<ResourceError>> {
        let before = self.driver.injected();
        let answer = call(self);
        answer.map_err(|error| self.unexplained(error, before))
    }

    /// Launches that reached the device.
    fn enqueued(&self) -> u64 {
        self.driver.passed(DriverCall::Launch)
    }
}
