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
//! # How a group's log sits here
//!
//! The crate `group` has no I/O and no clock, as an instance. A `Journal` around its `Node` does this:
//!
//! | here | there |
//! |---|---|
//! | `submit(batch)` | `Node::propose`, with rows and ends as the entry's data; the position that it returns is noted beside the batch's LSN |
//! | several batches in flight | proposals that are not confirmed; `Limits::uncommitted_bytes` bounds them |
//! | `Durable { lsn }` | `Event::Confirmed`. `Event::Committed` would come later: it also waits for the leader's own disk |
//! | `Lost { from, confirmed }` | `Event::Lost`: `from` is the LSN of the last own entry that was confirmed |
//! | rows of another leader | `Event::Committed` at a position that is no own one, through [`Instance::apply`](lycosa_instance::Instance::apply), with the stamps that they carry |
//! | `confirmed` | the newest snapshot (`Event::Installed`, or the node's own) and the committed entries behind it, through [`crate::replay::Replay`] |
//! | `Failed` | the group's log has failed, or a `StepError` says that it lost entries: this node leaves its service |
//!
//! The group's log takes the place of the `.xlog`: each row is written once. A node that does not lead is read-only
//! ([`Instance::set_read_only`](lycosa_instance::Instance::set_read_only)).
//!
//! # Still missing for that
//!
//! - News of the role, of another leader's entries, and of confirmed reads (`Node::read`, once a turn).
//! - Rows that the instance applies and does not journal again; `Instance::apply` puts them into a batch.
//! - Data ahead of the last batch, after a snapshot of the leader.
//! - `Lost` without data, which come later: the old store could be freed before the new one is built.
//!
//! Absent: such a journal. The tests of this crate have one that loses arbitrary batches (`tests/losses.rs`).

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
