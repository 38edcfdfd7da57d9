//! A snapshot: the reply of `queue.status`, read.

use std::collections::BTreeMap;
use std::fmt;

use lycosa_queue::status::histogram::{BUCKETS, bound};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A page is none.
#[derive(Debug, thiserror::Error)]
#[error("a page of the status is malformed: {0}")]
pub struct Malformed(#[from] rmp_serde::decode::Error);

/// Numbers of tasks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Tasks {
    /// May be taken.
    pub ready: u64,
    /// Held.
    pub taken: u64,
    /// Ready later.
    pub delayed: u64,
    /// Set aside.
    pub buried: u64,
}

impl Tasks {
    /// With their names.
    #[must_use]
    pub fn named(self) -> [(&'static str, u64); 4] {
        [("ready", self.ready), ("taken", self.taken), ("delayed", self.delayed), ("buried", self.buried)]
    }

    /// All together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.ready + self.taken + self.delayed + self.buried
    }

    fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.taken += other.taken;
        self.delayed += other.delayed;
        self.buried += other.buried;
    }
}

macro_rules! counted {
    ($(#[$doc:meta])* $name:ident { $($field:ident),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
        pub struct $name {
            $(
                #[doc = concat!("How often: ", stringify!($field), ".")]
                pub $field: u64,
            )*
        }

        impl $name {
            /// With their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counted! {
    /// Operations of a tube.
    Operations { put, take, ack, release, bury, kick, delete, touch, ttl, ttr, delay }
}

counted! {
    /// Taken tasks that became ready again, by the reason.
    Redeliveries { release, disconnect, ttr }
}

/// Durations: the sum in µs, and pairs of a bucket's number and its count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Histogram {
    /// µs.
    pub sum: u64,
    buckets: Vec<u64>,
}

impl Histogram {
    /// Counts by bucket, see [`lycosa_queue::status::histogram::bound`].
    #[must_use]
    pub fn counts(&self) -> [u64; BUCKETS] {
        let mut counts = [0; BUCKETS];
        for pair in self.buckets.chunks_exact(2) {
            if let Some(count) = usize::try_from(pair[0]).ok().and_then(|bucket| counts.get_mut(bucket)) {
                *count += pair[1];
            }
        }
        counts
    }

    /// Buckets that have any: the bound in seconds (`None`: no bound) and the count.
    pub fn filled(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let counts = self.counts().into_iter().enumerate().filter(|(_, count)| *count > 0);
        counts.map(|(bucket, count)| (bound(bucket).map(|micros| micros as f64 / 1e6), count))
    }

    /// How many durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.chunks_exact(2).map(|pair| pair[1]).sum()
    }

    /// The mean, in seconds.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / 1e6 / count as f64)
    }

    /// The bound of the bucket in which the quantile (0 to 1) lies, in seconds. `None`: nothing was counted, or it lies in the
    /// last bucket, which has no bound.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let counts = self.counts();
        let count: u64 = counts.iter().sum();
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        let bucket = counts.iter().position(|counted| {
            below += counted;
            below >= rank
        });
        bound(bucket?).map(|micros| micros as f64 / 1e6)
    }

    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.buckets.extend_from_slice(&other.buckets);
    }
}

/// Operations a second over 1, 5 and 15 minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Rates {
    /// Of puts.
    pub puts: [f64; 3],
    /// Of takes.
    pub takes: [f64; 3],
    /// Of acks.
    pub acks: [f64; 3],
}

/// A period of a [`History`]: ready, taken, delayed and buried tasks at its end; puts, takes and acks in it.
pub type Point = [u32; 7];

/// Tasks by state and operations over the last day. The last period stands at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct History {
    /// The end of the last fine period, in seconds since the epoch.
    pub until: u64,
    /// Periods of 10 s: an hour at most.
    pub fine: Vec<Point>,
    /// Periods of 5 min, which end at full five minutes: a day at most.
    pub coarse: Vec<Point>,
}

/// One of the sub-queues of a tube into which the most is put.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SubQueue {
    /// Its name. Bytes that are no UTF-8 are replaced.
    #[serde(deserialize_with = "lossy")]
    pub name: String,
    /// Its tasks by state.
    pub tasks: Tasks,
}

/// Reads a string of MessagePack that may hold any bytes.
fn lossy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }

    deserializer.deserialize_any(Text)
}

/// How grave an issue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gravity {
    /// Work stands still, or soon will.
    Bad,
    /// Something to look at.
    Warn,
    /// Something to know.
    #[default]
    #[serde(other)]
    Note,
}

/// Something that is wrong with a tube or with the instance, as the server says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Issue {
    /// The rule.
    pub kind: String,
    /// How grave it is.
    pub gravity: Gravity,
    /// The fault.
    pub title: String,
    /// What to do.
    pub act: String,
}

