//! Requests of operators: pages of `find`, jobs of `apply` and `undo`, and the control of jobs.

use std::collections::BTreeMap;

use lycosa_tuple::value::Value;

use crate::model::Model;
use crate::plan::{Plan, TubePlan};
use crate::random::Random;
use crate::request::Span;

/// The reason that each job of a world gives; a task that the job buries keeps the text.
pub(crate) const REASON: &str = "a world";

/// Unfinished jobs, and jobs at all, after which no further ones are begun: the instance has bounds of its own.
const MAX_UNFINISHED: usize = 6;
const MAX_JOBS: usize = 200;

/// What a job does with each task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Count,
    Kick,
    Release,
    Run,
    Bury,
    Delete,
    Move,
    Reschedule,
    Undo,
}

impl Action {
    pub(crate) const ALL: [Self; 9] = [
        Self::Count,
        Self::Kick,
        Self::Release,
        Self::Run,
        Self::Bury,
        Self::Delete,
        Self::Move,
        Self::Reschedule,
        Self::Undo,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Kick => "kick",
            Self::Release => "release",
            Self::Run => "run",
            Self::Bury => "bury",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::Reschedule => "reschedule",
            Self::Undo => "undo",
        }
    }

    /// The only state whose tasks it changes.
    pub(crate) fn only(self) -> Option<char> {
        match self {
            Self::Kick => Some('!'),
            Self::Release => Some('t'),
            Self::Run => Some('~'),
            Self::Count | Self::Bury | Self::Delete | Self::Move | Self::Reschedule | Self::Undo => None,
        }
    }
}

/// The new delay and priority of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) delay: Option<Span>,
    pub(crate) pri: Option<u64>,
}

/// A filter of tasks. Each given member has to admit a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) state: Option<char>,
    pub(crate) id_from: Option<u64>,
    pub(crate) id_to: Option<u64>,
    /// The only tasks that are meant, each in any state or in this one.
    pub(crate) ids: Option<BTreeMap<u64, Option<char>>>,
    pub(crate) utube: Option<String>,
    pub(crate) pri_to: Option<u64>,
    pub(crate) older_than: Option<Span>,
}

impl Filter {
    /// As an operator writes it, who means all tasks that match.
    pub(crate) fn value(&self) -> Value {
        let mut members = vec![("all", Value::from(true))];
        members.extend(self.state.map(|state| ("state", Value::str(state.to_string()))));
        members.extend(self.id_from.map(|id| ("id_from", Value::from(id))));
        members.extend(self.id_to.map(|id| ("id_to", Value::from(id))));
        members.extend(self.ids.as_ref().map(|ids| ("ids", Value::array(ids.iter().map(named_task)))));
        members.extend(self.utube.as_ref().map(|name| ("utube", Value::str(name))));
        members.extend(self.pri_to.map(|pri| ("pri_to", Value::from(pri))));
        members.extend(self.older_than.map(|age| ("older_than", age.value())));
        Value::map(members)
    }

    /// Reads what [`Self::value`] has made.
    pub(crate) fn read(value: &Value) -> Self {
        let number = |name| value.get(name).and_then(Value::as_u64);
        let text = |name| value.get(name).and_then(Value::as_str);
        Self {
            state: text("state").and_then(|state| state.chars().next()),
            id_from: number("id_from"),
            id_to: number("id_to"),
            ids: value
                .get("ids")
                .and_then(Value::as_array)
                .map(|ids| ids.iter().filter_map(read_named).collect()),
            utube: text("utube").map(str::to_owned),
            pri_to: number("pri_to"),
            older_than: match value.get("older_than") {
                Some(Value::Double(seconds)) => Some(Span((seconds * 1e6) as u64)),
                Some(whole) => whole.as_u64().map(|seconds| Span(seconds * 1_000_000)),
                None => None,
            },
        }
    }
}

impl Filter {
    /// Whether it names a state for the task, and that state is `state`.
    pub(crate) fn names_state(&self, id: u64, state: char) -> bool {
        let named = self.ids.as_ref().and_then(|ids| ids.get(&id));
        self.state == Some(state) || named == Some(&Some(state))
    }
}

fn named_task((id, state): (&u64, &Option<char>)) -> Value {
    match state {
        Some(state) => Value::array([Value::from(*id), Value::str(state.to_string())]),
        None => Value::from(*id),
    }
}

fn read_named(value: &Value) -> Option<(u64, Option<char>)> {
    match value.as_array() {
        Some(pair) => Some((pair.first()?.as_u64()?, pair.get(1)?.as_str()?.chars().next())),
        None => Some((value.as_u64()?, None)),
    }
}

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Pause,
    Resume,
    Cancel,
    Rate(u64),
}

/// Something that an operator asks for, about one tube.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Steering {
    Find {
        filter: Filter,
        limit: u64,
    },
    Apply {
        action: Action,
        filter: Filter,
        /// Number of the tube to move to.
        to: Option<usize>,
        schedule: Schedule,
        /// Tasks a second; 0: as many as possible.
        rate: u64,
        dry_run: bool,
    },
    Undo {
        job: u64,
    },
    Control {
        job: u64,
        how: Control,
    },
}

