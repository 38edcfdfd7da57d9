//! The standing of servers that take writes, by which a client finds the master.
//!
//! Two take writes after a fail-over whose old master was cut off or frozen and came back. The old one does not know that
//! it was replaced, so each is asked for its ballot and the two are compared: first whether a server confirms changes at
//! all, then how many replicas follow it, at last whether it has everything that the other one has. The order is strict:
//! of two servers at most one outranks the other, so a client that only goes to a server that outranks its own does not
//! go to and fro.
//!
//! Absent: elections. If neither outranks the other, clients stay where they are.

use std::cmp::Ordering;

use lycosa_iproto::keys::ballot;
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::error::{Error, Result};

/// What a server says about itself as a master.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standing {
    pub(crate) takes_writes: bool,
    /// How many registered replicas follow it, and how many of them each reply waits for; `None` if it does not say, as a
    /// Tarantool or a server without replicas.
    replicas: Option<(u64, u64)>,
    vclock: Vclock,
    /// Of a member of a group: whether it passes requests on to the leader.
    forwards: Option<bool>,
}

impl Standing {
    /// Reads the answer to VOTE.
    pub(crate) fn of_ballot(vote: &Value) -> Result<Self> {
        let Value::Map(vote) = vote else { return Err(Error::protocol("a vote is a map")) };
        let field = |key: u8| {
            vote.iter().find(|(known, _)| known.as_u64() == Some(key.into())).map(|(_, value)| value)
        };
        let number = |key: u8| field(key).and_then(Value::as_u64);
        let vclock = match field(ballot::VCLOCK) {
            Some(clock) => Vclock::decode(&mut Reader::new(&clock.encode()))
                .map_err(|_| Error::protocol("a vote has a vclock"))?
                .replicated(),
            None => Vclock::new(),
        };
        let following = number(ballot::REPLICAS_FOLLOWING);
        let election = field(ballot::ELECTION).and_then(Value::as_array);
        Ok(Self {
            takes_writes: field(ballot::IS_READ_ONLY).and_then(Value::as_bool) != Some(true),
            replicas: following.zip(number(ballot::REPLICAS_BEFORE_REPLY)),
            vclock,
            forwards: election.map(|election| election.get(1).and_then(Value::as_bool) == Some(true)),
        })
    }

    /// Whether the server is a member of a group.
    pub(crate) fn is_in_group(&self) -> bool {
        self.forwards.is_some()
    }

    /// Whether the server passes requests on to the leader of its group.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.forwards == Some(true)
    }

    /// Whether it can be the only master: it confirms changes, and replicas follow it if it has any.
    pub(crate) fn is_sound(&self) -> bool {
        self.takes_writes && self.confirms() && self.replicas.is_none_or(|(following, _)| following > 0)
    }

    fn confirms(&self) -> bool {
        self.replicas.is_none_or(|(following, wanted)| following >= wanted)
    }

    /// Whether this server is the master rather than `other`.
    pub(crate) fn outranks(&self, other: &Self) -> bool {
        let following = |standing: &Self| standing.replicas.map(|(following, _)| following);
        let by_replicas = match (following(self), following(other)) {
            (Some(own), Some(others)) => own.cmp(&others),
            _ => Ordering::Equal,
        };
        let order = self.takes_writes.cmp(&other.takes_writes);
        match order.then(self.confirms().cmp(&other.confirms())).then(by_replicas) {
            Ordering::Equal => self.vclock > other.vclock,
            order => order == Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(replicas: Option<(u64, u64)>, clock: &[(u32, u64)]) -> Standing {
        let mut vclock = Vclock::new();
        clock.iter().for_each(|&(id, lsn)| vclock.set(id, lsn).expect("an id below 32"));
        Standing { takes_writes: true, replicas, vclock, forwards: None }
    }

    /// The old master came back with rows of its own, or without any, while another one leads.
    const REPLACED: [(u32, u64); 1] = [(1, 120)];
    const STOPPED: [(u32, u64); 1] = [(1, 100)];
    const NEW: [(u32, u64); 2] = [(1, 100), (2, 30)];

    #[test]
    fn the_newer_master_outranks_the_old_one() {
        let cases = [
            // Three instances: one of them follows the new master.
            (server(Some((1, 1)), &NEW), server(Some((0, 1)), &REPLACED)),
            (server(Some((1, 0)), &NEW), server(Some((0, 0)), &REPLACED)),
            (server(Some((2, 1)), &NEW), server(Some((1, 1)), &REPLACED)),
            // A pair: an order tells the new one to go on alone.
            (server(Some((0, 0)), &NEW), server(Some((0, 1)), &REPLACED)),
            // Both alone: the new one has everything that the old one has.
            (server(Some((0, 1)), &NEW), server(Some((0, 1)), &STOPPED)),
            (server(Some((0, 0)), &NEW), server(Some((0, 0)), &STOPPED)),
            // The old one is a Tarantool, which does not tell who follows it.
            (server(Some((0, 0)), &NEW), server(None, &STOPPED)),
            // A server that takes no writes is no master, even with more rows.
            (server(Some((0, 1)), &STOPPED), Standing { takes_writes: false, ..server(Some((1, 1)), &NEW) }),
        ];
        for (new, old) in cases {
            assert!(new.outranks(&old), "{new:?} {old:?}");
            assert!(!old.outranks(&new), "{new:?} {old:?}");
        }
    }

    #[test]
    fn without_a_difference_neither_outranks_the_other() {
        let cases = [
            // Both alone, and both have written: undecidable.
            (server(Some((0, 1)), &NEW), server(Some((0, 1)), &REPLACED)),
            (server(Some((0, 0)), &NEW), server(Some((0, 0)), &REPLACED)),
            // Two masters that follow each other.
            (server(Some((1, 1)), &NEW), server(Some((1, 1)), &NEW)),
            (server(None, &NEW), server(None, &REPLACED)),
        ];
        for (one, other) in cases {
            assert!(!one.outranks(&other) && !other.outranks(&one), "{one:?} {other:?}");
        }
    }

    #[test]
    fn ballots() {
        let ballot = |fields: &[(u8, Value)]| {
            Value::Map(
                fields.iter().map(|(key, value)| (Value::from(u64::from(*key)), value.clone())).collect(),
            )
        };
        let clock = Value::map([(0, 5_u64), (1, 7)]);
        let of_tarantool = ballot(&[(ballot::IS_READ_ONLY, false.into()), (ballot::VCLOCK, clock)]);
        assert_eq!(Standing::of_ballot(&of_tarantool).expect("a ballot"), server(None, &[(1, 7)]));
        let following =
            [(ballot::REPLICAS_FOLLOWING, 2_u64.into()), (ballot::REPLICAS_BEFORE_REPLY, 1_u64.into())];
        let told = Standing::of_ballot(&ballot(&following)).expect("a ballot");
        assert_eq!(told, server(Some((2, 1)), &[]));
        assert!(told.is_sound());
        assert!(Standing::of_ballot(&Value::from(1_u64)).is_err());
        assert!(Standing::of_ballot(&ballot(&[(ballot::VCLOCK, Value::Nil)])).is_err());
    }
}
