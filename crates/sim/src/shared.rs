//! Parts of a model or an account that its copies share until one of them changes.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A value with cheap copies. Mutable access makes a copy of its own first, if there are others; so ask before you change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shared<T>(Rc<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Rc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_copy_is_none_of_the_other() {
        let first = Shared::new(vec![1]);
        let mut second = first.clone();
        assert!(Rc::ptr_eq(&first.0, &second.0));
        second.push(2);
        assert_eq!((&*first, &*second), (&vec![1], &vec![1, 2]));
        let place = Rc::as_ptr(&second.0);
        second.push(3);
        assert_eq!(Rc::as_ptr(&second.0), place, "nobody else has it");
    }
}
