//! Ends of the process, and what the next start must find.
//!
//! When the process dies but the machine does not, the disk keeps everything that was written, and still does not owe
//! unsynced bytes: a machine that dies later may take them away. When the machine dies, the disk keeps the bytes that were
//! synced and as much of the rest as chance will have it; and sometimes a bit of a snapshot has turned over, which costs
//! nothing as long as there is the snapshot before it.
//!
//! What must be there again depends on `wal_mode`, and always is what the rows up to some transaction made:
//!
//! | | the process dies | the machine dies | a stop in order |
//! |---|---|---|---|
//! | `fsync` | every row that was reported | every row that was reported | every row |
//! | `write` | every row that was reported | the newest snapshot that was reported, and of the rows that were journaled since a beginning | every row |
//! | `none` | the newest snapshot that was reported | the same | every row: the stop takes a snapshot |
//!
//! Absent: a machine that dies in mode `write` after bytes of a later xlog have reached the disk and those of an
//! earlier one have not. There a start finds a gap between files and is refused.

use lycosa_instance::{Instance, Process};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::file_name;
use lycosa_journal::log::WalMode;
use lycosa_journal::memory::{Crash, Fault, MemoryDisk};
use lycosa_journal::meta::FileKind;
use lycosa_journal::recovery::Recovered;
use lycosa_journal::writer::XlogWriter;
use lycosa_queue::{Configuration, Queue, Seconds};
use lycosa_store::Store;

use crate::agreement;
use crate::checkpoint::Checkpointer;
use crate::journal::SimJournal;
use crate::model::Model;
use crate::plan::Plan;
use crate::random::Random;
use crate::shadow::Shadow;
use crate::simulation::{Life, Simulation};
use crate::snapshots;
use crate::storage::{self, IDENTITY};
use crate::trace::Trace;
use crate::violation::{Checked, Violation, hold};

/// More tasks, calls and sessions than ever expire together: the model handles all of them before it serves calls.
const QUEUE_STEP: usize = 1 << 16;

/// More operations than a disk is ever asked for.
const NEVER: u64 = 1 << 60;

/// What an end of the process must leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Everything. The digest of the data is that.
    All(u128),
    /// Every row that was reported durable.
    Reported,
    /// The newest snapshot that was reported.
    Snapshot,
}

/// A process that is about to start, and the disk that it is on.
pub(crate) struct Opening {
    pub(crate) disk: MemoryDisk,
    pub(crate) life: Life,
}

/// Begins a new instance on an empty disk, however often the machine dies meanwhile.
pub(crate) fn begin(
    plan: &Plan,
    random: &mut Random,
    mut disk: MemoryDisk,
    now: u64,
    trace: &mut Trace,
) -> Checked<Opening> {
    while random.one_in(4) {
        disk.fail_after(random.below(8), Fault::Freeze);
        if storage::bootstrap(&disk, plan.writer).is_ok() {
            disk.fail_after(NEVER, Fault::Freeze);
            break;
        }
        trace.line(format_args!("a new instance is begun in vain"));
        disk = dead_machine(&disk, random, trace);
    }
    let opened = match recovered(&disk, plan)? {
        Some((store, recovered)) => {
            let log = XlogWriter::resume(storage::directory(&disk), plan.writer, &recovered);
            let log = log.map_err(|error| Violation(format!("the log cannot be opened: {error}")))?;
            Opened { store, vclock: recovered.vclock, log, snapshot: recovered.snapshot.signature() }
        }
        None => {
            let begun = storage::bootstrap(&disk, plan.writer);
            let (store, log) =
                begun.map_err(|error| Violation(format!("a new instance cannot be begun: {error}")))?;
            Opened { store, vclock: Vclock::new(), log, snapshot: 0 }
        }
    };
    Ok(Opening { life: life(plan, random, opened, &disk, now)?, disk })
}

/// What a process starts on.
struct Opened {
    store: Store,
    vclock: Vclock,
    log: XlogWriter,
    /// Signature of the snapshot that the data come from.
    snapshot: u64,
}

/// What the disk holds; `None` if that is no instance yet.
fn recovered(disk: &MemoryDisk, plan: &Plan) -> Checked<Option<(Store, Recovered)>> {
    let found = storage::recover(disk, plan.memory);
    found.map_err(|error| Violation(format!("a start is refused: {error}")))
}

