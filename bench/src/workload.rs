//! What is asked of a server: preparations, and the plan that is measured.
//!
//! A workload is data, so that the same code runs the full one and the small one of the tests. The full sizes are
//! those at which a queue's weaknesses show: backlogs beyond every cache, busy sub-queues that a search would walk over,
//! deadlines by the million.

use anyhow::{Context, Result};

use crate::contender::{Contender, Program};
use crate::load::{Bound, Plan, Putting, Shape};
use crate::protocol::iproto::TubeType;

/// Many requests under way on a few connections: the best case of a queue.
const DEEP: Shape = Shape { connections: 8, depth: 32 };
/// One request under way at all.
const LONELY: Shape = Shape { connections: 1, depth: 1 };
const USUAL_PAYLOAD: usize = 100;

/// How a server is ended and started before the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    /// It starts from its log.
    FromLog,
    /// It starts from a snapshot.
    FromSnapshot,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    Plan(Plan),
    /// The start of a server, until it knows its tasks again.
    Start(Restart),
}

/// A workload. All sizes are those of the full one unless it was made by [`Workload::small`].
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) shape: Shape,
    /// Bytes.
    pub(crate) payload: usize,
    /// The type of tube that it is about. `None`: whichever the contender has.
    pub(crate) tube_type: Option<TubeType>,
    pub(crate) before: Vec<Plan>,
    pub(crate) measured: Measured,
    /// The workload whose rounds should cost no less.
    pub(crate) baseline: Option<&'static str>,
}

impl Workload {
    /// Put, take, acknowledge; nothing else.
    pub(crate) fn cycles(name: &'static str, about: &'static str, shape: Shape) -> Self {
        Self {
            name,
            about,
            shape,
            payload: USUAL_PAYLOAD,
            tube_type: None,
            before: Vec::new(),
            measured: cycles(Putting::Plain),
            baseline: None,
        }
    }

    /// Whether the contender can do it at all.
    pub(crate) fn suits(&self, contender: Contender) -> bool {
        let is_iproto = contender.tube_type().is_some();
        let knows_options = self.plans().any(|plan| match plan.putting() {
            Putting::Plain => false,
            Putting::Priorities(_) | Putting::Delayed(_) => contender.program != Program::Beanstalkd,
            Putting::SubQueues(_) | Putting::OwnSubQueue(_) => true,
        });
        let needs_iproto = self.tube_type.is_some()
            || knows_options
            || matches!(self.measured, Measured::Start(_) | Measured::Plan(Plan::Wake { .. }));
        is_iproto || !needs_iproto
    }

    /// The contender with the type of tube that the workload is about.
    pub(crate) fn applied_to(&self, contender: Contender) -> Contender {
        self.tube_type.map_or(contender, |tube_type| contender.with_tube_type(tube_type))
    }

    fn plans(&self) -> impl Iterator<Item = Plan> {
        let measured = match self.measured {
            Measured::Plan(plan) => Some(plan),
            Measured::Start(_) => None,
        };
        self.before.iter().copied().chain(measured)
    }

    fn with(self, change: impl FnOnce(&mut Self)) -> Self {
        let mut workload = self;
        change(&mut workload);
        workload
    }
}
