//! SELECT, and those SELECTs that take more than a turn.
//!
//! A SELECT that finds its index prepared and its tuples within the first slice of [`steps`] is answered at once. A longer one is
//! parked and goes on by a cursor, a slice at a time, in later turns ([`Instance::tick`](crate::Instance::tick)). So neither a reply
//! of many tuples nor the first read of an index whose entries are deferred holds up other requests. Each tuple of a long reply is
//! as it was at some moment between the request and the reply; a tuple that stays in the space meanwhile is in the reply once.
//!
//! The reply is assembled in chunks, which the connection takes over without a copy when nothing of its other replies
//! waits for the journal.
//!
//! Bounds: [`MAX_SELECTED`](crate::shard::data::MAX_SELECTED) for one reply, `max_output_total` for everything that waits to be read
//! by clients together with the replies that are being assembled.

mod steps;

use std::collections::VecDeque;

use lycosa_store::Cursor;

use crate::{Lsn, RequestId};

/// A SELECT under way.
#[derive(Debug)]
struct LongSelect {
    request: RequestId,
    cursor: Cursor,
    chunks: Vec<Vec<u8>>,
    bytes: usize,
    /// When all tuples were found, in microseconds since the epoch, and the LSN that the reply waits for.
    assembled_at: Option<(u64, Lsn)>,
}

/// The SELECTs that take more than a turn. Each step goes to the next one.
#[derive(Debug, Default)]
pub(crate) struct LongSelects {
    queue: VecDeque<LongSelect>,
}

impl LongSelects {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The calls that wait for them.
    pub(crate) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.queue.iter().map(|select| select.request)
    }

    /// Bytes of the replies that are being assembled.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.iter().map(|select| select.bytes).sum()
    }
}
