//! Lists of tasks, tubes and sessions: the extended form of a task, `list`, `queue.tubes`,
//! `queue.sessions`.
//!
//! The extended form is `[id, state, payload, {name = value}]`; members without a value are left out. Times are
//! seconds. These calls ask for the rights of the caller to the tube, not to the spaces of all tubes and sessions, and
//! show no session ids, which are secrets. Each call looks at a bounded number of tasks.

use std::collections::BTreeMap;

use lycosa_store::{Access, IteratorType, Object, Store, user};
use lycosa_tuple::mp::{self, Kind};

use crate::arguments::{Number, Table, is_nil, kind, string};
use crate::bulk::Filter;
use crate::command::Call;
use crate::error::{Error, Result};
use crate::leases::{Lease, Token};
use crate::members::{Members, write_optional};
use crate::procedure::TubeMethod;
use crate::session::{SessionId, SharedSession};
use crate::system::SHARED_SESSIONS;
use crate::task::{ShortKey, State, Task, id_of};
use crate::time::MAX_TIMEOUT;
use crate::tube::Tube;
use crate::turn::{CatalogTurn, TubeTurn, Turn};
use crate::{Answer, Caller, Queue};

/// Tasks that one `list` looks at, at most; with a filter it may find fewer.
pub(crate) const MAX_LOOKED_AT: usize = 2_000;
/// Tasks that one `list` returns unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 100;
/// Owners of tasks, and sessions without a connection, that one look at the sessions counts.
pub const MAX_OWNERS: usize = 10_000;
/// Bytes after which a `list` ends.
pub(crate) const MAX_LISTED_BYTES: usize = 1 << 20;

/// The options of `list`.
#[derive(Debug)]
struct ListOptions {
    filter: Filter,
    limit: usize,
    after: Option<u64>,
}

impl ListOptions {
    fn parse(options: Option<&[u8]>, now: u64) -> Result<Self> {
        // An empty array is what some clients make of an empty map.
        if options.is_some_and(|options| kind(options) != Kind::Map && options != [0x90]) {
            return Err(Error::Argument { number: 1, expected: "a map of options" });
        }
        let (mut state, mut utube, mut before) = (None, None, None);
        let (mut limit, mut after) = (DEFAULT_LIMIT, None);
        for (name, value) in Table::parse(options)?.filter(|(_, value)| !is_nil(value)) {
            let number = || Number::parse(value).filter(|number| !number.is_negative());
            let expected = match name {
                b"state" => "a map whose state is one of r, t, ~ and !",
                b"utube" => "a map whose utube is the name of a sub-queue",
                b"older_than" => "a map whose older_than is in seconds, 0 or more",
                b"limit" => "a map whose limit is a number of tasks, 0 or more",
                b"after" => "a map whose after is the id of a task",
                _ => "a map of state, utube, older_than, limit and after",
            };
            let refused = || Error::Argument { number: 1, expected };
            match name {
                b"state" => {
                    let known = string(value).and_then(State::parse).filter(|state| *state != State::Done);
                    state = Some(known.ok_or_else(refused)?);
                }
                b"utube" => utube = Some(string(value).ok_or_else(refused)?),
                b"older_than" => {
                    let age = number().ok_or_else(refused)?.seconds();
                    before = Some(now.saturating_sub(age.deadline(0)));
                }
                b"limit" => limit = (number().ok_or_else(refused)?.count() as usize).min(MAX_LOOKED_AT),
                b"after" => after = Some(number().and_then(Number::unsigned).ok_or_else(refused)?),
                _ => return Err(refused()),
            }
        }
        Ok(Self { filter: Filter::of_list(state, utube, before), limit, after })
    }
}

