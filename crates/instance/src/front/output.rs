//! Bounds the bytes of replies that wait for readers, of all connections together.
//!
//! A client that sends requests and does not read makes replies wait. Two bounds hold them. One connection may have
//! `max_output` bytes, and all together `max_output_total`. The allowance of one connection shrinks with the rest of the
//! sum: it is at most a quarter of it ([`SHARE`]). So fifty connections that do not read share the sum, and never hold up a
//! connection that reads and has nothing waiting. Beyond its allowance a connection is not read, which slows its client
//! down.
//!
//! Replies to calls that waited come without a request, so that not reading does not stop them. If they take the sum over
//! its bound, the connection with the most unread bytes is closed, and the next one, until the sum fits.
//!
//! Invariant: the sum is exact after each read of a socket, each write, and each reply to a call that waited. Absent: rows
//! for replicas, which have a window of their own, and bytes in the kernel.

mod limits;

use std::collections::VecDeque;

use crate::{ConnectionSlot, Settings};

/// One connection may have this part of the sum's unused rest.
const SHARE: usize = 4;

/// Microseconds without a read after which a reader is closed before one that reads.
const PATIENCE: u64 = 1_000_000;

/// The present values of the bounds.
#[derive(Debug)]
pub(crate) struct Output {
    allowance: usize,
    closed: u64,
    /// Connections that an administrator has ended, and the host has not closed yet.
    dismissed: VecDeque<Excess>,
}

impl Output {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { allowance: allowance(settings, 0), closed: 0, dismissed: VecDeque::new() }
    }

    /// Bytes of replies beyond which a connection is not read.
    #[inline]
    pub(crate) fn allowance(&self) -> usize {
        self.allowance
    }

    /// Connections that were closed because their clients did not read replies.
    pub(crate) fn closed(&self) -> u64 {
        self.closed
    }
}

fn allowance(settings: &Settings, unread: usize) -> usize {
    settings.max_output.min(settings.max_output_total.saturating_sub(unread) / SHARE)
}

/// A connection that is to be closed at once: its replies were not fetched, or an administrator says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// Where it was.
    pub slot: ConnectionSlot,
    /// The peer's name, for people.
    pub peer: String,
    /// Bytes of its replies, which are dropped.
    pub bytes: usize,
    /// An administrator has ended it.
    pub is_dismissed: bool,
}
