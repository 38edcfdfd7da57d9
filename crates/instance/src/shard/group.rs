//! A shard as a member of a group: its role, entries of other leaders, and data that are loaded anew.
//!
//! The group's journal decides when; `front/group.rs` has what becomes of connections and calls.

mod member;

use std::ops::AddAssign;

use lycosa_tuple::value::Value;

/// The state of a group's election as one member knows it: `box.info.election`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `leader`, `candidate`, `follower`, or `removed`.
    pub state: &'static str,
    /// The number of this member.
    pub node: u64,
    /// The leader's number, if the member knows one.
    pub leader: Option<u64>,
    /// The term of the election.
    pub term: u64,
    /// The members that vote.
    pub voters: u64,
    /// Entries that the group has confirmed and this member has not applied.
    pub behind: u64,
    /// Requests of the member's clients that leaders carried out.
    pub forwarded: Forwarded,
    /// All members, as this one sees them.
    pub members: Vec<GroupMember>,
}

/// Counts of requests over HTTP to a member that does not lead, and on connections that began while it did not lead, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Requests that were sent to a leader, each time that they were.
    pub requests: u64,
    /// Further attempts at such requests, because a leader was gone or handed over.
    pub repeated: u64,
    /// Requests that the member answered with the error [`OUTCOME_UNKNOWN`](crate::OUTCOME_UNKNOWN).
    pub unknown: u64,
}

impl AddAssign for Forwarded {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.repeated += other.repeated;
        self.unknown += other.unknown;
    }
}

impl Forwarded {
    fn value(self) -> Value {
        Value::map([
            ("requests", Value::from(self.requests)),
            ("repeated", self.repeated.into()),
            ("unknown", self.unknown.into()),
        ])
    }
}

/// A member of a group, as another one or itself sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its number.
    pub node: u64,
    /// Its `cluster.listen`.
    pub address: String,
    /// `voter`, `learner`, `joining` or `leaving`.
    pub standing: &'static str,
    /// Whether it is the observer itself, or connected with the observer.
    pub is_connected: bool,
    /// What the leader knows of another member; nothing elsewhere.
    pub progress: Option<MemberProgress>,
}

/// How far a member is, as its leader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// Entries of the leader's log that the member's log lacks.
    pub lag: u64,
    /// Whether the lag is small enough for the member to lead at once.
    pub is_close: bool,
    /// Whether the member has answered within the last election timeout.
    pub is_active: bool,
    /// Whether the member waits for a snapshot.
    pub awaits_snapshot: bool,
}

impl GroupMember {
    fn value(&self) -> Value {
        let mut members = vec![
            (Value::from("node"), Value::from(self.node)),
            (Value::from("address"), self.address.as_str().into()),
            (Value::from("standing"), self.standing.into()),
            (Value::from("is_connected"), Value::Bool(self.is_connected)),
        ];
        if let Some(progress) = self.progress {
            members.push((Value::from("lag"), progress.lag.into()));
            members.push((Value::from("is_active"), Value::Bool(progress.is_active)));
            members.push((Value::from("awaits_snapshot"), Value::Bool(progress.awaits_snapshot)));
        }
        Value::Map(members)
    }
}

impl Election {
    /// A map with the names of Tarantool's `box.info.election` (0: no leader is known) and Lycosa's own behind them.
    pub(crate) fn value(&self) -> Value {
        Value::map([
            ("state", Value::from(self.state)),
            ("leader", self.leader.unwrap_or(0).into()),
            ("term", self.term.into()),
            ("node", self.node.into()),
            ("voters", self.voters.into()),
            ("behind", self.behind.into()),
            ("forwarded", self.forwarded.value()),
            ("members", Value::Array(self.members.iter().map(GroupMember::value).collect())),
        ])
    }

    /// The member that leads after a transfer to `wanted`, or to the voter whose log is the longest.
    ///
    /// # Errors
    /// This member does not lead; the member that is wanted cannot lead.
    pub(crate) fn successor(&self, wanted: Option<u64>) -> Result<u64, String> {
        if self.state != "leader" {
            return Err("this member does not lead: ask the leader".to_owned());
        }
        let can_lead = |member: &&GroupMember| {
            let is_able = member.progress.is_some_and(|progress| progress.is_active && progress.is_close);
            is_able && member.node != self.node && matches!(member.standing, "voter" | "joining")
        };
        let mut able = self.members.iter().filter(can_lead);
        let successor = match wanted {
            Some(node) => able.find(|member| member.node == node),
            None => able.min_by_key(|member| member.progress.map_or(u64::MAX, |progress| progress.lag)),
        };
        successor.map(|member| member.node).ok_or_else(|| match wanted {
            Some(node) => format!(
                "node {node} cannot lead: it is no voter, does not answer, or its lag is too large; `lycosa cluster status` shows it"
            ),
            None => "no other voter answers and has caught up: no member can lead in place of this one".to_owned(),
        })
    }
}

/// What a member's data are once it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// It has not led.
    Unchanged,
    /// It has led, and all its rows are confirmed.
    Clean,
    /// They have rows that nothing will confirm, and are suspended.
    Ahead,
}

/// The clock of a member's leaders, as the member knows it. Rows tell a bound alone: the log of a member that comes back has rows
/// of any age.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaderTime {
    /// By how many microseconds the leader's time was ahead of the own time, when the leader told it last.
    ahead: i64,
    /// The time of the last row, in microseconds since the epoch.
    last: u64,
}

impl LeaderTime {
    /// By how many microseconds the leader's time is ahead of `now`. No row is older than the ones before it.
    fn ahead_of(&self, now: u64) -> i64 {
        self.ahead.max(self.last.cast_signed() - now.cast_signed())
    }
}
