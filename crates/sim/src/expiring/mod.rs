//! Worlds of expiration tasks: spaces whose tuples have deadlines, and everything that happens to them and to the tasks.
//!
//! Like a world of tubes, one comes from a seed, and runs a whole instance over a disk in memory. Its clients put
//! tuples and change their deadlines, delete, truncate, rename, drop spaces and their indexes; start and stop tasks
//! of all kinds in any order; make the instance read-only; let the archive's tube fill up. The process and the
//! machine die anywhere.
//!
//! Checked after each event:
//! - Nothing alive is deleted, and nothing at all where no task runs or the instance only reads.
//! - An expired tuple is in its archive exactly once, and in its space no more, also at every start.
//! - Exactly the started tasks that were not stopped exist. A name is free as soon as its task has ended.
//! - With nothing in the way, everything due goes within its bound: at once by an index, else within two passes.
//!
//! At every start: the data are those of a prefix of the rows that holds everything durable.
//!
//! Absent: checkpoints, which worlds of tubes have; disks that refuse.

mod account;
mod plan;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{Batch, Caller, CheckpointOrder, ConnectionSlot, Instance, Lsn, Process, Settings};
use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::log::WalMode;
use lycosa_journal::memory::{Crash, MemoryDisk};
use lycosa_journal::writer::XlogWriter;
use lycosa_queue::{Configuration, LogLine, Queue};
use lycosa_store::ddl::{self, FieldSpec, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{Space, Statement, Store, user};
use lycosa_tuple::value::Value;

use crate::BEGINNING;
use crate::journal::SimJournal;
use crate::random::Random;
use crate::restart::dead_machine;
use crate::shadow::Shadow;
use crate::storage::{self, IDENTITY};
use crate::trace::Trace;
use crate::violation::{Checked, Violation, hold};

use account::{Account, Put, Running};
use plan::{ARCHIVE, Action, GRAVE, Kept, Plan, SpacePlan};

/// The longest pause of a task that fails, and a little.
const LONGEST_PAUSE: u64 = 61_000_000;
/// How long a tube that holds a few tuples, and is emptied whenever it is full, may keep tasks from archiving, µs.
const FULL_TUBE: u64 = 400_000_000;

/// What happened in a run, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpirationTotals {
    /// Tuples that were put or changed.
    pub puts: u64,
    /// Tuples that expired.
    pub expired: u64,
    /// Of them, tuples that went into an archive.
    pub archived: u64,
    /// Tasks that were started.
    pub starts: u64,
    /// Calls that were refused, as they had to be.
    pub refused: u64,
    /// Slices that failed.
    pub failures: u64,
    /// Tuples that had to go within a bound, and did.
    pub bounded: u64,
    /// Ends of the process or the machine out of order.
    pub crashes: u64,
    /// Of them, losses of rows that no client was promised.
    pub losses: u64,
    /// Ends in order.
    pub stops: u64,
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> Violation {
    Violation(format!("{what}: {error}"))
}

/// Everything there is.
pub(crate) struct World<'a> {
    plan: Plan,
    random: Random,
    trace: &'a mut Trace,
    pub(crate) step: u64,
    /// µs since the epoch.
    pub(crate) now: u64,
    clock: Instant,
    disk: MemoryDisk,
    instance: Instance,
    journal: SimJournal,
    turn: TurnState,
    shadow: Shadow,
    account: Account,
    /// The account after each signature that a recovery may still end with.
    history: VecDeque<(u64, Account)>,
    is_read_only: bool,
    last_id: u64,
    pub(crate) totals: ExpirationTotals,
}

