//! The keys of `lycosa top`: each changes the place, opens a dialog or a line to type in, or gives an order.

use lycosa_client::{Filter, JobState, Operation, TubeJob};
use ratatui::crossterm::event::KeyCode;

use super::{Model, Prompt, SORTS};
use crate::arguments::HistorySpan;
use crate::top::ask::{Ask, LISTED, TaskLine};
use crate::top::change::{self, Control, Order, Scope};
use crate::top::dialog::{Dialog, Stage};
use crate::top::filter;
use crate::top::place::{AuditView, Place, Stop, TasksView};

/// Marked tasks at most: a filter names no more of them.
const MAX_MARKED: usize = 1000;
/// States through which `s` goes in the list of tasks.
const STATES: [&str; 5] = ["", "ready", "taken", "delayed", "buried"];

impl Model {
    fn go(&mut self, place: Place) -> Vec<Ask> {
        self.stops.push(Stop { place, at: 0 });
        self.ask_for_place()
    }

    fn jump(&mut self, place: Place) -> Vec<Ask> {
        self.stops.truncate(1);
        if matches!(place, Place::Overview) { Vec::new() } else { self.go(place) }
    }

    pub(in crate::top) fn key(&mut self, key: KeyCode) -> Vec<Ask> {
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
        if let (KeyCode::Esc, Place::Tasks(view)) = (key, &mut self.stop_mut().place)
            && !view.marked.is_empty()
        {
            view.marked.clear();
            return Vec::new();
        }
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('f') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('h') => {
                self.span = match self.span {
                    None => Some(HistorySpan::Hour),
                    Some(HistorySpan::Hour) => Some(HistorySpan::Day),
                    Some(HistorySpan::Day) => None,
                }
            }
            KeyCode::Char('1') => return self.jump(Place::Overview),
            KeyCode::Char('2') => return self.jump(Place::Tubes),
            KeyCode::Char('3') => return self.jump(Place::Sessions(Vec::new())),
            KeyCode::Char('4') => return self.jump(Place::Jobs { tube: None, jobs: Vec::new() }),
            KeyCode::Char('5') => return self.jump(Place::Audit(AuditView::default())),
            KeyCode::Char('6') if self.election().is_some() => return self.jump(Place::Group),
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
        let status = self.snapshot.tubes.iter().find(|one| one.name == tube);
        if let (KeyCode::Char('P'), Some(status)) = (key, status) {
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
            return self.ask_for_place();
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
                if let Some((id, state)) = view.task(at).map(|task| (task.id, task.state.clone())) {
                    if view.marked.remove(&id).is_none() && view.marked.len() < MAX_MARKED {
                        view.marked.insert(id, state);
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
                return self.ask_for_place();
            }
            KeyCode::Char('n') => {
                if let Some(next) = view.found.as_ref().and_then(|found| found.next.clone()) {
                    view.cursors.push(Some(next));
                    view.found = None;
                    self.stop_mut().at = 0;
                    return self.ask_for_place();
                }
            }
            KeyCode::Char('p') if view.cursors.len() > 1 => {
                view.cursors.pop();
                view.found = None;
                return self.ask_for_place();
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
                let order = |job: &TubeJob| {
                    let action = match job.state {
                        JobState::Running => Control::Pause,
                        JobState::Paused => Control::Resume,
                        _ => return None,
                    };
                    Some(Ask::Control { tube: job.tube.clone(), job: job.id, action })
                };
                Some(jobs.get(at).and_then(order).into_iter().collect())
            }
            (Place::Audit(view), KeyCode::Char('n')) if view.entries.len() >= LISTED as usize => {
                let last = view.entries.last().map(|entry| entry.id);
                view.befores.push(last);
                self.stop_mut().at = 0;
                Some(self.ask_for_place())
            }
            (Place::Audit(view), KeyCode::Char('p')) if view.befores.len() > 1 => {
                view.befores.pop();
                Some(self.ask_for_place())
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
        let one = |tube: &String, TaskLine { id, state, .. }: &TaskLine| {
            (tube.clone(), Scope::one(*id, state), format!("task {id} ({state})"))
        };
        let (tube, scope, subject) = match &self.stop().place {
            Place::Tasks(view) if view.is_all => {
                let (filter, words) = match view.filter == Filter::new() {
                    true => (Filter::all(), "all tasks".to_owned()),
                    false => (view.filter.clone(), format!("all tasks that match {}", view.typed)),
                };
                (view.tube.clone(), Scope::matching(filter), words)
            }
            Place::Tasks(view) if !view.marked.is_empty() => {
                let words = format!("{} marked", change::tasks(view.marked.len() as u64));
                (view.tube.clone(), Scope::marked(&view.marked), words)
            }
            Place::Tasks(view) => match view.task(self.stop().at) {
                Some(task) => one(&view.tube, task),
                None => return,
            },
            Place::Task { tube, detail: Some(detail), .. } => one(tube, &detail.line),
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
            (Stage::Form, KeyCode::Enter) => match dialog.begin() {
                Err(fault) => dialog.notice = Some(fault),
                Ok(ask) => asks.push(ask),
            },
            (Stage::Form, key) => dialog.type_in(key),
            (Stage::Counted(counted), KeyCode::Char('y')) if counted.matched > 0 => {
                if let Ask::Count(order) = &dialog.ask {
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
                if matches!(self.stop().place, Place::Tubes) {
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
                return self.ask_for_place();
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
            Place::Tubes => self.tube().map(|name| Place::tube(&name)),
            Place::Tube { name, .. } => Some(Place::Tasks(TasksView::new(name, ""))),
            Place::Tasks(view) => view.task(at).map(|task| Place::Task {
                tube: view.tube.clone(),
                id: task.id,
                detail: None,
                is_gone: false,
            }),
            Place::Sessions(sessions) => {
                let tube = sessions.get(at).and_then(|session| session.tubes.first());
                tube.map(|(tube, _)| Place::Tasks(TasksView::new(tube, "state=taken")))
            }
            Place::Jobs { .. } | Place::Audit(_) => self.tube().map(|name| Place::tube(&name)),
            Place::Task { .. } | Place::Group => None,
        };
        place.map_or_else(Vec::new, |place| self.go(place))
    }
}
