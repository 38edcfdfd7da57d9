//! The places of `lycosa top`: what each shows, and the page of a list.

use std::collections::BTreeMap;

use lycosa_client::{AuditEntry, Filter, TubeJob};

use super::ask::{Ask, Found, SessionLine, TaskDetail, TaskLine, TubeDetail};
use super::filter;

/// Tasks of a page.
pub(super) const PAGE: u32 = 100;

/// What the person looks at. `Jobs` has the jobs of one tube, or of all. The members of a `Group` are in the status.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Overview,
    Tubes,
    Tube { name: String, detail: Option<Box<TubeDetail>>, is_gone: bool },
    Tasks(TasksView),
    Task { tube: String, id: u64, detail: Option<Box<TaskDetail>>, is_gone: bool },
    Sessions(Vec<SessionLine>),
    Jobs { tube: Option<String>, jobs: Vec<TubeJob> },
    Audit(AuditView),
    Group,
}

impl Place {
    /// A tube of which nothing is known yet.
    pub(super) fn tube(name: &str) -> Self {
        Self::Tube { name: name.to_owned(), detail: None, is_gone: false }
    }
}

/// A page of the audit log.
#[derive(Debug, Clone)]
pub(super) struct AuditView {
    pub(super) entries: Vec<AuditEntry>,
    /// The first entries of the pages before, and of this one.
    pub(super) befores: Vec<Option<u64>>,
}

impl Default for AuditView {
    fn default() -> Self {
        Self { entries: Vec::new(), befores: vec![None] }
    }
}

impl AuditView {
    pub(super) fn before(&self) -> Option<u64> {
        self.befores.last().copied().flatten()
    }
}

/// A list of tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct TasksView {
    pub(super) tube: String,
    /// As it was typed.
    pub(super) typed: String,
    pub(super) filter: Filter,
    /// Cursors of the pages before, and of this one.
    pub(super) cursors: Vec<Option<String>>,
    pub(super) found: Option<Found>,
    /// Actions are about all tasks that match.
    pub(super) is_all: bool,
    /// Marked tasks with their states, of all pages: actions are about them.
    pub(super) marked: BTreeMap<u64, String>,
}

impl TasksView {
    pub(super) fn new(tube: &str, typed: &str) -> Self {
        let (filter, cursors) = (filter::parse(typed).unwrap_or_default(), vec![None]);
        Self { tube: tube.to_owned(), typed: typed.to_owned(), filter, cursors, ..Self::default() }
    }

    pub(super) fn cursor(&self) -> Option<String> {
        self.cursors.last().cloned().flatten()
    }

    /// The task in this row of the page.
    pub(super) fn task(&self, at: usize) -> Option<&TaskLine> {
        self.found.as_ref()?.tasks.get(at)
    }

    pub(super) fn ask(&self) -> Ask {
        let (tube, filter) = (self.tube.clone(), self.filter.clone());
        Ask::Tasks { tube, filter, cursor: self.cursor(), limit: PAGE }
    }
}

/// A place with the chosen row, and the first line of a text.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    pub(super) place: Place,
    pub(super) at: usize,
}
