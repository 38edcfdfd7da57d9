//! Places between entries, and the ways through the tree that lead to them.

use super::block::Bound;
use super::leaf::Leaf;
use super::node::Node;
use super::{Entry, INNER_CHILDREN, LEAF_ENTRIES, TreeOf, WINDOW};

/// Levels of inner nodes, at most. A root gets a parent only when it is full, and filling a node takes a constant
/// share of its capacity in splits below. So a level multiplies the number of insertions that the tree must have seen
/// by tens.
const MAX_LEVELS: usize = 32;

/// A place between two entries, before the first one or after the last one.
///
/// The cursor borrows the tree: it cannot outlive a change.
#[derive(Debug, Clone)]
pub struct Cursor<'a, const L: usize = LEAF_ENTRIES, const W: usize = WINDOW, const I: usize = INNER_CHILDREN>
{
    tree: &'a TreeOf<L, W, I>,
    /// `None` in an empty tree.
    leaf: Option<&'a Leaf<L, W>>,
    /// The position in the leaf.
    at: usize,
    /// The child taken at each level.
    path: [u8; MAX_LEVELS],
}

impl<'a, const L: usize, const W: usize, const I: usize> Cursor<'a, L, W, I> {
    pub(super) fn descend(tree: &'a TreeOf<L, W, I>, place: Bound<'_>) -> Self {
        let mut cursor = Self { tree, leaf: None, at: 0, path: [0; MAX_LEVELS] };
        let Some(mut node) = tree.root() else { return cursor };
        let mut level = 0;
        loop {
            match node {
                Node::Inner(inner) => {
                    let step = inner.firsts().count_before(place).saturating_sub(1);
                    cursor.path[level] = step_byte(step);
                    level += 1;
                    node = &inner.children()[step];
                }
                Node::Leaf(leaf) => {
                    cursor.at = leaf.seek(place);
                    cursor.leaf = Some(leaf);
                    return cursor;
                }
            }
        }
    }

    /// The place with `rank` entries before it, or the end.
    pub(super) fn at_rank(tree: &'a TreeOf<L, W, I>, rank: u64) -> Self {
        let mut cursor = Self { tree, leaf: None, at: 0, path: [0; MAX_LEVELS] };
        let Some(mut node) = tree.root() else { return cursor };
        let mut before = usize::try_from(rank.min(tree.len())).expect("entries are in memory");
        let mut level = 0;
        loop {
            match node {
                Node::Inner(inner) => {
                    let counts = inner.counts();
                    let mut step = 0;
                    while step + 1 < counts.len() && before >= counts[step] as usize {
                        before -= counts[step] as usize;
                        step += 1;
                    }
                    cursor.path[level] = step_byte(step);
                    level += 1;
                    node = &inner.children()[step];
                }
                Node::Leaf(leaf) => {
                    cursor.at = leaf.select(before);
                    cursor.leaf = Some(leaf);
                    return cursor;
                }
            }
        }
    }

    /// How many entries are before this place.
    pub fn rank(&self) -> u64 {
        let mut rank = self.leaf.map_or(0, |leaf| leaf.rank(self.at)) as u64;
        let mut node = self.tree.root();
        for &step in &self.path {
            let Some(Node::Inner(inner)) = node else { break };
            let step = usize::from(step);
            rank += inner.counts()[..step].iter().copied().map(u64::from).sum::<u64>();
            node = inner.children().get(step);
        }
        rank
    }

    /// The entry after this place; the cursor moves behind it.
    #[inline]
    pub fn forward(&mut self) -> Option<Entry> {
        let next = match self.leaf?.next(self.at) {
            Some(next) => next,
            None => self.turn(Direction::Forward)?.next(Leaf::<L, W>::START)?,
        };
        self.at = next.0;
        Some(next.1)
    }

    /// The entry before this place; the cursor moves before it.
    #[inline]
    pub fn backward(&mut self) -> Option<Entry> {
        let previous = match self.leaf?.previous(self.at) {
            Some(previous) => previous,
            None => {
                let leaf = self.turn(Direction::Backward)?;
                leaf.previous(leaf.end())?
            }
        };
        self.at = previous.0;
        Some(previous.1)
    }

    /// Goes to the neighbouring leaf; stays if there is none.
    fn turn(&mut self, direction: Direction) -> Option<&'a Leaf<L, W>> {
        let mut node = self.tree.root()?;
        let mut turning = None;
        for (level, &step) in self.path.iter().enumerate() {
            let Node::Inner(inner) = node else { break };
            let step = usize::from(step);
            let next = match direction {
                Direction::Forward => Some(step + 1).filter(|&next| next < inner.children().len()),
                Direction::Backward => step.checked_sub(1),
            };
            if let Some(next) = next {
                turning = Some((level, next, &inner.children()[next]));
            }
            node = &inner.children()[step];
        }
        let (mut level, mut step, mut node) = turning?;
        loop {
            self.path[level] = step_byte(step);
            match node {
                Node::Inner(inner) => {
                    step = match direction {
                        Direction::Forward => 0,
                        Direction::Backward => inner.children().len() - 1,
                    };
                    level += 1;
                    node = &inner.children()[step];
                }
                Node::Leaf(leaf) => {
                    self.leaf = Some(leaf);
                    return Some(leaf);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

fn step_byte(step: usize) -> u8 {
    u8::try_from(step).expect("a node has at most 255 children")
}
