//! A member of a group of servers: consensus as the journal of an instance.
//!
//! | module | what it does |
//! |---|---|
//! | [`journal`] | [`GroupJournal`]: the node of the group on the loop's side, a [`Journal`](crate::journal::Journal) |
//! | [`data`] | the data of a member, from its snapshot and its log |
//! | [`disk`] | [`GroupDisk`]: its log and its snapshots; may be a thread beside the loop |
//! | [`entry`] | what an entry of the log holds: rows, and where their transactions end |
//! | [`folder`] | a data folder becomes a member's, is opened, and becomes a single server's again |
//! | [`attempts`] | orders that the leader carries out for a member, and that may have to be sent again |
//! | [`relay`] | the requests of a member's client, passed on to the leader |
//! | [`transfer`] | the file of a snapshot for a member far behind |
//!
//! # Who calls what
//!
//! The host moves bytes between three parts: the journal, its disk, and the links to the other members.
//!
//! 1. [`GroupJournal::tick`] with a clock that never goes back; it returns when to call again.
//! 2. A message of another member: [`Incoming::decode`], then [`GroupJournal::receive`]. If it has an [`Incoming::base`], the
//!    snapshot's file has to have arrived before, through a [`Receiver`](transfer::Receiver).
//! 3. A turn of the loop ([`crate::turn::end`]) submits batches and hears news, as with any journal.
//! 4. [`GroupJournal::poll_order`] until it returns `None`: each [`Order`] goes to [`GroupDisk::carry_out`], in order. What
//!    that returns goes back through [`GroupJournal::handle`].
//! 5. [`GroupJournal::poll_message`] until it returns `None`: each message goes to the link of its member. Before one
//!    with an [`Outgoing::base`], the snapshot's file ([`Sender`](transfer::Sender)) goes. When a link breaks:
//!    [`GroupJournal::link_lost`].
//!
//! Steps 4 and 5 follow each of 1 to 3. A turn has to follow 1, 2 and [`GroupJournal::handle`], which may have news.
//!
//! # What a member's instance does
//!
//! | the node | the instance |
//! |---|---|
//! | follows | is read-only, and applies committed entries of the leader with the stamps that they carry |
//! | has been elected, and has applied every entry of earlier terms | takes writes; its queue comes up; a turn's replies wait for the rows of that turn, or for one confirmed read |
//! | stops leading | replies whose rows or reads are not confirmed become `OUTCOME_UNKNOWN`. Data with unconfirmed rows are loaded anew: the newest snapshot and the committed entries behind it |
//! | is sent a snapshot | the same with the snapshot's data |
//!
//! To Tarantool's formats a group is one instance: all members have one UUID and one replica id, which their snapshots carry.
//! Rows of local spaces are replicated in the group, and temporary spaces are not.
//!
//! A new leader's queue has to know sessions and the owners of taken tasks. The queue of a member therefore runs with
//! [`in_replicaset`](lycosa_queue::Configuration::in_replicaset): sessions are rows that are logged. Changes of owners, two in each
//! cycle of a task, travel beside the rows of an entry from [`OWNERS_LEVEL`] on, and before as rows.
//!
//! Absent: sockets, secrets, threads, the clock.

pub mod attempts;
pub mod data;
pub mod disk;
pub mod entry;
pub mod folder;
pub mod journal;
pub mod relay;
pub mod transfer;

/// Bytes of rows, about, that a transaction may have. An entry of the log holds a transaction as a whole, and a member that receives the
/// entry hears nothing else of its leader meanwhile: 32 MiB take 0.27 s at 1 Gbit/s, less than the default election timeout.
pub const MAX_TRANSACTION: u64 = 32 << 20;

pub use data::{OpenError, Told};
pub use disk::{Done, GroupDisk, Order};
pub use folder::{BeginError, NewGroup, Opened, begin, join, leave, open, open_told};
pub use journal::{GroupJournal, GroupStatus};
pub use lycosa_group::base::{Base, BaseError, FEATURE_LEVEL, OWNERS_LEVEL};
pub use lycosa_group::link::{ConnectionNumber, Hello, HelloError, Peers};
pub use lycosa_group::log::listing;
pub use lycosa_group::members::{Change, MAX_MEMBERS, Member, Members, NodeId, Standing};
pub use lycosa_group::node::{
    Incoming, MAX_HAND_OVER_LAG, Outgoing, Payload, Progress, Refusal, Role, Settings, SettingsError,
    StepError,
};
pub use lycosa_group::record::Identity;
