//! The model of `lycosa top`: its data, and the screen in front. Keys and answers go in, questions and orders come out; drawing only reads.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use lycosa_client::{AuditEntry, Filter, JobState, Operation, TubeJob};
use lycosa_metrics::{Election, History, Snapshot, Tube};
use ratatui::crossterm::event::KeyCode;

use super::ask::{Answer, Ask, Found, LISTED, SessionLine, TaskDetail, TubeDetail};
use super::change::{self, Control, Order, Scope};
use super::dialog::{Dialog, Stage, Subject};
use super::filter;

/// Samples of a tube: a minute by second.
pub(super) const SAMPLES: usize = 60;
/// Ticks between two looks at the instance's history, whose periods are 10 s.
const HISTORY_TICKS: u64 = 10;
/// Tasks of a page.
pub(super) const PAGE: u32 = 100;
/// A payload of more bytes is asked for again only on demand.
const LARGE: usize = 64 << 10;
/// Marked tasks at most: a filter names no more of them.
const MAX_MARKED: usize = 1000;
/// States through which `s` goes in the list of tasks.
const STATES: [&str; 5] = ["", "ready", "taken", "delayed", "buried"];
/// Columns by which tubes may be sorted.
pub(super) const SORTS: [&str; 9] =
    ["name", "ready", "taken", "delayed", "buried", "put/s", "take/s", "ack/s", "oldest"];

/// The span of curves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Minute,
    Hour,
    Day,
}

/// What the person looks at.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Overview,
    Tubes,
    Tube {
        name: String,
        detail: Option<Box<TubeDetail>>,
        is_gone: bool,
    },
    Tasks(TasksView),
    Task {
        tube: String,
        id: u64,
        detail: Option<Box<TaskDetail>>,
        is_gone: bool,
    },
    Sessions(Vec<SessionLine>),
    /// Jobs of one tube, or of all.
    Jobs {
        tube: Option<String>,
        jobs: Vec<TubeJob>,
    },
    Audit(AuditView),
    /// The members of the group are in the status.
    Group,
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
    fn before(&self) -> Option<u64> {
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
    fn new(tube: &str, typed: &str) -> Self {
        let filter = filter::parse(typed).unwrap_or_default();
        Self {
            tube: tube.to_owned(),
            typed: typed.to_owned(),
            filter,
            cursors: vec![None],
            ..Self::default()
        }
    }

    fn cursor(&self) -> Option<String> {
        self.cursors.last().cloned().flatten()
    }

    fn ask(&self) -> Ask {
        Ask::Tasks {
            tube: self.tube.clone(),
            filter: self.filter.clone(),
            cursor: self.cursor(),
            limit: PAGE,
        }
    }
}

/// A place with the chosen row, and the first line of a text.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    pub(super) place: Place,
    pub(super) at: usize,
}

/// Tasks by state, and puts, takes and acks so far, at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) time: f64,
    pub(super) numbers: [u64; 7],
}

/// A line of text that is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) fault: Option<String>,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) address: String,
    pub(super) stops: Vec<Stop>,
    pub(super) snapshot: Snapshot,
    /// Whether the server finds issues; one of an older version does not.
    pub(super) has_issues: bool,
    pub(super) history: Option<History>,
    /// Samples by tube; of all tubes under the empty name.
    pub(super) samples: HashMap<String, VecDeque<Sample>>,
    /// Why there is no connection.
    pub(super) lost: Option<String>,
    pub(super) fault: Option<String>,
    pub(super) notice: Option<String>,
    pub(super) prompt: Option<Prompt>,
    pub(super) dialog: Option<Dialog>,
    pub(super) span: Span,
    pub(super) tubes_filter: String,
    /// A place in [`SORTS`], and whether the largest stands first.
    pub(super) sort: (usize, bool),
    pub(super) is_help: bool,
    pub(super) is_frozen: bool,
    pub(super) is_over: bool,
    /// The tube and the job of the last change that can be undone.
    undoable: Option<(String, u64)>,
    ticks: u64,
}

fn numbers(tube: &Tube) -> [u64; 7] {
    let (tasks, operations) = (tube.tasks, tube.operations);
    [tasks.ready, tasks.taken, tasks.delayed, tasks.buried, operations.put, operations.take, operations.ack]
}

