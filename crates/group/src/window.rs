//! The part of the log that a node has in memory, and what `raft` asks of it.
//!
//! Terms of all entries behind the last removed one are kept, as runs: few, since a term lasts long. Entries themselves are
//! kept up to [`Limits::memory_bytes`], and in any case until they are durable and handed out. A follower that
//! needs older ones gets them from the files: the window notes the [`Wanted`] ones, the node hands that out, and the
//! entries come back by [`Window::serve`]. A follower that needs removed ones gets a snapshot.
//!
//! Invariants: indexes in memory are contiguous up to the last one; a snapshot is only given to a server that is a member in
//! its state, since `raft` throws it away elsewhere.

use std::cell::RefCell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::base::Base;
use crate::log::{Found, Wanted};
use crate::members::NodeId;
use crate::message;
use crate::record::{Ballot, Position};

/// Bytes that an entry takes beyond its data.
const ENTRY_BYTES: u64 = 96;
/// Bytes of data that one reading of the files brings: several messages to a follower.
const READ_BYTES: u64 = 256 << 10;

/// Bounds of what a node keeps and sends. [`Node::new`](crate::node::Node::new) refuses bounds that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of entries in memory, beyond the ones that are not durable or not handed out yet.
    pub memory_bytes: u64,
    /// Bytes of entries in one message; a longer entry travels alone.
    pub message_bytes: u64,
    /// Messages with entries to one follower that are not answered yet, at least 1.
    pub messages_in_flight: usize,
    /// Bytes of proposals that are not committed yet, at least `message_bytes`. Further proposals are refused.
    pub uncommitted_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            message_bytes: 64 << 10,
            messages_in_flight: 64,
            uncommitted_bytes: 64 << 20,
        }
    }
}

/// A reading that was asked for.
#[derive(Debug)]
struct Request {
    wanted: Wanted,
    /// Handed out to the node's owner.
    is_sent: bool,
    /// What `raft` goes on with.
    contexts: Vec<GetEntriesContext>,
}

/// Everything that was asked for and is not in memory.
#[derive(Debug, Default)]
struct Requests {
    entries: Vec<Request>,
    /// The least index of the snapshot that is asked for, and the members that it must name.
    snapshot: Option<(u64, NodeId)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    /// The last entry that is removed.
    removed: Position,
    last: u64,
    /// Where each term behind `removed` begins, ascending.
    terms: Vec<Position>,
    /// The newest entries, without a gap.
    entries: VecDeque<Entry>,
    bytes: u64,
    memory_bytes: u64,
    ballot: Ballot,
    members: ConfState,
    base: Option<Base>,
    requests: RefCell<Requests>,
    served: Vec<Entry>,
}

fn cost(entry: &Entry) -> u64 {
    ENTRY_BYTES + (entry.data.len() + entry.context.len()) as u64
}

impl Window {
    pub(crate) fn new(base: Option<Base>, ballot: Ballot, entries: Vec<Entry>, memory_bytes: u64) -> Self {
        let removed =
            base.as_ref().map_or(Position::default(), |base| Position { term: base.term, index: base.index });
        let members = base.as_ref().map_or(ConfState::default(), |base| base.members.conf_state());
        let mut window = Self {
            removed,
            last: removed.index,
            terms: Vec::new(),
            entries: VecDeque::new(),
            bytes: 0,
            memory_bytes,
            ballot,
            members,
            base,
            requests: RefCell::default(),
            served: Vec::new(),
        };
        window.append(entries);
        window
    }

