//! Nodes of the tree: insertion with splits, removal with merges.
//!
//! A node owns its children, so what leaves the tree leaves memory at once, and there are no links to keep right. An
//! inner node knows of each child its first entry, which is the separator, and how many entries are below it.

use super::block::{Block, Bound, SearchKey};
use super::leaf::Leaf;
pub(super) use super::leaf::{Insertion, Removed};
use super::{Entry, Order};
use crate::arena::Handle;

#[derive(Debug)]
pub(super) enum Node<const L: usize, const W: usize, const I: usize> {
    Leaf(Leaf<L, W>),
    Inner(Box<Inner<L, W, I>>),
}

#[derive(Debug)]
pub(super) struct Inner<const L: usize, const W: usize, const I: usize> {
    /// The first entry below each child.
    firsts: Block<I>,
    /// The number of entries below each child. Handles are distinct and fewer than 2^32.
    counts: [u32; I],
    children: Vec<Node<L, W, I>>,
}

/// A node and what its parent has to know of it.
#[derive(Debug)]
pub(super) struct Branch<const L: usize, const W: usize, const I: usize> {
    pub(super) first: Entry,
    pub(super) count: u32,
    pub(super) node: Node<L, W, I>,
}

/// The way in which a split was avoided.
#[derive(Debug)]
enum Relief {
    /// Nothing: the leaf has a free slot, or its neighbours have none.
    None,
    /// Entries went to a neighbour; which leaf the new one belongs into is open again.
    Shared,
    /// Nothing, for the new entry can be the first one of the next leaf.
    Next,
}

/// How many nodes of each kind a tree has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Census {
    /// Of both forms, which take the same memory.
    pub(super) leaves: u64,
    pub(super) inners: u64,
}

/// A node with at most this share of its capacity looks for a neighbour to merge with.
const SPARSE: usize = 4;
/// Two nodes merge only if this share of a node stays free, and a full leaf gives entries only to one with more free slots.
const SLACK: usize = 8;

impl<const L: usize, const W: usize, const I: usize> Node<L, W, I> {
    /// The first entry below the node, which is not empty.
    pub(super) fn first(&self) -> Entry {
        match self {
            Node::Leaf(leaf) => leaf.first(),
            Node::Inner(inner) => inner.firsts.entry(0),
        }
    }

    pub(super) fn insert(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        entry: Entry,
        census: &mut Census,
    ) -> Insertion<Branch<L, W, I>> {
        match self {
            Node::Leaf(leaf) => match leaf.insert(order, target, entry) {
                Insertion::Replaced(old) => Insertion::Replaced(old),
                Insertion::Added(right) => {
                    census.leaves += u64::from(right.is_some());
                    Insertion::Added(right.map(Branch::leaf))
                }
            },
            Node::Inner(inner) => inner.insert(order, target, entry, census),
        }
    }

    /// Removes the entry that equals the target, and those behind it in its leaf up to `limit` in all. The node may be left
    /// empty.
    pub(super) fn remove(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        limit: usize,
        census: &mut Census,
    ) -> Option<Removed> {
        match self {
            Node::Leaf(leaf) => leaf.remove(order, target, limit),
            Node::Inner(inner) => inner.remove(order, target, limit, census),
        }
    }

    /// Puts `handle` in the place of the entry that equals the target.
    pub(super) fn replace(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        handle: Handle,
    ) -> Option<Handle> {
        match self {
            Node::Leaf(leaf) => leaf.replace(order, target, handle),
            Node::Inner(inner) => {
                let step = inner.children_up_to(order, target).checked_sub(1)?;
                let old = inner.children[step].replace(order, target, handle)?;
                inner.note_replaced(step, old, handle);
                Some(old)
            }
        }
    }
}

impl<const L: usize, const W: usize, const I: usize> Inner<L, W, I> {
    pub(super) fn new() -> Self {
        Self { firsts: Block::new(), counts: [0; I], children: Vec::with_capacity(I) }
    }

    /// The first entry below each child.
    pub(super) fn firsts(&self) -> &Block<I> {
        &self.firsts
    }

    pub(super) fn into_children(self) -> Vec<Node<L, W, I>> {
        self.children
    }

    pub(super) fn children(&self) -> &[Node<L, W, I>] {
        &self.children
    }

