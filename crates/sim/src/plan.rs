//! The plan of a world, drawn from the seed before the first step: tubes, limits, and the frequency of events.
//!
//! Weights are drawn anew for each seed, and some are 0: a run without any release, or in which the journal is
//! always slow, reaches states that an average run never does.

use lycosa_journal::log::WalMode;
use lycosa_journal::writer;

use crate::random::Random;
use crate::request::Span;

/// A type of tube.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fifo,
    FifoTtl,
    LimFifoTtl,
    Utube,
    UtubeTtl,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Fifo, Self::FifoTtl, Self::LimFifoTtl, Self::Utube, Self::UtubeTtl];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoTtl => "fifottl",
            Self::LimFifoTtl => "limfifottl",
            Self::Utube => "utube",
            Self::UtubeTtl => "utubettl",
        }
    }

    /// Whether its tasks have deadlines and priorities.
    pub(crate) fn is_timed(self) -> bool {
        !matches!(self, Self::Fifo | Self::Utube)
    }

    pub(crate) fn has_sub_queues(self) -> bool {
        matches!(self, Self::Utube | Self::UtubeTtl)
    }
}

/// A tube that clients may create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TubePlan {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) temporary: bool,
    pub(crate) ready_buffer: bool,
    pub(crate) ttl: Option<Span>,
    pub(crate) ttr: Option<Span>,
    pub(crate) pri: u64,
    /// 0: any number of tasks.
    pub(crate) capacity: u64,
}

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A client sends requests.
    Send,
    /// Bytes reach the server.
    Deliver,
    /// The server ends a turn: deadlines, a batch for the journal, replies.
    Turn,
    /// The journal does the next thing it has to do.
    Journal,
    /// Time passes.
    Advance,
    /// A client connects.
    Connect,
    /// A connection ends.
    Disconnect,
    /// A client stops reading, or reads again.
    Stall,
    /// Everything comes to rest, with nothing under way.
    RunUntilIdle,
    /// The process or the machine dies.
    Crash,
    /// The server is stopped in order and started again.
    Stop,
    /// The disk is going to refuse something.
    Fault,
    /// The disk is going to refuse something of the writer of snapshots.
    SnapshotFault,
    /// A client wants a snapshot.
    Checkpoint,
    /// The writer of snapshots does the next thing it has to do.
    Snapshotter,
    /// The disk becomes short of space, or has space again.
    Room,
}

/// What clients can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Put,
    PutMany,
    Take,
    WaitingTake,
    TakeMany,
    TakeLeased,
    Settle,
    Ack,
    AckMany,
    Release,
    ReleaseMany,
    Touch,
    Bury,
    Kick,
    Delete,
    Peek,
    ReleaseAll,
    Pause,
    Resume,
    Truncate,
    Statistics,
    Identify,
    Configure,
    Create,
    Drop,
    Ping,
    Snapshot,
    Row,
    Malformed,
    Steer,
}

/// Calls that no client has waiting at a time.
const FEW_WAITING: usize = 100;

/// Draws the worlds in which operators name tasks. The numbers that other draws get are as they were before, and none of the kept
/// worlds is one of these.
const NAMED: u64 = 2;

/// Draws the worlds in which operators reschedule tasks, as [`NAMED`] does.
const RESCHEDULED: u64 = 39;

/// Draws the worlds of tubes whose clients work as [`crate::worker`] tells, as [`NAMED`] does.
const WORKERS: u64 = 112_719;

/// The choices of one run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tubes: Vec<TubePlan>,
    pub(crate) clients: usize,
    pub(crate) actions: Vec<(u32, Action)>,
    pub(crate) wishes: Vec<(u32, Wish)>,
    pub(crate) instance: lycosa_instance::Settings,
    /// `queue.cfg` at start.
    pub(crate) session_ttr: Span,
    pub(crate) in_replicaset: bool,
    pub(crate) writer: writer::Settings,
    /// Bytes that tasks may take beside what an empty instance takes.
    pub(crate) memory: Option<u64>,
    /// Tasks that a tube may hold before clients stop filling it.
    pub(crate) fullest: usize,
    /// Bytes of the largest payload.
    pub(crate) largest: u64,
    /// Whether the clock may go back.
    pub(crate) backwards: bool,
    /// Whether operators also name the tasks that they mean.
    pub(crate) names_tasks: bool,
    /// Whether operators also change delays and priorities.
    pub(crate) reschedules: bool,
    /// Whether clients also ask for what [`crate::worker`] tells.
    pub(crate) has_workers: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64, random: &mut Random) -> Self {
        let in_replicaset = random.one_in(4);
        let tubes = random.between(1, 6);
        let instance = limits(random);
        let mut wishes = wishes(random);
        if instance.max_waiting < FEW_WAITING {
            // Calls that wait for a snapshot count too, and the model knows nothing of them.
            wishes.retain(|(_, wish)| *wish != Wish::Snapshot);
        }
        Self {
            tubes: (0..tubes).map(|number| tube(random, number, in_replicaset)).collect(),
            clients: random.between(1, 6) as usize,
            actions: actions(random),
            wishes,
            instance,
            session_ttr: *random.pick(&[Span(0), Span(0), Span(500_000), Span(5_000_000)]),
            in_replicaset,
            writer: writer::Settings {
                mode: match random.below(10) {
                    0..2 => WalMode::Write,
                    2 => WalMode::None,
                    _ => WalMode::Fsync,
                },
                max_file_bytes: *random.pick(&[0, 3_000, 20_000, 256 << 20]),
                compression_level: *random.pick(&[None, Some(3)]),
                preallocated_bytes: *random.pick(&[0, 100, 2_000]),
            },
            memory: random.one_in(5).then(|| random.between(2_000, 120_000)),
            fullest: *random.pick(&[4, 12, 40]),
            largest: if random.one_in(6) { 50_000 } else { *random.pick(&[8, 200, 3_000]) },
            backwards: random.one_in(8),
            names_tasks: false,
            reschedules: false,
            has_workers: has_workers(seed),
        }
    }
}

