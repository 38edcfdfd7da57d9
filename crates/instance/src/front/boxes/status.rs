//! `queue.status`: the instance and its tubes in numbers, for metrics, pages and the command line.
//!
//! A reader goes through the tubes page by page, each page a call of less than a millisecond; the first page has the instance
//! too. The crate `metrics` reads these maps.

use lycosa_iproto::keys::RequestType;
use lycosa_queue::status::{Issue, Page, Survey};
use lycosa_queue::{Members, write_optional};
use lycosa_store::Budget;
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use super::info::{memory_value, seconds};
use crate::shard::wire_error::OnWire;
use crate::{Caller, Instance, Result};

/// Tubes, and look-ups in their indexes, of a step of a survey.
const SURVEY: Budget<'static> = Budget::of_rows(1024);
/// Microseconds after which such a step ends.
const SURVEY_TIME: u64 = 200;

/// Types of requests that are told; others count as the last one.
pub(super) const TYPES: [(&str, &[RequestType]); 13] = [
    ("select", &[RequestType::Select]),
    ("insert", &[RequestType::Insert]),
    ("replace", &[RequestType::Replace]),
    ("update", &[RequestType::Update]),
    ("upsert", &[RequestType::Upsert]),
    ("delete", &[RequestType::Delete]),
    ("call", &[RequestType::Call, RequestType::Call16]),
    ("eval", &[RequestType::Eval]),
    ("execute", &[RequestType::Execute]),
    ("prepare", &[RequestType::Prepare]),
    ("auth", &[RequestType::Auth]),
    ("ping", &[RequestType::Ping]),
    ("other", &[]),
];

/// Parts of the instance's status that are large, and so are written on demand.
#[derive(Debug, Clone, Copy)]
struct Extras {
    history: bool,
    issues: bool,
}