impl Model {
    pub(super) fn new(address: &str, tube: Option<&str>) -> Self {
        let mut model = Self {
            address: address.to_owned(),
            stops: vec![Stop { place: Place::Overview, at: 0 }],
            snapshot: Snapshot::default(),
            has_issues: true,
            history: None,
            samples: HashMap::new(),
            lost: None,
            fault: None,
            notice: None,
            prompt: None,
            dialog: None,
            span: Span::Minute,
            tubes_filter: String::new(),
            sort: (0, false),
            is_help: false,
            is_frozen: false,
            is_over: false,
            undoable: None,
            ticks: 0,
        };
        if let Some(tube) = tube {
            model.stops.push(Stop { place: Place::Tubes, at: 0 });
            model.stops.push(Stop { place: tube_place(tube), at: 0 });
        }
        model
    }

    pub(super) fn stop(&self) -> &Stop {
        self.stops.last().expect("the first place is never left")
    }

    fn stop_mut(&mut self) -> &mut Stop {
        self.stops.last_mut().expect("the first place is never left")
    }

    /// Seconds since the epoch by the server's clock, as of the last status.
    pub(super) fn now(&self) -> f64 {
        self.snapshot.instance.as_ref().map_or(0.0, |instance| instance.now)
    }

    /// The questions of each tick.
    pub(super) fn tick(&mut self) -> Vec<Ask> {
        if self.is_frozen {
            return Vec::new();
        }
        let history = self.ticks.is_multiple_of(HISTORY_TICKS);
        self.ticks += 1;
        // The server may be another one by now.
        let mut asks = vec![Ask::Status { history, issues: self.has_issues || history }];
        let is_large = match &self.stop().place {
            Place::Task { detail: Some(detail), .. } => detail.bytes > LARGE,
            // A page that made the server look at many tasks is not asked for each second.
            Place::Tasks(view) => view.found.as_ref().is_some_and(|found| {
                found.scanned > 50_000
                    || found.tasks.iter().map(|task| task.payload.len()).sum::<usize>() > LARGE
            }),
            _ => false,
        };
        if !is_large || history {
            asks.extend(self.ask_for_place());
        }
        asks
    }

    fn ask_for_place(&self) -> Option<Ask> {
        match &self.stop().place {
            Place::Overview | Place::Tubes | Place::Group => None,
            Place::Audit(view) => Some(Ask::Audit(view.before())),
            Place::Tube { name, .. } => Some(Ask::Tube(name.clone())),
            Place::Tasks(view) => Some(view.ask()),
            Place::Task { tube, id, .. } => Some(Ask::Task { tube: tube.clone(), id: *id }),
            Place::Sessions(_) => Some(Ask::Sessions),
            Place::Jobs { tube, .. } => Some(Ask::Jobs(tube.clone())),
        }
    }

    /// The tube that the place is about, or that is chosen.
    fn tube(&self) -> Option<String> {
        match &self.stop().place {
            Place::Tubes => self.shown_tubes().get(self.stop().at).map(|tube| tube.name.clone()),
            Place::Tube { name, .. } => Some(name.clone()),
            Place::Tasks(view) => Some(view.tube.clone()),
            Place::Task { tube, .. } => Some(tube.clone()),
            Place::Jobs { tube: Some(tube), .. } => Some(tube.clone()),
            Place::Jobs { jobs, .. } => jobs.get(self.stop().at).map(|job| job.tube.clone()),
            Place::Audit(view) => {
                let tube = view.entries.get(self.stop().at).map(|entry| entry.tube.clone());
                tube.filter(|tube| !tube.is_empty())
            }
            Place::Overview | Place::Sessions(_) | Place::Group => None,
        }
    }

