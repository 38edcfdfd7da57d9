//! The model of `lycosa top`: its data, and the places on the way to the one in front. Keys ([`keys`]) and
//! answers go in, questions and orders come out; drawing only reads.

mod keys;

use std::collections::{HashMap, HashSet, VecDeque};

use lycosa_client::TubeJob;
use lycosa_metrics::{Election, History, Snapshot, Tube};

use super::ask::{Answer, Ask};
use super::dialog::{Dialog, Stage};
use super::place::{Place, Stop};
use crate::arguments::HistorySpan;
use crate::listing::natural;
use crate::values::count;

/// Samples of a tube: a minute by second.
pub(super) const SAMPLES: usize = 60;
/// Ticks between two looks at the instance's history, whose periods are 10 s.
const HISTORY_TICKS: u64 = 10;
/// A payload of more bytes is asked for again only on demand.
const LARGE: usize = 64 << 10;
/// Columns by which tubes may be sorted.
pub(super) const SORTS: [&str; 9] =
    ["name", "ready", "taken", "delayed", "buried", "put/s", "take/s", "ack/s", "oldest"];

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
#[derive(Debug, Default)]
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
    /// The span of curves; `None` is the last minute.
    pub(super) span: Option<HistorySpan>,
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
            has_issues: true,
            ..Self::default()
        };
        if let Some(tube) = tube {
            model.stops.push(Stop { place: Place::Tubes, at: 0 });
            model.stops.push(Stop { place: Place::tube(tube), at: 0 });
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

    fn ask_for_place(&self) -> Vec<Ask> {
        vec![match &self.stop().place {
            Place::Overview | Place::Tubes | Place::Group => return Vec::new(),
            Place::Audit(view) => Ask::Audit(view.before()),
            Place::Tube { name, .. } => Ask::Tube(name.clone()),
            Place::Tasks(view) => view.ask(),
            Place::Task { tube, id, .. } => Ask::Task { tube: tube.clone(), id: *id },
            Place::Sessions(_) => Ask::Sessions,
            Place::Jobs { tube, .. } => Ask::Jobs(tube.clone()),
        }]
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
        let by_name = |a: &Tube, b: &Tube| natural(&a.name).cmp(&natural(&b.name));
        tubes.sort_by(|a, b| value(a).total_cmp(&value(b)).then_with(|| by_name(a, b)));
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
            Answer::Counted(counted) => self.set_stage(Stage::Counted(counted)),
            Answer::Progress(TubeJob { tube, id: job, scanned, total, .. }) => {
                self.set_stage(Stage::Running { tube, job, scanned, total });
            }
            Answer::Done { text, job } => {
                // The answer may be that of a key without a dialog, while another dialog is open.
                let is_of =
                    |dialog: &mut Dialog| matches!(dialog.stage, Stage::Waiting | Stage::Running { .. });
                let ended = self.dialog.take_if(is_of);
                let is_tasks = matches!(&ended, Some(Dialog { ask: Ask::Count(_), .. }));
                if let (true, Place::Tasks(view)) = (is_tasks, &mut self.stop_mut().place) {
                    view.marked.clear();
                }
                if let Some(job) = &job {
                    self.show_job(job);
                }
                let kept = job.filter(|job| job.state.is_over() && job.kept > 0);
                self.notice = Some(match &kept {
                    Some(job) => format!("{text}; U undoes {}", count(job.kept)),
                    None => text,
                });
                self.undoable = kept.map(|job| (job.tube, job.id));
                let mut asks = self.ask_for_place();
                asks.push(Ask::Status { history: false, issues: self.has_issues });
                return asks;
            }
            answer => self.fill(&answer),
        }
        self.clamp();
        Vec::new()
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Some(dialog) = &mut self.dialog {
            dialog.stage = stage;
        }
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

    /// Lists show a job as its last order left it: the next key is about what the person sees.
    fn show_job(&mut self, job: &TubeJob) {
        for stop in &mut self.stops {
            let Place::Jobs { jobs, .. } = &mut stop.place else { continue };
            let shown = jobs.iter_mut().find(|shown| (&shown.tube, shown.id) == (&job.tube, job.id));
            if let Some(shown) = shown {
                shown.clone_from(job);
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
        let history = self.snapshot.instance.as_mut().and_then(|instance| instance.queue.history.take());
        self.history = history.or(self.history.take());
    }

    /// The chosen row exists.
    fn clamp(&mut self) {
        if let Some(rows) = self.rows() {
            let stop = self.stop_mut();
            stop.at = stop.at.min(rows.saturating_sub(1));
        }
    }

    /// What the server knows of its group.
    pub(super) fn election(&self) -> Option<&Election> {
        self.snapshot.instance.as_ref()?.election.as_ref()
    }
}
