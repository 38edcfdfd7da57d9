//! An order-statistic B+tree of 12-byte entries, or of 4-byte ones where hints are consecutive.
//!
//! An entry is a tuple's hint (the first 64 bits of an order-preserving encoding of its key, or any number that agrees
//! with the order) and its handle. Searches compare hints, which lie side by side in the nodes, and read tuples only where
//! hints are equal; what a tuple's order is comes in with each call as an [`Order`]. Inner nodes count the entries below
//! each child, so the number of entries before a place, and the place for a number, cost O(log n) as all else here.
//!
//! Where hints are exact ([`Order::exact`]: each belongs to one key) no tuple is ever read, and a leaf whose hints
//! lie close together has another form, a dense one, which stores no hints. The ids of a queue's tasks, consecutive
//! numbers that come at the right and go mostly at the left, take a third of the memory so, and a leaf finds them
//! without a search.
//!
//! Invariants, which `tests` check after random changes at several node sizes:
//! - all leaves are at one depth; no node is empty, and the root has at least two children or is a leaf;
//! - entries are in strictly ascending order: no two are equal, and hints never descend;
//! - dense leaves are in trees of exact hints only, and the marks in them are those of their entries;
//! - an inner node's separators are the first entries of its children, so a handle in the tree is that of an entry.
//!
//! Nodes are full where entries come in ascending order, anywhere in the tree: a leaf that an ascending run fills is cut
//! where the run goes on. Otherwise a full leaf first shares with a neighbour. A leaf of 85 entries, or of 245
//! consecutive hints, takes 1024 bytes, a size that allocators have without loss. A node a quarter full merges with a
//! neighbour with free slots, so an index that shrinks gives its memory back.
//!
//! Absent: links between leaves (a [`Cursor`] knows its way from the root, and nodes need no ids), parallel readers,
//! prefixes shared between keys.

mod block;
mod cursor;
mod dense;
mod leaf;
mod node;
mod remains;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use lycosa_tuple::key::KeyDef;

use self::block::{Block, Bound, SearchKey, Sought};
pub use self::cursor::Cursor;
use self::dense::Dense;
use self::leaf::Leaf;
use self::node::{Branch, Census, Inner, Insertion, Node, Removed};
pub use self::remains::Remains;
use crate::arena::{Arena, Handle};

/// The tree in the size for use.
pub type Tree = TreeOf<LEAF_ENTRIES, WINDOW, INNER_CHILDREN>;

/// Entries of a full leaf: as many as fit into 1024 bytes.
const LEAF_ENTRIES: usize = 85;
/// Hints that a dense leaf spans: as many as fit into 1024 bytes.
const WINDOW: usize = 245;
/// Children of a full inner node.
const INNER_CHILDREN: usize = 128;

const _: () = assert!(size_of::<Block<LEAF_ENTRIES>>() == 1024 && size_of::<Dense<WINDOW>>() == 1024);
const _: () = assert!(size_of::<Node<LEAF_ENTRIES, WINDOW, INNER_CHILDREN>>() == 16);

/// A tree whose leaves hold up to `L` entries, or up to `W` whose hints lie close together, and whose inner nodes
/// have up to `I` children, each from 2 to 255. `W` is greater than `L`.
#[derive(Debug)]
pub struct TreeOf<const L: usize, const W: usize, const I: usize> {
    root: Option<Node<L, W, I>>,
    len: u64,
    census: Census,
}

/// A hint and a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// `a.hint < b.hint` says that `a` is before `b`; tuples with equal keys have equal hints.
    pub hint: u64,
    /// The tuple.
    pub handle: Handle,
}

/// The order of the entries: where their tuples are, and the key that orders them. No two tuples in a tree may be equal by
/// it.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The tuples of the tree's handles.
    pub arena: &'a Arena,
    /// All parts that make a tuple unique.
    pub key: &'a KeyDef,
    /// Whether a hint says all of a tuple's order: no two keys have the same. Then no tuple is ever read. It is the same in
    /// all calls for a tree.
    pub exact: bool,
}

/// A key, or its first parts, that places are looked for by.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'k> {
    /// MessagePack values back to back.
    pub key: &'k [u8],
    /// The number of values; none are before, equal to and behind everything.
    pub part_count: u32,
    /// The least hint that a tuple with such a key can have.
    pub low: u64,
    /// The greatest one.
    pub high: u64,
    /// Whether only tuples with such a key have hints from `low` to `high`, so that none has to be read.
    pub decided: bool,
}

