//! A change before it is made: what happens, its fields, how many tasks it would change, and how far it is.

use lycosa_client::Operation;
use ratatui::crossterm::event::KeyCode;

use super::ask::Ask;
use super::change::{Control, Counted, Order};
use super::words::visible;
use crate::values::{priority, span};

/// Where the change is: its form, the server that was asked, a dry run that has counted, a job, or a refusal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    Form,
    Waiting,
    Counted(Counted),
    Running { tube: String, job: u64, scanned: u64, total: u64 },
    Refused(String),
}

/// A change that is being decided.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dialog {
    pub(super) title: String,
    pub(super) says: &'static str,
    /// The question or order that Enter sends, once the fields are filled in.
    pub(super) ask: Ask,
    /// Names and texts.
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) focus: usize,
    pub(super) stage: Stage,
    pub(super) notice: Option<String>,
}

const REASON: &str = "Reason, for the audit log";
const TO: &str = "To the tube";
const DELAY: &str = "Delay, such as 10m; 0: none";
const PRIORITY: &str = "Priority, lower first";

fn says(operation: &Operation) -> (&'static str, &'static str) {
    match operation {
        Operation::Kick => ("Kick", "Buried tasks become ready; their attempts are counted anew."),
        Operation::Release => {
            ("Release", "Taken tasks leave their workers and become ready: work may be done twice. No undo.")
        }
        Operation::Run => ("Run now", "Delayed tasks become ready."),
        Operation::Reschedule { .. } => {
            ("Reschedule", "Ready and delayed tasks get this delay, counted from now, and this priority.")
        }
        Operation::Bury => ("Bury", "Tasks are set aside until a kick."),
        Operation::Delete => ("Delete", "Tasks are deleted. For an hour U brings them back."),
        Operation::Move { .. } => ("Move", "Tasks move to another tube, with new ids."),
    }
}

impl Dialog {
    fn new(title: String, says: &'static str, ask: Ask, fields: &[&'static str]) -> Self {
        let fields = fields.iter().map(|name| (*name, String::new())).collect();
        Self { title, says, ask, fields, focus: 0, stage: Stage::Form, notice: None }
    }

    pub(super) fn order(order: Order, what: &str) -> Self {
        let (name, says) = says(&order.operation);
        let title = format!("{name}: {} of {}", visible(what), visible(&order.tube));
        let fields: &[&str] = match order.operation {
            Operation::Move { .. } => &[TO, REASON],
            Operation::Reschedule { .. } => &[DELAY, PRIORITY, REASON],
            _ => &[REASON],
        };
        Self::new(title, says, Ask::Count(order), fields)
    }

    pub(super) fn pause(tube: &str, is_paused: bool) -> Self {
        let (name, says) = match is_paused {
            true => (
                "Pause",
                "The tube hands out no task until it is resumed, also after a restart. Puts and acks go on.",
            ),
            false => ("Resume", "The tube hands out tasks again, to waiting calls at once."),
        };
        let ask = Ask::Pause { tube: tube.to_owned(), is_paused, reason: None };
        Self::new(format!("{name}: tube {}", visible(tube)), says, ask, &[REASON])
    }

    pub(super) fn undo(tube: &str, job: u64) -> Self {
        let title = format!("Undo job {job} of {}", visible(tube));
        let says = "A task comes back unless something has happened to it since.";
        Self::new(title, says, Ask::Undo { tube: tube.to_owned(), job }, &[])
    }

    pub(super) fn cancel(tube: &str, job: u64) -> Self {
        let title = format!("Cancel job {job} of {}", visible(tube));
        let says = "Tasks that it has changed stay changed; an undo brings them back.";
        let ask = Ask::Control { tube: tube.to_owned(), job, action: Control::Cancel };
        Self::new(title, says, ask, &[])
    }

    pub(super) fn transfer(node: u64, address: &str) -> Self {
        let title = format!("Transfer: node {node} at {} leads", visible(address));
        let says = "Clients go on at the new leader. A call in flight may get OUTCOME_UNKNOWN.";
        Self::new(title, says, Ask::Transfer { node, reason: None }, &[REASON])
    }

    /// The text of a field, unless it is empty.
    fn field(&self, wanted: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, text)| text.as_str()).filter(|text| !text.is_empty())
    }

    /// The operation with what the fields say.
    fn operation(&self, operation: &Operation) -> Result<Operation, String> {
        match operation {
            Operation::Move { .. } => match self.field(TO) {
                Some(to) => Ok(Operation::Move { to: to.to_owned() }),
                None => Err("name the tube that the tasks move to".to_owned()),
            },
            Operation::Reschedule { .. } => {
                let delay =
                    self.field(DELAY).map(span).transpose().map_err(|fault| format!("delay: {fault}"))?;
                let priority = self.field(PRIORITY).map(priority).transpose();
                let priority = priority.map_err(|fault| format!("priority: {fault}"))?;
                if delay.is_none() && priority.is_none() {
                    return Err("give a delay, a priority, or both".to_owned());
                }
                Ok(Operation::Reschedule { delay, priority })
            }
            other => Ok(other.clone()),
        }
    }

    /// The next step: the count, or the change itself where there is nothing to count. The error is the fault of the fields.
    pub(super) fn begin(&mut self) -> Result<Ask, String> {
        let given = self.field(REASON).map(str::to_owned);
        let mut ask = self.ask.clone();
        match &mut ask {
            Ask::Count(order) => {
                order.operation = self.operation(&order.operation)?;
                order.reason = given;
            }
            Ask::Pause { reason, .. } | Ask::Transfer { reason, .. } => *reason = given,
            _ => {}
        }
        (self.stage, self.notice, self.ask) = (Stage::Waiting, None, ask.clone());
        Ok(ask)
    }

    pub(super) fn type_in(&mut self, key: KeyCode) {
        let count = self.fields.len();
        match key {
            KeyCode::Tab | KeyCode::Down if count > 0 => self.focus = (self.focus + 1) % count,
            KeyCode::BackTab | KeyCode::Up if count > 0 => self.focus = (self.focus + count - 1) % count,
            key => {
                let Some((_, text)) = self.fields.get_mut(self.focus) else { return };
                match key {
                    KeyCode::Backspace => drop(text.pop()),
                    KeyCode::Char(character) => text.push(character),
                    _ => {}
                }
            }
        }
    }
}
