//! Long calls: `find`, `kick`, `release_all` and `recount` of more tasks than one turn may handle.
//!
//! A call that changes at most [`Turn::BATCH`] tasks does so at once, and so does one inside a transaction. A longer
//! call becomes a *long call*: [`Queue::work`](crate::Queue::work) goes on with it in slices, each a transaction of its
//! own, and it is answered when it is done. Calls between two slices see the changes of the finished slices.
//!
//! Calls take slices in turn, but for `find`: a page that has begun is finished first, so that only one is in memory.
//!
//! A long call always ends, because it changes only tasks that were there when it was called. `kick` gets back at most the
//! number of tasks that were buried then; `release_all` passes once over the tasks that were taken then, and leaves tasks
//! alone that were taken since. A long call outlives its connection; it ends with an error when its tube is dropped or the queue
//! stops.
//!
//! [`Turn::BATCH`]: crate::turn::Turn::BATCH

mod work;

use lycosa_tuple::mp;

use crate::bulk::Search;
use crate::recount::Recounted;
use crate::tube::handle::TubeHandle;

/// The remaining work of a long call.
#[derive(Debug)]
pub(crate) enum Work {
    /// Changes nothing.
    Find(Box<Search>),
    Kick {
        /// Tasks that may still be kicked.
        left: u64,
        kicked: u64,
    },
    /// Behind the task with that priority and id, which was looked at last.
    ReleaseAll(Option<(u64, u64)>),
    /// The walk itself is the tube's, which tells it of changes. The walk's result.
    Recount(Option<Recounted>),
}

/// A long call under way.
#[derive(Debug)]
pub(crate) struct LongCall {
    handle: TubeHandle,
    connection: u64,
    request: u64,
    /// When it was called, µs since the epoch.
    since: u64,
    work: Work,
}

impl LongCall {
    /// Appends the values of the call, as far as it came; returns how many they are.
    fn write(&self, out: &mut Vec<u8>) -> u32 {
        match &self.work {
            Work::Find(search) => search.write(out),
            Work::Kick { kicked, .. } => mp::write_uint(out, *kicked),
            Work::ReleaseAll(_) => return 0,
            Work::Recount(found) => found.unwrap_or_default().write(out),
        }
        1
    }
}