/// A tube.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Tube {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Tasks by state.
    pub tasks: Tasks,
    /// Operations since the start.
    pub operations: Operations,
    /// Tasks that were taken and became ready again.
    pub redeliveries: Redeliveries,
    /// Bytes of all tasks.
    pub bytes: u64,
    /// Tasks that it may hold.
    pub capacity: Option<u64>,
    /// Whether it hands out no tasks.
    #[serde(default)]
    pub paused: bool,
    /// Calls that wait for tasks.
    pub waiting_takes: u64,
    /// Calls that wait for free space.
    pub waiting_puts: u64,
    /// Seconds.
    pub oldest_ready_age: Option<f64>,
    /// Seconds.
    pub oldest_taken_age: Option<f64>,
    /// Free sub-queues with a ready task.
    pub ready_keys: Option<u64>,
    /// Sub-queues with a taken task.
    pub busy_keys: Option<u64>,
    /// Seconds until no task is ready any more.
    pub drain: Option<f64>,
    /// From put to take.
    pub wait: Option<Histogram>,
    /// From take to ack.
    pub work: Option<Histogram>,
    /// Operations a second.
    pub rates: Option<Rates>,
    /// Of a tube that was asked for by its name.
    #[serde(default)]
    pub sub_queues: Vec<SubQueue>,
    /// If it was asked for, and the tube is one of the busiest.
    pub history: Option<History>,
    /// Its issues, if a client asks for them.
    #[serde(default)]
    pub issues: Vec<Issue>,
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).reduce(|a, b| a + b)
}

impl Tube {
    /// Reads what `queue.tube.T:status` has answered, one map.
    ///
    /// # Errors
    /// It is not what that answers.
    pub fn read(status: &[u8]) -> Result<Self, Malformed> {
        Ok(rmp_serde::from_slice(status)?)
    }

    /// How much it is used: by that tubes are ordered.
    fn business(&self) -> (f64, u64) {
        let rates = self.rates.unwrap_or_default();
        let recent = rates.puts[2] + rates.takes[2] + rates.acks[2];
        (recent, self.operations.named().map(|(_, count)| count).sum::<u64>())
    }

    /// Adds another tube to a sum.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tasks.add(other.tasks);
        self.operations.add(&other.operations);
        self.redeliveries.add(&other.redeliveries);
        self.bytes += other.bytes;
        self.capacity = sum(self.capacity, other.capacity);
        self.waiting_takes += other.waiting_takes;
        self.waiting_puts += other.waiting_puts;
        self.oldest_ready_age = larger(self.oldest_ready_age, other.oldest_ready_age);
        self.oldest_taken_age = larger(self.oldest_taken_age, other.oldest_taken_age);
        self.ready_keys = sum(self.ready_keys, other.ready_keys);
        self.busy_keys = sum(self.busy_keys, other.busy_keys);
        for (own, other) in [(&mut self.wait, &other.wait), (&mut self.work, &other.work)] {
            if let Some(other) = other {
                own.get_or_insert_default().add(other);
            }
        }
    }
}

/// Requests of one type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Requests {
    /// All.
    pub total: u64,
    /// Answered with an error.
    pub errors: u64,
}

/// The whole queue.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Queue {
    /// Number of tubes.
    pub tubes: u64,
    /// Tasks of all tubes.
    pub tasks: Tasks,
    /// Operations of all tubes, dropped ones included.
    pub operations: Operations,
    /// Connections with a queue session.
    pub sessions: u64,
    /// How late deadlines fired.
    pub lateness: Histogram,
    /// Tasks whose deadlines have passed without an effect yet.
    pub overdue: u64,
    /// From put to take.
    #[serde(default)]
    pub wait: Histogram,
    /// From take to ack.
    #[serde(default)]
    pub work: Histogram,
    /// Operations a second.
    #[serde(default)]
    pub rates: Rates,
    /// Calls that wait.
    #[serde(default)]
    pub waiting: u64,
    /// If it was asked for.
    pub history: Option<History>,
}

/// The last checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct LastCheckpoint {
    /// Seconds since the epoch.
    pub time: f64,
}

/// Checkpoints and the disk.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Checkpoint {
    /// Given up since the start.
    pub failures: u64,
    /// Bytes of snapshots and journals.
    pub disk_used: u64,
    /// What they may take.
    pub disk_bound: u64,
    /// None since the start.
    pub last: Option<LastCheckpoint>,
    /// Why the last attempt was given up, until one succeeds.
    pub failure: Option<String>,
}

