//! The world: one instance, its clients, its disk, its clock, and what happens to them step by step.
//!
//! What the server does with sockets and threads, this does with vectors: requests are handled as they are cut off a
//! stream, unless the instance asks for a pause. The turn is the server's own ([`lycosa_engine::turn`]), and the
//! world is its host.
//!
//! After each input of the instance the model gets the same, and the spaces are compared with it. Each
//! answer is noted when it is determined, with the signature of the rows that it may have seen, and looked at when it
//! reaches the client: it must be the one that was noted, and the disk must hold those rows.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{Batch, CheckpointOrder, ConnectionSlot, FreeSpace, Instance, Lsn};
use lycosa_journal::memory::{Fault, MemoryDisk};
use lycosa_queue::LogLine;
use lycosa_store::Budget;

use crate::BEGINNING;
use crate::agreement::{self, ReadJobs};
use crate::checkpoint::Checkpointer;
use crate::connection::{Connection, Outcome};
use crate::journal::SimJournal;
use crate::keyed::{self, Held};
use crate::ledger::Ledger;
use crate::model::{Answer, Model, Token};
use crate::names::Names;
use crate::plan::{Action, Plan, Wish};
use crate::random::Random;
use crate::shadow::Shadow;
use crate::snapshots::Watch;
use crate::trace::Trace;
use crate::violation::{Checked, Violation, hold};
use crate::workload::Workload;

/// Free space of a disk that is short of it.
const SHORT_OF_ROOM: FreeSpace = FreeSpace::new(4_096, 8_192);

/// No test waits for a time that is farther away than this, in µs: a task without a ttl lives for a hundred years.
const FAR: u64 = 24 * 3_600_000_000;

/// Bytes of rows that no run has under way.
const MAX_ROWS_UNDER_WAY: usize = 16 << 20;

/// What a step takes by the clock that never goes back.
const STEP: Duration = Duration::from_micros(50);

/// What happened in a run, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that the server handled.
    pub requests: u64,
    /// Tasks that clients were told to hold by a lease, renewals included.
    pub leases: u64,
    /// Tasks in extended form without a token that clients were shown.
    pub extended: u64,
    /// Takes that were answered with the tasks of an earlier call, or with nothing because a later repetition had come.
    pub again: u64,
    /// Puts with a key.
    pub keyed: u64,
    /// Of them, the ones that were answered as the first with their key.
    pub kept: u64,
    /// Tokens that clients were told to be stale.
    pub stale: u64,
    /// Answers that reached a client.
    pub replies: u64,
    /// Batches that became durable.
    pub batches: u64,
    /// Ends of the process or the machine out of order.
    pub crashes: u64,
    /// Ends in order.
    pub stops: u64,
    /// Snapshots that were completed.
    pub snapshots: u64,
    /// Snapshots that were begun and could not be written.
    pub snapshot_failures: u64,
    /// Of the crashes, the number that left an unfinished snapshot.
    pub crashes_writing: u64,
    /// Of the crashes, those between a snapshot's getting its name and the instance's being told.
    pub crashes_unreported: u64,
    /// Of the crashes, those after some of the old files were removed and before all were.
    pub crashes_collecting: u64,
    /// Failures of the journal.
    pub failures: u64,
    /// Of the crashes, the number that took rows which had been reported, in a mode that does not promise to keep them.
    pub losses: u64,
    /// Turns that kept rows back for the clients that had just been answered.
    pub waits: u64,
    /// Jobs that operators were told to have begun, or to have controlled.
    pub jobs: u64,
    /// Tasks that jobs have changed.
    pub changed: u64,
    /// Tasks that `undo` has brought back.
    pub undone: u64,
    /// Pages of `find`.
    pub pages: u64,
}

/// One life of the process.
pub(crate) struct Life {
    pub(crate) instance: Instance,
    pub(crate) journal: SimJournal,
    pub(crate) turn: TurnState,
    pub(crate) checkpointer: Checkpointer,
    /// By the number of the client.
    pub(crate) connections: BTreeMap<usize, Connection>,
    pub(crate) opened: u64,
    /// Answers to clients over HTTP, in the order of their rows.
    pub(crate) held: VecDeque<Held>,
    /// The signature up to which the instance was told that rows are durable.
    pub(crate) reported: u64,
    /// The instance was told that the journal has failed.
    pub(crate) has_failed: bool,
    /// The disk was told to refuse something.
    pub(crate) is_faulty: bool,
    /// The disk was told to refuse something of the writer of snapshots.
    pub(crate) is_snapshot_faulty: bool,
    pub(crate) watch: Watch,
    /// The instance has heard that the disk is short of space.
    pub(crate) is_short_of_room: bool,
}

