//! Nodes of the tree: insertion with splits, removal with merges.
//!
//! A node owns its children, so what leaves the tree leaves memory at once, and there are no links to keep right. An
//! inner node knows of each child its first entry, which is the separator, and how many entries are below it.

use super::block::{Block, Target};
use super::{Entry, Order};
use crate::arena::Handle;

#[derive(Debug)]
pub(super) enum Node<const L: usize, const I: usize> {
    Leaf(Box<Block<L>>),
    Inner(Box<Inner<L, I>>),
}

#[derive(Debug)]
pub(super) struct Inner<const L: usize, const I: usize> {
    /// The first entry below each child.
    firsts: Block<I>,
    /// The number of entries below each child. Handles are distinct and fewer than 2^32.
    counts: [u32; I],
    children: Vec<Node<L, I>>,
}

/// A node and what its parent has to know of it.
#[derive(Debug)]
pub(super) struct Branch<const L: usize, const I: usize> {
    pub(super) first: Entry,
    pub(super) count: u32,
    pub(super) node: Node<L, I>,
}

/// What an insertion did.
#[derive(Debug)]
pub(super) enum Insertion<const L: usize, const I: usize> {
    /// The equal entry's handle was this and now is the new one.
    Replaced(Handle),
    /// The entry is new; the node gave what did not fit to a right neighbour.
    Added(Option<Branch<L, I>>),
}

/// How many nodes of each kind a tree has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) leaves: u64,
    pub(super) inners: u64,
}

/// A node with at most this share of its capacity looks for a neighbour to merge with.
const SPARSE: usize = 4;
/// Two nodes merge only if this share of a node stays free, and a full leaf gives entries only to one that has more room.
const SLACK: usize = 8;

impl<const L: usize, const I: usize> Node<L, I> {
    /// The first entry below the node, which is not empty.
    pub(super) fn first(&self) -> Entry {
        match self {
            Node::Leaf(leaf) => leaf.entry(0),
            Node::Inner(inner) => inner.firsts.entry(0),
        }
    }

    pub(super) fn insert(
        &mut self,
        order: Order<'_>,
        target: &Target<'_>,
        entry: Entry,
        census: &mut Census,
    ) -> Insertion<L, I> {
        match self {
            Node::Leaf(leaf) => insert_into_leaf(leaf, order, target, entry, census),
            Node::Inner(inner) => inner.insert(order, target, entry, census),
        }
    }

    /// Removes the entry that equals the target. The node may be left empty.
    pub(super) fn remove(
        &mut self,
        order: Order<'_>,
        target: &Target<'_>,
        census: &mut Census,
    ) -> Option<Handle> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.locate(order, target).ok()?;
                Some(leaf.remove(at).handle)
            }
            Node::Inner(inner) => inner.remove(order, target, census),
        }
    }

    /// Puts `handle` in the place of the entry that equals the target.
    pub(super) fn replace(
        &mut self,
        order: Order<'_>,
        target: &Target<'_>,
        handle: Handle,
    ) -> Option<Handle> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.locate(order, target).ok()?;
                Some(leaf.swap_handle(at, handle))
            }
            Node::Inner(inner) => {
                let step = inner.children_up_to(order, target).checked_sub(1)?;
                let old = inner.children[step].replace(order, target, handle)?;
                inner.note_replaced(step, old, handle);
                Some(old)
            }
        }
    }
}

fn insert_into_leaf<const L: usize, const I: usize>(
    leaf: &mut Block<L>,
    order: Order<'_>,
    target: &Target<'_>,
    entry: Entry,
    census: &mut Census,
) -> Insertion<L, I> {
    let at = match leaf.locate(order, target) {
        Ok(at) => return Insertion::Replaced(leaf.swap_handle(at, entry.handle)),
        Err(at) => at,
    };
    if !leaf.is_full() {
        leaf.insert(at, entry);
        return Insertion::Added(None);
    }
    let cut = leaf.split_point(at);
    let mut right = leaf.split_off(cut);
    if at <= cut && cut < L {
        leaf.insert(at, entry);
    } else {
        right.insert(at - cut, entry);
    }
    census.leaves += 1;
    Insertion::Added(Some(Branch::leaf(right)))
}

impl<const L: usize, const I: usize> Inner<L, I> {
    pub(super) fn new() -> Self {
        Self { firsts: Block::new(), counts: [0; I], children: Vec::with_capacity(I) }
    }

    /// The first entry below each child.
    pub(super) fn firsts(&self) -> &Block<I> {
        &self.firsts
    }

    pub(super) fn children(&self) -> &[Node<L, I>] {
        &self.children
    }

