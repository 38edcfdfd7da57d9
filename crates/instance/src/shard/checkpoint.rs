//! Checkpoints: when one is due, and the way of all data into a snapshot in small steps.
//!
//! A checkpoint begins between two transactions, when every row so far is in the journal's batches. Its moment is the
//! vclock after the last of these rows: a read view of the store is opened, and the batch ends a journal file, so
//! that the next one begins where the snapshot stands. Then rows of the view are encoded in chunks, one whenever the
//! writer of the file asks for it. The snapshot may get its name only when the rows before its moment are durable, so
//! the order to complete it waits for that.
//!
//! The shard writes no file. It gives [`CheckpointOrder`](crate::shard::checkpoint::order::CheckpointOrder)s
//! ([`Shard::poll_checkpoint`](crate::shard::Shard::poll_checkpoint)) and receives reports about them. Both carry the checkpoint's
//! number, so that a report about a checkpoint that was given up is not taken for one about the next.
//!
//! [`schedule`] decides when one begins, [`order`] has the orders for the writer of files, [`status`] the numbers for the
//! operator, [`disk`] the bounds of the files' sizes.

pub(crate) mod disk;
pub(crate) mod order;
mod progress;
mod schedule;
pub(crate) mod status;

use std::collections::VecDeque;

use lycosa_iproto::vclock::Vclock;
use lycosa_store::ClosedView;

use self::disk::Files;
use self::order::Chunk;
use crate::shard::request::RequestId;

/// A checkpoint under way.
#[derive(Debug)]
struct Running {
    vclock: Box<Vclock>,
    /// Signature of the vclock.
    signature: u64,
    /// The row that must be durable before the snapshot is completed.
    awaited: u64,
    began_at: u64,
    /// Bytes journaled when it began.
    journaled: u64,
    live: u64,
    rows: u64,
    /// Bytes of the rows, which take as much of the disk at most.
    bytes: u64,
    /// Buffers for chunks that the writer waits for.
    wanted: VecDeque<Chunk>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The view is being handed out.
    Walking,
    /// Rows from before its moment may not be durable yet.
    Waiting,
    /// The writer was told to complete it.
    Completing,
}

/// The last checkpoint that was completed.
#[derive(Debug, Clone, PartialEq)]
pub struct LastCheckpoint {
    /// Its moment.
    pub vclock: Vclock,
    /// The same in microseconds since the epoch.
    pub at: u64,
    /// Rows of the snapshot.
    pub rows: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub duration: u64,
}

/// When to look at sizes: at a time, or at a count of journaled bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    at: u64,
    journaled: u64,
}

/// The outcome of a call for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// Nothing has changed since the last one.
    Exists,
    /// The call is answered when it is complete.
    Awaited,
    /// It would have to be waited for, which this call may not.
    MayNotWait,
}

/// The snapshot that a start would begin with, and the files around it.
#[derive(Debug, Clone, Default)]
struct Base {
    /// Signature of its vclock.
    signature: u64,
    /// When it was taken, or the instance started.
    at: u64,
    files: Files,
    /// Live data when it was taken, or at the start.
    live: u64,
    /// Bytes journaled before it by this process, less the bytes that other processes have journaled after it.
    journaled: i128,
    /// Bytes journaled by this process when the files were measured.
    measured: u64,
}

/// Everything about checkpoints.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    running: Option<Box<Running>>,
    /// Of the last one that was begun.
    number: u64,
    /// One is due.
    is_wanted: bool,
    /// A backup copies snapshots: none is removed.
    is_held: bool,
    /// It must write a new snapshot even if nothing has changed since the last one.
    is_forced: bool,
    /// Calls that wait for it.
    waiting: Vec<RequestId>,
    /// One was given up; the writer is to be told, and to drop this.
    given_up: Option<Option<ClosedView>>,
    base: Base,
    /// No checkpoint begins before, unless one is requested.
    retry_at: u64,
    /// One was tried since the disk is short of free space.
    has_tried_for_room: bool,
    next_look: Look,
    last: Option<LastCheckpoint>,
    failure: Option<String>,
    count: u64,
    failures: u64,
    excesses: u64,
    longest_pause: u64,
}

impl Checkpoints {
    pub(crate) fn new(signature: u64, now: u64) -> Self {
        Self { base: Base { signature, at: now, ..Base::default() }, ..Self::default() }
    }

    /// There is other free space on the disk than before; `has_changed`: it has become short, or has ceased to be.
    pub(crate) fn free_space_changed(&mut self, has_changed: bool) {
        self.has_tried_for_room &= !has_changed;
    }

    /// Bytes of the rows that the running checkpoint has handed out; 0 if none runs.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.bytes)
    }

    /// The calls that wait for a checkpoint.
    pub(crate) fn waiting_calls(&self) -> &[RequestId] {
        &self.waiting
    }

    fn is_running(&self) -> bool {
        self.running.is_some()
    }
}