impl Life {
    /// `live`: live data.
    pub(crate) fn new(
        instance: Instance,
        journal: SimJournal,
        checkpointer: Checkpointer,
        live: u64,
        now: u64,
    ) -> Self {
        let reported = journal.durable();
        let watch = Watch::new(checkpointer.sound(), live, now);
        Self {
            instance,
            turn: TurnState::default(),
            journal,
            checkpointer,
            connections: BTreeMap::new(),
            opened: 0,
            held: VecDeque::new(),
            reported,
            has_failed: false,
            is_faulty: false,
            is_snapshot_faulty: false,
            watch,
            is_short_of_room: false,
        }
    }

    fn signature(&self) -> u64 {
        self.instance.vclock().signature()
    }
}

/// Everything there is.
pub(crate) struct Simulation<'a> {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) workload: Workload,
    pub(crate) trace: &'a mut Trace,
    pub(crate) step: u64,
    /// µs since the epoch.
    pub(crate) now: u64,
    /// The clock that never goes back.
    pub(crate) clock: Instant,
    pub(crate) disk: MemoryDisk,
    pub(crate) shadow: Shadow,
    /// The data as the newest snapshot holds them, if that is all that some end of the process leaves.
    pub(crate) kept: Option<Shadow>,
    pub(crate) model: Model,
    /// The model after each signature that a recovery may still end with.
    pub(crate) history: VecDeque<(u64, Model)>,
    pub(crate) names: Names,
    pub(crate) read_jobs: ReadJobs,
    pub(crate) ledger: Ledger,
    pub(crate) life: Life,
    pub(crate) lives: u64,
    pub(crate) has_rotted: bool,
    pub(crate) totals: Totals,
}

impl<'a> Simulation<'a> {
    /// A new instance on an empty disk.
    pub(crate) fn new(seed: u64, is_steered: bool, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let mut plan = Plan::new(seed, &mut random);
        if is_steered {
            plan.steer(seed, &mut random.fork());
        }
        trace.line(format_args!("{plan:?}"));
        let workload = Workload::new(random.fork());
        let model = Model::new(&plan);
        let disk = MemoryDisk::new();
        let mut opening = crate::restart::begin(&plan, &mut random, disk, BEGINNING, trace)?;
        let report = opening.life.instance.start(BEGINNING);
        report.map_err(|error| Violation(format!("the queue does not start on a new instance: {error}")))?;
        let has_thread = opening.life.journal.has_thread();
        Ok(Self {
            kept: if has_thread { None } else { Some(Shadow::new()?) },
            ledger: Ledger::new(plan.tubes.len()),
            history: VecDeque::from([(0, model.clone())]),
            plan,
            random,
            workload,
            trace,
            step: 0,
            now: BEGINNING,
            clock: Instant::now(),
            disk: opening.disk,
            shadow: Shadow::new()?,
            model,
            names: Names::default(),
            read_jobs: ReadJobs::default(),
            life: opening.life,
            lives: 1,
            has_rotted: false,
            totals: Totals::default(),
        })
    }

    /// Lets something happen.
    pub(crate) fn next(&mut self) -> Checked {
        self.step += 1;
        self.clock += STEP;
        if self.life.has_failed && self.random.one_in(20) {
            self.run_until_idle()?;
            return self.crash();
        }
        let action = match self.random.weighted(&self.plan.actions) {
            Action::Journal if self.is_journal_at_rest() => Action::Turn,
            Action::Send | Action::Deliver | Action::Stall if self.life.connections.is_empty() => {
                Action::Connect
            }
            action => action,
        };
        match action {
            Action::Send if self.plan.has_workers && self.random.one_in(12) => self.put_keyed()?,
            Action::Send => self.send(),
            Action::Deliver => self.deliver()?,
            Action::Turn => self.turn()?,
            Action::Journal => self.journal_step(),
            Action::Advance => self.advance(),
            Action::Connect => self.connect()?,
            Action::Disconnect => {
                if let Some(client) = self.any_client() {
                    self.disconnect(client)?;
                }
            }
            Action::Stall => self.stall()?,
            Action::RunUntilIdle => self.run_until_idle()?,
            Action::Crash => self.crash()?,
            Action::Stop => self.stop()?,
            Action::Fault => self.fault(false),
            Action::SnapshotFault => self.fault(true),
            Action::Checkpoint => self.want_checkpoint(),
            Action::Snapshotter => self.checkpointer_step()?,
            Action::Room => {
                let life = &mut self.life;
                life.is_short_of_room = !life.is_short_of_room;
                life.checkpointer.space().is_short = life.is_short_of_room;
                life.instance.handle_free_space(life.is_short_of_room.then_some(SHORT_OF_ROOM));
                self.trace.line(format_args!("{} the disk is full: {}", self.step, life.is_short_of_room));
            }
        }
        Ok(())
    }

