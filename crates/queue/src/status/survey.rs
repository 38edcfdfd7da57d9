//! A survey of all tubes for an overview: sums, and the tubes with a fault.
//!
//! An overview of thousands of tubes needs the status of few of them. A survey looks at every tube in steps, copies nothing, and
//! keeps the ids of the gravest faults; [`Queue::status_of_id`] then gives the status of these tubes, with their issues. The
//! rules stand in [`super::issue`].

use lycosa_store::{Budget, Store};

use super::issue::{Fault, Gravity, TubeFacts};
use super::view::{Page, TubeStatus};
use crate::Queue;
use crate::error::Result;
use crate::tube::Tube;
use crate::tube::handle::TubeIndex;
use crate::waiter::Line;

/// What the steps of a survey have found. Times are in µs.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Tubes that were looked at.
    pub tubes: usize,
    /// Calls that wait for tasks.
    pub waiting_takes: u64,
    /// The age of the oldest ready task, as far as tubes know it.
    pub oldest_ready_age: Option<u64>,
    /// Tubes with a fault.
    pub faulty: usize,
    /// The gravest of these, with their ids.
    found: Vec<(Gravity, u64)>,
}

impl Survey {
    /// Ids of tubes that are kept at most.
    pub const MAX_FOUND: usize = 50;

    /// The ids of the tubes with the gravest faults; among equals in the order of ids.
    #[must_use]
    pub fn gravest(mut self) -> Vec<u64> {
        self.keep_gravest();
        self.found.into_iter().map(|(_, id)| id).collect()
    }

    fn keep_gravest(&mut self) {
        self.found.sort_unstable();
        self.found.truncate(Self::MAX_FOUND);
    }

    fn add(&mut self, gravity: Gravity, id: u64) {
        self.faulty += 1;
        self.found.push((gravity, id));
        if self.found.len() >= 2 * Self::MAX_FOUND {
            self.keep_gravest();
        }
    }
}

impl Queue {
    /// Looks at tubes behind the id `after`, and returns the id behind which to go on, if there are more. A look-up in an index is
    /// a row of the budget, and so is a tube; at least one tube is looked at.
    ///
    /// # Errors
    /// A space or an index of a tube is gone.
    pub fn survey(
        &self,
        store: &Store,
        mut after: Option<u64>,
        mut budget: Budget<'_>,
        now: u64,
        survey: &mut Survey,
    ) -> Result<Option<u64>> {
        while !budget.is_spent() {
            let Some((id, index)) = self.tubes.next(after, false) else { return Ok(None) };
            after = Some(id);
            budget.spend_rows(1);
            let Some(tube) = self.tubes.at(index) else { continue };
            survey.tubes += 1;
            if let Some(gravity) = self.look_at(store, (index, tube), &mut budget, now, survey)? {
                survey.add(gravity, id);
            }
        }
        Ok(after)
    }

    /// The status of a tube; None: it was dropped.
    ///
    /// # Errors
    /// As [`Self::statuses`].
    pub fn status_of_id(&self, store: &Store, id: u64, now: u64) -> Result<Option<TubeStatus>> {
        let found = self.tubes.by_id(id).and_then(|index| Some((index, self.tubes.at(index)?)));
        let page = Page { issues: true, ..Page::default() };
        found.map(|tube| self.common.status_of(store, tube, page, now)).transpose()
    }

    /// Adds a tube to the sums of the survey, and returns how grave its gravest fault is.
    fn look_at(
        &self,
        store: &Store,
        (index, tube): (TubeIndex, &Tube),
        budget: &mut Budget<'_>,
        now: u64,
        survey: &mut Survey,
    ) -> Result<Option<Gravity>> {
        let tasks = tube.counts.shown();
        let waiting = self.common.waiters.count(index, Line::Takes);
        survey.waiting_takes += u64::from(waiting);
        let since = if tasks.ready > 0 { tube.oldest_ready(store, budget)? } else { None };
        let age = since.map(|since| now.saturating_sub(since));
        survey.oldest_ready_age = survey.oldest_ready_age.max(age);
        let held = if tasks.taken > 0 {
            budget.spend_rows(2);
            self.common.oldest_taken(store, tube)?.map(|since| now.saturating_sub(since))
        } else {
            None
        };
        let is_taken_from = || {
            let rates = tube.meter.as_deref().map(|meter| meter.pace.rates(now, &tube.counters));
            rates.is_some_and(|rates| rates.takes[0] > 0.0)
        };
        let facts = TubeFacts {
            tasks,
            is_paused: tube.paused,
            waiting_takes: waiting,
            oldest_ready_age: age,
            oldest_taken_age: held,
            capacity: tube.driver.capacity(),
            busy_keys: tube.driver.candidates().map_or(0, |keys| keys.busy() as u64),
        };
        Ok(facts.faults(is_taken_from).map(Fault::gravity).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_faults_are_kept_whatever_their_order() {
        let mut survey = Survey::default();
        for id in 0..1000 {
            let gravity = match id {
                777 => Gravity::Bad,
                id if id % 2 == 0 => Gravity::Note,
                _ => Gravity::Warn,
            };
            survey.add(gravity, id);
        }
        assert_eq!(survey.faulty, 1000);
        let found = survey.gravest();
        let warned = (0..1000).filter(|id| id % 2 == 1 && *id != 777).take(Survey::MAX_FOUND - 1);
        assert_eq!(found, std::iter::once(777).chain(warned).collect::<Vec<_>>());
    }
}
