//! What workers ask for beyond the Lua module: the extended form of tasks, takes with names that they make again, reasons of
//! failures, and headers.
//!
//! Half of the worlds of tubes have such workers ([`crate::plan::has_workers`]); the other worlds have none of these requests.

use std::collections::VecDeque;

use lycosa_tuple::value::Value;

use crate::random::Random;
use crate::request::Span;

/// The one header that a task may have; its text is a number.
pub(crate) const HEADER: &str = "origin";

/// The reasons that workers give.
pub(crate) const REASONS: [&str; 2] = ["exit code 3", "no such host"];

/// The form in which a take wants its tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Plain,
    Extended,
    /// Extended, for leases of that span.
    Leased(Span),
}

/// The options of a take about its repetition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// The name of the take, if the take has one.
    pub(crate) name: Option<u64>,
    /// Greater with each repetition; 0 for the first call.
    pub(crate) attempt: u64,
}

/// The options of a take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TakeOptions {
    pub(crate) form: Form,
    pub(crate) repeat: Repeat,
}

impl TakeOptions {
    /// The name of the take, unless the take is for a lease.
    pub(crate) fn name(&self) -> Option<u64> {
        self.repeat.name.filter(|_| !matches!(self.form, Form::Leased(_)))
    }

    pub(crate) fn is_extended(&self) -> bool {
        self.form == Form::Extended
    }

    /// As a worker writes them; `None` if there are none.
    pub(crate) fn value(&self) -> Option<Value> {
        let mut members: Vec<(&str, Value)> = match self.form {
            Form::Plain => vec![],
            Form::Extended => vec![("extended", true.into())],
            Form::Leased(span) => vec![("lease", span.value())],
        };
        members.extend(self.repeat.name.map(|name| ("request", Value::bin(take_name(name)))));
        members.extend((self.repeat.attempt > 0).then(|| ("again", self.repeat.attempt.into())));
        (!members.is_empty()).then(|| Value::map(members))
    }
}

/// The bytes of a take's name.
pub(crate) fn take_name(number: u64) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

/// Reads what [`take_name`] has made.
pub(crate) fn read_take_name(name: &[u8]) -> Option<u64> {
    u64::try_from(u128::from_be_bytes(name.try_into().ok()?)).ok()
}

/// What a worker says of a task that it gives back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Remark {
    /// Why the task has failed.
    pub(crate) reason: Option<&'static str>,
    /// The take was no attempt.
    pub(crate) is_untried: bool,
}

impl Remark {
    /// The options that tell it.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let reason = self.reason.map(|reason| ("reason", Value::str(reason)));
        let untried = self.is_untried.then(|| ("attempted", false.into()));
        reason.into_iter().chain(untried)
    }
}

/// A map of headers, as a producer writes it. 0: an empty one.
pub(crate) fn headers(number: u8) -> Value {
    Value::map((number > 0).then(|| (HEADER, Value::str(number.to_string()))))
}

/// Reads what [`headers`] has made.
pub(crate) fn read_headers(headers: &Value) -> Option<u8> {
    headers.get(HEADER)?.as_str()?.parse().ok()
}

/// A take that had a name.
#[derive(Debug, Clone, Copy)]
struct Named {
    connection: u64,
    tube: usize,
    name: u64,
}

/// The names of takes, each of which is given once.
#[derive(Debug, Default)]
pub(crate) struct TakeNames {
    last: u64,
    recent: VecDeque<Named>,
}

impl TakeNames {
    /// Takes that may be made again.
    const KEPT: usize = 12;

    /// Draws the options of a take.
    pub(crate) fn draw(
        &mut self,
        random: &mut Random,
        form: Form,
        connection: u64,
        tube: usize,
    ) -> TakeOptions {
        let is_extended = form == Form::Plain && random.one_in(2);
        let form = if is_extended { Form::Extended } else { form };
        let repeat = match random.below(6) {
            0..=1 => Repeat::default(),
            2..=3 => self.first(connection, tube),
            _ => {
                let is_any = random.one_in(4);
                let is_meant =
                    |named: &&Named| is_any || (named.connection, named.tube) == (connection, tube);
                let meant: Vec<u64> = self.recent.iter().filter(is_meant).map(|named| named.name).collect();
                match meant.is_empty() {
                    true => self.first(connection, tube),
                    false => Repeat { name: Some(*random.pick(&meant)), attempt: random.below(4) },
                }
            }
        };
        TakeOptions { form, repeat }
    }

    fn first(&mut self, connection: u64, tube: usize) -> Repeat {
        self.last += 1;
        self.recent.push_back(Named { connection, tube, name: self.last });
        if self.recent.len() > Self::KEPT {
            self.recent.pop_front();
        }
        Repeat { name: Some(self.last), attempt: 0 }
    }
}

/// Draws what a worker says of a task.
pub(crate) fn remark(random: &mut Random) -> Remark {
    let reason = random.one_in(2).then(|| *random.pick(&REASONS));
    Remark { reason, is_untried: random.one_in(4) }
}
