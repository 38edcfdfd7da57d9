//! Expiration tasks: tuples whose deadline has passed are deleted, in small bounded steps.
//!
//! A task names a space and the field of its tuples that has their deadline. If an index is ordered by that field the task
//! sleeps until the first deadline, deletes expired tuples from the front, and sleeps again. Otherwise it passes over an index
//! in slices, `scan_time` seconds for a pass. Everything that a slice deletes is one transaction.
//!
//! How to drive it, once per turn and never inside a transaction:
//!
//! 1. [`Expiration::refresh`] follows changes: rows of `_expiration`, the schema, nearer deadlines;
//! 2. [`Expiration::due`] names a task whose slice is due. Begin a transaction, call [`Expiration::slice`], commit or roll
//!    back, then [`Expiration::finish`];
//! 3. [`Expiration::take_ended`] has the names of tasks whose space was dropped: remove their rows with
//!    [`Expiration::forget`];
//! 4. [`Expiration::next`] says when the next slice is due.
//!
//! Invariants:
//! - a tuple is deleted only if its deadline has passed when the transaction that deletes it reads it;
//! - a slice looks at no more tuples than its budget says, and at the clock after a few; it deletes at most
//!   [`MAX_DELETIONS`], also where the clock stands still;
//! - a task that fails says so, in its report and in the log, and is tried again after 1 s, 2 s, 4 s … 60 s;
//! - the kept tasks are the rows of `_expiration`, written by any client.
//!
//! Time is µs since the epoch, always an argument. Absent: the clock, sockets, and what a tube is: the caller's [`Host`]
//! knows.

mod arguments;
mod deadline;
mod definition;
mod error;
mod hold;
mod report;
mod row;
mod slice;
mod task;

use std::collections::{BTreeSet, VecDeque};

use lycosa_store::{Space, SpaceId, Store};

pub use arguments::{Admit, Start, capped_kill, capped_start, task_name};
pub use deadline::{Unit, deadline};
pub use definition::{
    Archive, Budget, Definition, Field, MAX_MICROSECONDS, MAX_NAME, MAX_ROWS, MAX_SCAN_TIME,
};
pub use error::Error;
pub use hold::Held;
pub use report::Summary;
pub use slice::{Host, MAX_DELETIONS};
pub use task::{State, Statistics};

use task::{NEVER, Notice, Task};

/// Tasks that there may be.
pub const MAX_TASKS: usize = 1000;

/// Lines that wait to be fetched by [`Expiration::poll_log`]; older ones are dropped.
const LOG_LINES: usize = 1024;

/// How grave a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// An event for the operator.
    Warning,
    /// Ordinary.
    Info,
}

/// The number of a task, as long as nothing but [`Expiration::slice`] and [`Expiration::finish`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskId(usize);

/// All tasks of an instance. See the crate's documentation for how to drive it.
#[derive(Debug, Default)]
pub struct Expiration {
    /// In the order of their names.
    tasks: Vec<Task>,
    /// Identity, revision and length of `_expiration` when its rows were read.
    rows_read: Option<(u64, u64, u64)>,
    schema_version: Option<u32>,
    turn: u64,
    is_paused: bool,
    /// The loop has no other work at this moment.
    is_idle: bool,
    ended: Vec<String>,
    log: VecDeque<(Level, String)>,
}

impl Expiration {
    /// Stands for rows that are to be read again.
    const UNREAD: (u64, u64, u64) = (u64::MAX, u64::MAX, u64::MAX);