    /// The tubes that match the filter, sorted.
    pub(super) fn shown_tubes(&self) -> Vec<&Tube> {
        let wanted = self.tubes_filter.to_lowercase();
        let matches = |tube: &&Tube| tube.name.to_lowercase().contains(&wanted) || tube.kind == wanted;
        let mut tubes: Vec<&Tube> = self.snapshot.tubes.iter().filter(matches).collect();
        let (column, is_reversed) = self.sort;
        let rates = |tube: &Tube| tube.rates.unwrap_or_default();
        let value = |tube: &Tube| match SORTS[column] {
            "ready" => tube.tasks.ready as f64,
            "taken" => tube.tasks.taken as f64,
            "delayed" => tube.tasks.delayed as f64,
            "buried" => tube.tasks.buried as f64,
            "put/s" => rates(tube).puts[0],
            "take/s" => rates(tube).takes[0],
            "ack/s" => rates(tube).acks[0],
            "oldest" => tube.oldest_ready_age.unwrap_or(-1.0),
            _ => 0.0,
        };
        tubes.sort_by(|a, b| {
            value(a)
                .total_cmp(&value(b))
                .then_with(|| crate::listing::natural(&a.name).cmp(&crate::listing::natural(&b.name)))
        });
        if is_reversed {
            tubes.reverse();
        }
        tubes
    }

    /// Rows that can be chosen, or `None`: a text that scrolls.
    fn rows(&self) -> Option<usize> {
        match &self.stop().place {
            Place::Tubes => Some(self.shown_tubes().len()),
            Place::Tasks(view) => Some(view.found.as_ref().map_or(0, |found| found.tasks.len())),
            Place::Sessions(sessions) => Some(sessions.len()),
            Place::Jobs { jobs, .. } => Some(jobs.len()),
            Place::Audit(view) => Some(view.entries.len()),
            Place::Group => Some(self.election().map_or(0, |election| election.members.len())),
            Place::Overview | Place::Tube { .. } | Place::Task { .. } => None,
        }
    }

    pub(super) fn answer(&mut self, answer: Answer) -> Vec<Ask> {
        if !matches!(answer, Answer::Failed(_) | Answer::Refused(_) | Answer::Progress(..)) {
            self.fault = None;
        }
        match answer {
            Answer::Status(status) => {
                self.has_issues = status.has_issues;
                self.observe(status.snapshot);
            }
            Answer::Failed(text) => self.fault = Some(text),
            Answer::Refused(text) => match &mut self.dialog {
                Some(dialog) => dialog.stage = Stage::Refused(text),
                None => self.notice = Some(text),
            },
            Answer::Counted(counted) => {
                if let Some(dialog) = &mut self.dialog {
                    dialog.stage = Stage::Counted(counted);
                }
            }
            Answer::Progress(job) => {
                if let Some(dialog) = &mut self.dialog {
                    let (scanned, total) = (job.scanned, job.total);
                    dialog.stage = Stage::Running { tube: job.tube, job: job.id, scanned, total };
                }
            }
            Answer::Done { text, job } => {
                // The answer may be that of a key without a dialog, while another dialog is open.
                let is_of =
                    |dialog: &mut Dialog| matches!(dialog.stage, Stage::Waiting | Stage::Running { .. });
                let ended = self.dialog.take_if(is_of);
                let is_tasks = matches!(&ended, Some(Dialog { subject: Subject::Tasks(_), .. }));
                if let (true, Place::Tasks(view)) = (is_tasks, &mut self.stop_mut().place) {
                    view.marked.clear();
                }
                let kept = job.filter(|job| job.state.is_over() && job.kept > 0);
                self.notice = Some(match &kept {
                    Some(job) => format!("{text}; U undoes {}", crate::values::count(job.kept)),
                    None => text,
                });
                self.undoable = kept.map(|job| (job.tube, job.id));
                return self
                    .ask_for_place()
                    .into_iter()
                    .chain([Ask::Status { history: false, issues: self.has_issues }])
                    .collect();
            }
            answer => self.fill(&answer),
        }
        self.clamp();
        Vec::new()
    }