    /// The end of the run: nothing may be left under way, and a start must find everything again.
    pub(crate) fn finish(&mut self) -> Checked {
        self.step += 1;
        self.stop()
    }

    /// Something has reached the instance: notes the answers that are determined now, and compares the spaces with the
    /// model.
    pub(crate) fn check_answers(&mut self, mut answers: Vec<(Token, Answer)>) -> Checked {
        let asked = answers.len();
        answers.extend(self.model.take_woken());
        let signature = if self.life.has_failed { 0 } else { self.life.signature() };
        // A waiting call on a temporary tube leaves no rows: a tick may answer the call before the tick writes its first row.
        let before = self.history.back().map_or(0, |(last, _)| *last).min(signature);
        for (place, (token, answer)) in answers.into_iter().enumerate() {
            let mut connections = self.life.connections.values_mut();
            let connection = connections.find(|connection| connection.number == token.connection);
            let awaited = connection.and_then(|connection| connection.undecided(token.sync));
            let awaited = awaited.ok_or_else(|| {
                Violation(format!("{token:?} is answered, and nobody waits for it: {answer:?}"))
            })?;
            let is_temporary = awaited.request.tube().is_some_and(|tube| self.plan.tubes[tube].temporary);
            // And a job that a tick works on writes its rows after the tick has answered a call.
            let is_early = is_temporary || self.plan.is_steered();
            let seen = if place >= asked && is_early { before } else { signature };
            awaited.outcome = Some(Outcome { answer, signature, seen });
        }
        if self.life.has_failed { Ok(()) } else { self.compare(signature) }
    }

    pub(crate) fn compare(&mut self, signature: u64) -> Checked {
        let store = self.life.instance.store();
        agreement::tubes_agree(store, &self.model, &self.plan.tubes)?;
        agreement::attempts_agree(store, &self.model)?;
        keyed::answers_agree(store, &self.model)?;
        agreement::jobs_agree(store, &self.model, &self.plan.tubes, &mut self.read_jobs)?;
        let (bytes, counted) = (store.snapshot_bytes(), store.recount_snapshot_bytes());
        hold!(
            bytes == counted,
            "a snapshot takes {counted} bytes at most, and {bytes} are kept as their number"
        );
        agreement::sessions_agree(&self.life.instance, &self.model, &mut self.names)?;
        agreement::rules_hold(&self.life.instance, &self.plan.tubes)?;
        agreement::counts_hold(&self.life.instance)?;
        let (waiting, expected) = (self.life.instance.status().waiting_calls, self.model.waiting());
        let are_counted = !self.plan.wishes.iter().any(|(_, wish)| *wish == Wish::Snapshot);
        hold!(waiting == expected || !are_counted, "{waiting} calls wait, {expected} ought to");
        if self.history.back().is_none_or(|(last, _)| *last < signature) {
            self.history.push_back((signature, self.model.clone()));
        }
        Ok(())
    }

    /// Ends a turn as the server does.
    pub(crate) fn turn(&mut self) -> Checked {
        let (now, clock) = (self.now, self.clock);
        turn::end(self, now, clock)?;
        self.tell_held()
    }

