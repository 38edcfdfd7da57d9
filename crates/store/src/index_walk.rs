//! Walks over an index, deferred entries included.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::vec::IntoIter;

use crate::arena::Handle;
use crate::index::Select;
use crate::index::tree::Entry;
use crate::special::SpecialWalk;

/// What an iterator yields: the tuples in the tree, merged with the deferred ones if there are any.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    tree: Select<'a>,
    aside: Option<Box<Aside<'a>>>,
}

/// What a walk yields that is not in the tree.
#[derive(Debug, Clone)]
enum Aside<'a> {
    Deferred(Deferred),
    /// Everything: the tree is empty.
    Special(SpecialWalk<'a>),
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
        Self { tree, aside: None }
    }

    /// A walk over an index that is no order of tuples; `tree` is empty.
    pub(crate) fn special(tree: Select<'a>, special: SpecialWalk<'a>) -> Self {
        Self { tree, aside: Some(Box::new(Aside::Special(special))) }
    }

    /// The walk over an index that is no order of tuples, if it is one.
    pub(crate) fn as_special(&self) -> Option<&SpecialWalk<'a>> {
        match self.aside.as_deref()? {
            Aside::Special(special) => Some(special),
            Aside::Deferred(_) => None,
        }
    }

    /// A walk that merges deferred entries, which are in its order.
    pub(crate) fn merged(mut tree: Select<'a>, entries: Vec<Entry>) -> Self {
        let next_in_tree = tree.next_entry();
        let deferred = Deferred { entries: entries.into_iter().peekable(), next_in_tree };
        Self { tree, aside: Some(Box::new(Aside::Deferred(deferred))) }
    }
}

impl Iterator for Walk<'_> {
    type Item = Handle;

    #[inline]
    fn next(&mut self) -> Option<Handle> {
        match self.aside.as_deref_mut() {
            None => self.tree.next(),
            Some(Aside::Deferred(deferred)) => deferred.next(&mut self.tree).map(|entry| entry.handle),
            Some(Aside::Special(special)) => special.next(),
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