    /// The state of the snapshot that is sent to followers.
    pub(crate) fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// The last entry that is written, or with the disk.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Bytes that entries take in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds entries; an index that the log has already cuts off everything from there on.
    pub(crate) fn append(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            if entry.index <= self.last {
                self.cut(entry.index);
            }
            let position = Position { term: entry.term, index: entry.index };
            if self.term_of(self.last) != Some(entry.term) || self.terms.is_empty() {
                self.terms.push(position);
            }
            self.last = entry.index;
            self.bytes += cost(&entry);
            self.entries.push_back(entry);
        }
    }

    fn cut(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.index >= index)
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= cost(&entry);
        }
        while self.terms.last().is_some_and(|run| run.index >= index) {
            self.terms.pop();
        }
        self.last = index - 1;
    }

    /// A snapshot replaces the log.
    pub(crate) fn install(&mut self, base: Base) {
        self.removed = Position { term: base.term, index: base.index };
        self.last = base.index;
        self.terms.clear();
        self.entries.clear();
        self.bytes = 0;
        self.requests.get_mut().entries.clear();
        self.base = Some(base);
    }

    /// A newer snapshot is durable.
    pub(crate) fn set_base(&mut self, base: Base) {
        if self.base.as_ref().is_none_or(|before| before.index < base.index) {
            self.base = Some(base);
        }
    }

    /// Forgets that there are entries up to `index`, of which a snapshot holds everything.
    pub(crate) fn remove(&mut self, index: u64) {
        let Some(term) = self.term_of(index) else { return };
        if index <= self.removed.index {
            return;
        }
        while self.entries.front().is_some_and(|entry| entry.index <= index)
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= cost(&entry);
        }
        let runs = self.terms.partition_point(|run| run.index <= index + 1);
        self.terms.drain(..runs.saturating_sub(1));
        if let Some(first) = self.terms.first_mut() {
            first.index = first.index.max(index + 1);
        }
        if index == self.last {
            self.terms.clear();
        }
        self.removed = Position { term, index };
    }

    /// Keeps entries up to the limit; those behind `needed` in any case.
    pub(crate) fn trim(&mut self, needed: u64) {
        while self.bytes > self.memory_bytes
            && self.entries.front().is_some_and(|entry| entry.index <= needed)
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= cost(&entry);
        }
    }

    /// The term of an entry; `None` if it is removed or does not exist.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.removed.index {
            return Some(self.removed.term);
        }
        if index < self.removed.index || index > self.last {
            return None;
        }
        let runs = self.terms.partition_point(|run| run.index <= index);
        Some(self.terms[runs.checked_sub(1)?].term)
    }

    /// Readings that were not handed out yet.
    pub(crate) fn take_wanted(&mut self) -> Vec<Wanted> {
        let unsent = self.requests.get_mut().entries.iter_mut().filter(|request| !request.is_sent);
        unsent
            .map(|request| {
                request.is_sent = true;
                request.wanted.clone()
            })
            .collect()
    }

    /// The least index of a snapshot that a follower needs, and the follower.
    pub(crate) fn take_wanted_snapshot(&mut self) -> Option<(u64, NodeId)> {
        self.requests.get_mut().snapshot.take()
    }

    /// Entries that were read back. Returns what `raft` goes on with while they are here, until [`Self::end_serving`].
    pub(crate) fn serve(&mut self, wanted: &Wanted, found: Found) -> Vec<GetEntriesContext> {
        let requests = self.requests.get_mut();
        let Some(at) = requests.entries.iter().position(|request| request.wanted == *wanted) else {
            return Vec::new();
        };
        self.served = found.entries;
        requests.entries.swap_remove(at).contexts
    }

    pub(crate) fn end_serving(&mut self) {
        self.served = Vec::new();
    }

    /// A reading failed: the next message to that follower asks again.
    pub(crate) fn give_up(&mut self, wanted: &Wanted) {
        self.requests.get_mut().entries.retain(|request| request.wanted != *wanted);
    }

    fn request(&self, low: u64, high: u64, context: GetEntriesContext) {
        let mut requests = self.requests.borrow_mut();
        if let Some(request) = requests.entries.iter_mut().find(|request| request.wanted.low == low) {
            request.contexts.push(context);
            return;
        }
        let first = self.terms.partition_point(|run| run.index <= low).saturating_sub(1);
        let end = self.terms.partition_point(|run| run.index < high);
        let terms = self.terms[first..end].to_vec();
        let wanted = Wanted { low, high, max_bytes: READ_BYTES, terms };
        requests.entries.push(Request { wanted, is_sent: false, contexts: vec![context] });
    }
}

/// As many of the entries as fit `max_bytes`, and one in any case.
fn limited<'a>(entries: impl Iterator<Item = &'a Entry>, max_bytes: u64) -> Vec<Entry> {
    let mut bytes = 0;
    let fits = |(at, entry): &(usize, &Entry)| {
        bytes += cost(entry);
        *at == 0 || bytes <= max_bytes
    };
    entries.enumerate().take_while(fits).map(|(_, entry)| entry.clone()).collect()
}

