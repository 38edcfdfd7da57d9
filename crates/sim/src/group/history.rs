//! The one history that all nodes of a group must agree on.

use std::collections::BTreeMap;

use lycosa_group::members::NodeId;
use lycosa_group::node::Payload;
use lycosa_group::record::Position;

use crate::violation::{Checked, hold};

/// A hash that goes on from `seed`.
pub(super) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, step)
}

/// The data after some operations, as one number.
pub(super) fn digest(operations: &[u64]) -> u64 {
    operations.iter().fold(0, |digest, operation| hash(digest, &operation.to_le_bytes()))
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// Entries that some node has handed out, with the digest of the data after each.
    entries: BTreeMap<u64, (u64, u64, u64)>,
    leaders: BTreeMap<u64, NodeId>,
    confirmed: BTreeMap<u64, (u64, u64)>,
    /// The greatest index that was confirmed so far.
    pub(super) newest_confirmed: u64,
}

impl History {
    /// A node leads in `term`. True if the term had no leader so far.
    pub(super) fn lead(&mut self, term: u64, node: NodeId) -> Checked<bool> {
        let is_first = !self.leaders.contains_key(&term);
        let leader = *self.leaders.entry(term).or_insert(node);
        hold!(leader == node, "term {term} has two leaders: {leader} and {node}");
        Ok(is_first)
    }

    /// Whether another node has led since the leader of `term`. What that leader proposes now comes to nothing.
    pub(super) fn has_led_since(&self, term: u64) -> bool {
        self.leaders.keys().next_back().is_some_and(|newest| *newest > term)
    }

    /// A node hands out an entry; `digest` is that of its data after it.
    pub(super) fn hand_out(
        &mut self,
        node: NodeId,
        position: Position,
        payload: &Payload,
        digest: u64,
    ) -> Checked<()> {
        let Position { term, index } = position;
        let content = hash(0, format!("{payload:?}").as_bytes());
        let first = *self.entries.entry(index).or_insert((term, content, digest));
        hold!(first.0 == term, "entry {index} is of term {} and, at node {node}, of term {term}", first.0);
        hold!(first.1 == content, "entry {index} of term {term} has another content at node {node}");
        hold!(first.2 == digest, "after entry {index} node {node} has other data");
        if let (Some((term, operation)), Payload::Rows(rows)) = (self.confirmed.get(&index), payload) {
            let is_same = *term == position.term && rows.starts_with(&operation.to_le_bytes());
            hold!(is_same, "operation {operation} was confirmed at {index}, node {node} hands out another");
        }
        Ok(())
    }

    /// A node has the data of a snapshot that ends with entry `index`.
    pub(super) fn install(&mut self, node: NodeId, index: u64, digest: u64) -> Checked<()> {
        if let Some((_, _, expected)) = self.entries.get(&index) {
            hold!(*expected == digest, "the snapshot of entry {index} at node {node} has other data");
        }
        Ok(())
    }

    pub(super) fn confirm(&mut self, position: Position, operation: u64) -> Checked<()> {
        let Position { term, index } = position;
        if let Some((found, ..)) = self.entries.get(&index) {
            hold!(
                *found == term,
                "operation {operation} is confirmed at {position:?}, term {found} has its place"
            );
        }
        self.confirmed.insert(index, (term, operation));
        self.newest_confirmed = self.newest_confirmed.max(index);
        Ok(())
    }

    /// An entry gave way in the log of its proposer. A later leader that has it still may confirm it yet.
    pub(super) fn lose(&self, position: Position) -> Checked<()> {
        let is_kept = self.entries.get(&position.index).is_some_and(|(term, ..)| *term == position.term);
        hold!(!is_kept, "{position:?} is lost, and was handed out");
        let is_confirmed =
            self.confirmed.get(&position.index).is_some_and(|(term, _)| *term == position.term);
        hold!(!is_confirmed, "{position:?} is lost, and was confirmed");
        Ok(())
    }
}