fn life(plan: &Plan, random: &mut Random, opened: Opened, disk: &MemoryDisk, now: u64) -> Checked<Life> {
    let Opened { mut store, vclock, log, snapshot } = opened;
    let configuration = Configuration {
        ttr: (plan.session_ttr.0 > 0).then(|| Seconds::from_double(plan.session_ttr.0 as f64 / 1e6)),
        in_replicaset: plan.in_replicaset,
    };
    let mut ids = random.fork();
    let new_session_id = Box::new(move || {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&ids.next().to_be_bytes());
        id[8..].copy_from_slice(&ids.next().to_be_bytes());
        id
    });
    let queue = Queue::new(configuration, new_session_id);
    let durable = vclock.signature();
    if let Some(limit) = storage::memory_limit(plan.memory) {
        store.set_memory_limit(limit);
    }
    let mut salts = random.fork();
    let entropy = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| salts.next() as u8));
    let process = Process { id: 1, entropy };
    let mut instance = Instance::new(plan.instance.clone(), IDENTITY, process, store, queue, vclock, now);
    instance.set_queue_step(QUEUE_STEP);
    let checkpointer = Checkpointer::new(disk, snapshot);
    let files = checkpointer.files();
    let files = files.map_err(|error| Violation(format!("the folder cannot be read: {error}")))?;
    instance.set_checkpoint_base(snapshot, files);
    if random.one_in(12) {
        // As after a start with --force-recovery.
        instance.force_checkpoint();
    }
    let live = snapshots::live(&instance.checkpoint_status(), plan.instance.checkpoint_wal_threshold);
    Ok(Life::new(instance, SimJournal::new(log, plan.writer.mode, durable), checkpointer, live, now))
}

/// How a machine dies.
fn machine_crash(random: &mut Random) -> Crash {
    let most = *random.pick(&[60, 700, 6_000]);
    let kept = random.below(most) as usize;
    let seed = random.next();
    *random.pick(&[
        Crash::Machine,
        Crash::Torn(kept),
        Crash::Zeroed(kept),
        Crash::Scattered(seed),
        Crash::Scattered(seed.rotate_left(1)),
    ])
}

/// The disk that the next start finds after the machine has died.
pub(crate) fn dead_machine(disk: &MemoryDisk, random: &mut Random, trace: &mut Trace) -> MemoryDisk {
    let mut crash = machine_crash(random);
    let mut image = disk.crash(crash);
    if !matches!(crash, Crash::Scattered(_)) && !can_be_told(disk, &image) {
        crash = Crash::Machine;
        image = disk.crash(crash);
    }
    trace.line(format_args!("the machine dies: {crash:?}"));
    image
}

/// The disk that the next start finds after the machine has died and nothing but snapshots was ever synced: xlogs up
/// to some byte in the order in which they were written. Bytes that were synced nevertheless are kept, and so are the bytes
/// written before them.
fn dead_unsynced_machine(disk: &MemoryDisk, random: &mut Random, trace: &mut Trace) -> MemoryDisk {
    let mut image = disk.crash(Crash::Machine).files();
    // Each with the number of bytes at its beginning that are as they were synced.
    let mut xlogs: Vec<(String, Vec<u8>, usize)> = Vec::new();
    for (name, bytes) in disk.files() {
        if name.ends_with(FileKind::Xlog.suffix()) {
            let synced = image.get(&name).map_or(&[][..], Vec::as_slice);
            let synced = bytes.iter().zip(synced).take_while(|(byte, synced)| byte == synced).count();
            xlogs.push((name, bytes, synced));
        }
    }
    image.retain(|name, _| !name.ends_with(FileKind::Xlog.suffix()));
    let first = xlogs.iter().rposition(|(_, _, synced)| *synced > 0).unwrap_or(0);
    let missing = |(_, bytes, synced): &(String, Vec<u8>, usize)| bytes.len() - synced;
    let unsynced: usize = xlogs.iter().skip(first).map(missing).sum();
    let mut left = random.below(unsynced as u64 + 1) as usize;
    trace.line(format_args!(
        "the machine dies: {left} of {unsynced} bytes that were not synced have reached the disk"
    ));
    for (place, (name, mut bytes, synced)) in xlogs.into_iter().enumerate() {
        if place >= first {
            let reached = left.min(bytes.len() - synced);
            left -= reached;
            bytes.truncate(synced + reached);
        }
        if !bytes.is_empty() {
            image.insert(name, bytes);
        }
    }
    MemoryDisk::with_files(image)
}

/// Whether a reader can tell that the ends of files were lost. Where fewer than 16 bytes at the end of a sector are
/// zeros that were never written, it cannot, and the journal documents that it calls this damage.
fn can_be_told(disk: &MemoryDisk, image: &MemoryDisk) -> bool {
    const SECTOR: usize = 512;
    const TELLING: usize = 16;
    let written = disk.files();
    image.files().iter().all(|(name, kept)| {
        let Some(written) = written.get(name) else { return true };
        let lost = kept.iter().zip(written).position(|(kept, written)| kept != written);
        lost.is_none_or(|lost| {
            let begin = lost / SECTOR * SECTOR;
            kept.len() - begin >= TELLING
        })
    })
}

