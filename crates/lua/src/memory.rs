//! Lua's memory and its limit.
//!
//! Beyond the limit an allocation of Lua code fails, which is a Lua error ("not enough memory"). An allocation that native
//! code asks for never fails, because the error would cross its frames; the next one of Lua code does.
//!
//! LuaJIT does not collect garbage before it gives up, and what failed has left garbage. Therefore a fiber of its own
//! collects it all before any other fiber goes on (`Runtime::resume_ready`); otherwise all further code would fail.
//!
//! Most objects of Lua are small, short-lived and freed by the thousand: [`Pool`] keeps them in lists by size, which costs a
//! tenth of what a general allocator takes. *Invariants:* a block is in a list or in use, never both; chunks go when the
//! state is closed, not before, so what small objects once took stays with Lua, within its limit.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::{Cell, RefCell};
use std::os::raw::c_void;
use std::ptr;

use crate::runtime::Shared;

/// LuaJIT asks for no stricter alignment.
const ALIGNMENT: usize = 16;

/// Sizes of small blocks are multiples of this.
const STEP: usize = 16;

/// The largest small block.
const SMALL: usize = 256;

/// Bytes that small blocks are cut from.
const CHUNK: Layout = match Layout::from_size_align(64 << 10, ALIGNMENT) {
    Ok(layout) => layout,
    Err(_) => panic!("the alignment is a power of two"),
};

/// A free block, which holds the next one of its list.
struct Free {
    next: *mut Free,
}

/// Small blocks.
pub(crate) struct Pool {
    /// Free blocks by size.
    free: [Cell<*mut Free>; SMALL / STEP],
    /// What is left of the newest chunk.
    rest: Cell<*mut u8>,
    left: Cell<usize>,
    chunks: RefCell<Vec<*mut u8>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            free: [const { Cell::new(ptr::null_mut()) }; SMALL / STEP],
            rest: Cell::new(ptr::null_mut()),
            left: Cell::new(0),
            chunks: RefCell::default(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: a chunk was allocated with this layout, and the state that used it is closed.
            unsafe { dealloc(chunk, CHUNK) };
        }
    }
}

/// The list of blocks of a size from 1 to [`SMALL`].
fn class(size: usize) -> usize {
    (size - 1) / STEP
}

impl Pool {
    /// A block of `size` bytes, 1 to [`SMALL`]; null if there is no memory.
    fn take(&self, size: usize) -> *mut u8 {
        let class = class(size);
        let list = &self.free[class];
        let first = list.get();
        if first.is_null() {
            return self.cut((class + 1) * STEP);
        }
        // SAFETY: a block in a list holds the next one.
        list.set(unsafe { (*first).next });
        first.cast()
    }

    /// Gives a block of `size` bytes back.
    ///
    /// # Safety
    /// It came from [`Pool::take`] with a size of the same class, and nobody uses it.
    unsafe fn give(&self, block: *mut u8, size: usize) {
        let list = &self.free[class(size)];
        let block = block.cast::<Free>();
        // SAFETY: the block is at least as large as `Free` and as aligned.
        unsafe { (*block).next = list.get() };
        list.set(block);
    }

    /// A new block from the chunk. What is left of a chunk that is too short is never used.
    #[cold]
    fn cut(&self, size: usize) -> *mut u8 {
        if self.left.get() < size {
            // SAFETY: the layout has a size.
            let chunk = unsafe { alloc(CHUNK) };
            if chunk.is_null() {
                return chunk;
            }
            self.chunks.borrow_mut().push(chunk);
            self.rest.set(chunk);
            self.left.set(CHUNK.size());
        }
        let block = self.rest.get();
        // SAFETY: `left` bytes from `rest` on belong to the chunk.
        self.rest.set(unsafe { block.add(size) });
        self.left.set(self.left.get() - size);
        block
    }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT).ok()
}