    /// The number of entries below each child.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts[..self.children.len()]
    }

    /// The child that the entry which equals the target can be below.
    pub(super) fn child_of(&self, order: Order<'_>, target: &Target<'_>) -> Option<&Node<L, I>> {
        let step = self.children_up_to(order, target).checked_sub(1)?;
        self.children.get(step)
    }

    /// The child, if there is only one; the node is then empty.
    pub(super) fn take_only_child(&mut self) -> Option<Node<L, I>> {
        if self.children.len() == 1 { self.children.pop() } else { None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.firsts.is_full()
    }

    /// Appends a child in bulk.
    pub(super) fn push(&mut self, branch: Branch<L, I>) {
        self.counts[self.children.len()] = branch.count;
        self.firsts.push(branch.first);
        self.children.push(branch.node);
    }

    fn insert(
        &mut self,
        order: Order<'_>,
        target: &Target<'_>,
        entry: Entry,
        census: &mut Census,
    ) -> Insertion<L, I> {
        let mut before = self.children_up_to(order, target);
        if before > 0 && self.relieve(before - 1) {
            before = self.children_up_to(order, target);
        }
        let step = before.saturating_sub(1);
        match self.children[step].insert(order, target, entry, census) {
            Insertion::Replaced(old) => {
                self.note_replaced(step, old, entry.handle);
                Insertion::Replaced(old)
            }
            Insertion::Added(right) => {
                if before == 0 {
                    self.firsts.set(0, entry);
                }
                self.counts[step] += 1;
                let Some(right) = right else { return Insertion::Added(None) };
                self.counts[step] -= right.count;
                Insertion::Added(self.adopt(step + 1, right, census))
            }
        }
    }

    /// Moves entries of a full leaf into a neighbour that has room. An ascending run is left as it is: it leaves full
    /// leaves behind.
    fn relieve(&mut self, step: usize) -> bool {
        if self.counts[step] as usize != L {
            return false;
        }
        let (left, right) = self.children.split_at_mut(step);
        let Some((Node::Leaf(leaf), right)) = right.split_first_mut() else { return false };
        let worth = |room: usize| (room > L / SLACK).then_some(room.div_ceil(2));
        if let Some(Node::Leaf(left)) = left.last_mut()
            && let Some(moved) = worth(L - left.len())
        {
            left.take_front(leaf, moved);
            self.firsts.set(step, leaf.entry(0));
            self.counts[step - 1] += count(moved);
            self.counts[step] -= count(moved);
            return true;
        }
        if !leaf.is_in_run()
            && let Some(Node::Leaf(right)) = right.first_mut()
            && let Some(moved) = worth(L - right.len())
        {
            right.take_back(leaf, moved);
            self.firsts.set(step + 1, right.entry(0));
            self.counts[step + 1] += count(moved);
            self.counts[step] -= count(moved);
            return true;
        }
        false
    }

    /// Makes a branch the child at `at`; returns the right part of this node if it had to be split.
    fn adopt(&mut self, at: usize, branch: Branch<L, I>, census: &mut Census) -> Option<Branch<L, I>> {
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

    fn insert_child(&mut self, at: usize, branch: Branch<L, I>) {
        self.counts.copy_within(at..self.children.len(), at + 1);
        self.counts[at] = branch.count;
        self.firsts.insert(at, branch.first);
        self.children.insert(at, branch.node);
    }

    fn remove_child(&mut self, at: usize, census: &mut Census) -> Node<L, I> {
        self.counts.copy_within(at + 1..self.children.len(), at);
        self.firsts.remove(at);
        let child = self.children.remove(at);
        match child {
            Node::Leaf(_) => census.leaves -= 1,
            Node::Inner(_) => census.inners -= 1,
        }
        child
    }

    fn remove(&mut self, order: Order<'_>, target: &Target<'_>, census: &mut Census) -> Option<Handle> {
        let step = self.children_up_to(order, target).checked_sub(1)?;
        let removed = self.children[step].remove(order, target, census)?;
        self.counts[step] -= 1;
        if self.counts[step] == 0 {
            self.remove_child(step, census);
            return Some(removed);
        }
        if self.firsts.handles()[step] == removed {
            self.firsts.set(step, self.children[step].first());
        }
        if self.is_sparse(step) {
            self.merge(step, census);
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
    fn merge(&mut self, step: usize, census: &mut Census) {
        let left = if step > 0 && self.fit_together(step - 1) {
            step - 1
        } else if step + 1 < self.children.len() && self.fit_together(step) {
            step
        } else {
            return;
        };
        self.counts[left] += self.counts[left + 1];
        match (self.remove_child(left + 1, census), &mut self.children[left]) {
            (Node::Leaf(mut right), Node::Leaf(left)) => {
                let moved = right.len();
                left.take_front(&mut right, moved);
            }
            (Node::Inner(right), Node::Inner(left)) => left.append(*right),
            _ => unreachable!("all leaves are at one depth"),
        }
    }

    fn fit_together(&self, left: usize) -> bool {
        match (&self.children[left], &self.children[left + 1]) {
            (Node::Inner(left), Node::Inner(right)) => {
                left.children.len() + right.children.len() <= I - I / SLACK
            }
            _ => (self.counts[left] + self.counts[left + 1]) as usize <= L - L / SLACK,
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
    fn children_up_to(&self, order: Order<'_>, target: &Target<'_>) -> usize {
        match self.firsts.locate(order, target) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }
}

impl<const L: usize, const I: usize> Branch<L, I> {
    /// A leaf that is not empty.
    pub(super) fn leaf(leaf: Block<L>) -> Self {
        Self { first: leaf.entry(0), count: count(leaf.len()), node: Node::Leaf(Box::new(leaf)) }
    }

    /// An inner node that is not empty.
    pub(super) fn inner(inner: Inner<L, I>) -> Self {
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
