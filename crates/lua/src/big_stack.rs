//! A large stack for deep work.
//!
//! A fiber's stack is small. A parser, a collator or a compressor that may recurse runs on this one instead.

use std::cell::RefCell;

use corosensei::stack::{DefaultStack, Stack};

/// Bytes of the large stack; pages that are not touched cost nothing.
pub(crate) const SIZE: usize = 16 << 20;

thread_local! {
    static FREE: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on a large stack and returns what it returned; a panic passes through. `work` must not call Lua.
pub fn on_big_stack<R>(work: impl FnOnce() -> R) -> R {
    let stack = FREE.with_borrow_mut(Vec::pop).or_else(|| DefaultStack::new(SIZE).ok());
    let Some(mut stack) = stack else { return work() };
    let result = corosensei::on_stack(Borrowed(&mut stack), work);
    FREE.with_borrow_mut(|free| free.push(stack));
    result
}

/// A stack that goes back to its owner.
struct Borrowed<'a>(&'a mut DefaultStack);

// SAFETY: the borrowed stack keeps the promises, and no other code uses it meanwhile.
unsafe impl Stack for Borrowed<'_> {
    fn base(&self) -> corosensei::stack::StackPointer {
        self.0.base()
    }

    fn limit(&self) -> corosensei::stack::StackPointer {
        self.0.limit()
    }
}
