//! The rest of a discarded tree, freed leaf by leaf.
//!
//! To drop a tree of ten million entries at once would free a hundred thousand nodes in one turn of the loop.

use super::leaf::Leaf;
use super::node::Node;
use super::{INNER_CHILDREN, LEAF_ENTRIES, TreeOf, WINDOW};
use crate::arena::Handle;

/// The nodes of a tree that are not freed yet.
#[derive(Debug)]
pub struct Remains<const L: usize = LEAF_ENTRIES, const W: usize = WINDOW, const I: usize = INNER_CHILDREN> {
    /// The next one is the last.
    nodes: Vec<Node<L, W, I>>,
}

impl<const L: usize, const W: usize, const I: usize> TreeOf<L, W, I> {
    /// The tree, to be freed in steps.
    pub fn into_remains(self) -> Remains<L, W, I> {
        Remains { nodes: self.root.into_iter().collect() }
    }
}

impl<const L: usize, const W: usize, const I: usize> Remains<L, W, I> {
    /// Frees the next leaf, in the order of the tree, after handing out its handles. Returns how many they were; `None` if
    /// there was no leaf any more.
    pub fn free_leaf(&mut self, mut f: impl FnMut(Handle)) -> Option<u64> {
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Inner(inner) => self.nodes.extend(inner.into_children().into_iter().rev()),
                Node::Leaf(leaf) => {
                    let mut position = Leaf::<L, W>::START;
                    while let Some((behind, entry)) = leaf.next(position) {
                        f(entry.handle);
                        position = behind;
                    }
                    return Some(leaf.len() as u64);
                }
            }
        }
        None
    }
}
