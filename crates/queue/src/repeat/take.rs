//! Takes that are made again: the tasks that the session got answer such a take, or it is made anew.

use super::{Repeat, Repeated, TakeName};
use crate::batch::{begin_taken, end_taken};
use crate::error::Result;
use crate::leases::Form;
use crate::tube_call::TubeCall;
use crate::turn::TubeTurn;
use crate::waiter::{Line, Wanted};

impl TubeCall<'_> {
    /// Looks whether a take was made before, and answers it with the tasks that its session got. If it got none, the take is to be
    /// made anew, and the call of the lost answer waits no more.
    #[inline]
    pub(crate) fn repeated(
        &mut self,
        repeat: Repeat,
        wanted: &Wanted,
        out: &mut Vec<u8>,
    ) -> Result<Repeated> {
        match repeat.name {
            Some(name) if repeat.is_again() || !self.turn.common.repetitions.is_empty() => {
                self.take_again(&name, repeat.attempt, wanted, out)
            }
            _ => Ok(Repeated::New),
        }
    }

    fn take_again(
        &mut self,
        name: &TakeName,
        attempt: u64,
        wanted: &Wanted,
        out: &mut Vec<u8>,
    ) -> Result<Repeated> {
        let Some(session) = self.turn.common.sessions.of(self.call.caller.session) else {
            return Ok(Repeated::New);
        };
        if !self.turn.common.repetitions.note(session, name, attempt) {
            return Ok(Repeated::Outdated);
        }
        if attempt == 0 {
            return Ok(Repeated::New);
        }
        let tube = self.tube()?;
        let mut tasks = tube.common.owners.named(tube.store, &session, name)?;
        tasks.retain(|(of, _)| *of == tube.tube.id);
        if tasks.is_empty() {
            self.end_lost(name);
            return Ok(Repeated::New);
        }
        let start = begin_taken(out);
        let mut count = 0;
        for (_, id) in tasks {
            let is_stored = match wanted {
                Wanted::Task(form) | Wanted::Tasks { form, .. } => tube.write_taken(id, *form, out)?,
                Wanted::Capacity(_) | Wanted::CapacityForMany { .. } => false,
            };
            count += u16::from(is_stored);
            if is_stored && matches!(wanted, Wanted::Task(_)) {
                break;
            }
        }
        match wanted {
            Wanted::Task(_) => drop(out.drain(start..start + crate::batch::TAKEN_HEADER)),
            _ => end_taken(out, start, count),
        }
        if count == 0 {
            out.truncate(start);
        }
        Ok(if count > 0 { Repeated::Answered } else { Repeated::New })
    }

    /// Ends the waiting call whose answer was lost, if it waits still: its connection may be frozen.
    fn end_lost(&mut self, name: &TakeName) {
        let call = &self.call;
        let session = self.turn.common.sessions.of(call.caller.session);
        let lost = self.turn.common.waiters.of_tube(call.index).find(|(request, waiter)| {
            waiter.name.as_ref() == Some(name)
                && waiter.wanted.line() == Line::Takes
                && *request != call.command.request
                && self.turn.common.sessions.of(waiter.connection) == session
        });
        if let Some((request, waiter)) = lost {
            let connection = waiter.connection;
            self.turn.waiters().end(connection, request);
        }
    }
}

impl TubeTurn<'_> {
    /// Appends a taken task as the take with this form did. False if no task has this id.
    fn write_taken(&self, id: u64, form: Form, out: &mut Vec<u8>) -> Result<bool> {
        match form {
            Form::Extended => self.write_extended(id, out),
            Form::Plain | Form::Leased(_) => self.write_stored(id, out),
        }
    }
}