impl TubeTurn<'_> {
    /// Appends a stored task in extended form. False if there is none with this id.
    pub(crate) fn write_extended(&self, id: u64, out: &mut Vec<u8>) -> Result<bool> {
        let Some(task) = self.task(id)? else { return Ok(false) };
        self.write_task_extended(&task, None, out)?;
        Ok(true)
    }

    /// Appends a stored task in extended form, with the token of its lease.
    pub(crate) fn write_leased(&self, id: u64, lease: &Lease, out: &mut Vec<u8>) -> Result<()> {
        let task = self.task(id)?.ok_or(Error::NotTaken)?;
        self.write_task_extended(&task, Some(lease.token(self.key(id))), out)
    }

    pub(crate) fn write_task_extended(
        &self,
        task: &Task<'_>,
        token: Option<Token>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let layout = self.tube.kind.layout();
        mp::write_array(out, 4);
        mp::write_uint(out, task.id);
        mp::write_str(out, task.status);
        out.extend_from_slice(task.data);
        let record = self.common.attempts.of(self.store, self.key(task.id))?;
        let owner = self.common.owners.of(self.store, self.key(task.id))?;
        let mut members = Members::new(out);
        members.number("attempts", record.attempts);
        if record.failed_at > 0 {
            mp::write_str(members.name("last_error"), &record.last_error);
            members.seconds("failed_at", record.failed_at);
        }
        if !record.headers.is_empty() {
            members.name("headers").extend_from_slice(&record.headers);
        }
        if layout.timed {
            members.number("pri", task.pri);
            members.seconds("created", task.times.created);
            // 100 years and more are without an end.
            for (name, span) in [("ttl", task.times.ttl), ("ttr", task.times.ttr)] {
                if span < MAX_TIMEOUT {
                    members.seconds(name, span);
                }
            }
            if task.times.next_event.saturating_sub(task.times.created) < MAX_TIMEOUT {
                members.seconds("due", task.times.next_event);
            }
        }
        if layout.utube.is_some() {
            mp::write_str(members.name("utube"), task.utube);
        }
        if let Some(owner) = owner {
            if let Some(user) = self.common.sessions.opener(&owner.session) {
                mp::write_str(members.name("user"), user.as_bytes());
            }
            members.number("connection", owner.connection);
            members.seconds("taken_at", owner.moment);
        } else if let Some(lease) = self.common.owners.leases.of(self.store, self.key(task.id))? {
            mp::write_str(members.name("user"), lease.user.as_bytes());
            members.seconds("taken_at", lease.taken_at);
            members.seconds("lease_ends", lease.ends);
        }
        if let Some(token) = token {
            mp::write_str(members.name("lease"), token.to_string().as_bytes());
        }
        Ok(())
    }

    /// `list([{state, utube, older_than, limit, after}])`: tasks in extended form in the order of their ids, and the id
    /// after which the next call goes on, or null at the end.
    pub(crate) fn list(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let layout = self.tube.kind.layout();
        let ListOptions { filter, limit, after } = ListOptions::parse(call.arguments.present(0), self.now)?;
        let mut found = Vec::new();
        let (mut count, mut looked_at, mut last) = (0_u32, 0, None);
        let (iterator, key) = match after {
            Some(after) => (IteratorType::Gt, ShortKey::id(after).to_vec()),
            None => (IteratorType::All, vec![0x90]),
        };
        let mut is_end = limit > 0;
        for tuple in self.store.range(self.tube.space, 0, iterator, &key, 0)? {
            if !is_end {
                break;
            }
            looked_at += 1;
            last = id_of(tuple);
            if let Some(task) = Task::read(tuple, layout)
                && self.is_admitted(&filter, &task)?
            {
                self.write_task_extended(&task, None, &mut found)?;
                count += 1;
            }
            is_end = looked_at < MAX_LOOKED_AT && (count as usize) < limit && found.len() < MAX_LISTED_BYTES;
        }
        mp::write_array(out, count);
        out.extend_from_slice(&found);
        write_optional(out, last.filter(|_| !is_end));
        Ok(Answer::Done { count: 2 })
    }
}

impl CatalogTurn<'_> {
    /// `queue.tubes()`: a map of the tubes that the caller may look at: type, numbers of tasks and calls, the age of the
    /// task with the smallest id.
    pub(crate) fn describe_visible(&self, caller: &Caller, out: &mut Vec<u8>) -> Result<Answer> {
        let Turn { store, tubes, .. } = &self.turn;
        let is_visible = |tube: &&Tube| store.space(tube.space).is_ok() && may_look(store, caller, tube);
        let visible: Vec<&Tube> = tubes.iter().filter(is_visible).collect();
        mp::write_map(out, visible.len() as u32);
        for tube in visible {
            mp::write_str(out, tube.name.as_bytes());
            let layout = tube.kind.layout();
            let first = store.first(tube.space, 0, IteratorType::All, &[0x90])?;
            let oldest = first.and_then(|tuple| Task::read(tuple, layout)).map(|task| task.times.created);
            let mut members = Members::new(out);
            mp::write_str(members.name("type"), tube.kind.name().as_bytes());
            if let Some(created) = oldest.filter(|created| layout.timed && *created > 0) {
                members.seconds("oldest", created);
            }
            tube.statistics().write(members.name("statistics"));
        }
        Ok(Answer::one())
    }
}

/// A queue session, as a caller may see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionView {
    /// Name of the user who opened it, if known.
    pub user: Option<String>,
    /// Its connections, in order.
    pub connections: Vec<u64>,
    /// When it expires, µs since the epoch; `None` while it has a connection.
    pub expires: Option<u64>,
    /// Tasks that it holds, by the name of their tube; only tubes that the caller may look at.
    pub taken: BTreeMap<String, u64>,
    /// When it took the task that it holds longest, µs since the epoch.
    pub oldest: Option<u64>,
    /// The tasks are held by leases of the user, not by a session: when the first of them ends, µs since the epoch.
    pub lease_ends: Option<u64>,
}

