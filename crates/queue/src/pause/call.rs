//! `pause` and `resume`, and the drivers of tubes that they change.

use lycosa_tuple::mp;

use super::Pause;
use crate::Answer;
use crate::audit::{Steered, reason};
use crate::command::Call;
use crate::error::{Error, Result};
use crate::tube_call::TubeCall;
use crate::turn::{CatalogTurn, Turn};

impl TubeCall<'_> {
    /// `pause([{reason}])` and `resume([{reason}])`. Replies whether anything has changed.
    pub(crate) fn set_paused(&mut self, paused: bool, out: &mut Vec<u8>) -> Result<Answer> {
        let operation = if paused { "pause" } else { "resume" };
        if self.turn.store.in_transaction() {
            return Err(Error::InTransaction(operation));
        }
        let Call { index, caller, arguments, .. } = self.call;
        let reason = reason(operation, arguments.present(0))?;
        let Some(tube) = self.turn.tubes.at(index) else { return Err(Error::Stale) };
        let (id, name, was_paused) = (tube.id, tube.name.clone(), tube.paused);
        if was_paused != paused {
            self.turn.transact(|turn| {
                let Turn { store, common, now, .. } = turn;
                if paused {
                    let user = common.actor_name(store, caller.session, caller.effective).into_bytes();
                    let pause = Pause { since: *now, user, reason: reason.clone() };
                    common.pauses.write(store, id, &pause)?;
                } else {
                    common.pauses.forget(store, id)?;
                }
                let entry = Steered { tube: &name, operation, job: None, reason: &reason };
                turn.audit().note(caller, &entry)
            })?;
            if let Some(tube) = self.turn.tubes.at_mut(index) {
                tube.set_paused(paused);
            }
            // Calls that waited while the tube was paused.
            self.turn.common.ready.push(index);
        }
        mp::write_bool(out, was_paused != paused);
        Ok(Answer::one())
    }
}

impl CatalogTurn<'_> {
    /// Rows of another origin may have paused or resumed any tube.
    pub(crate) fn find_pauses(&mut self) {
        self.turn.common.pauses.find(self.turn.store);
        let tubes: Vec<_> = self.turn.tubes.indexes().collect();
        for index in tubes {
            let Some(tube) = self.turn.tubes.at_mut(index) else { continue };
            match self.turn.common.pauses.of(self.turn.store, tube.id) {
                Ok(pause) => tube.set_paused(pause.is_some()),
                Err(error) => self.turn.common.log_failure("a look at the paused tubes", &error),
            }
            self.turn.common.ready.push(index);
        }
    }
}