/// The newest snapshot, if there is another one and every xlog since that. A machine that dies while old files are removed
/// leaves any of them, a snapshot without its xlog too.
fn dispensable_snapshot(disk: &MemoryDisk) -> Option<String> {
    let directory = storage::directory(disk);
    let listing = directory.list().ok()?;
    let &[.., older, newest] = listing.snapshots.as_slice() else { return None };
    let mut xlog = *listing.xlogs.last()?;
    while xlog > older {
        let before = directory.read(FileKind::Xlog, xlog).ok()?.meta().prev_vclock.as_ref()?.signature();
        listing.xlogs.binary_search(&before).ok()?;
        xlog = before;
    }
    Some(file_name(FileKind::Snapshot, newest))
}

impl Simulation<'_> {
    /// The process dies, or the machine.
    pub(crate) fn crash(&mut self) -> Checked {
        self.totals.crashes += 1;
        if self.random.one_in(3) {
            self.hasten_checkpoint()?;
        }
        if self.random.one_in(2) {
            self.interrupt_checkpointer();
        }
        self.note_interrupted_checkpoint();
        let mode = self.plan.writer.mode;
        let is_process = self.random.one_in(3);
        if is_process {
            self.trace.line(format_args!("{} the process dies", self.step));
            self.disk = self.disk.crash(Crash::Process);
        } else if mode == WalMode::Write {
            self.disk = dead_unsynced_machine(&self.disk, &mut self.random, self.trace);
        } else {
            self.machine_dies();
        }
        let keeps_rows = mode == WalMode::Fsync || (mode == WalMode::Write && is_process);
        self.restart(if keeps_rows { Left::Reported } else { Left::Snapshot })
    }

    fn machine_dies(&mut self) {
        self.disk = dead_machine(&self.disk, &mut self.random, self.trace);
        if !self.has_rotted && self.kept.is_none() && self.random.one_in(8) {
            self.rot();
        }
    }

    /// A bit of the newest snapshot turns over, if a start can do without it. Once in a run, so that the other one is
    /// sound.
    fn rot(&mut self) {
        let Some(newest) = dispensable_snapshot(&self.disk) else { return };
        let mut files = self.disk.files();
        if let Some(bytes) = files.get_mut(&newest).filter(|bytes| !bytes.is_empty()) {
            let place = self.random.below(bytes.len() as u64) as usize;
            self.has_rotted = true;
            bytes[place] ^= 1 << self.random.below(8);
            self.trace.line(format_args!("{} a bit of {newest} turns over at {place}", self.step));
        }
        self.disk = MemoryDisk::with_files(files);
    }

    /// The server is stopped in order. What it leaves behind survives the machine, if the log's mode ever promises that.
    pub(crate) fn stop(&mut self) -> Checked {
        if self.random.one_in(2) {
            self.life.instance.abandon_checkpoint("the server ends");
        }
        self.run_until_idle()?;
        if self.plan.writer.mode == WalMode::None {
            self.want_checkpoint();
            self.run_until_idle()?;
        }
        self.life.checkpointer.give_up();
        if self.life.has_failed {
            return self.crash();
        }
        self.trace.line(format_args!("{} the server is stopped", self.step));
        let digest = self.life.instance.store().digest();
        if let Err(error) = self.life.journal.log().close() {
            hold!(self.life.is_faulty, "the log cannot be closed: {error}");
            return self.crash();
        }
        if self.plan.writer.mode == WalMode::None
            && self.life.instance.standing().signature != self.life.checkpointer.sound()
        {
            // The stop says so, and ends with an error.
            let may_fail = self.life.is_faulty || self.life.is_snapshot_faulty || self.life.is_short_of_room;
            hold!(may_fail, "nothing was journaled, and a stop has taken no snapshot");
            return self.crash();
        }
        self.totals.stops += 1;
        let end = if self.plan.writer.mode == WalMode::Write { Crash::Process } else { Crash::Machine };
        self.disk = self.disk.crash(end);
        self.restart(Left::All(digest))
    }

    /// The process has ended. Starts the next one on what the disk holds and checks what it finds.
    fn restart(&mut self, left: Left) -> Checked {
        for connection in self.life.connections.values() {
            for (_, awaited) in connection.unanswered() {
                self.ledger.abandoned(&awaited.request, self.step);
            }
        }
        self.life.connections.clear();
        self.abandon_held();
        self.now += self.random.below(3_000_000);
        let opened = self.open(left)?;
        let signature = opened.vclock.signature();
        self.shadow.forget_after(signature);
        let mut model = self.recovered_model(signature, &opened.store)?;
        model.last_session = model.last_session.max(self.model.last_session);
        model.last_lease = model.last_lease.max(self.model.last_lease);
        match &self.kept {
            Some(_) => self.history.retain(|(known, _)| *known < signature),
            None => self.history.clear(),
        }
        self.history.push_back((signature, model.clone()));
        self.model = model;
        self.life = life(&self.plan, &mut self.random, opened, &self.disk, self.now)?;
        self.lives += 1;
        let report = self.life.instance.start(self.now);
        let report = report.map_err(|error| Violation(format!("the queue does not start: {error}")))?;
        let released = self.model.start(self.now);
        hold!(
            report.released == released && report.unavailable == 0 && report.tubes == self.model.tubes.len(),
            "the start reports {report:?} instead of {released} released tasks in {} tubes",
            self.model.tubes.len()
        );
        let signature = self.life.instance.standing().signature;
        self.trace.line(format_args!("{} started, {released} tasks released, {signature} rows", self.step));
        self.compare(signature)
    }

    /// Reads the disk, however often the machine dies while it is being put in order.
    fn open(&mut self, left: Left) -> Checked<Opened> {
        loop {
            let (store, recovered) = recovered(&self.disk, &self.plan)?
                .ok_or_else(|| Violation("the disk holds no instance any more".to_owned()))?;
            let resume = || XlogWriter::resume(storage::directory(&self.disk), self.plan.writer, &recovered);
            if self.plan.writer.mode == WalMode::Fsync && self.random.one_in(6) {
                self.disk.fail_after(self.random.below(4), Fault::Freeze);
                let is_open = resume().is_ok();
                self.trace.line(format_args!("{} during a start; the log was open: {is_open}", self.step));
                self.machine_dies();
                continue;
            }
            let log = resume().map_err(|error| Violation(format!("the log cannot be opened: {error}")))?;
            self.check_recovered(&store, &recovered, left)?;
            let snapshot = recovered.snapshot.signature();
            return Ok(Opened { store, vclock: recovered.vclock, log, snapshot });
        }
    }

    /// Recovered data must be a prefix of the rows that were handed to the journal, and hold everything that the end has left.
    fn check_recovered(&mut self, store: &Store, recovered: &Recovered, left: Left) -> Checked {
        let signature = recovered.vclock.signature();
        self.trace.line(format_args!("{} recovered {signature} rows", self.step));
        for resolution in &recovered.resolutions {
            self.trace.line(format_args!("{} recovery: {resolution}", self.step));
        }
        let (reported, last) = (self.life.journal.durable(), self.shadow.last());
        let durable = match left {
            Left::Snapshot => self.kept.as_ref().map_or(reported, Shadow::signature),
            Left::Reported | Left::All(_) => reported,
        };
        hold!(signature >= durable, "rows up to {durable} were durable, only {signature} were found");
        hold!(signature <= last, "{signature} rows were found, but only {last} were ever written");
        if let Some(kept) = &mut self.kept {
            // A machine that dies later may still take everything since the snapshot.
            kept.forget_after(signature);
            self.shadow = kept.copy()?;
        }
        self.shadow.advance(signature)?;
        hold!(
            store.digest() == self.shadow.digest(),
            "the recovered data are not what the first {signature} rows make"
        );
        if left == Left::Snapshot {
            self.totals.losses += u64::from(signature < reported);
            self.ledger.forget(self.step);
        }
        if let Left::All(digest) = left {
            hold!(
                signature == last && store.digest() == digest,
                "the data are not the same after a reload: {signature} of {last} rows"
            );
        }
        self.ledger.check(store, &self.plan.tubes)
    }

    /// The model at the end of the recovered data. If that is not the end of a step, the recovered data are taken over
    /// after they were found to lie between the steps around it.
    fn recovered_model(&self, signature: u64, store: &Store) -> Checked<Model> {
        let place = self.history.partition_point(|(known, _)| *known <= signature);
        let before = place.checked_sub(1).and_then(|place| self.history.get(place));
        let (known, before) = before
            .ok_or_else(|| Violation(format!("nothing is known of the data after {signature} rows")))?;
        let mut model = before.clone();
        model.end_process();
        if *known == signature {
            agreement::tubes_agree(store, &model, &self.plan.tubes)?;
            agreement::adopt_temporary_ids(store, &mut model)?;
            return Ok(model);
        }
        let mut after =
            self.history.get(place).map_or_else(|| self.model.clone(), |(_, after)| after.clone());
        after.end_process();
        agreement::adopt(store, &mut model, &after, &self.names)?;
        Ok(model)
    }
}