impl Plan {
    /// Operators work, too: the plan of a world of steering.
    pub(crate) fn steer(&mut self, seed: u64, random: &mut Random) {
        self.names_tasks = names_tasks(seed);
        self.reschedules = reschedules(seed);
        // Whether memory suffices for a slice is no question for the model, nor whether bytes of payloads end it.
        self.memory = None;
        self.largest = self.largest.min(3_000);
        self.wishes.push((random.between(40, 160) as u32, Wish::Steer));
    }

    pub(crate) fn is_steered(&self) -> bool {
        self.wishes.iter().any(|(_, wish)| *wish == Wish::Steer)
    }
}

/// Whether operators of a world name tasks.
pub(crate) fn names_tasks(seed: u64) -> bool {
    Random::new(seed ^ NAMED).one_in(2)
}

/// Whether workers are among the clients of a world.
pub(crate) fn has_workers(seed: u64) -> bool {
    Random::new(seed ^ WORKERS).one_in(2)
}

/// Whether operators of a world reschedule tasks.
pub(crate) fn reschedules(seed: u64) -> bool {
    Random::new(seed ^ RESCHEDULED).one_in(2)
}

fn tube(random: &mut Random, number: u64, in_replicaset: bool) -> TubePlan {
    let kind = *random.pick(&Kind::ALL);
    let spans = [None, None, Some(Span(1_000_000)), Some(Span(7_500_000))];
    let timed = kind.is_timed();
    TubePlan {
        name: format!("t{number}"),
        kind,
        temporary: !in_replicaset && random.one_in(5),
        ready_buffer: kind.has_sub_queues() && random.one_in(2),
        ttl: random.pick(&spans).filter(|_| timed),
        ttr: random.pick(&spans).filter(|_| timed),
        pri: if timed { random.below(3) } else { 0 },
        capacity: if kind == Kind::LimFifoTtl { random.below(6) } else { 0 },
    }
}

fn actions(random: &mut Random) -> Vec<(u32, Action)> {
    let faults = if random.one_in(3) { 0 } else { 2 };
    let (checkpoints, steps, ends) =
        if random.one_in(2) { ((3, 12), (60, 250), (0, 1)) } else { ((0, 3), (10, 60), (0, 3)) };
    let mut some = |low, high| random.between(low, high) as u32;
    vec![
        (some(100, 250), Action::Send),
        (some(100, 250), Action::Deliver),
        (some(30, 120), Action::Turn),
        (some(20, 200), Action::Journal),
        (some(10, 60), Action::Advance),
        (some(8, 16), Action::Connect),
        (some(0, 8), Action::Disconnect),
        (some(0, 4), Action::Stall),
        (some(1, 6), Action::RunUntilIdle),
        (some(ends.0, ends.1), Action::Crash),
        (some(0, 2), Action::Stop),
        (some(0, faults), Action::Fault),
        (some(0, faults + 1), Action::SnapshotFault),
        (some(checkpoints.0, checkpoints.1), Action::Checkpoint),
        (some(steps.0, steps.1), Action::Snapshotter),
        (some(0, 2), Action::Room),
    ]
}

fn wishes(random: &mut Random) -> Vec<(u32, Wish)> {
    let mut often =
        |usual: u32| if random.one_in(6) { 0 } else { random.between(1, 2 * u64::from(usual)) as u32 };
    vec![
        (100, Wish::Put),
        (often(20), Wish::PutMany),
        (often(60), Wish::Take),
        (often(60), Wish::WaitingTake),
        (often(25), Wish::TakeMany),
        (often(30), Wish::TakeLeased),
        (often(40), Wish::Settle),
        (often(50), Wish::Ack),
        (often(20), Wish::AckMany),
        (often(20), Wish::Release),
        (often(8), Wish::ReleaseMany),
        (often(8), Wish::Touch),
        (often(12), Wish::Bury),
        (often(8), Wish::Kick),
        (often(8), Wish::Delete),
        (often(6), Wish::Peek),
        (often(2), Wish::ReleaseAll),
        (often(3), Wish::Pause),
        (often(8), Wish::Resume),
        (often(2), Wish::Truncate),
        (often(8), Wish::Statistics),
        (often(12), Wish::Identify),
        (often(2), Wish::Configure),
        (20, Wish::Create),
        (often(3), Wish::Drop),
        (often(3), Wish::Ping),
        (often(2), Wish::Snapshot),
        (often(10), Wish::Row),
        (often(3), Wish::Malformed),
    ]
}

fn limits(random: &mut Random) -> lycosa_instance::Settings {
    let defaults = lycosa_instance::Settings {
        checkpoint_interval: *random.pick(&[0, 20_000_000, 3_600_000_000]),
        checkpoint_wal_threshold: *random.pick(&[3_000, 40_000, 256 << 20]),
        checkpoint_count: random.between(1, 3) as usize,
        ..lycosa_instance::Settings::default()
    };
    if random.one_in(2) {
        return defaults;
    }
    lycosa_instance::Settings {
        max_connections: 3,
        max_in_flight: random.between(1, 8),
        max_waiting: random.between(1, 8) as usize,
        max_output: random.between(300, 5_000) as usize,
        max_journal_backlog: random.between(200, 5_000) as usize,
        ..defaults
    }
}