    /// The number of entries below each child.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts[..self.children.len()]
    }

    /// The child that the entry which equals the target can be below.
    pub(super) fn child_of(&self, order: Order<'_>, target: &SearchKey<'_>) -> Option<&Node<L, W, I>> {
        let step = self.children_up_to(order, target).checked_sub(1)?;
        self.children.get(step)
    }

    /// The child, if there is only one; the node is then empty.
    pub(super) fn take_only_child(&mut self) -> Option<Node<L, W, I>> {
        if self.children.len() == 1 { self.children.pop() } else { None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.firsts.is_full()
    }

    /// Appends a child in bulk.
    pub(super) fn push(&mut self, branch: Branch<L, W, I>) {
        self.counts[self.children.len()] = branch.count;
        self.firsts.push(branch.first);
        self.children.push(branch.node);
    }

    fn insert(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        entry: Entry,
        census: &mut Census,
    ) -> Insertion<Branch<L, W, I>> {
        let before = self.children_up_to(order, target);
        let mut step = before.saturating_sub(1);
        let mut is_first = before == 0;
        if !is_first && self.counts[step] as usize >= L {
            match self.relieve(order, step, entry.hint) {
                Relief::None => {}
                Relief::Shared => step = self.children_up_to(order, target).saturating_sub(1),
                Relief::Next => (step, is_first) = (step + 1, true),
            }
        }
        match self.children[step].insert(order, target, entry, census) {
            Insertion::Replaced(old) => {
                self.note_replaced(step, old, entry.handle);
                Insertion::Replaced(old)
            }
            Insertion::Added(right) => {
                if is_first {
                    self.firsts.set(step, entry);
                }
                self.counts[step] += 1;
                let Some(right) = right else { return Insertion::Added(None) };
                self.counts[step] -= right.count;
                Insertion::Added(self.adopt(step + 1, right, census))
            }
        }
    }

    /// Avoids the split of a leaf for an entry with a hint that belongs into it, if a neighbour has free slots.
    ///
    /// A sorted block gives the neighbour a part of its entries, but an ascending run is left as it is: it leaves full
    /// leaves behind. A dense run, whose window ends before the hint, keeps its own, and lets the next leaf begin with the
    /// new entry.
    fn relieve(&mut self, order: Order<'_>, step: usize, hint: u64) -> Relief {
        let (left, right) = self.children.split_at_mut(step);
        let Some((Node::Leaf(leaf), right)) = right.split_first_mut() else { return Relief::None };
        if !leaf.lacks_space(order, hint) {
            return Relief::None;
        }
        let room = |neighbour: Option<&Node<L, W, I>>| match neighbour {
            Some(Node::Leaf(neighbour)) if neighbour.free_space() > L / SLACK => neighbour.free_space(),
            _ => 0,
        };
        let (left_room, right_room) = (room(left.last()), room(right.first()));
        let Leaf::Sorted(block) = leaf else {
            return if right_room > 0 { Relief::Next } else { Relief::None };
        };
        if left_room > 0
            && let Some(Node::Leaf(left)) = left.last_mut()
        {
            let moved = left_room.div_ceil(2);
            left.sorted().take_front(block, moved);
            self.firsts.set(step, block.entry(0));
            self.counts[step - 1] += count(moved);
            self.counts[step] -= count(moved);
            return Relief::Shared;
        }
        if right_room > 0
            && !block.is_in_run()
            && let Some(Node::Leaf(right)) = right.first_mut()
        {
            let moved = right_room.div_ceil(2);
            right.sorted().take_back(block, moved);
            self.firsts.set(step + 1, right.first());
            self.counts[step + 1] += count(moved);
            self.counts[step] -= count(moved);
            return Relief::Shared;
        }
        Relief::None
    }

    /// Makes a branch the child at `at`; returns the right part of this node if it had to be split.
    fn adopt(&mut self, at: usize, branch: Branch<L, W, I>, census: &mut Census) -> Option<Branch<L, W, I>> {
        if !self.is_full() {
            self.insert_child(at, branch);
            return None;
        }
        let cut = self.firsts.split_point(at);
        let mut right = Self::new();
        right.firsts = self.firsts.split_off(cut);
        right.counts[..I - cut].copy_from_slice(&self.counts[cut..]);
        right.children.extend(self.children.drain(cut..));
        if at <= cut && cut < I {
            self.insert_child(at, branch);
        } else {
            right.insert_child(at - cut, branch);
        }
        census.inners += 1;
        Some(Branch::inner(right))
    }

    fn insert_child(&mut self, at: usize, branch: Branch<L, W, I>) {
        self.counts.copy_within(at..self.children.len(), at + 1);
        self.counts[at] = branch.count;
        self.firsts.insert(at, branch.first);
        self.children.insert(at, branch.node);
    }

    fn remove_child(&mut self, at: usize, census: &mut Census) -> Node<L, W, I> {
        self.counts.copy_within(at + 1..self.children.len(), at);
        self.firsts.remove(at);
        let child = self.children.remove(at);
        match child {
            Node::Leaf(_) => census.leaves -= 1,
            Node::Inner(_) => census.inners -= 1,
        }
        child
    }

    fn remove(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        limit: usize,
        census: &mut Census,
    ) -> Option<Removed> {
        let step = self.children_up_to(order, target).checked_sub(1)?;
        let removed = self.children[step].remove(order, target, limit, census)?;
        self.counts[step] -= removed.count;
        if self.counts[step] == 0 {
            self.remove_child(step, census);
            return Some(removed);
        }
        if self.firsts.handles()[step] == removed.first {
            self.firsts.set(step, self.children[step].first());
        }
        if self.is_sparse(step) {
            self.merge(order, step, census);
        }
        Some(removed)
    }

    fn is_sparse(&self, step: usize) -> bool {
        match &self.children[step] {
            Node::Leaf(_) => self.counts[step] as usize <= L / SPARSE,
            Node::Inner(inner) => inner.children.len() <= I / SPARSE,
        }
    }

    /// Merges a sparse child with a neighbour, if the two fit into one node.
    fn merge(&mut self, order: Order<'_>, step: usize, census: &mut Census) {
        let left = if step > 0 && self.fit_together(order, step - 1) {
            step - 1
        } else if step + 1 < self.children.len() && self.fit_together(order, step) {
            step
        } else {
            return;
        };
        self.counts[left] += self.counts[left + 1];
        match (self.remove_child(left + 1, census), &mut self.children[left]) {
            (Node::Leaf(right), Node::Leaf(left)) => left.append(order, right),
            (Node::Inner(right), Node::Inner(left)) => left.append(*right),
            _ => unreachable!("all leaves are at one depth"),
        }
    }

    fn fit_together(&self, order: Order<'_>, left: usize) -> bool {
        match (&self.children[left], &self.children[left + 1]) {
            (Node::Inner(left), Node::Inner(right)) => {
                left.children.len() + right.children.len() <= I - I / SLACK
            }
            (Node::Leaf(left), Node::Leaf(right)) => left.fits_with(order, right, L / SLACK),
            _ => unreachable!("all leaves are at one depth"),
        }
    }

    /// Moves all children of the next inner node in order into this one.
    fn append(&mut self, mut right: Self) {
        let (len, moved) = (self.children.len(), right.children.len());
        self.counts[len..len + moved].copy_from_slice(&right.counts[..moved]);
        self.firsts.take_front(&mut right.firsts, moved);
        self.children.append(&mut right.children);
    }

    fn note_replaced(&mut self, step: usize, old: Handle, new: Handle) {
        if self.firsts.handles()[step] == old {
            self.firsts.swap_handle(step, new);
        }
    }

    /// How many children begin at or before the target.
    #[inline]
    fn children_up_to(&self, order: Order<'_>, target: &SearchKey<'_>) -> usize {
        if order.exact {
            return self.firsts.count_before(Bound::AfterHint(target.hint));
        }
        match self.firsts.locate(order, target) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }
}

impl<const L: usize, const W: usize, const I: usize> Branch<L, W, I> {
    /// A leaf that is not empty.
    pub(super) fn leaf(leaf: Leaf<L, W>) -> Self {
        Self { first: leaf.first(), count: count(leaf.len()), node: Node::Leaf(leaf) }
    }

    /// An inner node that is not empty.
    pub(super) fn inner(inner: Inner<L, W, I>) -> Self {
        Self {
            first: inner.firsts.entry(0),
            count: inner.counts().iter().sum(),
            node: Node::Inner(Box::new(inner)),
        }
    }
}

fn count(entries: usize) -> u32 {
    u32::try_from(entries).expect("a tree has fewer entries than there are handles")
}
