//! Orders that a member has the leader carry out, such as requests over HTTP: when a failed attempt is made again, and what the client
//! hears if none succeeds.
//!
//! | an attempt | then |
//! |---|---|
//! | was not carried out, because no member leads or the leader hands over | the order waits for a leader, at most [`LEADERLESS`], and is sent again |
//! | was not answered when the leader changed | its outcome is unknown; the order is sent again where a repetition does no harm |
//!
//! *Invariant:* no order that may have been carried out is answered with an error that says the opposite.
//!
//! Absent: connections, the clock, and the question who leads.

use std::time::{Duration, Instant};

use lycosa_instance::{Forwarded, HANDING_OVER, OUTCOME_UNKNOWN};
use lycosa_iproto::error::{ErrorCode, ErrorObject};

use super::relay::outcome_unknown;

/// How long a member has no leader before its clients hear that.
pub const LEADERLESS: Duration = Duration::from_secs(2);
/// The name of the kind of error (field `name` of the error object) of a request that found no leader.
pub const NO_LEADER: &str = "NO_LEADER";

/// The answer to a request that waited for a leader in vain.
pub fn no_leader() -> ErrorObject {
    let message = "the group has no leader now: a majority of its voters has to run and reach each other. Nothing was done: try \
                   again";
    ErrorObject::client(ErrorCode::Loading, message).with_name(NO_LEADER)
}

/// Why an attempt has no outcomes for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// The order was not carried out.
    NotDone,
    /// The order may have been carried out: it was sent, and the leader is gone or has lost its rows.
    Unknown,
}

impl Setback {
    /// What the outcomes of an order's calls say of the leader. `None`: the outcomes are for the client. `is_harmless`: of a repetition
    /// of the order.
    pub fn told_by<T>(outcomes: &[Result<T, ErrorObject>], is_harmless: bool) -> Option<Self> {
        let all_are = |names: &[&str]| {
            let is_one = |outcome: &Result<T, ErrorObject>| {
                outcome.as_ref().is_err_and(|error| error.name().is_some_and(|name| names.contains(&name)))
            };
            !outcomes.is_empty() && outcomes.iter().all(is_one)
        };
        if all_are(&[HANDING_OVER, NO_LEADER]) {
            Some(Self::NotDone)
        } else {
            (is_harmless && all_are(&[OUTCOME_UNKNOWN])).then_some(Self::Unknown)
        }
    }
}

/// The rows of an order were lost for the reason `error`: so are its outcomes, unless they say that nothing was done.
pub fn lose<T>(outcomes: &mut [Result<T, ErrorObject>], error: &ErrorObject) {
    if Setback::told_by(outcomes, false) != Some(Setback::NotDone) {
        outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone()));
    }
}

/// The attempts at an order so far.
#[derive(Debug)]
pub struct Attempts {
    /// A repetition of the order does no harm.
    is_harmless: bool,
    /// An attempt has an unknown outcome.
    may_be_done: bool,
    /// A leader has had the order.
    was_sent: bool,
    /// When the order stops waiting for a leader.
    until: Instant,
}

impl Attempts {
    /// An order whose repetition does no harm, or may do some.
    pub fn new(is_harmless: bool, now: Instant) -> Self {
        Self { is_harmless, may_be_done: false, was_sent: false, until: now + LEADERLESS }
    }

    /// The same behind the attempt of this member, if the member made one as the leader.
    pub fn behind(self, own: Option<Setback>) -> Self {
        Self { was_sent: own.is_some(), ..self }
    }

    /// A leader has the order now. Returns the member's counts of this attempt.
    pub fn sent(&mut self) -> Forwarded {
        let repeated = u64::from(std::mem::replace(&mut self.was_sent, true));
        Forwarded { requests: 1, repeated, unknown: 0 }
    }

    /// The error for the client; `None`: the order is to be sent again.
    pub fn failed(&mut self, setback: Setback, now: Instant) -> Option<ErrorObject> {
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
    use super::*;

    fn name(error: Option<ErrorObject>) -> Option<String> {
        error.map(|error| error.name().expect("a name").to_owned())
    }

    #[test]
    fn an_order_that_was_not_done_waits_for_a_leader_and_hears_that_nothing_was_done() {
        let start = Instant::now();
        for is_harmless in [false, true] {
            let mut attempts = Attempts::new(is_harmless, start);
            let soon = start + LEADERLESS - Duration::from_micros(1);
            assert_eq!(attempts.failed(Setback::NotDone, soon), None);
            let late = attempts.failed(Setback::NotDone, start + LEADERLESS);
            assert_eq!(name(late).as_deref(), Some(NO_LEADER));
        }
    }

    #[test]
    fn an_order_that_may_have_been_done_is_sent_again_where_that_does_no_harm() {
        let start = Instant::now();
        let unknown = Attempts::new(false, start).failed(Setback::Unknown, start);
        assert_eq!(name(unknown).as_deref(), Some(OUTCOME_UNKNOWN));
        let mut attempts = Attempts::new(true, start);
        // The order waits for the next leader as long as for the first one, and never hears that nothing was done.
        let lost = start + LEADERLESS;
        assert_eq!(attempts.failed(Setback::Unknown, lost), None);
        let soon = lost + LEADERLESS - Duration::from_micros(1);
        assert_eq!(attempts.failed(Setback::NotDone, soon), None);
        let late = attempts.failed(Setback::NotDone, lost + LEADERLESS);
        assert_eq!(name(late).as_deref(), Some(OUTCOME_UNKNOWN));
    }

    #[test]
    fn an_attempt_behind_the_first_that_reached_a_leader_is_a_repetition() {
        let now = Instant::now();
        let count = |repeated| Forwarded { requests: 1, repeated, unknown: 0 };
        let mut attempts = Attempts::new(true, now);
        // Without a leader the order was not sent.
        assert_eq!(attempts.failed(Setback::NotDone, now), None);
        assert_eq!(attempts.sent(), count(0));
        for setback in [Setback::NotDone, Setback::Unknown] {
            assert_eq!(attempts.failed(setback, now), None);
            assert_eq!(attempts.sent(), count(1));
        }
        let mut attempts = Attempts::new(true, now).behind(Some(Setback::NotDone));
        assert_eq!(attempts.sent(), count(1), "this member led before");
    }

    #[test]
    fn a_leader_s_refusal_about_itself_is_told_from_an_answer() {
        let refused = |name: &str| Err(ErrorObject::client(ErrorCode::Readonly, "no").with_name(name));
        for is_harmless in [false, true] {
            let told = |outcomes: &[Result<u8, ErrorObject>]| Setback::told_by(outcomes, is_harmless);
            for name in [HANDING_OVER, NO_LEADER] {
                assert_eq!(told(&[refused(name), refused(HANDING_OVER)]), Some(Setback::NotDone));
            }
            assert_eq!(told(&[]), None);
            assert_eq!(told(&[refused("NO_SUCH_TUBE")]), None);
            assert_eq!(told(&[Ok(1), refused(HANDING_OVER)]), None, "done in part");
            let unknown = is_harmless.then_some(Setback::Unknown);
            assert_eq!(told(&[Err(outcome_unknown())]), unknown);
            let mut outcomes = [Ok(1), refused(HANDING_OVER)];
            lose(&mut outcomes, &outcome_unknown());
            assert_eq!(told(&outcomes), unknown, "what was done was lost");
            let mut outcomes = [refused(HANDING_OVER)];
            lose(&mut outcomes, &outcome_unknown());
            assert_eq!(told(&outcomes), Some(Setback::NotDone), "nothing was done");
        }
    }
}
