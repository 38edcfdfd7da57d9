//! The requests of a workload: preparations, and the measured ones.
//!
//! A workload is data, so that the same code runs the full one and the small one of the tests. The full sizes are
//! those at which a queue's weaknesses show: backlogs beyond every cache, busy sub-queues that a search would walk over,
//! deadlines by the million.

use crate::contender::{Contender, Durability, Program};
use crate::load::{Plan, Putting, Shape};
use crate::protocol::iproto::TubeType;

/// Many requests under way on a few connections: what a queue is best at.
const DEEP: Shape = Shape { connections: 8, depth: 32 };
/// A few requests under way on each connection, for requests that are about many tasks.
const SHALLOW: Shape = Shape { connections: 8, depth: 4 };
/// One request at a time.
const LONELY: Shape = Shape { connections: 1, depth: 1 };
/// Ten thousand waiting takes, and a connection of the producer.
const CROWD: Shape = Shape { connections: 101, depth: 100 };
/// Bytes of a payload.
const USUAL_PAYLOAD: usize = 100;
/// Seconds; longer than any run.
const LONG_DELAY: u32 = 100_000;

/// From what a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Log,
    Snapshot,
}

/// The measured requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    /// Rounds of put, take and acknowledge, for as long as was chosen.
    Cycles(Putting),
    /// The same with this number of tasks in each request.
    Batches(u32),
    Plan(Plan),
    /// The start of the server, until it counts its tasks again.
    Start(Source),
}

/// What a server must have for a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Queue,
    /// Files from which it can start.
    Files,
    /// A request for a snapshot.
    Snapshots,
    /// Tubes as those of the queue module.
    Tubes,
    /// Requests about many tasks.
    Batches,
}

impl Need {
    fn is_met_by(self, contender: Contender) -> bool {
        let is_lua = matches!(contender.program, Program::TarantoolLua | Program::LycosaLua);
        let has_tubes = contender.tube_type().is_some();
        match self {
            Self::Queue => true,
            Self::Files => contender.durability != Durability::None,
            Self::Snapshots => (has_tubes || is_lua) && contender.durability != Durability::None,
            Self::Tubes => has_tubes,
            Self::Batches => matches!(contender.program, Program::Lycosa(_)),
        }
    }
}

/// A workload.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: String,
    /// That of the measured requests; see [`Self::connected`].
    pub(crate) shape: Shape,
    /// Bytes.
    pub(crate) payload: usize,
    /// The type of tube that it is about; `None` for the contender's own.
    pub(crate) tube_type: Option<TubeType>,
    pub(crate) need: Need,
    pub(crate) before: Vec<Plan>,
    pub(crate) measured: Measured,
    /// The workload than which its rounds should cost hardly more.
    pub(crate) baseline: Option<&'static str>,
}

impl Workload {
    /// Put, take, acknowledge; nothing else.
    pub(crate) fn cycles(name: &'static str, shape: Shape, payload: usize) -> Self {
        let Shape { connections, depth } = shape;
        Self {
            name,
            about: format!("cycles, {connections} × {depth}, {payload} bytes"),
            shape,
            payload,
            tube_type: None,
            need: Need::Queue,
            before: Vec::new(),
            measured: Measured::Cycles(Putting::Plain),
            baseline: None,
        }
    }

    fn of_tube(tube_type: TubeType) -> Self {
        Self {
            about: format!("cycles, 8 × 32, 100 bytes, in a {} tube", tube_type.name()),
            tube_type: Some(tube_type),
            need: Need::Tubes,
            ..Self::cycles(tube_type.name(), DEEP, USUAL_PAYLOAD)
        }
    }

    fn backlog(name: &'static str, count: u64, baseline: Option<&'static str>) -> Self {
        Self {
            about: format!("cycles, 8 × 32, 100 bytes, while {count} tasks wait"),
            before: vec![Plan::Fill { count, putting: Putting::Plain }],
            baseline,
            ..Self::cycles(name, DEEP, USUAL_PAYLOAD)
        }
    }

    /// `count` sub-queues, of which a hundredth (but one at least) is free and each further one has a taken task and another
    /// one behind it.
    fn busy_sub_queues(name: &'static str, count: u64, shape: Shape, baseline: Option<&'static str>) -> Self {
        let busy = count - (count / 100).max(shape.slots() as u64).min(count);
        let fill = Plan::Fill { count: busy, putting: Putting::SubQueues(busy) };
        Self {
            about: format!(
                "cycles, {} × {}, 100 bytes, in a utube tube of {count} sub-queues, {busy} of them busy",
                shape.connections, shape.depth
            ),
            tube_type: Some(TubeType::Utube),
            need: Need::Tubes,
            before: if busy > 0 { vec![fill, Plan::Hold { count: busy }, fill] } else { Vec::new() },
            measured: Measured::Cycles(Putting::OwnSubQueue(busy)),
            baseline,
            ..Self::cycles(name, shape, USUAL_PAYLOAD)
        }
    }

