//! The record of a job: a row of [`JOBS`], which its slices read and write in their own transactions.

use lycosa_tuple::mp::{self, Reader};

use crate::arguments::is_nil;
use crate::audit::Steered;
use crate::bulk::schedule::Schedule;
use crate::members::{Members, write_optional};
use crate::system::SystemSpace;

/// How long a job can be undone after its end, µs.
pub(crate) const UNDO_TIME: u64 = 3_600 * crate::time::MICROSECONDS;

pub(crate) static JOBS: SystemSpace = SystemSpace {
    name: "_lycosa_jobs",
    fields: "id unsigned, tube_id unsigned, tube string, operation string, state string, filter *, to_id *, to string, \
undoes *, rate unsigned, dry_run boolean, user string, reason string, error string, below unsigned, position string, \
total unsigned, scanned unsigned, matched unsigned, changed unsigned, kept unsigned, kept_bytes unsigned, \
began unsigned, ended unsigned, undo_until unsigned, undone unsigned, touched_since unsigned, gone unsigned",
    indexes: &[("pk", true, &[0])],
};

/// Fields of a row of [`JOBS`] without a schedule. The two fields of a schedule follow those of the format, because an older version
/// may have made the space.
const FIELDS: u32 = JOBS.width();

named! {
    /// The action of a job on the tasks that its filter admits.
    #[derive(Default)]
    pub(crate) enum Action {
        #[default]
        Count = "count",
        Kick = "kick",
        Release = "release",
        Run = "run",
        Reschedule = "reschedule",
        Bury = "bury",
        Delete = "delete",
        Move = "move",
        Undo = "undo",
    }
}

impl Action {
    fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name().as_bytes() == name)
    }

    /// One that `apply` can be asked for.
    pub(crate) fn of_apply(name: &[u8]) -> Option<Self> {
        Self::parse(name).filter(|action| !matches!(action, Self::Count | Self::Undo))
    }
}

named! {
    /// Where a job is in its life.
    #[derive(Default)]
    pub(crate) enum JobState {
        #[default]
        Running = "running",
        Paused = "paused",
        Done = "done",
        Cancelled = "cancelled",
        Failed = "failed",
    }
}

impl JobState {
    pub(crate) const fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Paused)
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) tube_id: u64,
    pub(crate) tube: String,
    pub(crate) action: Action,
    pub(crate) state: JobState,
    /// As the caller gave it; a map.
    pub(crate) filter: Vec<u8>,
    /// The tube to which tasks move.
    pub(crate) to_id: Option<u64>,
    pub(crate) to: String,
    /// The delay and priority that the job sets, or takes back.
    pub(crate) schedule: Schedule,
    /// The job that this one undoes.
    pub(crate) undoes: Option<u64>,
    /// Changed tasks a second; 0: without a bound.
    pub(crate) rate: u64,
    pub(crate) dry_run: bool,
    pub(crate) user: String,
    pub(crate) reason: Vec<u8>,
    pub(crate) error: String,
    /// Tasks with this id and larger ones were put after the job began.
    pub(crate) below: u64,
    /// The key of the task that was looked at last; empty before the first.
    pub(crate) position: Vec<u8>,
    pub(crate) total: u64,
    pub(crate) scanned: u64,
    pub(crate) matched: u64,
    pub(crate) changed: u64,
    /// Rows in the bin, and their bytes.
    pub(crate) kept: u64,
    pub(crate) kept_bytes: u64,
    /// µs since the epoch, as all times here; 0: not yet.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) undo_until: u64,
    pub(crate) undone: u64,
    pub(crate) touched_since: u64,
    pub(crate) gone: u64,
}

impl Record {
    /// Whether it is a job of that tube. The id of a dropped tube may be another tube's now.
    pub(crate) fn is_of(&self, tube_id: u64, tube: &str) -> bool {
        self.tube_id == tube_id && self.tube == tube
    }

    /// Whether it changes tasks.
    pub(super) fn is_change(&self) -> bool {
        !self.dry_run && self.action != Action::Count
    }

    /// Whether it changes priorities, which walks of other jobs follow.
    pub(super) fn changes_priorities(&self) -> bool {
        self.is_change() && self.schedule.pri.is_some()
    }

    /// A job that begins now.
    pub(crate) fn new(tube_id: u64, tube: &str, action: Action, now: u64) -> Self {
        Self { tube_id, tube: tube.to_owned(), action, filter: vec![0x80], began: now, ..Self::default() }
    }

    pub(crate) fn end(&mut self, state: JobState, now: u64) {
        self.state = state;
        self.ended = now;
        if self.kept > 0 {
            self.undo_until = now.saturating_add(UNDO_TIME);
        }
    }