impl Storage for Window {
    fn initial_state(&self) -> Result<RaftState> {
        let mut hard = HardState::default();
        (hard.term, hard.vote, hard.commit) = (self.ballot.term, self.ballot.vote, self.ballot.commit);
        Ok(RaftState::new(hard, self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.removed.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let in_memory = self.entries.front().map_or(self.last + 1, |entry| entry.index);
        if low >= in_memory {
            let range = (low - in_memory) as usize..(high - in_memory) as usize;
            return Ok(limited(self.entries.range(range), max_bytes));
        }
        let served =
            self.served.iter().skip_while(|entry| entry.index < low).take_while(|entry| entry.index < high);
        let found = limited(served, max_bytes);
        if found.first().is_some_and(|entry| entry.index == low) {
            return Ok(found);
        }
        if context.can_async() {
            self.request(low, high, context);
            return Err(Error::Store(StorageError::LogTemporarilyUnavailable));
        }
        Err(Error::Store(StorageError::Unavailable))
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index < self.removed.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.term_of(index).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.removed.index + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        let least = request_index.max(self.removed.index);
        match &self.base {
            Some(base) if base.index >= least && base.members.get(to).is_some() => {
                Ok(message::snapshot(base))
            }
            _ => {
                self.requests.borrow_mut().snapshot = Some((least, to));
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry.data = vec![7; 10].into();
        entry
    }

    fn window(memory_bytes: u64) -> Window {
        let base = Base::first(Uuid::from_u128(1), 0, crate::base::FEATURE_LEVEL, String::new());
        Window::new(Some(base), Ballot::default(), Vec::new(), memory_bytes)
    }

    fn asked(window: &Window, low: u64, high: u64) -> Result<Vec<u64>> {
        let entries = window.entries(low, high, None, GetEntriesContext::empty(true))?;
        Ok(entries.iter().map(|entry| entry.index).collect())
    }

    #[test]
    fn entries_that_left_memory_are_asked_for_once_and_served() {
        let mut window = window(300);
        window.append((2..=9).map(|index| entry(index, 1 + index / 5)));
        window.trim(9);
        assert_eq!(window.entries.front().map(|entry| entry.index), Some(8), "two of 106 bytes fit 300");
        assert_eq!(asked(&window, 8, 10), Ok(vec![8, 9]));
        let unavailable = Err(Error::Store(StorageError::LogTemporarilyUnavailable));
        assert_eq!(asked(&window, 3, 10), unavailable);
        assert_eq!(asked(&window, 3, 10), unavailable);
        let wanted = window.take_wanted();
        assert_eq!(wanted.len(), 1);
        assert_eq!((wanted[0].low, wanted[0].high), (3, 10));
        assert_eq!(wanted[0].terms, [Position { term: 1, index: 2 }, Position { term: 2, index: 5 }]);
        assert!(window.take_wanted().is_empty());
        let found = Found { entries: vec![entry(3, 1), entry(4, 1)] };
        assert_eq!(window.serve(&wanted[0], found).len(), 2);
        assert_eq!(asked(&window, 3, 10), Ok(vec![3, 4]));
        assert_eq!(asked(&window, 4, 10), Ok(vec![4]), "the rest of a reading is served too");
        window.end_serving();
        assert_eq!(asked(&window, 3, 10), unavailable);
        let wanted = window.take_wanted();
        window.give_up(&wanted[0]);
        assert_eq!(asked(&window, 3, 10), unavailable);
        assert_eq!(window.take_wanted(), wanted, "a reading that failed is asked for again");
    }

    #[test]
    fn a_snapshot_is_given_to_its_members_alone() {
        let mut window = window(1000);
        window.append((2..=5).map(|index| entry(index, 1)));
        assert_eq!(window.snapshot(0, 1).map(|snapshot| snapshot.get_metadata().index), Ok(1));
        let refused = Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        assert_eq!(window.snapshot(0, 2), refused);
        assert_eq!(window.take_wanted_snapshot(), Some((1, 2)));
        let mut base = window.base().cloned().expect("a base");
        let change = base.members.addition(String::new()).expect("a free rank");
        assert!(base.members.apply(&change));
        base.index = 3;
        window.set_base(base);
        assert_eq!(window.snapshot(0, 2).map(|snapshot| snapshot.get_metadata().index), Ok(3));
        // Once newer entries are removed, it is too old.
        window.remove(4);
        assert_eq!(window.snapshot(0, 2), refused);
        assert_eq!(asked(&window, 4, 6), Err(Error::Store(StorageError::Compacted)));
        assert_eq!((window.term(4), window.first_index()), (Ok(1), Ok(5)));
    }

    proptest! {
        /// Terms and entries agree with a plain list after any appends, cuts, removals and trims.
        #[test]
        fn terms_are_those_of_a_plain_log(
            steps in proptest::collection::vec((0_u8..4, 0_u64..40, 0_u64..3), 1..60),
        ) {
            let mut window = window(400);
            let (mut plain, mut removed, mut term) = (vec![(1, 1)], 1, 1);
            for (kind, place, more) in steps {
                let last = plain.last().map_or(0, |&(index, _)| index);
                match kind {
                    0 | 1 => {
                        term += more.saturating_sub(1);
                        window.append([entry(last + 1, term)]);
                        plain.push((last + 1, term));
                    }
                    2 => {
                        // Entries in memory alone are cut off: the ones that left it are committed.
                        let first = window.entries.front().map_or(last + 1, |entry| entry.index);
                        let index = first + place % (last + 2 - first);
                        term += 1;
                        window.append([entry(index, term)]);
                        plain.retain(|&(earlier, _)| earlier < index);
                        plain.push((index, term));
                    }
                    _ => {
                        let index = removed + place % (last + 1 - removed);
                        if more == 0 {
                            window.remove(index);
                            removed = removed.max(index);
                        } else {
                            window.trim(index);
                        }
                    }
                }
                for &(index, term) in &plain {
                    let expected = (index >= removed).then_some(term);
                    prop_assert_eq!(window.term_of(index), expected, "entry {}", index);
                }
                let last = plain.last().map_or(0, |&(index, _)| index);
                prop_assert_eq!(window.last_index(), Ok(last));
                prop_assert_eq!(window.term_of(last + 1), None);
                let held: Vec<u64> = window.entries.iter().map(|entry| entry.index).collect();
                prop_assert!(held.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                prop_assert!(held.is_empty() || held.last() == Some(&last));
                prop_assert_eq!(window.bytes(), window.entries.iter().map(cost).sum::<u64>());
            }
        }
    }
}
