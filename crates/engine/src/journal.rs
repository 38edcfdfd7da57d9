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
//! # How a replicated log sits here
//!
//! The crate `raft` 0.7 has no I/O and no clock, as an instance. A `Journal` around its `RawNode` does this:
//!
//! | here | there |
//! |---|---|
//! | `submit(batch)` | `propose(context = previous and lsn, data = rows and ends)`; the term and the index of the entry are noted beside the batch's LSN |
//! | several batches in flight | entries that are appended and not committed; `Pipelined(n)` is `max_inflight_msgs` or less |
//! | `Durable { lsn }` | an own entry comes out of `committed_entries` |
//! | `Lost { from, confirmed }` | `SoftState` says that the node leads no more, and an entry of another term (or a snapshot) has taken the index of an own one: `from` is the LSN of the last own entry that was committed |
//! | rows of another leader | its committed entries go through [`Instance::apply`](lycosa_instance::Instance::apply), with the stamps that they carry; they are journaled as they came |
//! | `confirmed` | the newest snapshot and the committed entries behind it, through [`crate::replay::Replay`] |
//! | `Failed` | the storage of the Raft log has failed: this node leaves the group |
//!
//! The Raft log is a file of its own, never an `.xlog`: a Tarantool would take entries that are not committed for truth. The
//! `.xlog` gets committed entries only. A node that does not lead is read-only
//! ([`Instance::set_read_only`](lycosa_instance::Instance::set_read_only)).
//!
//! Absent: such a journal. The tests of this crate have one that loses what it likes (`tests/losses.rs`).

use lycosa_instance::{Batch, Buffers, Confirmed, Lsn, Room};

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
    /// The journal has failed for good, for this reason.
    Failed(String),
    /// The free space where the journal is, while it is short, and once when it is not any more.
    Room {
        /// Free space and reserve.
        room: Room,
        /// Whether it is short.
        is_scarce: bool,
    },
    /// What became of the folder of the files, in which no start will find them; `None` once it is in its place again.
    Displaced(Option<String>),
}

/// Where batches go, and where news of them come from. See the module for the contract.
pub trait Journal {
    /// How it takes batches. Never changes.
    fn pace(&self) -> Pace;

    /// Takes a batch.
    fn submit(&mut self, batch: Batch);

    /// The next news, if there are any.
    fn poll(&mut self) -> Option<News>;
}