impl<'k> Probe<'k> {
    /// A probe for a tree whose hints are [`KeyDef::hint`] of `definition`.
    pub fn new(definition: &KeyDef, key: &'k [u8], part_count: u32) -> Self {
        let (low, high) = definition.key_hint(key, part_count);
        // There is a bit left only behind whole encodings of all values, none of which is the beginning of another.
        Self { key, part_count, low, high, decided: low < high }
    }

    /// Whether the entry's tuple has this key.
    pub fn matches(&self, order: Order<'_>, entry: Entry) -> bool {
        (self.low..=self.high).contains(&entry.hint)
            && (self.decided || self.compare_tuple(order, entry.handle).is_eq())
    }

    fn compare_tuple(&self, order: Order<'_>, handle: Handle) -> Ordering {
        order.key.compare_with_key(order.arena.get(handle), self.key, self.part_count)
    }
}

impl<const L: usize, const W: usize, const I: usize> TreeOf<L, W, I> {
    /// An empty tree; it takes no memory yet.
    pub const fn new() -> Self {
        Self { root: None, len: 0, census: Census { leaves: 0, inners: 0 } }
    }

    /// A tree of entries that are in strictly ascending order; its nodes are full. `exact` is that of [`Order`].
    pub fn from_ascending(exact: bool, entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut tree = Self::new();
        let mut level = Vec::new();
        let mut last: Option<Leaf<L, W>> = None;
        for entry in entries {
            tree.len += 1;
            if !last.as_mut().is_some_and(|leaf| leaf.push(entry)) {
                level.extend(last.replace(Leaf::new(exact, entry)).map(Branch::leaf));
            }
        }
        level.extend(last.map(Branch::leaf));
        tree.census.leaves = level.len() as u64;
        while level.len() > 1 {
            let mut parents = Vec::with_capacity(level.len() / I + 1);
            let mut parent = Inner::new();
            for branch in level {
                if parent.is_full() {
                    parents.push(Branch::inner(std::mem::replace(&mut parent, Inner::new())));
                }
                parent.push(branch);
            }
            parents.push(Branch::inner(parent));
            tree.census.inners += parents.len() as u64;
            level = parents;
        }
        tree.root = level.pop().map(|branch| branch.node);
        tree
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all nodes.
    pub fn memory(&self) -> u64 {
        let inner = size_of::<Inner<L, W, I>>() + I * size_of::<Node<L, W, I>>();
        self.census.leaves * size_of::<Block<L>>() as u64 + self.census.inners * inner as u64
    }

    /// The entry that equals `tuple`, whose hint is `hint`.
    pub fn find(&self, order: Order<'_>, hint: u64, tuple: &[u8]) -> Option<Handle> {
        let target = SearchKey { hint, sought: Sought::Tuple(tuple) };
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Inner(inner) => node = inner.child_of(order, &target)?,
                Node::Leaf(leaf) => return leaf.find(order, &target),
            }
        }
    }

    /// Adds an entry, or puts its handle in the place of an equal entry's, which is returned.
    pub fn insert(&mut self, order: Order<'_>, entry: Entry) -> Option<Handle> {
        let Some(root) = &mut self.root else {
            *self = Self::from_ascending(order.exact, [entry]);
            return None;
        };
        let target = SearchKey::from(entry);
        match root.insert(order, &target, entry, &mut self.census) {
            Insertion::Replaced(old) => Some(old),
            Insertion::Added(right) => {
                self.len += 1;
                if let Some(right) = right {
                    self.raise_root(right);
                }
                None
            }
        }
    }

    /// Removes the entry that equals `entry`; its handle is returned.
    pub fn remove(&mut self, order: Order<'_>, entry: Entry) -> Option<Handle> {
        self.remove_in_leaf(order, entry, 1).map(|removed| removed.first)
    }

    /// Removes the entry that equals `first` and those behind it, up to `count` in all, with one descent for each leaf.
    /// `entry` gives the entry after that number of removals. Returns the number of removed entries.
    pub fn remove_run(
        &mut self,
        order: Order<'_>,
        count: usize,
        mut entry: impl FnMut(usize) -> Entry,
    ) -> usize {
        let mut done = 0;
        while done < count
            && let Some(removed) = self.remove_in_leaf(order, entry(done), count - done)
        {
            done += removed.count as usize;
        }
        done
    }

    #[inline]
    fn remove_in_leaf(&mut self, order: Order<'_>, first: Entry, limit: usize) -> Option<Removed> {
        let target = SearchKey::from(first);
        let removed = self.root.as_mut()?.remove(order, &target, limit, &mut self.census)?;
        self.len -= u64::from(removed.count);
        self.lower_root();
        Some(removed)
    }

    /// Puts `handle` in the place of the one in the entry that equals `entry`, which is returned. The new handle's
    /// tuple has the same key.
    pub fn replace(&mut self, order: Order<'_>, entry: Entry, handle: Handle) -> Option<Handle> {
        let target = SearchKey::from(entry);
        self.root.as_mut()?.replace(order, &target, handle)
    }

    /// The number of entries with these hints.
    pub fn count_hints(&self, hints: RangeInclusive<u64>) -> u64 {
        let before = Cursor::descend(self, Bound::BeforeHint(*hints.start())).rank();
        Cursor::descend(self, Bound::AfterHint(*hints.end())).rank() - before
    }

    /// The place before the first entry.
    pub fn start(&self) -> Cursor<'_, L, W, I> {
        Cursor::descend(self, Bound::Start)
    }

    /// The place after the last entry.
    pub fn end(&self) -> Cursor<'_, L, W, I> {
        Cursor::descend(self, Bound::End)
    }

    /// The place with `rank` entries before it, or the end.
    pub fn at(&self, rank: u64) -> Cursor<'_, L, W, I> {
        Cursor::at_rank(self, rank)
    }

    /// The place before the first entry that is not before the key.
    pub fn lower_bound(&self, order: Order<'_>, probe: &Probe<'_>) -> Cursor<'_, L, W, I> {
        let by_hints = Cursor::descend(self, Bound::BeforeHint(probe.low));
        if probe.decided {
            return by_hints;
        }
        match by_hints.clone().forward() {
            Some(entry) if entry.hint <= probe.high && probe.compare_tuple(order, entry.handle).is_lt() => {
                self.among(probe, &|handle| probe.compare_tuple(order, handle).is_lt())
            }
            _ => by_hints,
        }
    }

    /// The first entry with the key.
    pub fn first_match(&self, order: Order<'_>, probe: &Probe<'_>) -> Option<Entry> {
        if order.exact && probe.low == probe.high {
            let handle = self.find(order, probe.low, &[])?;
            return Some(Entry { hint: probe.low, handle });
        }
        let entry = Cursor::descend(self, Bound::BeforeHint(probe.low)).forward()?;
        if entry.hint > probe.high {
            return None;
        }
        if probe.decided {
            return Some(entry);
        }
        match probe.compare_tuple(order, entry.handle) {
            Ordering::Equal => Some(entry),
            Ordering::Greater => None,
            Ordering::Less => {
                self.lower_bound(order, probe).forward().filter(|&entry| probe.matches(order, entry))
            }
        }
    }

    /// The place after the last entry that is not behind the key.
    pub fn upper_bound(&self, order: Order<'_>, probe: &Probe<'_>) -> Cursor<'_, L, W, I> {
        let by_hints = Cursor::descend(self, Bound::AfterHint(probe.high));
        if probe.decided {
            return by_hints;
        }
        match by_hints.clone().backward() {
            Some(entry) if entry.hint >= probe.low && probe.compare_tuple(order, entry.handle).is_gt() => {
                self.among(probe, &|handle| probe.compare_tuple(order, handle).is_le())
            }
            _ => by_hints,
        }
    }

    /// The place behind the last entry that `is_before`, where hints between the probe's leave that open.
    fn among(&self, probe: &Probe<'_>, is_before: &dyn Fn(Handle) -> bool) -> Cursor<'_, L, W, I> {
        Cursor::descend(self, Bound::Among { low: probe.low, high: probe.high, is_before })
    }

    fn root(&self) -> Option<&Node<L, W, I>> {
        self.root.as_ref()
    }

    /// Puts a root above the present one and its new neighbour.
    fn raise_root(&mut self, right: Branch<L, W, I>) {
        let Some(node) = self.root.take() else { return };
        let left_count =
            u32::try_from(self.len).expect("a tree has fewer entries than there are handles") - right.count;
        let mut root = Inner::new();
        root.push(Branch { first: node.first(), count: left_count, node });
        root.push(right);
        self.census.inners += 1;
        self.root = Some(Node::Inner(Box::new(root)));
    }

    /// Drops roots that have nothing to choose between.
    fn lower_root(&mut self) {
        if self.len == 0 {
            *self = Self::new();
        }
        while let Some(Node::Inner(inner)) = &mut self.root
            && let Some(child) = inner.take_only_child()
        {
            self.census.inners -= 1;
            self.root = Some(child);
        }
    }
}

impl<const L: usize, const W: usize, const I: usize> Default for TreeOf<L, W, I> {
    fn default() -> Self {
        Self::new()
    }
}