    /// No tasks; those of `_expiration` are found by the first [`Self::refresh`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The definition of a task.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.position(name).ok().map(|position| &self.tasks[position].definition)
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.tasks.binary_search_by(|task| task.definition.name.as_str().cmp(name))
    }

    /// Checks that a task can be added.
    ///
    /// # Errors
    /// The name is taken, there are too many tasks, or tuples would come back to the space that they were archived from.
    pub fn check_new(&self, definition: &Definition) -> Result<(), Error> {
        if self.position(&definition.name).is_ok() {
            let name = &definition.name;
            return Err(Error::illegal(format!("expiration task '{name}' already exists")));
        }
        if self.tasks.len() >= MAX_TASKS {
            return Err(Error::illegal(format!("there are {MAX_TASKS} expiration tasks, which is the most")));
        }
        self.check_archive(definition, &|_| None)
    }

    /// Checks that archived tuples do not come back to the space that they expire from. `tube` knows the space of a tube.
    /// A task with the definition's name does not count: the definition takes its place.
    ///
    /// # Errors
    /// [`Error::Illegal`].
    pub fn check_archive(
        &self,
        definition: &Definition,
        tube: &dyn Fn(&str) -> Option<SpaceId>,
    ) -> Result<(), Error> {
        let archive_of = |definition: &Definition| match definition.archive.as_ref()? {
            Archive::Space(space) => Some(*space),
            Archive::Tube(name) => tube(name),
        };
        let others = || self.tasks.iter().filter(|task| task.definition.name != definition.name);
        let mut reached: BTreeSet<SpaceId> = archive_of(definition).into_iter().collect();
        let mut seen = 0;
        while reached.len() > seen {
            seen = reached.len();
            let from = others().filter(|task| reached.contains(&task.definition.space));
            let more: Vec<SpaceId> = from.filter_map(|task| archive_of(&task.definition)).collect();
            reached.extend(more);
        }
        if reached.contains(&definition.space) {
            return Err(Error::illegal("archived tuples would come back to the space that they expire from"));
        }
        Ok(())
    }

    /// Keeps a task: adds its row in the open transaction. The next [`Self::refresh`] begins it.
    ///
    /// # Errors
    /// As [`Self::check_new`]; what the store refuses.
    pub fn keep(&self, store: &mut Store, definition: &Definition) -> Result<(), Error> {
        self.check_new(definition)?;
        row::insert(store, definition)
    }

    /// Begins a task that ends with the process, or a dry run.
    ///
    /// # Errors
    /// As [`Self::check_new`]; its space does not exist.
    pub fn begin(&mut self, store: &Store, definition: Definition, now: u64) -> Result<(), Error> {
        self.check_new(&definition)?;
        self.add(store, definition, now)
    }

    fn add(&mut self, store: &Store, definition: Definition, now: u64) -> Result<(), Error> {
        if let Err(position) = self.position(&definition.name) {
            self.tasks.insert(position, Task::new(definition, store, now)?);
        }
        Ok(())
    }

    /// Ends a task that has no row. The row of one that is kept is removed with [`Self::forget`], and the next
    /// [`Self::refresh`] ends it.
    pub fn end(&mut self, name: &str) {
        if let Ok(position) = self.position(name) {
            self.tasks.remove(position);
            // A row with that name may have appeared while the task ran.
            self.rows_read = self.rows_read.map(|_| Self::UNREAD);
        }
    }

    /// Removes the row of a task in the open transaction.
    ///
    /// # Errors
    /// What the store refuses.
    pub fn forget(store: &mut Store, name: &str) -> Result<(), Error> {
        row::delete(store, name)
    }

    /// Names of tasks that ended with their space and still have a row.
    pub fn take_ended(&mut self) -> Vec<String> {
        std::mem::take(&mut self.ended)
    }

    /// The error for a task that does not exist, or whose space `admit` hides. It suggests only tasks of
    /// which the caller may know.
    #[must_use]
    pub fn unknown(&self, name: &str, admit: Admit<'_>) -> Error {
        let known = self.tasks.iter().filter(|task| admit(task.definition.space).is_ok());
        let names = known.map(|task| task.definition.name.as_str());
        let suggestion = arguments::suggestion(name, names);
        Error::illegal(format!("expiration task '{name}' does not exist{suggestion}"))
    }

    /// Follows the changes since the last call: rows of `_expiration`, the schema, tuples with nearer deadlines.
    pub fn refresh(&mut self, store: &mut Store, now: u64) {
        let version = Some(store.schema_version());
        let is_new_schema = std::mem::replace(&mut self.schema_version, version) != version;
        if is_new_schema {
            self.end_dropped(store, now);
        }
        if is_new_schema || self.rows_read.is_some() {
            self.read_rows(store, now);
        }
        for task in &mut self.tasks {
            task.look_around(store, now);
        }
    }

    fn end_dropped(&mut self, store: &Store, now: u64) {
        let mut position = 0;
        while position < self.tasks.len() {
            let task = &mut self.tasks[position];
            if task.is_of(store.space(task.definition.space)) {
                task.replan(store, now);
                position += 1;
                continue;
            }
            let task = self.tasks.remove(position);
            let Definition { name, space, transient, dry_run, .. } = task.definition;
            self.note(
                Level::Info,
                format!("expiration task '{name}' has ended: its space {space} was dropped"),
            );
            if !transient && !dry_run {
                self.ended.push(name);
            }
        }
    }

    fn read_rows(&mut self, store: &Store, now: u64) {
        let read = row::space(store).map(|space| (space.identity(), space.revision(), space.len()));
        if read == self.rows_read {
            return;
        }
        self.rows_read = read;
        let mut refused = Vec::new();
        let definitions = row::load(store, &mut |reason| refused.push(reason));
        for reason in refused {
            self.note(Level::Warning, reason);
        }
        self.tasks.retain(|task| {
            let definition = &task.definition;
            definition.transient || definition.dry_run || definitions.contains(definition)
        });
        for definition in definitions {
            let name = definition.name.clone();
            if let Err(error) = self.add(store, definition, now) {
                self.note(Level::Warning, format!("expiration task '{name}' cannot begin: {error}"));
                if matches!(error, Error::Store(lycosa_store::Error::NoSuchSpace(_))) {
                    self.ended.push(name);
                }
            }
        }
    }

    /// While paused, which a read-only instance is, only dry runs go on.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    fn is_running(&self, task: &Task) -> bool {
        !self.is_paused || task.definition.dry_run
    }

    /// Whether the loop has had no other work lately. Then tasks that are behind do without the pauses by
    /// which they leave it a share.
    pub fn set_idle(&mut self, is_idle: bool) {
        self.is_idle = is_idle;
    }

    /// A task whose slice is due; of several the one that has waited longest for its turn.
    pub fn due(&mut self, now: u64) -> Option<TaskId> {
        self.tasks.retain(|task| task.state() != State::Done || task.next > now);
        let is_due = |task: &Task| task.wakes(self.is_idle) <= now && self.is_running(task);
        let due = self.tasks.iter().enumerate().filter(|(_, task)| is_due(task));
        due.min_by_key(|(_, task)| task.last_turn).map(|(position, _)| TaskId(position))
    }

    /// The task with that name, to have a slice out of turn.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<TaskId> {
        let position = self.position(name).ok()?;
        let task = &self.tasks[position];
        (task.definition.scan_size > 0 && self.is_running(task)).then_some(TaskId(position))
    }

    /// Runs a slice of a task in the open transaction.
    ///
    /// # Errors
    /// The space, an index or the field is not there any more, the archive takes no tuple, the store refuses. The
    /// transaction is to be rolled back.
    pub fn slice(
        &mut self,
        id: TaskId,
        store: &mut Store,
        now: u64,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.turn += 1;
        let Some(task) = self.tasks.get_mut(id.0) else { return Ok(()) };
        task.last_turn = self.turn;
        task.slice(store, now, host)
    }

    /// A slice's transaction is committed, or rolled back because of an error.
    pub fn finish(&mut self, id: TaskId, store: &mut Store, now: u64, done: Result<(), String>, held: Held) {
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        let Some(notice) = task.finish(store, now, done, held) else { return };
        let name = task.definition.name.clone();
        let (level, text) = match notice {
            Notice::Failed(text) => (Level::Warning, format!("expiration task '{name}' failed: {text}")),
            Notice::Late(text) => (Level::Warning, format!("expiration task '{name}' {text}")),
            Notice::Recovered(text) | Notice::OnTime(text) => {
                (Level::Info, format!("expiration task '{name}' {text}"))
            }
        };
        self.note(level, text);
    }

    /// When the next slice is due, µs since the epoch. May be in the past.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let running = self.tasks.iter().filter(|task| self.is_running(task));
        running.map(|task| task.wakes(self.is_idle)).min().filter(|&next| next != NEVER)
    }

    /// The next line for the log.
    pub fn poll_log(&mut self) -> Option<(Level, String)> {
        self.log.pop_front()
    }

    fn note(&mut self, level: Level, text: String) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back((level, text));
    }
}

/// The name of a space, for reports.
fn name_of(store: &Store, space: SpaceId) -> String {
    store.space(space).map_or_else(|_| space.to_string(), |space: &Space| space.name().to_owned())
}