/// A block of `size` bytes, which is not 0; null if there is no memory.
fn take(pool: &Pool, size: usize) -> *mut u8 {
    if size <= SMALL {
        return pool.take(size);
    }
    // SAFETY: the size is not 0.
    layout(size).map_or(ptr::null_mut(), |layout| unsafe { alloc(layout) })
}

/// Gives a block back.
///
/// # Safety
/// It came from [`take`] with this size.
unsafe fn give(pool: &Pool, block: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if size <= SMALL {
            pool.give(block, size);
        } else if let Some(layout) = layout(size) {
            dealloc(block, layout);
        }
    }
}

/// A block of `new` bytes with the first bytes of one of `old`, which is gone; null, and nothing has changed, if there is
/// no memory.
///
/// # Safety
/// The block came from [`take`] with the size `old`; neither size is 0.
unsafe fn resize(pool: &Pool, block: *mut u8, old: usize, new: usize) -> *mut u8 {
    if old <= SMALL && new <= SMALL && class(old) == class(new) {
        return block;
    }
    // SAFETY: the caller's promise; both blocks have the bytes that are copied.
    unsafe {
        if old > SMALL && new > SMALL {
            return layout(old).map_or(ptr::null_mut(), |layout| realloc(block, layout, new));
        }
        let to = take(pool, new);
        if !to.is_null() {
            ptr::copy_nonoverlapping(block, to, old.min(new));
            give(pool, block, old);
        }
        to
    }
}

/// The allocator that the Lua state is made with; `data` is the runtime's [`Shared`].
pub(crate) unsafe extern "C" fn allocate(
    data: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the state is made with a pointer to `Shared`, which outlives it; blocks come from here with their sizes.
    unsafe {
        let shared = &*data.cast::<Shared>();
        let pool = &shared.pool;
        if new == 0 {
            if !block.is_null() && old > 0 {
                give(pool, block.cast(), old);
                shared.used.set(shared.used.get().saturating_sub(old));
            }
            return ptr::null_mut();
        }
        let old = if block.is_null() { 0 } else { old };
        let used = shared.used.get().saturating_sub(old) + new;
        if new > old && used > shared.limits.get().memory && !shared.in_native.get() {
            shared.is_exhausted.set(true);
            return ptr::null_mut();
        }
        let result = if old == 0 { take(pool, new) } else { resize(pool, block.cast::<u8>(), old, new) };
        if !result.is_null() {
            shared.used.set(used);
        }
        result.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_given_back_is_the_next_of_its_size() {
        let pool = Pool::default();
        let (one, other) = (pool.take(40), pool.take(40));
        assert_ne!(one, other);
        // SAFETY: the block came from `take`, and is used no more.
        unsafe { pool.give(one, 33) };
        assert_ne!(pool.take(32), one, "another size");
        assert_eq!(pool.take(48), one);
        assert_ne!(pool.take(48), one);
    }

    #[test]
    fn blocks_do_not_overlap_and_keep_what_they_hold() {
        let pool = Pool::default();
        let mut blocks = Vec::new();
        for number in 0..4000_usize {
            let size = 1 + number * 37 % 600;
            let block = take(&pool, size);
            assert!(!block.is_null() && block.addr().is_multiple_of(ALIGNMENT));
            // SAFETY: the block has so many bytes.
            unsafe { block.write_bytes(number as u8, size) };
            blocks.push((block, size, number as u8));
        }
        for (number, (block, size, _)) in blocks.iter_mut().enumerate() {
            let new = 1 + number * 101 % 600;
            // SAFETY: the block came from `take` with that size.
            unsafe {
                *block = resize(&pool, *block, *size, new);
                for at in new.min(*size)..new {
                    block.add(at).write(number as u8);
                }
            }
            *size = new;
        }
        for (block, size, byte) in blocks {
            // SAFETY: as above.
            unsafe {
                assert!((0..size).all(|at| block.add(at).read() == byte));
                give(&pool, block, size);
            }
        }
    }
}