impl<'a> World<'a> {
    /// A new instance on an empty disk, with the spaces and the archives of the plan.
    pub(crate) fn new(seed: u64, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random);
        trace.line(format_args!("{plan:?}"));
        let disk = MemoryDisk::new();
        let begun = storage::bootstrap(&disk, plan.writer);
        let (store, log) = begun.map_err(|error| broken("a new instance cannot be begun", &error))?;
        let instance = instance(&mut random, store, Vclock::new(), BEGINNING);
        let journal = SimJournal::new(log, plan.writer.mode, 0);
        let account = Account::new(&plan);
        let mut world = Self {
            random,
            trace,
            step: 0,
            now: BEGINNING,
            clock: Instant::now(),
            disk,
            instance,
            turn: TurnState::default(),
            journal,
            shadow: Shadow::new()?,
            history: VecDeque::new(),
            account,
            plan,
            is_read_only: false,
            last_id: 0,
            totals: ExpirationTotals::default(),
        };
        world.furnish()?;
        Ok(world)
    }

    /// Makes the spaces and the archives. They are durable before anything happens.
    fn furnish(&mut self) -> Checked {
        let started = self.instance.start(self.now);
        started.map_err(|error| broken("the queue does not start on a new instance", &error))?;
        for space in self.plan.spaces.clone() {
            self.change(|store| make_space(store, &space, space.is_ordered))?;
        }
        let archive = SpacePlan { name: ARCHIVE.to_owned(), ..self.plan.spaces[0].clone() };
        self.change(|store| make_space(store, &archive, false))?;
        let (kind, options) = match self.plan.capacity {
            0 => ("fifo", vec![]),
            capacity => ("limfifottl", vec![("capacity", Value::from(capacity))]),
        };
        let arguments = Value::array([GRAVE.into(), kind.into(), Value::map(options)]);
        self.call("queue.create_tube", &arguments).map_err(|error| broken("no tube", &error.message))?;
        self.rest()?;
        self.note()
    }

    /// Lets something happen.
    pub(crate) fn next(&mut self) -> Checked {
        self.step += 1;
        self.clock += Duration::from_micros(50);
        let action = self.random.weighted(&self.plan.actions);
        let space = self.random.below(self.plan.spaces.len() as u64) as usize;
        self.trace.line(format_args!("{} {action:?} {}", self.step, self.account.names[space]));
        self.instance.set_now(self.now);
        match action {
            Action::Put => self.put(space)?,
            Action::Delete => self.delete(space)?,
            Action::Truncate => {
                if self.write(space, ddl::truncate)? {
                    self.account.spaces[space].clear();
                }
            }
            Action::Drop => self.remake(space)?,
            Action::Rename => {
                let name = format!("s{space}_{}", self.step);
                if self.write(space, |store, id| ddl::rename_space(store, id, &name))? {
                    self.account.names[space] = name;
                }
            }
            Action::Index => self.change_index(space)?,
            Action::Start => self.start()?,
            Action::Stop => self.stop()?,
            Action::Drain => self.drain()?,
            Action::ReadOnly => {
                self.is_read_only = !self.is_read_only;
                self.instance.set_read_only(self.is_read_only, self.now);
            }
            Action::Turn => _ = self.turn()?,
            Action::Journal => _ = self.journal.step(),
            Action::Advance => self.advance(),
            Action::Settle => self.settle()?,
            Action::Crash => return self.crash(),
            Action::Restart => return self.restart_in_order(),
        }
        self.note()
    }

    /// The end of the run.
    pub(crate) fn finish(&mut self) -> Checked {
        self.step += 1;
        self.settle()?;
        self.restart_in_order()
    }

    /// Compares the data with the account, and remembers it for a recovery.
    fn note(&mut self) -> Checked {
        let before = self.account.expired;
        let archived = self.account.archive.len() + self.account.grave.len();
        self.account.check(self.instance.store(), &self.plan, self.now, self.is_read_only)?;
        self.totals.expired += self.account.expired - before;
        let more = (self.account.archive.len() + self.account.grave.len()).saturating_sub(archived);
        self.totals.archived += more as u64;
        let signature = self.instance.standing().signature;
        if self.history.back().is_none_or(|(last, _)| *last < signature) {
            self.history.push_back((signature, self.account.clone()));
        }
        Ok(())
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Result<Value, ErrorObject> {
        let mut out = Vec::new();
        self.instance.set_now(self.now);
        self.instance.call(&Caller::internal(), name.as_bytes(), &arguments.encode(), &mut out)?;
        Ok(Value::decode(&out).unwrap_or(Value::Nil))
    }

    /// Changes the schema in a transaction of its own.
    fn change<T>(&mut self, body: impl FnOnce(&mut Store) -> Result<T, lycosa_store::Error>) -> Checked<T> {
        let done = self.instance.transaction(user::ADMIN, |store| {
            body(store).map_err(|error| lycosa_instance::store_error(&error))
        });
        done.map_err(|error| Violation(format!("a change is refused: {}", error.message)))
    }

    /// The same to a space, unless the instance only reads. Whether that was done.
    fn write(
        &mut self,
        space: usize,
        body: impl FnOnce(&mut Store, u32) -> Result<(), lycosa_store::Error>,
    ) -> Checked<bool> {
        if self.is_read_only {
            return Ok(false);
        }
        let id = self.space_id(space)?;
        self.change(|store| body(store, id))?;
        Ok(true)
    }

    fn space_id(&self, space: usize) -> Checked<u32> {
        let name = &self.account.names[space];
        let found = self.instance.store().space_by_name(name).map(Space::id);
        found.ok_or_else(|| Violation(format!("space {name} is not there")))
    }

    /// A client's statement. Whether it was executed, as it must be unless the instance only reads.
    fn execute(&mut self, statement: &Statement<'_>) -> Checked<bool> {
        match self.instance.execute(user::ADMIN, statement, &mut Vec::new()) {
            Ok(_) => Ok(true),
            Err(_) if self.is_read_only => Ok(false),
            Err(error) => Err(Violation(format!("a statement is refused: {}", error.message))),
        }
    }

    fn some_id(&mut self, space: usize) -> Option<u64> {
        let ids: Vec<u64> = self.account.spaces[space].keys().copied().collect();
        (!ids.is_empty()).then(|| *self.random.pick(&ids))
    }

    fn put(&mut self, space: usize) -> Checked {
        let is_full = self.account.spaces[space].len() >= self.plan.fullest;
        let old = if is_full || self.random.one_in(4) { self.some_id(space) } else { None };
        let id = old.unwrap_or_else(|| {
            self.last_id += 1;
            self.last_id
        });
        let (value, deadline) = plan::deadline(&mut self.random, self.now, self.plan.spaces[space].unit);
        let text = format!("{id} at {}", self.step);
        let tuple = Value::array([id.into(), text.into(), value]).encode();
        let statement = Statement::Replace { space: self.space_id(space)?, tuple: &tuple };
        if self.execute(&statement)? {
            self.totals.puts += 1;
            self.account.spaces[space].insert(id, Put { tuple: tuple.into(), deadline });
        }
        Ok(())
    }

    fn delete(&mut self, space: usize) -> Checked {
        let Some(id) = self.some_id(space) else { return Ok(()) };
        let key = Value::array([id]).encode();
        if self.execute(&Statement::Delete { space: self.space_id(space)?, index: 0, key: &key })? {
            self.account.spaces[space].remove(&id);
        }
        Ok(())
    }

    /// Drops a space and makes another one of that name. The tasks of the old one end.
    fn remake(&mut self, space: usize) -> Checked {
        let made = SpacePlan { name: self.account.names[space].clone(), ..self.plan.spaces[space].clone() };
        let has_index = self.account.has_index[space];
        let is_done = self.write(space, |store, id| {
            ddl::drop_space(store, id)?;
            make_space(store, &made, has_index)
        })?;
        if is_done {
            self.account.spaces[space].clear();
            self.account.tasks.retain(|_, task| task.space != space || !task.transient);
            for task in self.account.tasks.values_mut().filter(|task| task.space == space) {
                task.is_orphan = true;
            }
        }
        Ok(())
    }

    fn change_index(&mut self, space: usize) -> Checked {
        let has_index = self.account.has_index[space];
        let is_done = self.write(space, |store, id| match has_index {
            true => ddl::drop_index(store, id, 1),
            false => make_index(store, id),
        })?;
        self.account.has_index[space] ^= is_done;
        Ok(())
    }

    fn start(&mut self) -> Checked {
        let task = self.random.pick(&self.plan.tasks).clone();
        let space = &self.plan.spaces[task.space];
        let is_ordered = self.account.has_index[task.space] && !task.scans;
        let mut options = vec![
            ("field", Value::from(3)),
            ("unit", space.unit.1.into()),
            ("index", if is_ordered { "exp" } else { "primary" }.into()),
            ("scan_size", task.scan_size.into()),
            ("scan_time", task.scan_time.into()),
            ("budget_rows", task.budget_rows.into()),
            ("transient", Value::Bool(task.transient)),
        ];
        match space.kept {
            Kept::Nowhere => {}
            Kept::Space => options.push(("archive_space", ARCHIVE.into())),
            Kept::Tube => options.push(("archive_tube", GRAVE.into())),
        }
        let name = self.account.names[task.space].clone();
        let arguments = Value::array([task.name.as_str().into(), name.into(), Value::map(options)]);
        let is_taken = self.account.tasks.get(&task.name).is_some_and(|task| !task.is_orphan);
        match self.call("expiration.start", &arguments) {
            Ok(_) => {
                hold!(!is_taken, "a second task is called {}", task.name);
                hold!(!self.is_read_only, "{} begins on an instance that only reads", task.name);
                self.totals.starts += 1;
                let (space, transient, scan_time) = (task.space, task.transient, task.scan_time);
                let running = Running { space, transient, is_ordered, scan_time, is_orphan: false };
                self.account.tasks.insert(task.name, running);
            }
            Err(error) => {
                hold!(is_taken || self.is_read_only, "{} does not begin: {}", task.name, error.message);
                self.totals.refused += 1;
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Checked {
        let name = self.random.pick(&self.plan.tasks).name.clone();
        let running = self.account.tasks.get(&name).copied().filter(|task| !task.is_orphan);
        match self.call("expiration.stop", &Value::array([name.as_str()])) {
            Ok(_) => {
                hold!(running.is_some(), "{name} is stopped, and did not run");
                self.account.tasks.remove(&name);
            }
            Err(error) => {
                let may_fail = running.is_none_or(|task| self.is_read_only && !task.transient);
                hold!(may_fail, "{name} cannot be stopped: {}", error.message);
                self.totals.refused += 1;
            }
        }
        Ok(())
    }

    /// Empties the tube of archived tuples, if the queue runs.
    fn drain(&mut self) -> Checked {
        let done = self.call(&format!("queue.tube.{GRAVE}:truncate"), &Value::array::<Value>([]));
        let left = crate::agreement::rows(self.instance.store(), GRAVE)?.map_or(0, |rows| rows.len());
        if left == 0 && done.is_ok() {
            self.account.grave.clear();
        }
        Ok(())
    }

    /// Ends a turn as the server does. When the next one is due, µs since the epoch.
    fn turn(&mut self) -> Checked<Option<u64>> {
        let (now, clock) = (self.now, self.clock);
        turn::end(self, now, clock).map(|ended| ended.next)
    }

    /// Ends turns until every row is durable. When the next one is due.
    fn rest(&mut self) -> Checked<Option<u64>> {
        loop {
            self.clock += Duration::from_millis(10);
            let next = self.turn()?;
            if self.turn.is_idle() {
                return Ok(next);
            }
            while !self.journal.is_idle() {
                self.journal.step();
            }
        }
    }

    fn advance(&mut self) {
        let steps = [1, 1_000, 250_000, 1_000_000, 1_000_000, 5_000_000, 60_000_000];
        self.now += *self.random.pick(&steps);
        self.trace.line(format_args!("{} it is {}", self.step, self.now));
    }

    /// Time passes for a server that is never busy for long: each turn comes when it is asked for.
    fn pass(&mut self, until: u64) -> Checked {
        for _ in 0..100_000 {
            let next = self.rest()?;
            self.note()?;
            if self.plan.capacity > 0 && self.account.grave.len() as u64 >= self.plan.capacity {
                self.drain()?;
                self.note()?;
            }
            match next {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ if self.now < until => self.now = until,
                _ => return Ok(()),
            }
        }
        Err(Violation("the tasks never come to rest".to_owned()))
    }

    /// Takes everything out of the tasks' way. Due tuples must then go within their bound.
    fn settle(&mut self) -> Checked {
        if std::mem::take(&mut self.is_read_only) {
            self.instance.set_read_only(false, self.now);
        }
        for space in 0..self.plan.spaces.len() {
            if !self.account.has_index[space] {
                self.change_index(space)?;
                self.note()?;
            }
        }
        // The queue begins again in this turn, and takes what there is to archive.
        self.turn()?;
        self.note()?;
        self.drain()?;
        self.note()?;
        self.advance();
        let statistics = self.call("expiration.stats", &Value::array::<Value>([]));
        let statistics = statistics.map_err(|error| broken("no statistics", &error.message))?;
        let pause = |name: &str| {
            let state = statistics.get(name).and_then(|task| task.get("state")).and_then(Value::as_str);
            match state {
                _ if self.plan.capacity > 0 => FULL_TUBE,
                Some("failing") => LONGEST_PAUSE,
                _ => 0,
            }
        };
        let began = self.now;
        for (bound, space, id) in self.account.due(began, pause) {
            if self.now < began + bound {
                self.pass(began + bound)?;
            }
            hold!(
                !self.account.spaces[space].contains_key(&id),
                "tuple {id} of {} was due at {began}, and is still there {bound} µs later: {:?}",
                self.account.names[space],
                self.account.spaces[space].get(&id)
            );
            self.totals.bounded += 1;
        }
        Ok(())
    }

    /// The process dies, or the machine.
    fn crash(&mut self) -> Checked {
        self.totals.crashes += 1;
        let is_process = self.plan.writer.mode != WalMode::Fsync || self.random.one_in(3);
        self.disk = match is_process {
            true => self.disk.crash(Crash::Process),
            false => dead_machine(&self.disk, &mut self.random, self.trace),
        };
        self.begin_again()
    }

    /// The server is stopped with everything durable, and started again.
    fn restart_in_order(&mut self) -> Checked {
        self.totals.stops += 1;
        self.rest()?;
        self.note()?;
        let digest = self.instance.store().digest();
        self.journal.log().close().map_err(|error| broken("the log cannot be closed", &error))?;
        self.disk = self.disk.crash(Crash::Process);
        self.begin_again()?;
        hold!(self.shadow.digest() == digest, "the data are not the same after a stop and a start");
        Ok(())
    }

    /// Starts on what the disk holds, and checks what it finds.
    fn begin_again(&mut self) -> Checked {
        let found =
            storage::recover(&self.disk, None).map_err(|error| broken("a start is refused", &error))?;
        let (store, recovered) =
            found.ok_or_else(|| Violation("the disk holds no instance any more".to_owned()))?;
        let signature = recovered.vclock.signature();
        let (durable, last) = (self.journal.durable(), self.shadow.last());
        self.trace.line(format_args!("{} recovered {signature} of {last} rows", self.step));
        hold!(
            (durable..=last).contains(&signature),
            "{signature} rows were found, and {durable} were durable of {last}"
        );
        self.totals.losses += u64::from(signature < last);
        self.shadow.advance(signature)?;
        hold!(
            store.digest() == self.shadow.digest(),
            "the recovered data are not what the first {signature} rows make"
        );
        self.shadow.forget_after(signature);
        self.account = self.account_after(signature, &store)?;
        let log = XlogWriter::resume(storage::directory(&self.disk), self.plan.writer, &recovered);
        let log = log.map_err(|error| broken("the log cannot be opened", &error))?;
        self.now += self.random.below(3_000_000);
        self.journal = SimJournal::new(log, self.plan.writer.mode, signature);
        self.turn = TurnState::default();
        self.instance = instance(&mut self.random, store, recovered.vclock, self.now);
        self.is_read_only = false;
        self.history = VecDeque::from([(signature, self.account.clone())]);
        let started = self.instance.start(self.now);
        started.map_err(|error| broken("the queue does not start", &error))?;
        self.note()
    }

    /// The account of recovered data. If they end in the middle of a step they must lie between the accounts around it.
    fn account_after(&self, signature: u64, store: &Store) -> Checked<Account> {
        let place = self.history.partition_point(|(known, _)| *known <= signature);
        let (known, before) = place
            .checked_sub(1)
            .and_then(|place| self.history.get(place))
            .ok_or_else(|| Violation(format!("nothing is known of the data after {signature} rows")))?;
        let mut account = before.clone();
        account.end_process();
        if *known < signature {
            let after = self.history.get(place).map_or(&self.account, |(_, after)| after);
            let mut after = after.clone();
            after.end_process();
            account.adopt(store, &self.plan, &after)?;
        }
        Ok(account)
    }
}

fn instance(random: &mut Random, store: Store, vclock: Vclock, now: u64) -> Instance {
    let (mut ids, mut salts) = (random.fork(), random.fork());
    let new_session_id = Box::new(move || u128::from(ids.next()).to_be_bytes());
    let queue = Queue::new(Configuration::default(), new_session_id);
    let entropy = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| salts.next() as u8));
    let process = Process { id: 1, entropy };
    let settings = Settings {
        // This world writes no snapshots.
        checkpoint_interval: 0,
        checkpoint_wal_threshold: u64::MAX,
        ..Settings::default()
    };
    Instance::new(settings, IDENTITY, process, store, queue, vclock, now)
}

fn make_space(store: &mut Store, plan: &SpacePlan, has_index: bool) -> Result<(), lycosa_store::Error> {
    let fields = [
        FieldSpec { name: "id", ty: "unsigned", nullable: false },
        FieldSpec { name: "text", ty: "string", nullable: false },
        FieldSpec { name: "deadline", ty: "number", nullable: true },
    ];
    let space = ddl::create_space(store, &SpaceSpec::new(&plan.name, &fields))?;
    let parts = [PartSpec::new(0, "unsigned")];
    ddl::create_index(store, space, &IndexSpec { kind: plan.kind, ..IndexSpec::new("primary", &parts) })?;
    if has_index { make_index(store, space) } else { Ok(()) }
}

fn make_index(store: &mut Store, space: u32) -> Result<(), lycosa_store::Error> {
    let parts = [PartSpec { nullable: true, ..PartSpec::new(2, "number") }];
    let spec = IndexSpec { unique: false, ..IndexSpec::new("exp", &parts) };
    ddl::create_index(store, space, &spec).map(drop)
}

impl Host for World<'_> {
    type Journal = SimJournal;
    type Stop = Violation;

    fn parts(&mut self) -> Parts<'_, SimJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, order: CheckpointOrder) -> Checked {
        Err(Violation(format!("no checkpoint is ever due here: {order:?}")))
    }

    fn write(&mut self, _: ConnectionSlot) -> Checked {
        Ok(())
    }

    fn submits(&mut self, batch: &Batch) -> Checked {
        self.trace.bytes(&batch.rows);
        self.shadow.append(batch)
    }

    fn durable(&mut self, lsn: Lsn, _: &[u8]) -> Checked {
        self.shadow.advance(lsn)?;
        while self.history.get(1).is_some_and(|(known, _)| *known <= lsn) {
            self.history.pop_front();
        }
        Ok(())
    }

    fn failed(&mut self, cause: &str) -> Checked {
        Err(Violation(format!("the journal has failed: {cause}")))
    }

    fn log(&mut self, line: &LogLine) {
        self.totals.failures += u64::from(line.text.contains(" failed: "));
        self.trace.line(format_args!("{} log: {}", self.step, line.text));
    }
}