/// A master, as this instance hears it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Upstream {
    /// `follow` if its rows come.
    pub status: String,
    /// Seconds by which its rows come late.
    pub lag: f64,
    /// What went wrong.
    pub message: Option<String>,
}

/// A replica, as this instance sends to it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Downstream {
    /// `join`, `follow` or `stopped`.
    pub status: String,
    /// Seconds since it was heard.
    pub idle: f64,
    /// Rows that it has not confirmed.
    pub behind: Option<u64>,
}

/// Another instance of the replica set.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Peer {
    /// Its id.
    pub id: u64,
    /// Its LSN.
    pub lsn: u64,
    /// If it is a master of this one.
    pub upstream: Option<Upstream>,
    /// If it is a replica of this one.
    pub downstream: Option<Downstream>,
}

/// The election of a group, as one member knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Election {
    /// `leader`, `candidate`, `follower` or `removed`.
    pub state: String,
    /// The leader's number; 0: none is known.
    pub leader: u64,
    /// The term.
    pub term: u64,
    /// Members that vote.
    pub voters: u64,
    /// Confirmed entries that this member has not applied.
    pub behind: u64,
    /// The number of the member that tells this.
    #[serde(default)]
    pub node: u64,
    /// Requests of the member's clients that leaders carried out.
    #[serde(default)]
    pub forwarded: Forwarded,
    /// All members, as this one sees them.
    #[serde(default)]
    pub members: Vec<GroupMember>,
}

/// Counts of requests over HTTP to a member that does not lead, and on connections that began while it did not lead, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Forwarded {
    /// Requests that were sent to a leader, each time that they were.
    pub requests: u64,
    /// Further attempts at such requests.
    pub repeated: u64,
    /// Requests that the member answered as of unknown outcome.
    pub unknown: u64,
}

/// A member of a group, as the one that tells of it sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GroupMember {
    /// Its number.
    pub node: u64,
    /// Where the other members reach it.
    pub address: String,
    /// `voter`, `learner`, `joining` or `leaving`.
    pub standing: String,
    /// Whether it is the observer itself, or connected with the observer.
    pub is_connected: bool,
    /// Entries of the leader's log that its log lacks; the leader alone knows that.
    #[serde(default)]
    pub lag: Option<u64>,
    /// Whether it has answered within the last election timeout.
    #[serde(default)]
    pub is_active: Option<bool>,
    /// Whether it waits for a snapshot.
    #[serde(default)]
    pub awaits_snapshot: Option<bool>,
}

/// Expiration tasks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Expiration {
    /// Tuples looked at.
    #[serde(default)]
    pub scanned: u64,
    /// Tuples deleted.
    pub expired: u64,
    /// The largest lag, µs.
    pub lag_us: u64,
    /// Tasks whose last run failed.
    #[serde(default)]
    pub failing: u64,
}

/// Bytes of the data.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Memory {
    /// Of tuples.
    pub data: u64,
    /// Of indexes.
    pub index: u64,
}

/// The instance.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Instance {
    /// Of the program.
    pub version: String,
    /// Its UUID.
    pub uuid: String,
    /// Its id in the replica set.
    pub id: u64,
    /// `running`, `orphan` or `failed`.
    pub state: String,
    /// The cause of the journal's failure, if it has failed.
    pub failure: Option<String>,
    /// Whether it takes no writes.
    pub read_only: bool,
    /// Seconds.
    pub uptime: f64,
    /// Seconds since the epoch.
    pub now: f64,
    /// Open at the moment.
    pub connections: u64,
    /// Accepted since the start.
    pub connections_total: u64,
    /// Requests by type.
    pub requests: BTreeMap<String, Requests>,
    /// Bytes of frames.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub sent_bytes: u64,
    /// Bytes of the data.
    pub memory_used: u64,
    /// What they may take.
    pub memory_limit: u64,
    /// Bytes that the system has given for tuples.
    pub memory_reserved: u64,
    /// By kind.
    pub memory: Memory,
    /// Rows since the beginning of the data.
    pub journal_rows: u64,
    /// Bytes since the start.
    pub journal_bytes: u64,
    /// Failures since the start.
    pub journal_errors: u64,
    /// Bytes.
    pub lua_memory: u64,
    /// Since the start.
    pub lua_errors: u64,
    /// Checkpoints.
    pub checkpoint: Checkpoint,
    /// The replica set, by id.
    #[serde(default)]
    pub replication: BTreeMap<u64, Peer>,
    /// Of a member of a group.
    #[serde(default)]
    pub election: Option<Election>,
    /// Expiration tasks.
    pub expiration: Expiration,
    /// All tubes.
    pub queue: Queue,
    /// Lengths of turns.
    pub turn: Histogram,
    /// From a batch's hand-over to its confirmation.
    pub journal_sync: Histogram,
    /// The free space of the disk, while it is less than the reserve.
    pub disk_short: Option<DiskShort>,
    /// The largest p99 of syncs in the periods of the last minute, seconds.
    pub recent_sync: Option<f64>,
    /// By how many seconds the system's clock is ahead of the server's time.
    pub clock_ahead: Option<f64>,
    /// By how many seconds the leader of the group is ahead of the server's time.
    pub leader_ahead: Option<f64>,
    /// Its issues, if a client asks for them.
    #[serde(default)]
    pub issues: Vec<Issue>,
}