    /// Puts an answer into the place that it is for, if the person is still there.
    fn fill(&mut self, answer: &Answer) {
        for stop in &mut self.stops {
            match (&mut stop.place, answer) {
                (Place::Tube { name, detail, is_gone }, Answer::Tube(of, found)) if name == of => {
                    *is_gone = found.is_none();
                    *detail = found.clone();
                }
                (Place::Tasks(view), Answer::Tasks { tube, cursor, filter, found })
                    if view.tube == *tube && view.filter == *filter && view.cursor() == *cursor =>
                {
                    view.found = Some(found.clone());
                }
                (
                    Place::Task { tube, id, detail, is_gone },
                    Answer::Task { tube: of, id: number, detail: found },
                ) if tube == of && id == number => {
                    *is_gone = found.is_none();
                    *detail = found.clone();
                }
                (Place::Sessions(sessions), Answer::Sessions(found)) => sessions.clone_from(found),
                (Place::Jobs { tube, jobs }, Answer::Jobs(of, found)) if tube == of => jobs.clone_from(found),
                (Place::Audit(view), Answer::Audit(before, found)) if view.before() == *before => {
                    view.entries.clone_from(found);
                }
                _ => {}
            }
        }
    }

    fn observe(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
        let time = self.now();
        let mut sum = [0; 7];
        let mut seen = HashSet::from([String::new()]);
        let mut note = |name: &str, numbers: [u64; 7]| {
            let samples = self.samples.entry(name.to_owned()).or_default();
            if samples.back().is_some_and(|last| last.time >= time) {
                return;
            }
            if samples.len() > SAMPLES {
                samples.pop_front();
            }
            samples.push_back(Sample { time, numbers });
        };
        for tube in &self.snapshot.tubes {
            let own = numbers(tube);
            sum.iter_mut().zip(own).for_each(|(sum, number)| *sum += number);
            note(&tube.name, own);
            seen.insert(tube.name.clone());
        }
        note("", sum);
        self.samples.retain(|name, _| seen.contains(name));
        if let Some(history) =
            self.snapshot.instance.as_mut().and_then(|instance| instance.queue.history.take())
        {
            self.history = Some(history);
        }
    }

    /// The chosen row exists.
    fn clamp(&mut self) {
        if let Some(rows) = self.rows() {
            let stop = self.stop_mut();
            stop.at = stop.at.min(rows.saturating_sub(1));
        }
    }

    fn go(&mut self, place: Place) -> Vec<Ask> {
        self.stops.push(Stop { place, at: 0 });
        self.ask_for_place().into_iter().collect()
    }

    fn jump(&mut self, place: Place) -> Vec<Ask> {
        self.stops.truncate(1);
        if matches!(place, Place::Overview) { Vec::new() } else { self.go(place) }
    }

