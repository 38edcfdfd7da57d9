//! Epochs and terms, for the server: [`crate::shard::lineage`] has what they are.

use lycosa_replication::lineage::{Confirmation, Divergence, Lineage, TermMark};
use lycosa_replication::relay::OwnRows;
use uuid::Uuid;

use crate::{Instance, Result};

impl Instance {
    forward! { shard:
        /// The epochs and the term, as the rows say.
        pub fn lineage(&mut self) -> &Lineage;
        /// The latest term that the instance has heard of.
        pub fn latest_term(&mut self) -> TermMark;
        /// Whether another instance was promoted, so that this one takes no writes.
        pub fn is_fenced(&mut self) -> bool;
    }

    /// The instance is to be the only master of its replica set: `read_only` is taken back, and a term begins with the first
    /// row, unless it is the master of the present one already. An orphan does so once it is in sync.
    ///
    /// # Errors
    /// The rows are refused, for want of memory for example, or the journal has failed. The instance takes no writes then.
    pub fn promote(&mut self, now: u64) -> Result<()> {
        self.input(now, |instance| instance.shard.promote(now))
    }

    /// The instance takes no writes from now on. If it is the master of a term, that ends with its last row: any instance may
    /// be the next master then, a Tarantool too, which knows nothing of terms.
    ///
    /// # Errors
    /// As [`Self::promote`]. The instance takes writes as before then.
    pub fn demote(&mut self, now: u64) -> Result<()> {
        self.input(now, |instance| instance.shard.demote(now))
    }

    /// A peer knows of a term: if it is a later one, this instance takes no writes any more. Returns whether it is.
    pub fn hear_term(&mut self, mark: TermMark, now: u64) -> bool {
        self.settle(|instance| instance.shard.hear_term(mark, now))
    }

    forward! { shard:
        /// At the start: the latest term that the former process had heard of.
        pub fn recall_term(&mut self, mark: TermMark);
        /// A later term than any before, of which the instance has no row yet; once. To be kept for [`Self::recall_term`].
        pub fn take_heard_term(&mut self) -> Option<TermMark>;
        /// Says in the log that a replica has another history: once, however often it comes.
        pub fn report_parted(&mut self, replica: Uuid, id: u32, divergence: &Divergence);
        /// What replicas may say of this instance's rows.
        pub fn own_rows(&mut self) -> OwnRows<'_>;
        /// What this instance tells the master with that number with each ACK.
        pub fn confirmation(&mut self, master: u32) -> Confirmation;
    }
}
