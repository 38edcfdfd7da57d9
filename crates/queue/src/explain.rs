//! `explain`: why a task, a sub-queue or a tube hands out no task, and until when.
//!
//! Each explanation costs a few look-ups in indexes in a tube of any size. The first reason is the decisive one: a task
//! that is delayed in a paused tube is `delayed` first and `paused` then.

use lycosa_store::{IndexId, IteratorType};
use lycosa_tuple::mp::{self, Kind};

use crate::Answer;
use crate::arguments::{Table, kind, string, unsigned};
use crate::command::Call;
use crate::error::{Error, Result};
use crate::members::Members;
use crate::operation::not_found;
use crate::statistics::TaskCounts;
use crate::task::{NameKey, STATES, ShortKey, State, Task, id_of};
use crate::time::{MAX_TIMEOUT, MICROSECONDS};
use crate::tube::Tube;
use crate::turn::TubeTurn;
use crate::waiter::Line;

/// Sub-queues whose next task comes first that are counted, at most.
const MAX_AHEAD: usize = 1_000;

/// Reasons as they are found: each a map with `reason`, `text` and what else is known.
#[derive(Default)]
struct Reasons {
    encoded: Vec<u8>,
    count: u32,
}

impl Reasons {
    fn add(&mut self, reason: &str, text: &str, more: impl FnOnce(&mut Members<'_>)) {
        self.count += 1;
        let mut members = Members::new(&mut self.encoded);
        members.text("reason", reason.as_bytes());
        members.text("text", text.as_bytes());
        more(&mut members);
    }

    fn write(&self, out: &mut Vec<u8>) {
        mp::write_array(out, self.count);
        out.extend_from_slice(&self.encoded);
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A number of seconds for a sentence.
fn seconds(micros: u64) -> String {
    let tenths = micros / (MICROSECONDS / 10);
    if tenths >= 100 { format!("{} s", tenths / 10) } else { format!("{}.{} s", tenths / 10, tenths % 10) }
}

fn of(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl TubeTurn<'_> {
    /// `explain()`, `explain(id)`, `explain({utube = name})`.
    pub(crate) fn explain(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let unfit = |what: &str| Error::Unfit { method: "explain", what: what.into() };
        match call.arguments.present(0) {
            None => self.explain_tube(out)?,
            Some(options) if kind(options) == Kind::Map => {
                let name = Table::parse(Some(options))?.get(b"utube").and_then(string);
                let Tube { name: tube, kind, .. } = &*self.tube;
                if name.is_some() && kind.layout().utube.is_none() {
                    return Err(unfit(&format!("tube \"{tube}\" ({}) has no sub-queues", kind.name())));
                }
                let expected = "argument #1 should be a map whose utube is the name of a sub-queue";
                self.explain_sub_queue(name.ok_or_else(|| unfit(expected))?, out)?;
            }
            Some(id) => {
                let expected =
                    "argument #1 should be the id of a task, or a map whose utube is the name of a sub-queue";
                self.explain_task(unsigned(id).ok_or_else(|| unfit(expected))?, out)?;
            }
        }
        Ok(Answer::one())
    }

    fn explain_task(&self, id: u64, out: &mut Vec<u8>) -> Result<()> {
        let layout = self.tube.kind.layout();
        let task = self.task(id)?.ok_or_else(|| not_found(id))?;
        let is_next = self.next_id()? == Some(id);
        let mut reasons = Reasons::default();
        match task.state() {
            Some(State::Delayed) => {
                let until = task.times.next_event;
                let left = seconds(until.saturating_sub(self.now));
                reasons.add("delayed", &format!("delayed for another {left}"), |reason| {
                    reason.seconds("until", until);
                });
            }
            Some(State::Taken) => self.add_taken(&mut reasons, "taken", &task)?,
            Some(State::Buried) => {
                let record = self.common.attempts.of(self.store, self.key(id))?;
                let because = lossy(&record.last_error);
                let text = match because.as_str() {
                    "" => "buried until it is kicked".to_owned(),
                    because => format!("buried until it is kicked; its last failure was: {because}"),
                };
                reasons.add("buried", &text, |reason| {
                    if record.failed_at > 0 {
                        reason.seconds("since", record.failed_at);
                        reason.text("because", &record.last_error);
                    }
                    reason.number("attempts", record.attempts);
                });
            }
            Some(State::Ready) if task.is_expired(layout, self.now) => {
                reasons.add("expired", "its ttl is over: it is about to be deleted", |reason| {
                    reason.seconds("since", task.times.death());
                });
            }
            _ => {}
        }
        let is_ready = task.state() == Some(State::Ready);
        if is_ready {
            self.add_blocked(&mut reasons, task.utube)?;
        }
        self.add_paused(&mut reasons)?;
        if is_ready && !is_next {
            self.add_behind(&mut reasons, &task)?;
        }
        self.add_no_consumer(&mut reasons, is_next);
        let mut members = Members::new(out);
        members.text("subject", b"task");
        members.number("id", id);
        let state = STATES.iter().find(|(state, _)| task.state() == Some(*state));
        members.text("state", state.map_or(task.status, |(_, name)| name.as_bytes()));
        if layout.utube.is_some() {
            members.text("utube", task.utube);
        }
        mp::write_bool(members.name("next"), is_next);
        reasons.write(members.name("reasons"));
        Ok(())
    }

    fn explain_sub_queue(&self, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let layout = self.tube.kind.layout();
        let next = self.tube.driver.next(self.tasks(), self.now)?.task();
        let next = next.and_then(|tuple| Task::read(tuple, layout));
        let is_next = next.is_some_and(|task| task.utube == name);
        let (space, index) = (self.tube.space, self.tube.indexes.utube);
        let counts = TaskCounts::of(|state| {
            Ok(self.store.count(space, index, IteratorType::Eq, &NameKey::new(state, name, &[]))?)
        })?;
        let mut reasons = Reasons::default();
        if counts.ready == 0 {
            self.add_empty(&mut reasons, "the sub-queue", counts);
        }
        self.add_blocked(&mut reasons, name)?;
        self.add_paused(&mut reasons)?;
        if reasons.count == 0 && !is_next {
            self.add_sub_queues_ahead(&mut reasons, name);
        }
        self.add_no_consumer(&mut reasons, is_next);
        let mut members = Members::new(out);
        members.text("subject", b"sub_queue");
        members.text("utube", name);
        mp::write_bool(members.name("next"), is_next);
        counts.write(members.name("tasks"));
        reasons.write(members.name("reasons"));
        Ok(())
    }

    fn explain_tube(&self, out: &mut Vec<u8>) -> Result<()> {
        let is_next = self.next_id()?.is_some();
        let counts = TaskCounts::of(|state| self.tasks().count(state))?;
        let mut reasons = Reasons::default();
        self.add_paused(&mut reasons)?;
        if counts.ready == 0 {
            self.add_empty(&mut reasons, "the tube", counts);
        } else if self.tube.driver.candidates().is_some_and(|candidates| candidates.first().is_none()) {
            let tasks = of(counts.ready, "ready task");
            let text = format!("{tasks} in sub-queues of each of which another task is taken");
            reasons.add("blocked", &text, |_| {});
        }
        self.add_no_consumer(&mut reasons, is_next);
        let mut members = Members::new(out);
        members.text("subject", b"tube");
        mp::write_bool(members.name("next"), is_next);
        counts.write(members.name("tasks"));
        reasons.write(members.name("reasons"));
        Ok(())
    }

    fn next_id(&self) -> Result<Option<u64>> {
        Ok(self.tube.driver.next(self.tasks(), self.now)?.task().and_then(id_of))
    }

    fn add_paused(&self, reasons: &mut Reasons) -> Result<()> {
        if !self.tube.paused {
            return Ok(());
        }
        let pause = self.common.pauses.of(self.store, self.tube.id)?.unwrap_or_default();
        let mut text = "the tube is paused".to_owned();
        if !pause.user.is_empty() {
            text.push_str(&format!(" by {}", lossy(&pause.user)));
        }
        if !pause.reason.is_empty() {
            text.push_str(&format!(": {}", lossy(&pause.reason)));
        }
        reasons.add("paused", &text, |reason| {
            reason.seconds("since", pause.since);
            reason.text("user", &pause.user);
            if !pause.reason.is_empty() {
                reason.text("because", &pause.reason);
            }
        });
        Ok(())
    }

    /// That a task is taken, or that a taken task blocks its sub-queue.
    fn add_taken(&self, reasons: &mut Reasons, name: &str, task: &Task<'_>) -> Result<()> {
        let layout = self.tube.kind.layout();
        let owner = self.common.owners.of(self.store, self.key(task.id))?;
        let user = owner.and_then(|owner| self.common.sessions.opener(&owner.session));
        let lease = self.common.owners.leases.of(self.store, self.key(task.id))?;
        let user = user.or(lease.as_ref().map(|lease| lease.user.as_str()));
        // Without a ttr of its own a task has a hundred years, of which some are over.
        let ttr = Some(task.times.next_event).filter(|_| layout.timed && task.times.ttr < MAX_TIMEOUT);
        let until = lease.as_ref().map(|lease| lease.ends).or(ttr);
        let mut text = match name {
            "blocked" => format!("task {} of its sub-queue is taken", task.id),
            _ => "taken".to_owned(),
        };
        if let Some(owner) = owner {
            let held = seconds(self.now.saturating_sub(owner.moment));
            let user = user.map(|user| format!(" of {user}")).unwrap_or_default();
            text.push_str(&format!(" by connection {}{user} for {held}", owner.connection));
        }
        if let Some(lease) = &lease {
            let held = seconds(self.now.saturating_sub(lease.taken_at));
            text.push_str(&format!(" by a lease of {} for {held}", lease.user));
        }
        if let Some(until) = until {
            let left = seconds(until.saturating_sub(self.now));
            text.push_str(&format!("; it goes back in {left}"));
        }
        reasons.add(name, &text, |reason| {
            if name == "blocked" {
                reason.number("by", task.id);
            }
            if let Some(owner) = owner {
                reason.number("connection", owner.connection);
                reason.seconds("since", owner.moment);
            }
            if let Some(lease) = &lease {
                reason.number("lease", lease.epoch);
                reason.seconds("since", lease.taken_at);
            }
            if let Some(user) = user {
                reason.text("user", user.as_bytes());
            }
            if let Some(until) = until {
                reason.seconds("until", until);
            }
        });
        Ok(())
    }

    /// That the sub-queue has a taken task.
    fn add_blocked(&self, reasons: &mut Reasons, name: &[u8]) -> Result<()> {
        let layout = self.tube.kind.layout();
        if layout.utube.is_none() {
            return Ok(());
        }
        let taken = self.tasks().first(self.tube.indexes.utube, &NameKey::new(State::Taken, name, &[]))?;
        match taken.and_then(|tuple| Task::read(tuple, layout)) {
            Some(taken) => self.add_taken(reasons, "blocked", &taken),
            None => Ok(()),
        }
    }

    /// How many ready tasks come before a ready task: of its sub-queue, if it has one.
    fn add_behind(&self, reasons: &mut Reasons, task: &Task<'_>) -> Result<()> {
        let layout = self.tube.kind.layout();
        let tube = &*self.tube;
        let below = |index: IndexId, key: &[u8]| self.store.count(tube.space, index, IteratorType::Lt, key);
        let numbers = &[task.pri, task.id][usize::from(!layout.timed)..];
        let (ahead, place) = if layout.utube.is_some() {
            let index = if layout.timed { tube.indexes.utube_pri } else { tube.indexes.utube };
            let below = |numbers| below(index, &NameKey::new(State::Ready, task.utube, numbers));
            (below(numbers)?.saturating_sub(below(&[])?), " of its sub-queue")
        } else {
            let below = |numbers| below(tube.indexes.status, &ShortKey::state(State::Ready, numbers));
            (below(numbers)?.saturating_sub(below(&[])?), "")
        };
        if ahead > 0 {
            let verb = if ahead == 1 { "comes" } else { "come" };
            let text = format!("{}{place} {verb} first", of(ahead, "ready task"));
            reasons.add("behind", &text, |reason| reason.number("ahead", ahead));
        } else if reasons.count == 0 && layout.utube.is_some() {
            self.add_sub_queues_ahead(reasons, task.utube);
        }
        Ok(())
    }

    /// How many sub-queues have a task that comes before the next one of this sub-queue.
    fn add_sub_queues_ahead(&self, reasons: &mut Reasons, name: &[u8]) {
        let Some(candidates) = self.tube.driver.candidates() else { return };
        let Some(own) = candidates.get(name) else { return };
        let first = candidates.after(None, MAX_AHEAD);
        let ahead = first.iter().take_while(|candidate| **candidate != own).count();
        let at_least = if ahead == MAX_AHEAD { "at least " } else { "" };
        let tasks = of(ahead as u64, "task");
        let come = if ahead == 1 { "comes" } else { "come" };
        let text = format!("{at_least}{tasks} of other sub-queues {come} first");
        reasons.add("behind", &text, |reason| reason.number("ahead", ahead as u64));
    }

    fn add_no_consumer(&self, reasons: &mut Reasons, is_next: bool) {
        let is_alone = is_next && reasons.count == 0;
        if is_alone && self.common.waiters.first(self.index, Line::Takes).is_none() {
            reasons.add("no_consumer", "no call waits for a task", |_| {});
        }
    }

    fn add_empty(&self, reasons: &mut Reasons, place: &str, counts: TaskCounts) {
        let others = counts.named().into_iter().skip(1).filter(|(_, count)| *count > 0);
        let others: Vec<_> = others.map(|(name, count)| format!("{count} {name}")).collect();
        let text = match others.as_slice() {
            [] => format!("{place} has no task"),
            others => format!("{place} has no ready task; {}", others.join(", ")),
        };
        reasons.add("empty", &text, |_| {});
    }
}