    pub(super) fn key(&mut self, key: KeyCode) -> Vec<Ask> {
        if self.is_help {
            self.is_help = false;
            return Vec::new();
        }
        if let Some(dialog) = self.dialog.take() {
            return self.key_of_dialog(dialog, key);
        }
        if let Some(prompt) = self.prompt.take() {
            return self.key_of_prompt(prompt, key);
        }
        self.notice = None;
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('f') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('h') => {
                self.span = match self.span {
                    Span::Minute => Span::Hour,
                    Span::Hour => Span::Day,
                    Span::Day => Span::Minute,
                }
            }
            KeyCode::Char('1') => return self.jump(Place::Overview),
            KeyCode::Char('2') => return self.jump(Place::Tubes),
            KeyCode::Char('3') => return self.jump(Place::Sessions(Vec::new())),
            KeyCode::Char('4') => return self.jump(Place::Jobs { tube: None, jobs: Vec::new() }),
            KeyCode::Char('5') => return self.jump(Place::Audit(AuditView::default())),
            KeyCode::Char('6') if self.election().is_some() => return self.jump(Place::Group),
            KeyCode::Esc if self.has_marks() => self.unmark(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left if self.stops.len() > 1 => {
                drop(self.stops.pop());
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Home => self.stop_mut().at = 0,
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Enter | KeyCode::Right => return self.enter(),
            KeyCode::Char('/') => {
                let text = match &self.stop().place {
                    Place::Tubes => self.tubes_filter.clone(),
                    Place::Tasks(view) => view.typed.clone(),
                    _ => return Vec::new(),
                };
                self.prompt = Some(Prompt { text, fault: None });
            }
            KeyCode::Char('s' | 'S') if matches!(self.stop().place, Place::Tubes) => {
                let (column, is_reversed) = self.sort;
                self.sort = match key {
                    KeyCode::Char('S') => (column, !is_reversed),
                    // Numbers: the largest first.
                    _ => ((column + 1) % SORTS.len(), (column + 1) % SORTS.len() > 0),
                };
            }
            KeyCode::Char('U') => {
                if let Some((tube, job)) = self.job_to_undo() {
                    self.dialog = Some(Dialog::undo(&tube, job));
                }
            }
            key => return self.key_of_place(key),
        }
        self.clamp();
        Vec::new()
    }

    fn key_of_place(&mut self, key: KeyCode) -> Vec<Ask> {
        if let Some(asks) = self.key_of_list(key) {
            return asks;
        }
        let Some(tube) = self.tube() else { return Vec::new() };
        if let (KeyCode::Char('P'), Some(status)) =
            (key, self.snapshot.tubes.iter().find(|one| one.name == tube))
        {
            self.dialog = Some(Dialog::pause(&tube, !status.paused));
            return Vec::new();
        }
        if key == KeyCode::Char('J') && !matches!(self.stop().place, Place::Jobs { .. }) {
            return self.go(Place::Jobs { tube: Some(tube), jobs: Vec::new() });
        }
        let state = match key {
            KeyCode::Char('r') => "state=ready",
            KeyCode::Char('t') => "state=taken",
            KeyCode::Char('d') => "state=delayed",
            KeyCode::Char('b') => "state=buried",
            _ => "",
        };
        if !state.is_empty() && matches!(self.stop().place, Place::Tube { .. } | Place::Tubes) {
            return self.go(Place::Tasks(TasksView::new(&tube, state)));
        }
        if let KeyCode::Char(letter @ ('K' | 'R' | 'N' | 'S' | 'B' | 'D' | 'M')) = key {
            self.begin_order(letter);
            return Vec::new();
        }
        if key == KeyCode::Char('u') {
            return self.ask_for_place().into_iter().collect();
        }
        self.key_of_tasks(key, &tube)
    }

    /// Keys of a list of tasks.
    fn key_of_tasks(&mut self, key: KeyCode, tube: &str) -> Vec<Ask> {
        let at = self.stop().at;
        let Place::Tasks(view) = &mut self.stop_mut().place else { return Vec::new() };
        match key {
            KeyCode::Char('a') => view.is_all = !view.is_all,
            KeyCode::Char(' ') => {
                if let Some(task) = view.found.as_ref().and_then(|found| found.tasks.get(at)) {
                    if view.marked.remove(&task.id).is_none() && view.marked.len() < MAX_MARKED {
                        view.marked.insert(task.id, task.state.clone());
                    }
                    self.step(1);
                }
            }
            KeyCode::Char('m') => {
                let shown = view.found.as_ref().map_or(&[][..], |found| &found.tasks);
                let is_whole = shown.iter().all(|task| view.marked.contains_key(&task.id));
                for task in shown {
                    if is_whole {
                        view.marked.remove(&task.id);
                    } else if view.marked.len() < MAX_MARKED {
                        view.marked.insert(task.id, task.state.clone());
                    }
                }
            }
            KeyCode::Char('s') => {
                let now = view.typed.strip_prefix("state=").unwrap_or_default();
                let next =
                    STATES.iter().position(|state| *state == now).map_or(0, |at| (at + 1) % STATES.len());
                let typed = if next == 0 { String::new() } else { format!("state={}", STATES[next]) };
                *view = TasksView::new(tube, &typed);
                return self.ask_for_place().into_iter().collect();
            }
            KeyCode::Char('n') => {
                if let Some(next) = view.found.as_ref().and_then(|found| found.next.clone()) {
                    view.cursors.push(Some(next));
                    view.found = None;
                    self.stop_mut().at = 0;
                    return self.ask_for_place().into_iter().collect();
                }
            }
            KeyCode::Char('p') if view.cursors.len() > 1 => {
                view.cursors.pop();
                view.found = None;
                return self.ask_for_place().into_iter().collect();
            }
            _ => {}
        }
        Vec::new()
    }

    /// Keys of lists of jobs, of the audit log and of members. `None`: the key is another one's.
    fn key_of_list(&mut self, key: KeyCode) -> Option<Vec<Ask>> {
        let at = self.stop().at;
        match (&mut self.stop_mut().place, key) {
            (Place::Jobs { jobs, .. }, KeyCode::Char('C')) => {
                let job = jobs.get(at).filter(|job| !job.state.is_over())?;
                self.dialog = Some(Dialog::cancel(&job.tube, job.id));
                Some(Vec::new())
            }
            // A pause loses nothing, and the same key ends it: it asks nothing first.
            (Place::Jobs { jobs, .. }, KeyCode::Char('P')) => {
                let action = |job: &TubeJob| match job.state {
                    JobState::Running => Some(Control::Pause),
                    JobState::Paused => Some(Control::Resume),
                    _ => None,
                };
                let found = jobs.get(at).and_then(|job| action(job).map(|action| (job, action)));
                let order = |(job, action): (&TubeJob, Control)| Ask::Control {
                    tube: job.tube.clone(),
                    job: job.id,
                    action,
                };
                Some(found.map(order).into_iter().collect())
            }
            (Place::Audit(view), KeyCode::Char('n')) if view.entries.len() >= LISTED as usize => {
                let last = view.entries.last().map(|entry| entry.id);
                view.befores.push(last);
                self.stop_mut().at = 0;
                Some(self.ask_for_place().into_iter().collect())
            }
            (Place::Audit(view), KeyCode::Char('p')) if view.befores.len() > 1 => {
                view.befores.pop();
                Some(self.ask_for_place().into_iter().collect())
            }
            (Place::Group, KeyCode::Char('T')) => {
                let election = self.election()?;
                let member = election.members.get(at).filter(|member| {
                    member.node != election.leader && matches!(member.standing.as_str(), "voter" | "joining")
                });
                match member {
                    Some(member) => self.dialog = Some(Dialog::transfer(member.node, &member.address)),
                    None => self.notice = Some("choose a voter that does not lead".to_owned()),
                }
                Some(Vec::new())
            }
            _ => None,
        }
    }

    /// What the server knows of its group.
    pub(super) fn election(&self) -> Option<&Election> {
        self.snapshot.instance.as_ref()?.election.as_ref()
    }

    fn has_marks(&self) -> bool {
        matches!(&self.stop().place, Place::Tasks(view) if !view.marked.is_empty())
    }

    fn unmark(&mut self) {
        if let Place::Tasks(view) = &mut self.stop_mut().place {
            view.marked.clear();
        }
    }

    /// The chosen job, or the job of the last change that was made here.
    fn job_to_undo(&self) -> Option<(String, u64)> {
        match &self.stop().place {
            Place::Jobs { jobs, .. } => {
                let job = jobs.get(self.stop().at)?;
                let may = job.state.is_over() && job.operation != "undo" && job.kept > 0;
                may.then(|| (job.tube.clone(), job.id))
            }
            _ => self.undoable.clone(),
        }
    }

    /// Opens the dialog of an operation on the chosen task, or on all that match.
    fn begin_order(&mut self, letter: char) {
        let operation = match letter {
            'K' => Operation::Kick,
            'R' => Operation::Release,
            'N' => Operation::Run,
            'S' => Operation::Reschedule { delay: None, priority: None },
            'B' => Operation::Bury,
            'D' => Operation::Delete,
            _ => Operation::Move { to: String::new() },
        };
        let (tube, scope, subject) = match &self.stop().place {
            Place::Tasks(view) if view.is_all => {
                let is_empty = view.filter == Filter::new();
                let filter = if is_empty { Filter::all() } else { view.filter.clone() };
                let words = if is_empty {
                    "all tasks".to_owned()
                } else {
                    format!("all tasks that match {}", view.typed)
                };
                (view.tube.clone(), Scope::matching(filter), words)
            }
            Place::Tasks(view) if !view.marked.is_empty() => {
                let words = format!("{} marked", change::tasks(view.marked.len() as u64));
                (view.tube.clone(), Scope::marked(&view.marked), words)
            }
            Place::Tasks(view) => {
                let Some(task) = view.found.as_ref().and_then(|found| found.tasks.get(self.stop().at)) else {
                    return;
                };
                (
                    view.tube.clone(),
                    Scope::one(task.id, &task.state),
                    format!("task {} ({})", task.id, task.state),
                )
            }
            Place::Task { tube, id, detail: Some(detail), .. } => {
                let state = &detail.line.state;
                (tube.clone(), Scope::one(*id, state), format!("task {id} ({state})"))
            }
            _ => return,
        };
        self.dialog = Some(Dialog::order(Order { tube, operation, scope, reason: None }, &subject));
    }

    fn key_of_dialog(&mut self, mut dialog: Dialog, key: KeyCode) -> Vec<Ask> {
        let mut asks = Vec::new();
        match (&dialog.stage, key) {
            (Stage::Running { tube, job, .. }, KeyCode::Esc) => {
                asks.push(Ask::Control { tube: tube.clone(), job: *job, action: Control::Cancel });
            }
            (_, KeyCode::Esc) => return Vec::new(),
            (Stage::Form, KeyCode::Enter) => match dialog.fault() {
                Some(fault) => dialog.notice = Some(fault),
                None => asks.push(dialog.begin()),
            },
            (Stage::Form, key) => dialog.type_in(key),
            (Stage::Counted(counted), KeyCode::Char('y')) if counted.matched > 0 => {
                if let Subject::Tasks(order) = &dialog.subject {
                    asks.push(Ask::Apply { order: order.clone(), counted: counted.job });
                    dialog.stage = Stage::Waiting;
                }
            }
            _ => {}
        }
        self.dialog = Some(dialog);
        asks
    }

    fn key_of_prompt(&mut self, mut prompt: Prompt, key: KeyCode) -> Vec<Ask> {
        match key {
            KeyCode::Esc => return Vec::new(),
            KeyCode::Enter => {
                let at_tubes = matches!(self.stop().place, Place::Tubes);
                if at_tubes {
                    self.tubes_filter = prompt.text;
                    self.clamp();
                    return Vec::new();
                }
                if let Err(fault) = filter::parse(&prompt.text) {
                    prompt.fault = Some(fault);
                    self.prompt = Some(prompt);
                    return Vec::new();
                }
                let tube = self.tube().unwrap_or_default();
                *self.stop_mut() = Stop { place: Place::Tasks(TasksView::new(&tube, &prompt.text)), at: 0 };
                return self.ask_for_place().into_iter().collect();
            }
            KeyCode::Backspace => drop(prompt.text.pop()),
            KeyCode::Char(character) => prompt.text.push(character),
            _ => {}
        }
        if matches!(self.stop().place, Place::Tubes) {
            self.tubes_filter.clone_from(&prompt.text);
            self.clamp();
        }
        self.prompt = Some(prompt);
        Vec::new()
    }

    fn step(&mut self, by: isize) {
        let last = self.rows().map_or(usize::MAX / 4, |rows| rows.saturating_sub(1));
        let stop = self.stop_mut();
        stop.at = stop.at.saturating_add_signed(by).min(last);
    }

    fn enter(&mut self) -> Vec<Ask> {
        let at = self.stop().at;
        let place = match &self.stop().place {
            Place::Overview => Some(Place::Tubes),
            Place::Tubes => self.tube().map(|name| tube_place(&name)),
            Place::Tube { name, .. } => Some(Place::Tasks(TasksView::new(name, ""))),
            Place::Tasks(view) => view.found.as_ref().and_then(|found| found.tasks.get(at)).map(|task| {
                Place::Task { tube: view.tube.clone(), id: task.id, detail: None, is_gone: false }
            }),
            Place::Sessions(sessions) => sessions
                .get(at)
                .and_then(|session| session.tubes.first())
                .map(|(tube, _)| Place::Tasks(TasksView::new(tube, "state=taken"))),
            Place::Jobs { .. } | Place::Audit(_) => self.tube().map(|name| tube_place(&name)),
            Place::Task { .. } | Place::Group => None,
        };
        place.map_or_else(Vec::new, |place| self.go(place))
    }
}

fn tube_place(name: &str) -> Place {
    Place::Tube { name: name.to_owned(), detail: None, is_gone: false }
}