    /// The entry of the audit log about an operation on the job.
    pub(super) fn steered<'a>(&'a self, operation: &'a str, reason: &'a [u8]) -> Steered<'a> {
        Steered { tube: &self.tube, operation, job: Some(self.id), reason }
    }

    /// Ids of the job's tasks stand for others now, or for none: nothing is left to do or to undo.
    pub(crate) fn void(&mut self, why: &str, now: u64) {
        if !self.state.is_over() {
            self.end(JobState::Failed, now);
            why.clone_into(&mut self.error);
        }
        // Never again, also when the clock is put back.
        self.undo_until = 0;
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(160 + self.filter.len() + self.position.len());
        let out = &mut row;
        let Schedule { delay, pri } = self.schedule;
        mp::write_array(out, FIELDS + if self.schedule.is_empty() { 0 } else { 2 });
        mp::write_uint(out, self.id);
        mp::write_uint(out, self.tube_id);
        mp::write_str(out, self.tube.as_bytes());
        mp::write_str(out, self.action.name().as_bytes());
        mp::write_str(out, self.state.name().as_bytes());
        out.extend_from_slice(&self.filter);
        write_optional(out, self.to_id);
        mp::write_str(out, self.to.as_bytes());
        write_optional(out, self.undoes);
        mp::write_uint(out, self.rate);
        mp::write_bool(out, self.dry_run);
        mp::write_str(out, self.user.as_bytes());
        mp::write_str(out, &self.reason);
        mp::write_str(out, self.error.as_bytes());
        mp::write_uint(out, self.below);
        mp::write_str(out, &self.position);
        for number in self.clone().numbers() {
            mp::write_uint(out, *number);
        }
        if !self.schedule.is_empty() {
            write_optional(out, delay);
            write_optional(out, pri);
        }
        row
    }

    const fn numbers(&mut self) -> [&mut u64; 12] {
        [
            &mut self.total,
            &mut self.scanned,
            &mut self.matched,
            &mut self.changed,
            &mut self.kept,
            &mut self.kept_bytes,
            &mut self.began,
            &mut self.ended,
            &mut self.undo_until,
            &mut self.undone,
            &mut self.touched_since,
            &mut self.gone,
        ]
    }

    /// Reads a row. None if a user has written another form.
    pub(crate) fn read(row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        let count = reader.array().ok().filter(|count| *count >= FIELDS)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let optional = |raw: &[u8]| match is_nil(raw) {
            true => Some(None),
            false => Reader::new(raw).uint().ok().map(Some),
        };
        let (id, tube_id) = (reader.uint().ok()?, reader.uint().ok()?);
        let tube = text(reader.str().ok()?);
        let action = Action::parse(reader.str().ok()?)?;
        let state = reader.str().ok()?;
        let state = JobState::ALL.into_iter().find(|known| known.name().as_bytes() == state)?;
        let mut record = Self::new(tube_id, &tube, action, 0);
        (record.id, record.state) = (id, state);
        record.filter = reader.raw().ok()?.to_vec();
        record.to_id = optional(reader.raw().ok()?)?;
        record.to = text(reader.str().ok()?);
        record.undoes = optional(reader.raw().ok()?)?;
        record.rate = reader.uint().ok()?;
        record.dry_run = reader.bool().ok()?;
        record.user = text(reader.str().ok()?);
        record.reason = reader.str().ok()?.to_vec();
        record.error = text(reader.str().ok()?);
        record.below = reader.uint().ok()?;
        record.position = reader.str().ok()?.to_vec();
        for number in record.numbers() {
            *number = reader.uint().ok()?;
        }
        if count >= FIELDS + 2 {
            record.schedule.delay = optional(reader.raw().ok()?)?;
            record.schedule.pri = optional(reader.raw().ok()?)?;
        }
        Some(record)
    }

    /// Appends the job as its caller sees it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut members = Members::wide(out);
        members.number("id", self.id);
        for (name, text) in [
            ("tube", self.tube.as_bytes()),
            ("operation", self.action.name().as_bytes()),
            ("state", self.state.name().as_bytes()),
            ("user", self.user.as_bytes()),
            ("reason", &self.reason),
            ("to", self.to.as_bytes()),
            ("error", self.error.as_bytes()),
        ] {
            if !text.is_empty() {
                members.text(name, text);
            }
        }
        if self.action != Action::Undo {
            members.name("filter").extend_from_slice(&self.filter);
        }
        if self.action == Action::Reschedule {
            self.schedule.delay.into_iter().for_each(|delay| members.seconds("delay", delay));
            members.optional("pri", self.schedule.pri);
        }
        members.optional("rate", Some(self.rate).filter(|rate| *rate > 0));
        if self.dry_run {
            mp::write_bool(members.name("dry_run"), true);
        }
        members.number("scanned", self.scanned);
        members.number("total", self.total.max(self.scanned));
        match self.undoes {
            Some(undoes) => {
                members.number("undoes", undoes);
                members.number("undone", self.undone);
                members.number("touched_since", self.touched_since);
                members.number("gone", self.gone);
            }
            None => {
                members.number("matched", self.matched);
                members.number("changed", self.changed);
                members.number("kept", self.kept);
            }
        }
        for (name, time) in [("began", self.began), ("ended", self.ended), ("undo_until", self.undo_until)] {
            if time > 0 {
                members.seconds(name, time);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_as_it_went() {
        let mut record = Record::new(3, "mail", Action::Move, 17);
        (record.id, record.state, record.to_id, record.undoes) = (9, JobState::Paused, Some(4), None);
        record.to = "dead".to_owned();
        record.position = vec![0x91, 0xff, 0];
        (record.total, record.kept, record.gone, record.rate) = (1, 2, u64::MAX, 50);
        record.error = "tube \"dead\" is full".to_owned();
        for schedule in [(None, None), (Some(7), None), (Some(0), Some(u64::MAX))] {
            record.schedule = Schedule { delay: schedule.0, pri: schedule.1 };
            assert_eq!(Record::read(&record.encode()), Some(record.clone()));
        }
        assert_eq!(FIELDS as usize, 16 + record.numbers().len());
        assert_eq!(Record::read(&[0x91, 1]), None);
    }
}