impl Steering {
    /// The method of the tube, and its arguments.
    pub(crate) fn call(&self, tubes: &[TubePlan]) -> (&'static str, Vec<Value>) {
        match self {
            Self::Find { filter, limit } => {
                ("find", vec![filter.value(), Value::map([("limit", Value::from(*limit))])])
            }
            Self::Apply { action: Action::Count, filter, .. } => ("count", vec![filter.value()]),
            Self::Apply { action, filter, to, schedule, rate, dry_run } => {
                let mut options = vec![("reason", Value::str(REASON))];
                options.extend(to.map(|to| ("to", Value::str(&tubes[to].name))));
                options.extend(schedule.delay.map(|delay| ("delay", delay.value())));
                options.extend(schedule.pri.map(|pri| ("pri", Value::from(pri))));
                options.extend((*rate > 0).then(|| ("rate", Value::from(*rate))));
                options.extend(dry_run.then(|| ("dry_run", Value::from(true))));
                ("apply", vec![Value::str(action.name()), filter.value(), Value::map(options)])
            }
            Self::Undo { job } => ("undo", vec![Value::from(*job)]),
            Self::Control { job, how } => {
                let mut arguments = vec![Value::from(*job)];
                match how {
                    Control::Pause => arguments.push(Value::str("pause")),
                    Control::Resume => arguments.push(Value::str("resume")),
                    Control::Cancel => arguments.push(Value::str("cancel")),
                    Control::Rate(rate) => {
                        arguments.push(Value::str("rate"));
                        arguments.push(Value::map([("rate", Value::from(*rate))]));
                    }
                }
                ("control", arguments)
            }
        }
    }

    /// Whether it may begin a job that ends tasks, or brings ended ones back.
    pub(crate) fn may_end_tasks(&self) -> bool {
        match self {
            Self::Apply { action, .. } => matches!(action, Action::Delete | Action::Move),
            Self::Undo { .. } => true,
            Self::Find { .. } | Self::Control { .. } => false,
        }
    }
}

/// Draws an operator's request for an existing tube.
pub(crate) fn draw(random: &mut Random, plan: &Plan, model: &Model, tube: usize) -> Steering {
    let unfinished = model.jobs.all.values().filter(|job| !job.is_over()).count();
    let tube_id = model.tubes.get(&tube).map(|tube| tube.id);
    let jobs = model.jobs.all.values().filter(|job| Some(job.tube_id) == tube_id);
    let jobs: Vec<u64> = jobs.map(|job| job.id).collect();
    let recent = &jobs[jobs.len().saturating_sub(4)..];
    let a_job = |random: &mut Random| match recent {
        [] => random.below(3),
        _ if random.one_in(15) => random.below(model.jobs.all.len() as u64 + 2),
        recent => *random.pick(recent),
    };
    let may_begin = unfinished < MAX_UNFINISHED && model.jobs.all.len() < MAX_JOBS;
    match random.below(10) {
        0 | 1 => Steering::Find { filter: filter(random, plan, model, tube), limit: 1 + random.below(50) },
        2 | 3 => {
            let how = match random.below(5) {
                0 => Control::Pause,
                1 | 2 => Control::Resume,
                3 => Control::Cancel,
                _ => Control::Rate(1 + random.below(30)),
            };
            Steering::Control { job: a_job(random), how }
        }
        4 | 5 if may_begin => Steering::Undo { job: a_job(random) },
        _ if may_begin => apply(random, plan, model, tube),
        _ => Steering::Control { job: a_job(random), how: Control::Resume },
    }
}

fn apply(random: &mut Random, plan: &Plan, model: &Model, tube: usize) -> Steering {
    let drawn = Action::ALL.len() - if plan.reschedules { 1 } else { 2 };
    let action = *random.pick(&Action::ALL[..drawn]);
    let to = (action == Action::Move).then(|| random.below(plan.tubes.len() as u64) as usize);
    // A slow job is met at work by all else that happens.
    let rate = if action == Action::Count || random.one_in(3) { 0 } else { 1 + random.below(40) };
    let dry_run = action == Action::Count || random.one_in(8);
    let filter = filter(random, plan, model, tube);
    let schedule = if action == Action::Reschedule { schedule(random) } else { Schedule::default() };
    Steering::Apply { action, filter, to, schedule, rate, dry_run }
}

fn schedule(random: &mut Random) -> Schedule {
    let delay = *random.pick(&[0, 250_000, 1_000_000, 7_500_000]);
    let (has_delay, has_pri) = *random.pick(&[(true, false), (false, true), (true, true)]);
    Schedule { delay: has_delay.then_some(Span(delay)), pri: has_pri.then(|| random.below(5)) }
}

fn filter(random: &mut Random, plan: &Plan, model: &Model, tube: usize) -> Filter {
    let kind = plan.tubes[tube].kind;
    let next = model.tubes.get(&tube).map_or(0, |tube| tube.next_id);
    let mut filter = Filter {
        state: random.one_in(2).then(|| *random.pick(&['r', 't', '~', '!'])),
        id_from: random.one_in(4).then(|| random.below(next + 1)),
        id_to: random.one_in(4).then(|| random.below(next + 2)),
        ..Filter::default()
    };
    if plan.names_tasks && random.one_in(3) {
        // Ids of present, removed and later tasks.
        let count = random.between(1, 12);
        let known = model.tubes.get(&tube);
        let named = (0..count).map(|_| {
            let id = random.below(next + 3);
            let present = known.and_then(|tube| tube.tasks.get(&id)).map(|task| task.status);
            let any = *random.pick(&['r', 't', '~', '!']);
            (id, random.one_in(2).then_some(if random.one_in(4) { any } else { present.unwrap_or(any) }))
        });
        filter.ids = Some(named.collect());
    }
    if kind.has_sub_queues() && random.one_in(3) {
        filter.utube = Some(random.below(4).to_string());
    }
    if kind.is_timed() {
        filter.pri_to = random.one_in(4).then(|| random.below(3));
        filter.older_than = random.one_in(4).then(|| Span(*random.pick(&[250_000, 1_000_000, 2_500_000])));
    }
    filter
}