    /// Whether a tick has done nothing because the journal is behind. `ticked`: what it would have led to.
    fn is_held_up(&mut self, next: Option<u64>, ticked: &Model) -> bool {
        let (status, store) = (self.life.instance.status(), self.life.instance.store());
        next.is_none()
            && self.plan.instance.max_journal_backlog < MAX_ROWS_UNDER_WAY
            && self.shadow.last() < status.standing.signature
            && (ticked.next_due().is_some()
                || agreement::jobs_agree(store, ticked, &self.plan.tubes, &mut self.read_jobs).is_err()
                || ticked.waiting() != status.waiting_calls
                || agreement::tubes_agree(store, ticked, &self.plan.tubes).is_err()
                || self.sessions_differ(ticked))
    }

    fn sessions_differ(&self, model: &Model) -> bool {
        agreement::sessions_agree(&self.life.instance, model, &mut self.names.clone()).is_err()
    }

    /// The moment for which a tick wants to be called again must not be too late, nor now for nothing: the instance
    /// knows of a tube's deadlines that none is earlier than some moment, and that may be the deadline of a task
    /// which has lived and died within the tick. The next tick finds out, and then knows better.
    fn check_next(&mut self, next: Option<u64>) -> Checked {
        let due = self.model.next_due();
        if let Some(due) = due {
            hold!(
                next.is_some_and(|next| next <= due.max(self.now)),
                "something is due at {due}, but the tick at {} asks to be called at {next:?}",
                self.now
            );
        }
        if next.is_some_and(|next| next <= self.now) && due.is_none_or(|due| due > self.now) {
            let again = self.life.instance.tick(self.now);
            hold!(
                again.is_none_or(|next| next > self.now),
                "two ticks at {} ask to be called at {next:?} and {again:?} although nothing is due before {due:?}",
                self.now
            );
            self.check_answers(Vec::new())?;
        }
        Ok(())
    }

    pub(crate) fn journal_step(&mut self) {
        let what = self.life.journal.step();
        self.trace.line(format_args!("{} journal: {what}", self.step));
    }

    /// No recovery ends before the row `signature` any more.
    pub(crate) fn forget_history(&mut self, signature: u64) {
        while self.history.get(1).is_some_and(|(known, _)| *known <= signature) {
            self.history.pop_front();
        }
    }

    fn advance(&mut self) {
        let before = self.now;
        let soon = self.now + FAR;
        let due = self.model.next_due().filter(|due| *due < soon);
        self.now = match self.random.below(8) {
            0 => self.now + 1,
            1 => self.now + self.random.below(1_000),
            2 => self.now + self.random.below(300_000),
            3 => self.now + 250_000,
            4 => self.now + 1_000_000,
            5 if self.random.one_in(20) => self.now + self.random.below(4_000_000_000),
            6 if self.plan.backwards => self.now - self.random.below(2_000_000),
            _ => match due {
                Some(due) => self.now.max(due - self.random.below(2)),
                None => self.now + self.random.below(10_000_000),
            },
        };
        self.clock += Duration::from_micros(self.now.saturating_sub(before));
        self.trace.line(format_args!("{} it is {}", self.step, self.now));
    }

    /// Delivers everything that is under way, without time passing, until nothing more happens.
    pub(crate) fn run_until_idle(&mut self) -> Checked {
        self.trace.line(format_args!("{} all comes to rest", self.step));
        let clients: Vec<usize> = self.life.connections.keys().copied().collect();
        for client in &clients {
            self.unblock(*client)?;
        }
        loop {
            let before = self.totals;
            for client in &clients {
                let Some(connection) = self.life.connections.get_mut(client) else { continue };
                let arrived = std::mem::take(&mut connection.inbound);
                connection.buffer.extend(arrived);
                self.handle_buffer(*client)?;
            }
            // Longer than rows wait in any world.
            self.clock += Duration::from_millis(10);
            self.turn()?;
            while !self.is_journal_at_rest() {
                self.journal_step();
            }
            while !self.life.checkpointer.is_idle() {
                self.checkpointer_step()?;
            }
            self.turn()?;
            let has_output = self.life.instance.has_ready();
            let has_checkpoint = self.life.instance.has_checkpoint() || !self.life.checkpointer.is_idle();
            if self.totals == before && self.is_journal_at_rest() && !has_checkpoint && !has_output {
                break;
            }
        }
        self.check_rest()
    }

    fn is_journal_at_rest(&self) -> bool {
        self.life.journal.is_idle()
    }