    fn delayed(name: &'static str, count: u64) -> Self {
        Self {
            about: format!("cycles, 8 × 32, 100 bytes, in a fifottl tube with {count} delayed tasks"),
            tube_type: Some(TubeType::FifoTtl),
            need: Need::Tubes,
            before: vec![Plan::Fill { count, putting: Putting::Delayed(LONG_DELAY) }],
            baseline: Some("fifottl"),
            ..Self::cycles(name, DEEP, USUAL_PAYLOAD)
        }
    }

    fn priorities(name: &'static str, priorities: u64, backlog: u64, baseline: Option<&'static str>) -> Self {
        let putting = Putting::Priorities(priorities);
        Self {
            about: format!(
                "cycles, 8 × 32, 100 bytes, in a fifottl tube, {priorities} priorities, while {backlog} tasks wait"
            ),
            tube_type: Some(TubeType::FifoTtl),
            need: Need::Tubes,
            before: vec![Plan::Fill { count: backlog, putting }],
            measured: Measured::Cycles(putting),
            baseline,
            ..Self::cycles(name, DEEP, USUAL_PAYLOAD)
        }
    }

    /// As [`Self::cycles`] with `size` tasks in each request.
    fn batches(name: &'static str, shape: Shape, size: u32, baseline: &'static str) -> Self {
        let Shape { connections, depth } = shape;
        Self {
            about: format!("cycles of {size} tasks in each request, {connections} × {depth}, 100 bytes"),
            need: Need::Batches,
            measured: Measured::Batches(size),
            baseline: Some(baseline),
            ..Self::cycles(name, shape, USUAL_PAYLOAD)
        }
    }

    fn fill(count: u64) -> Self {
        Self {
            about: format!("puts of {count} tasks of 100 bytes, 8 × 32; memory for each"),
            measured: Measured::Plan(Plan::Fill { count, putting: Putting::Plain }),
            ..Self::cycles("fill", DEEP, USUAL_PAYLOAD)
        }
    }

    fn drain(count: u64) -> Self {
        Self {
            about: format!("takes and acknowledgements of {count} waiting tasks of 100 bytes, 8 × 32"),
            before: vec![Plan::Fill { count, putting: Putting::Plain }],
            measured: Measured::Plan(Plan::Drain { count }),
            ..Self::cycles("drain", DEEP, USUAL_PAYLOAD)
        }
    }

    fn start(name: &'static str, source: Source, count: u64) -> Self {
        let (from, need) = match source {
            Source::Log => ("the log", Need::Files),
            Source::Snapshot => ("a snapshot", Need::Snapshots),
        };
        Self {
            about: format!("start from {from} of {count} tasks of 100 bytes; tasks for each second"),
            need,
            before: vec![Plan::Fill { count, putting: Putting::Plain }],
            measured: Measured::Start(source),
            ..Self::cycles(name, DEEP, USUAL_PAYLOAD)
        }
    }

    fn wake(shape: Shape, count: u64) -> Self {
        let waiting = (shape.connections - 1) * shape.depth;
        Self {
            about: format!(
                "{count} puts, one after the other, each for one of {waiting} waiting takes; take counts from the put"
            ),
            need: Need::Tubes,
            measured: Measured::Plan(Plan::Wake { count }),
            ..Self::cycles("wake", shape, USUAL_PAYLOAD)
        }
    }

    /// The connections to open, and their slots: enough for preparations that do not take for ever.
    pub(crate) fn connected(&self) -> Shape {
        if self.before.is_empty() || self.shape.slots() > DEEP.slots() { self.shape } else { DEEP }
    }

    /// The contender with the type of tube that the workload is about; `None` if it cannot do the workload.
    pub(crate) fn applied_to(&self, contender: Contender) -> Option<Contender> {
        self.need
            .is_met_by(contender)
            .then(|| self.tube_type.map_or(contender, |tube_type| contender.with_tube_type(tube_type)))
    }
}

/// How large the workloads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    /// A few hundred tasks, to see that everything works.
    Small,
}