impl Queue {
    /// The queue sessions that `caller` may see, in the order of their connections, then the holders of leases, and whether
    /// all tasks that they hold were counted: with more than [`MAX_OWNERS`] taken tasks they are not.
    ///
    /// Who may read all spaces sees everything. Others see the sessions of their own user, and of other sessions what
    /// they hold of tubes that the caller may look at.
    ///
    /// # Errors
    /// A space of the queue is gone.
    pub fn sessions(&self, store: &Store, caller: &Caller) -> Result<(Vec<SessionView>, bool)> {
        let is_admin = caller.trusted || caller.effective == user::ADMIN;
        let shared = SHARED_SESSIONS.known(store, self.common.spaces.shared_sessions);
        let everyone = Object::Space(shared.unwrap_or_default());
        let sees_all = is_admin || store.check_access(caller.effective, everyone, Access::READ).is_ok();
        let visible: BTreeMap<u64, &str> = self
            .tubes
            .iter()
            .filter(|tube| sees_all || may_look(store, caller, tube))
            .map(|tube| (tube.id, tube.name.as_str()))
            .collect();
        let name = store.user(caller.effective).map(|user| user.name.as_str());
        let mut views: BTreeMap<SessionId, SessionView> = BTreeMap::new();
        let opener = |id: &SessionId| self.common.sessions.opener(id);
        let view =
            |id: &SessionId| SessionView { user: opener(id).map(str::to_owned), ..SessionView::default() };
        let is_all = self.common.owners.each(store, MAX_OWNERS, |(tube, _), owner| {
            if let Some(tube) = visible.get(&tube) {
                let view = views.entry(owner.session).or_insert_with(|| view(&owner.session));
                *view.taken.entry((*tube).to_owned()).or_default() += 1;
                view.oldest = Some(view.oldest.map_or(owner.moment, |oldest| oldest.min(owner.moment)));
            }
        })?;
        // A lease belongs to no session: the leases of one user stand together.
        let mut leased: BTreeMap<String, SessionView> = BTreeMap::new();
        let are_all_leases = self.common.owners.leases.each(store, MAX_OWNERS, |(tube, _), lease| {
            let Some(tube) = visible.get(&tube) else { return };
            let view = leased.entry(lease.user).or_default();
            *view.taken.entry((*tube).to_owned()).or_default() += 1;
            view.oldest = Some(view.oldest.map_or(lease.taken_at, |oldest| oldest.min(lease.taken_at)));
            view.lease_ends = Some(view.lease_ends.map_or(lease.ends, |ends| ends.min(lease.ends)));
        })?;
        let leased = leased.into_iter().map(|(user, view)| SessionView { user: Some(user), ..view });
        let is_own = |id: &SessionId| sees_all || name.is_some_and(|name| opener(id) == Some(name));
        for (connection, id) in self.common.sessions.iter() {
            match views.get_mut(&id) {
                Some(view) => view.connections.push(connection),
                None if is_own(&id) => {
                    views.insert(id, SessionView { connections: vec![connection], ..view(&id) });
                }
                None => {}
            }
        }
        let rows = shared.map(|space| store.range(space, 0, IteratorType::All, &[0x90], 0)).transpose()?;
        let shared = rows.into_iter().flatten().take(MAX_OWNERS).filter_map(SharedSession::read);
        for shared in shared.filter(|shared| !shared.active) {
            if is_own(&shared.id) {
                views.entry(shared.id).or_insert_with(|| view(&shared.id));
            }
            if let Some(view) = views.get_mut(&shared.id) {
                view.expires = Some(shared.expires);
            }
        }
        let mut views: Vec<_> = views.into_values().collect();
        views.iter_mut().for_each(|view| view.connections.sort_unstable());
        views.sort_by_key(|view| view.connections.first().copied().unwrap_or(u64::MAX));
        views.extend(leased);
        Ok((views, is_all && are_all_leases))
    }
}

/// Whether a caller may look at a tube's tasks: read its space, or call its `peek`.
pub(crate) fn may_look(store: &Store, caller: &Caller, tube: &Tube) -> bool {
    if caller.trusted || caller.effective == user::ADMIN {
        return true;
    }
    let peek = format!("queue.tube.{}:{}", tube.name, TubeMethod::Peek.name());
    store.check_access(caller.effective, Object::Space(tube.space), Access::READ).is_ok()
        || store.check_access(caller.effective, Object::Function(&peek), Access::EXECUTE).is_ok()
}