impl Instance {
    /// `queue.status([{after, limit, tube, history, issues}])`: a map. `tubes` are those behind the id `after`, at most `limit`, or the
    /// one of the name `tube`, as far as the caller may look at them; `next` is the id for the next page or null. Without
    /// `after` and `tube` there is `instance` too. `history` adds histories, and
    /// `issues` the issues of the instance and of each tube.
    ///
    /// # Errors
    /// Options that do not exist or have another type; a space of a tube is gone.
    pub(super) fn queue_status(&self, caller: &Caller, args: &[u8], out: &mut Vec<u8>) -> Result<u32> {
        let arguments = Arguments::decode("queue.status([{after, limit, tube, history, issues}])", args)?;
        let options = arguments.options(0, &["after", "limit", "tube", "history", "issues"])?;
        let number = |name: &str| match options.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| arguments.usage()),
        };
        let tube = match options.get("tube") {
            None => None,
            Some(value) => Some(value.as_str().ok_or_else(|| arguments.usage())?),
        };
        let limit = number("limit")?.unwrap_or(Page::MAX_TUBES as u64).min(Page::MAX_TUBES as u64) as usize;
        let is_wanted = |name: &str| options.get(name) == Some(&Value::Bool(true));
        let (history, issues) = (is_wanted("history"), is_wanted("issues"));
        let page = Page { after: number("after")?, limit, tube, history, issues };
        self.write_status(caller, page, out)?;
        Ok(1)
    }

    /// Appends what `queue.status` answers to the caller, and returns the `after` of the next page, if there is one. The host of
    /// the instance asks so for its metrics.
    ///
    /// # Errors
    /// A space of a tube is gone.
    pub fn write_status(&self, caller: &Caller, page: Page<'_>, out: &mut Vec<u8>) -> Result<Option<u64>> {
        let Page { history, issues, .. } = page;
        let (store, now) = (self.shard.store(), self.shard.now());
        let queue = self.shard.queue();
        let (tubes, next) = queue.statuses(store, caller, page, now).on_wire()?;
        let is_first = page.after.is_none() && page.tube.is_none();
        let mut map = Members::new(out);
        let list = map.name("tubes");
        mp::write_array(list, tubes.len() as u32);
        tubes.iter().for_each(|tube| tube.write(list));
        write_optional(map.name("next"), next);
        if is_first {
            self.write_instance(Extras { history, issues }, map.name("instance"));
        }
        Ok(next)
    }

    /// Looks at some tubes for an overview, for at most [`SURVEY_TIME`], and returns the id behind which to go on, if there are more.
    ///
    /// # Errors
    /// A space of a tube is gone.
    pub fn survey(&self, after: Option<u64>, survey: &mut Survey) -> Result<Option<u64>> {
        let (store, queue, now) = (self.shard.store(), self.shard.queue(), self.shard.now());
        let step = |budget: Budget<'_>| queue.survey(store, after, budget, now, survey);
        self.loop_time.clocks.limit(SURVEY, SURVEY_TIME, step).on_wire()
    }

    /// Appends what a finished survey has found as a map: `tubes` are those with the gravest faults, with their issues,
    /// `faulty` is the number of all with faults, `waiting_takes` and `oldest_ready_age` are over all tubes, `instance` has its histories.
    ///
    /// # Errors
    /// A space of a tube is gone.
    pub fn write_overview(&self, survey: Survey, out: &mut Vec<u8>) -> Result<()> {
        let (store, queue, now) = (self.shard.store(), self.shard.queue(), self.shard.now());
        let mut map = Members::new(out);
        map.number("waiting_takes", survey.waiting_takes);
        map.number("faulty", survey.faulty as u64);
        let oldest = survey.oldest_ready_age.map(seconds);
        Value::from(oldest).write(map.name("oldest_ready_age"));
        let statuses = survey.gravest().into_iter().map(|id| queue.status_of_id(store, id, now));
        let tubes = statuses.collect::<Result<Vec<_>, _>>().on_wire()?;
        let list = map.name("tubes");
        mp::write_array(list, tubes.iter().flatten().count() as u32);
        tubes.iter().flatten().for_each(|tube| tube.write(list));
        self.write_instance(Extras { history: true, issues: true }, map.name("instance"));
        Ok(())
    }

    fn write_instance(&self, Extras { history, issues }: Extras, out: &mut Vec<u8>) {
        let mut map = Members::wide(out);
        self.instance_members().into_iter().for_each(|(name, value)| value.write(map.name(name)));
        self.shard.queue().status(self.shard.store(), self.shard.now()).write(history, map.name("queue"));
        self.loop_time.turns.write(map.name("turn"));
        self.measures.journal_sync.write(map.name("journal_sync"));
        if issues {
            Issue::write_all(&self.issues(), map.name("issues"));
        }
        if let Some(pulse) = self.pulse.as_ref().filter(|_| history) {
            pulse.write(map.name("history"));
        }
    }

    /// Conditions of the machine: each stands there only while it lasts. Times are in seconds.
    fn troubles(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let space = self.shard.scarce_space().map(|space| {
            let members = [
                ("free", Value::from(space.free)),
                ("reserve", space.reserve.into()),
                ("exhausted", space.is_exhausted().into()),
            ];
            ("disk_short", Value::map(members))
        });
        let sync = self.recent_sync().map(|seconds| ("recent_sync", seconds.into()));
        let ahead = |name, micros: i64| (micros != 0).then(|| (name, Value::Double(micros as f64 / 1e6)));
        let clock = ahead("clock_ahead", self.measures.clock_ahead);
        let leader = ahead("leader_ahead", self.shard.leader_ahead());
        space.into_iter().chain(sync).chain(clock).chain(leader)
    }

    fn instance_members(&self) -> Vec<(&'static str, Value)> {
        let status = self.status();
        let journaling = self.shard.journaling();
        let known = || TYPES.iter().flat_map(|(_, kinds)| kinds.iter().copied());
        let requests = TYPES.iter().map(|(name, kinds)| {
            let counts = &status.requests;
            let sum = |kinds: &mut dyn Iterator<Item = RequestType>| {
                kinds.fold((0, 0), |sum, kind| (sum.0 + counts.of(kind), sum.1 + counts.errors_of(kind)))
            };
            let (mut total, mut errors) = sum(&mut kinds.iter().copied());
            if kinds.is_empty() {
                let known = sum(&mut known());
                (total, errors) = (counts.total() - known.0, counts.errors_total() - known.1);
            }
            (*name, Value::map([("total", total), ("errors", errors)]))
        });
        let mut members = vec![
            ("version", Value::from(env!("CARGO_PKG_VERSION"))),
            ("uuid", status.standing.identity.instance.to_string().into()),
            ("id", u64::from(status.standing.identity.replica_id).into()),
            ("pid", u64::from(status.standing.pid).into()),
            ("now", seconds(self.shard.now())),
            ("state", status.standing.status.into()),
            ("queue_state", self.shard.queue().state().name().into()),
            ("read_only", status.standing.is_read_only.into()),
            ("uptime", seconds(status.standing.uptime)),
            ("connections", (status.connections as u64).into()),
            ("connections_total", status.requests.connections.into()),
            ("connections_refused", status.requests.refused_connections.into()),
            ("waiting_calls", (status.waiting_calls as u64).into()),
            ("requests", Value::map(requests.collect::<Vec<_>>())),
            ("malformed", status.requests.malformed.into()),
            ("failed_logins", status.requests.failed_logins.into()),
            ("received_bytes", status.received.into()),
            ("sent_bytes", status.sent.into()),
            ("memory_used", status.memory.used.into()),
            ("memory_limit", status.memory.limit.into()),
            ("memory", memory_value(&status)),
            ("memory_reserved", status.memory.reserved.into()),
            ("journal_rows", journaling.lsn().into()),
            ("journal_bytes", journaling.written_bytes().into()),
            ("journal_errors", self.measures.journal_errors.into()),
            ("lua_memory", status.lua_memory.into()),
            ("lua_errors", self.measures.programs.errors.into()),
        ];
        let parts = ["checkpoint", "replication", "election", "expiration"];
        members.extend(parts.into_iter().filter_map(|name| Some((name, status.part(name)?))));
        members.extend(self.troubles());
        members.extend(status.failure.map(|failure| ("failure", failure.into())));
        members
    }
}