/// Every workload there is.
pub(crate) fn all(size: Size) -> Vec<Workload> {
    let small = size == Size::Small;
    let tasks = |count: u64| if small { count.min(300) } else { count };
    let shape = |connections: usize, depth| Shape {
        connections: if small { connections.min(20) } else { connections },
        depth,
    };
    let mut all = vec![
        Workload::cycles("8x32", DEEP, USUAL_PAYLOAD),
        Workload::cycles("50x1", shape(50, 1), USUAL_PAYLOAD),
        Workload::cycles("1x1", LONELY, USUAL_PAYLOAD),
        Workload::cycles("500x1", shape(500, 1), USUAL_PAYLOAD),
        Workload::batches("batch-100", SHALLOW, 100, "8x32"),
        Workload::batches("batch-10", DEEP, 10, "8x32"),
        Workload::cycles("payload-10", DEEP, 10),
        Workload::cycles("payload-1k", DEEP, 1 << 10),
        Workload::cycles("payload-64k", DEEP, 64 << 10),
    ];
    all.extend(TubeType::ALL.map(Workload::of_tube));
    all.extend([
        Workload::backlog("backlog-10k", tasks(10_000), None),
        Workload::backlog("backlog-1m", tasks(1_000_000), Some("backlog-10k")),
        Workload::backlog("backlog-10m", tasks(10_000_000), Some("backlog-10k")),
        Workload::busy_sub_queues("utube-1", 1, LONELY, None),
        Workload::busy_sub_queues("utube-1k", tasks(1_000), LONELY, Some("utube-1")),
        Workload::busy_sub_queues("utube-1m", tasks(1_000_000), LONELY, Some("utube-1")),
        Workload::busy_sub_queues("utube-1m-8x32", tasks(1_000_000), DEEP, Some("utube")),
        Workload::delayed("delayed-10m", tasks(10_000_000)),
        Workload::priorities("priorities-1", 1, tasks(100_000), None),
        Workload::priorities("priorities-10", 10, tasks(100_000), Some("priorities-1")),
        Workload::priorities("priorities-10k", 10_000, tasks(100_000), Some("priorities-1")),
        Workload::fill(tasks(1_000_000)),
        Workload::drain(tasks(1_000_000)),
        Workload::start("start-log", Source::Log, tasks(1_300_000)),
        Workload::start("start-snapshot", Source::Snapshot, tasks(1_300_000)),
        Workload::wake(if small { Shape { connections: 6, depth: 20 } } else { CROWD }, tasks(10_000)),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_baselines_exist() {
        for size in [Size::Full, Size::Small] {
            let all = all(size);
            let names = all.iter().map(|workload| workload.name).collect::<HashSet<_>>();
            assert_eq!(names.len(), all.len());
            assert!(all.iter().filter_map(|workload| workload.baseline).all(|name| names.contains(name)));
        }
    }

    /// A cycle must find a sub-queue that is free for each of its slots.
    #[test]
    fn free_sub_queues_are_enough() {
        for (count, shape, free) in
            [(1, LONELY, 1), (1_000, LONELY, 10), (1_000_000, DEEP, 10_000), (300, DEEP, 256)]
        {
            let workload = Workload::busy_sub_queues("x", count, shape, None);
            assert_eq!(workload.measured, Measured::Cycles(Putting::OwnSubQueue(count - free)));
        }
    }

    #[test]
    fn what_is_for_tubes_is_not_for_others() {
        let all = all(Size::Full);
        let named = |name| all.iter().find(|workload| workload.name == name).unwrap();
        let applied = |name, contender: &str| {
            named(name).applied_to(contender.parse().unwrap()).map(|contender| contender.to_string())
        };
        assert_eq!(applied("utube-1m", "lycosa:fifo:write").unwrap(), "lycosa:utube:write");
        assert_eq!(applied("backlog-1m", "lycosa:fifo:write").unwrap(), "lycosa:fifo:write");
        assert_eq!(applied("utube-1m", "redis-list"), None);
        assert_eq!(applied("drain", "redis-list").unwrap(), "redis-list:fsync");
        assert_eq!(applied("batch-100", "tarantool:fifo"), None);
        assert_eq!(applied("start-log", "redis-list:none"), None);
        assert_eq!(applied("start-log", "redis-list").unwrap(), "redis-list:fsync");
        assert_eq!(applied("start-snapshot", "redis-list"), None);
        assert_eq!(applied("start-snapshot", "tarantool-lua").unwrap(), "tarantool-lua:fsync");
    }
}
