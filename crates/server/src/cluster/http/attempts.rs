//! Attempts at an order, and what its client hears when they fail.
//!
//! *Invariant:* no order that may have been carried out is answered with an error that says the opposite.

use lycosa_engine::group::relay::outcome_unknown;
use lycosa_instance::{HANDING_OVER, OUTCOME_UNKNOWN};
use lycosa_iproto::error::ErrorObject;
use tokio::time::Instant;

use crate::cluster::clients::{LEADERLESS, NO_LEADER, no_leader};
use crate::http::bridge::{Outcome, Repetition};

/// Why an attempt has no outcomes for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setback {
    /// The order was not carried out.
    NotDone,
    /// The order may have been carried out: it was sent, and the leader is gone or has lost its rows.
    Unknown,
}

impl Setback {
    /// What outcomes say of the leader that has answered them. `None`: they are for the client.
    pub(crate) fn told_by(outcomes: &[Outcome], repetition: &Repetition) -> Option<Self> {
        let all_are = |names: &[&str]| {
            let is_one = |outcome: &Outcome| {
                outcome.as_ref().is_err_and(|error| error.name().is_some_and(|name| names.contains(&name)))
            };
            !outcomes.is_empty() && outcomes.iter().all(is_one)
        };
        if all_are(&[HANDING_OVER, NO_LEADER]) {
            Some(Self::NotDone)
        } else {
            (repetition.is_harmless() && all_are(&[OUTCOME_UNKNOWN])).then_some(Self::Unknown)
        }
    }
}

/// The attempts at an order so far.
pub(super) struct Attempts {
    /// A repetition of the order does no harm.
    is_harmless: bool,
    /// An attempt has an unknown outcome.
    may_be_done: bool,
    /// When the order stops waiting for a leader.
    until: Instant,
}

impl Attempts {
    pub(super) fn new(repetition: &Repetition, now: Instant) -> Self {
        Self { is_harmless: repetition.is_harmless(), may_be_done: false, until: now + LEADERLESS }
    }

    /// The error for the client; `None`: the order is to be sent again.
    pub(super) fn failed(&mut self, setback: Setback, now: Instant) -> Option<ErrorObject> {
        match setback {
            Setback::Unknown if !self.is_harmless => Some(outcome_unknown()),
            Setback::Unknown => {
                (self.may_be_done, self.until) = (true, now + LEADERLESS);
                None
            }
            Setback::NotDone if now < self.until => None,
            Setback::NotDone if self.may_be_done => Some(outcome_unknown()),
            Setback::NotDone => Some(no_leader()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lycosa_instance::Once;
    use lycosa_iproto::error::ErrorCode;

    use super::*;
    use crate::http::bridge::Values;

    fn harmless() -> [Repetition; 3] {
        let once = Once { key: "k".to_owned(), fingerprint: "f".to_owned(), window: 7 };
        [Repetition::Reads, Repetition::Leases, Repetition::Once(once)]
    }

    fn name(error: Option<ErrorObject>) -> Option<String> {
        error.map(|error| error.name().expect("a name").to_owned())
    }

    #[test]
    fn an_order_that_was_not_done_waits_for_a_leader_and_hears_that_nothing_was_done() {
        let start = Instant::now();
        for repetition in harmless().into_iter().chain([Repetition::ActsAgain]) {
            let mut attempts = Attempts::new(&repetition, start);
            let soon = start + LEADERLESS - Duration::from_micros(1);
            assert_eq!(attempts.failed(Setback::NotDone, soon), None);
            let late = attempts.failed(Setback::NotDone, start + LEADERLESS);
            assert_eq!(name(late).as_deref(), Some(NO_LEADER));
        }
    }

    #[test]
    fn an_order_that_may_have_been_done_is_sent_again_where_that_does_no_harm() {
        let start = Instant::now();
        let mut attempts = Attempts::new(&Repetition::ActsAgain, start);
        let unknown = attempts.failed(Setback::Unknown, start);
        assert_eq!(name(unknown).as_deref(), Some(OUTCOME_UNKNOWN));
        for repetition in harmless() {
            let mut attempts = Attempts::new(&repetition, start);
            // The order waits for the next leader as long as for the first one, and never hears that nothing was done.
            let lost = start + LEADERLESS;
            assert_eq!(attempts.failed(Setback::Unknown, lost), None);
            let soon = lost + LEADERLESS - Duration::from_micros(1);
            assert_eq!(attempts.failed(Setback::NotDone, soon), None);
            let late = attempts.failed(Setback::NotDone, lost + LEADERLESS);
            assert_eq!(name(late).as_deref(), Some(OUTCOME_UNKNOWN));
        }
    }

    #[test]
    fn a_leader_s_refusal_about_itself_is_told_from_an_answer() {
        let done = || Ok(Values { count: 1, bytes: vec![9] });
        let refused = |name: &str| Err(ErrorObject::client(ErrorCode::Readonly, "no").with_name(name));
        for repetition in harmless().into_iter().chain([Repetition::ActsAgain]) {
            let told = |outcomes: &[Outcome]| Setback::told_by(outcomes, &repetition);
            for name in [HANDING_OVER, NO_LEADER] {
                assert_eq!(told(&[refused(name), refused(HANDING_OVER)]), Some(Setback::NotDone));
            }
            assert_eq!(told(&[]), None);
            assert_eq!(told(&[refused("NO_SUCH_TUBE")]), None);
            assert_eq!(told(&[done(), refused(HANDING_OVER)]), None, "done in part");
            let unknown = repetition.is_harmless().then_some(Setback::Unknown);
            assert_eq!(told(&[Err(outcome_unknown())]), unknown, "{repetition:?}");
        }
    }
}
