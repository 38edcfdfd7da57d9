//! The seam between a turn and what makes its rows durable.
//!
//! [`Journal::submit`] takes a batch; later the journal has [`News`] of it. Local files are such a journal
//! ([`crate::files`]); a replicated log is another.
//!
//! Contract:
//! - batches are submitted in the order of their LSNs. A batch names the LSN before it ([`Batch::previous`]): where the batch
//!   before it ended, or where the last [`News::Lost`] has left off;
//! - at most [`Pace::Pipelined`] batches are unconfirmed. Each has one [`News::Durable`], in the order of their submission,
//!   or is lost;
//! - [`News::Lost`] ends every batch behind the LSN that it names, also batches submitted before the turn has taken the
//!   news: the journal drops these, and has no other news before;
//! - after [`News::Failed`] there is no other news, and the journal takes nothing more.
//!
//! A journal that is a member of a group ([`crate::group`]) has news beyond that: of its role, of entries that another leader
//! has decided ([`News::Entry`]), of reads that the majority has confirmed ([`News::Read`]), and of data that are loaded anew
//! ([`News::Suspended`], [`News::Restored`]). The turn asks its [`Membership`] for a read where the replies of a turn wait for no
//! new row. A journal of one server has [`NoMembership`]. Each journal names its membership, so a wrapper cannot forget to pass
//! on what a turn asks a member for.
//!
//! Absent: what makes rows durable. The tests of this crate have a journal that loses arbitrary batches
//! (`tests/losses.rs`).

use lycosa_instance::{Batch, Buffers, Confirmed, FreeSpace, Lsn};

/// How a journal takes batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// [`Journal::submit`] returns when the batch is as durable as it will be, and the news is ready at once.
    Immediate,
    /// At most this many unconfirmed batches, while the loop goes on. With 1, which suits a disk, the turn also
    /// applies the group-commit delay.
    Pipelined(usize),
}

/// What a journal has to say.
#[derive(Debug)]
pub enum News {
    /// The oldest unconfirmed batch, which ends with `lsn`, is durable. Its buffers return for the next one.
    Durable {
        /// [`Batch::lsn`].
        lsn: Lsn,
        /// Its rows, and where its transactions end.
        buffers: Buffers,
    },
    /// Everything behind `from` is lost; the journal goes on. The data that follow do not have the lost rows.
    Lost {
        /// The LSN of the last batch that is durable.
        from: Lsn,
        /// The data at that LSN.
        confirmed: Box<Confirmed>,
    },
    /// The level of rows and records that the group has risen to. It comes before [`News::Leads`], and when it changes.
    Level(u32),
    /// This node leads its group from now on, and the data hold every entry of earlier leaders: the instance takes writes.
    Leads,
    /// This node is about to hand over: the instance takes no more writes. Once everything is confirmed, the turn says so
    /// ([`Membership::hand_over`]).
    HandsOver,
    /// The node that was to lead does not: this one goes on to lead, and the instance takes writes again. Only after
    /// [`Self::HandsOver`].
    GoesOn,
    /// This node follows the leader of its group, if it knows one. The instance takes no writes; if its data have rows that are
    /// not confirmed, the turn asks for others ([`Membership::suspend`], [`Membership::restore`]).
    Follows {
        /// The leader's number.
        leader: Option<u64>,
    },
    /// The next entry of another leader, for [`Instance::apply_entry`](lycosa_instance::Instance::apply_entry).
    Entry {
        /// See [`crate::group::entry`].
        data: Vec<u8>,
    },
    /// This node led when [`Membership::read`] was called with that LSN: what waits for it may be told.
    Read {
        /// The LSN.
        lsn: Lsn,
    },
    /// The data give way to others, which come with [`News::Restored`] once the turn has asked for them ([`Membership::restore`]).
    Suspended,
    /// The data, loaded anew; they may be ahead of everything that the instance has seen.
    Restored {
        /// The data.
        confirmed: Box<Confirmed>,
    },
    /// A follower needs a snapshot: a new one, or another state of the newest one ([`Membership::restate`]). Told again until there
    /// is one for it.
    SnapshotWanted,
    /// The journal has failed for good, for this reason.
    Failed(String),
    /// The free space where the journal is, while it is short, and once when it is not any more.
    FreeSpace {
        /// Free space and reserve.
        room: FreeSpace,
        /// Whether it is short.
        is_scarce: bool,
    },
    /// What became of the folder of the files, in which no start will find them; `None` once it is in its place again.
    Displaced(Option<String>),
}

/// Where batches go, and where news of them come from. See the module for the contract.
pub trait Journal {
    /// What it does as a member of a group.
    type Membership: Membership;

    /// How it takes batches. Never changes.
    fn pace(&self) -> Pace;

    /// Takes a batch.
    fn submit(&mut self, batch: Batch);

    /// The next news, if there are any.
    fn poll(&mut self) -> Option<News>;

    /// Its membership, if it is the journal of a member of a group. Never changes.
    fn membership(&mut self) -> Option<&mut Self::Membership>;
}

/// What a turn asks the journal of a member of a group for. See the module.
pub trait Membership {
    /// Asks whether this node still leads: [`News::Read`] answers, or the news that it does not.
    fn read(&mut self, lsn: Lsn);

    /// Everything that the instance has taken is confirmed, and it takes no more: another node may lead. Only after
    /// [`News::HandsOver`].
    fn hand_over(&mut self);

    /// The instance has rows that nothing will confirm, and suspends its data: there are no further news until others are loaded
    /// ([`Self::restore`]). Only after [`News::Follows`].
    fn suspend(&mut self);

    /// The suspended data have given their memory back: data without unconfirmed rows are to be loaded. Once for each suspension.
    fn restore(&mut self);

    /// The instance can take no news of entries and roles for the moment, or can again.
    fn pause(&mut self, is_paused: bool);

    /// Nothing has changed since the snapshot with that number: it is to get the group's present state.
    fn restate(&mut self, signature: u64);
}

/// What the journal of one server names in place of a membership; no value of this type exists.
#[derive(Debug)]
pub enum NoMembership {}

impl Membership for NoMembership {
    fn read(&mut self, _: Lsn) {
        match *self {}
    }

    fn hand_over(&mut self) {
        match *self {}
    }

    fn suspend(&mut self) {
        match *self {}
    }

    fn restore(&mut self) {
        match *self {}
    }

    fn pause(&mut self, _: bool) {
        match *self {}
    }

    fn restate(&mut self, _: u64) {
        match *self {}
    }
}
