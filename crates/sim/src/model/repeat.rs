//! Takes with names that are made again because an answer may have been lost: see the queue's own `repeat.rs`.

use super::{Answer, Model, SessionKey};
use crate::request::Request;

impl Model {
    /// What a take with a name gets before it is looked whether there are tasks for it: what its session got by this name, or
    /// nothing if a later repetition has been made. `None`: the take is to be made.
    pub(crate) fn repeated(&mut self, connection: u64, request: &Request) -> Option<Answer> {
        let (number, options, is_one) = match *request {
            Request::Take { tube, options, .. } => (tube, options, true),
            Request::TakeMany { tube, limit, options, .. } if limit > 0 => (tube, options, false),
            _ => return None,
        };
        let tube = self.tubes.get(&number)?;
        let (name, session) = (options.name()?, *self.connections.get(&connection)?);
        let latest = self.repetitions.get(&(session, name)).copied().unwrap_or(0);
        let attempt = options.repeat.attempt;
        if attempt < latest {
            return Some(Answer::no_tasks(is_one));
        }
        if attempt == 0 {
            return None;
        }
        self.repetitions.insert((session, name), attempt);
        let is_got = |owner: super::Owner| owner.session == session && owner.name == Some(name);
        let got = tube.tasks.iter().filter(|(_, task)| task.owner.is_some_and(is_got));
        let got: Vec<Answer> = got.filter_map(|(id, _)| tube.shown(*id, options.is_extended())).collect();
        if got.is_empty() {
            self.end_lost(number, session, name);
        }
        match is_one {
            true => got.into_iter().next(),
            false => (!got.is_empty()).then(|| Answer::tasks(&got)),
        }
    }

    /// The call whose answer was lost waits no more.
    fn end_lost(&mut self, number: usize, session: SessionKey, name: u64) {
        let connections = &self.connections;
        let Some(tube) = self.tubes.get_mut(&number) else { return };
        let lost = tube.waiters.iter().position(|waiter| {
            waiter.wanted.name() == Some(name) && connections.get(&waiter.token.connection) == Some(&session)
        });
        if let Some(place) = lost {
            let waiter = tube.waiters.remove(place);
            self.woken.push((waiter.token, waiter.wanted.in_vain()));
        }
    }
}