/// A disk that is short of free space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct DiskShort {
    /// Bytes that may be written.
    pub free: u64,
    /// The setting `disk_reserve`, in bytes.
    pub reserve: u64,
    /// Whether tasks cannot be finished either.
    pub exhausted: bool,
}

#[derive(Debug, Deserialize)]
struct Page {
    tubes: Vec<Tube>,
    next: Option<u64>,
    instance: Option<Instance>,
}

/// What the host knows about its process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Process {
    /// Seconds of the processor.
    pub cpu_seconds: f64,
    /// Bytes in memory.
    pub resident_bytes: u64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// What they may be.
    pub max_files: u64,
    /// Seconds since the epoch.
    pub start_time: f64,
    /// Open connections of the HTTP door, if there is one.
    pub http_connections: Option<u64>,
}

/// All pages together.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The instance, if its page was read.
    pub instance: Option<Instance>,
    /// The tubes in the order of their ids.
    pub tubes: Vec<Tube>,
}

impl Snapshot {
    /// Reads what `queue.status` has answered, one map. Returns the `after` of the next page, if there is one.
    ///
    /// # Errors
    /// It is not what `queue.status` answers.
    pub fn add_page(&mut self, page: &[u8]) -> Result<Option<u64>, Malformed> {
        let Page { tubes, next, instance } = rmp_serde::from_slice(page)?;
        self.tubes.extend(tubes);
        self.instance = instance.or(self.instance.take());
        Ok(next)
    }

    /// All issues, the gravest first: the tube, if it is about one, and the issue.
    pub fn issues(&self) -> Vec<(Option<&str>, &Issue)> {
        let instance = self.instance.iter().flat_map(|instance| &instance.issues);
        let mut found: Vec<_> = instance.map(|issue| (None, issue)).collect();
        for tube in &self.tubes {
            found.extend(tube.issues.iter().map(|issue| (Some(tube.name.as_str()), issue)));
        }
        found.sort_by_key(|(_, issue)| issue.gravity);
        found
    }

    /// The busiest tubes, at most `limit`, and the number of others and their sum.
    pub(crate) fn busiest(&self, limit: usize) -> (Vec<&Tube>, usize, Tube) {
        let mut tubes: Vec<&Tube> = self.tubes.iter().collect();
        tubes.sort_by(|a, b| {
            let ((recent_a, all_a), (recent_b, all_b)) = (a.business(), b.business());
            recent_b.total_cmp(&recent_a).then(all_b.cmp(&all_a)).then_with(|| a.name.cmp(&b.name))
        });
        let others = tubes.split_off(limit.min(tubes.len()));
        let mut sum = Tube::default();
        others.iter().for_each(|tube| sum.add(tube));
        (tubes, others.len(), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array of a small map with a name of these bytes.
    fn sub_queue(name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x82, 0xa4];
        bytes.extend_from_slice(b"name");
        bytes.push(0xa0 | name.len() as u8);
        bytes.extend_from_slice(name);
        bytes.push(0xa5);
        bytes.extend_from_slice(b"tasks");
        bytes.push(0x84);
        for state in ["ready", "taken", "delayed", "buried"] {
            bytes.push(0xa0 | state.len() as u8);
            bytes.extend_from_slice(state.as_bytes());
            bytes.push(3);
        }
        bytes
    }

    #[test]
    fn a_sub_queue_may_have_any_name() {
        let name = |bytes: &[u8]| {
            let read: SubQueue = rmp_serde::from_slice(&sub_queue(bytes)).expect("a sub-queue");
            assert_eq!(read.tasks.total(), 12);
            read.name
        };
        assert_eq!(name("user ä".as_bytes()), "user ä");
        assert_eq!(name(b"a\xff"), "a\u{fffd}");
    }

    #[test]
    fn quantiles_are_the_bounds_of_their_buckets() {
        let histogram = Histogram { sum: 0, buckets: vec![1, 99, 12, 1] };
        assert_eq!((histogram.quantile(0.5), histogram.quantile(1.0)), (Some(24e-6), Some(1024e-6)));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
