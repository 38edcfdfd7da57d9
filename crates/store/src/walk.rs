//! Walks over an index, deferred entries included.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::vec::IntoIter;

use crate::arena::Handle;
use crate::index::Select;
use crate::index::tree::Entry;

/// What an iterator yields: the tuples in the tree, merged with the deferred ones if there are any.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    tree: Select<'a>,
    deferred: Option<Box<Deferred>>,
}

#[derive(Debug, Clone)]
struct Deferred {
    /// In the order of the walk.
    entries: Peekable<IntoIter<Entry>>,
    /// The next one of the tree.
    next_in_tree: Option<Entry>,
}

impl<'a> Walk<'a> {
    /// A walk over an index without deferred entries.
    #[inline]
    pub(crate) fn of_tree(tree: Select<'a>) -> Self {
        Self { tree, deferred: None }
    }

    /// A walk that merges deferred entries, which are in its order.
    pub(crate) fn merged(mut tree: Select<'a>, entries: Vec<Entry>) -> Self {
        let next_in_tree = tree.next_entry();
        Self {
            tree,
            deferred: Some(Box::new(Deferred { entries: entries.into_iter().peekable(), next_in_tree })),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Handle;

    #[inline]
    fn next(&mut self) -> Option<Handle> {
        match &mut self.deferred {
            None => self.tree.next(),
            Some(deferred) => deferred.next(&mut self.tree).map(|entry| entry.handle),
        }
    }
}

impl Deferred {
    fn next(&mut self, tree: &mut Select<'_>) -> Option<Entry> {
        let is_deferred_first = match (self.next_in_tree, self.entries.peek()) {
            (Some(in_tree), Some(&deferred)) => tree.compare(deferred, in_tree) == Ordering::Less,
            (in_tree, _) => in_tree.is_none(),
        };
        if is_deferred_first {
            return self.entries.next();
        }
        std::mem::replace(&mut self.next_in_tree, tree.next_entry())
    }
}