    /// With nothing under way every request is answered, unless it waits for something to happen.
    fn check_rest(&self) -> Checked {
        for (client, connection) in &self.life.connections {
            for (sync, awaited) in connection.unanswered() {
                hold!(awaited.is_handled, "{client}:{sync} {:?} is never read", awaited.request);
                hold!(
                    awaited.outcome.is_none(),
                    "the answer to {client}:{sync} {:?} never leaves: {:?}{}",
                    awaited.request,
                    awaited.outcome,
                    if self.life.has_failed { " (the journal has failed)" } else { "" }
                );
            }
        }
        if !self.life.has_failed {
            let (reported, signature) = (self.life.reported, self.life.signature());
            hold!(
                reported == signature,
                "rows up to {signature} were committed, only {reported} were handed out"
            );
            hold!(
                self.life.instance.store().digest() == self.shadow.digest(),
                "the data are not what the rows up to {signature} make"
            );
        }
        Ok(())
    }

    /// Lets the disk refuse something soon: any operation, or only those of the writer of snapshots.
    fn fault(&mut self, of_snapshots: bool) {
        let operations = self.random.below(if of_snapshots { 9 } else { 4 });
        let fault = match self.random.below(3) {
            0 => Fault::Fail(std::io::ErrorKind::StorageFull),
            1 => Fault::Fail(std::io::ErrorKind::Other),
            _ => Fault::ShortWrite(self.random.below(300) as usize),
        };
        let whose = if of_snapshots { " of snapshots" } else { "" };
        self.trace.line(format_args!("{} {fault:?} after {operations} operations{whose}", self.step));
        if of_snapshots {
            self.life.checkpointer.disk().fail_after(operations, fault);
            self.life.is_snapshot_faulty = true;
        } else {
            self.disk.fail_after(operations, fault);
            self.life.is_faulty = true;
        }
    }
}

impl Host for Simulation<'_> {
    type Journal = SimJournal;
    type Stop = Violation;

    fn parts(&mut self) -> Parts<'_, SimJournal> {
        let Life { instance, turn, journal, .. } = &mut self.life;
        Parts { instance, turn, journal }
    }

    fn ticked(&mut self, next: Option<u64>) -> Checked {
        if !self.life.has_failed {
            let mut ticked = self.model.clone();
            ticked.tick(self.now);
            ticked.work(self.now);
            if !self.is_held_up(next, &ticked) {
                let [changed, undone] = ticked.jobs.done_since(&self.model.jobs);
                self.totals.changed += changed;
                self.totals.undone += undone;
                self.model = ticked;
                self.check_answers(Vec::new())?;
                self.check_next(next)?;
            }
        }
        self.check_due()
    }

    fn checkpoint_step(&mut self) -> Budget<'static> {
        self.life.watch.before_step = Some(self.life.instance.checkpoint_status());
        Budget::new(self.random.between(1, 120) as u32, self.random.between(1, 9_000) as usize)
    }

    fn order(&mut self, order: CheckpointOrder) -> Checked {
        self.note_order(&order);
        self.life.checkpointer.send(order);
        Ok(())
    }

    fn submits(&mut self, batch: &Batch) -> Checked {
        self.trace.line(format_args!(
            "{} a batch up to {}{}",
            self.step,
            batch.lsn,
            if batch.ends_file { ", which ends the file" } else { "" }
        ));
        self.trace.bytes(&batch.rows);
        self.shadow.append(batch)?;
        self.kept.as_mut().map_or(Ok(()), |kept| kept.append(batch))
    }

    fn waits(&mut self, duration: Duration) {
        self.trace.line(format_args!("{} rows wait for {duration:?}", self.step));
        self.totals.waits += 1;
    }

    fn durable(&mut self, lsn: Lsn, _: &[u8]) -> Checked {
        self.life.reported = lsn;
        self.totals.batches += 1;
        self.shadow.advance(lsn)?;
        if self.kept.is_none() {
            self.forget_history(lsn);
        }
        Ok(())
    }

    fn failed(&mut self, cause: &str) -> Checked {
        self.trace.line(format_args!("{} the journal has failed: {cause}", self.step));
        hold!(self.life.is_faulty, "the journal has failed although the disk took everything: {cause}");
        self.life.has_failed = true;
        self.totals.failures += 1;
        Ok(())
    }

    fn write(&mut self, slot: ConnectionSlot) -> Checked {
        self.write_replies(slot)
    }

    fn log(&mut self, line: &LogLine) {
        self.trace.line(format_args!("{} log: {}", self.step, line.text));
    }
}
