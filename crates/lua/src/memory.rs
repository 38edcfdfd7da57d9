//! Lua's memory and its limit.
//!
//! Beyond the limit an allocation of Lua code fails, which is a Lua error ("not enough memory"). An allocation that native
//! code asks for never fails, because the error would cross its frames; the next one of Lua code does.
//!
//! LuaJIT does not collect garbage before it gives up, and what failed has left garbage. Therefore a fiber of its own
//! collects it all before any other fiber goes on (`Runtime::resume_ready`); otherwise all further code would fail.
//!
//! Most objects of Lua are small, short-lived and freed by the thousand: [`Pool`] cuts them from chunks of blocks of one size,
//! which costs a tenth of what a general allocator takes. *Invariants:* a block is free or in use, never both; a chunk whose
//! blocks are all free goes back to the system, but for one of each size.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::os::raw::c_void;
use std::ptr;

use crate::runtime::Shared;

/// LuaJIT asks for no stricter alignment.
const ALIGNMENT: usize = 16;

/// Sizes of small blocks are multiples of this.
const STEP: usize = 16;

/// The largest small block.
const SMALL: usize = 256;

/// Small blocks of one size are cut from chunks of this number of bytes, at an address that is a multiple of it.
const CHUNK: Layout = match Layout::from_size_align(64 << 10, 64 << 10) {
    Ok(layout) => layout,
    Err(_) => panic!("the alignment is a power of two"),
};

/// Bytes of a chunk before its first block.
const HEAD: usize = size_of::<Chunk>().next_multiple_of(STEP);

/// A free block, which holds the next one of its chunk.
struct Free {
    next: *mut Free,
}

/// What stands at the begin of a chunk.
struct Chunk {
    /// Blocks that were given back.
    free: *mut Free,
    /// The first block that was never used.
    fresh: *mut u8,
    /// Blocks in use, of `capacity`.
    used: u32,
    capacity: u32,
    /// The chunks before and behind it among those of its size that have a free block.
    previous: *mut Chunk,
    next: *mut Chunk,
}

/// Small blocks.
pub(crate) struct Pool {
    /// The first chunk with a free block, by size.
    open: [Cell<*mut Chunk>; SMALL / STEP],
}

impl Default for Pool {
    fn default() -> Self {
        Self { open: [const { Cell::new(ptr::null_mut()) }; SMALL / STEP] }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for list in &self.open {
            while !list.get().is_null() {
                let chunk = list.get();
                // SAFETY: the state that used the blocks is closed, so that all chunks are in the lists; each was allocated
                // with this layout.
                unsafe {
                    close(list, chunk);
                    dealloc(chunk.cast(), CHUNK);
                }
            }
        }
    }
}

/// The number of the chunks' list for a size from 1 to [`SMALL`].
fn class(size: usize) -> usize {
    (size - 1) / STEP
}

/// Puts a chunk at the front of a list.
///
/// # Safety
/// The list and the chunk are of one pool, and the chunk is in no list.
unsafe fn open(list: &Cell<*mut Chunk>, chunk: *mut Chunk) {
    let next = list.replace(chunk);
    // SAFETY: chunks in lists are alive.
    unsafe {
        (*chunk).previous = ptr::null_mut();
        (*chunk).next = next;
        if let Some(next) = next.as_mut() {
            next.previous = chunk;
        }
    }
}

/// Takes a chunk out of a list.
///
/// # Safety
/// The chunk is in the list.
unsafe fn close(list: &Cell<*mut Chunk>, chunk: *mut Chunk) {
    // SAFETY: chunks in lists are alive.
    unsafe {
        let (previous, next) = ((*chunk).previous, (*chunk).next);
        if let Some(next) = next.as_mut() {
            next.previous = previous;
        }
        match previous.as_mut() {
            Some(previous) => previous.next = next,
            None => list.set(next),
        }
    }
}

/// A new chunk at the front of a list; null if there is no memory.
#[cold]
fn new_chunk(list: &Cell<*mut Chunk>, size: usize) -> *mut Chunk {
    // SAFETY: the layout has a size; the head is written before the chunk is in a list.
    unsafe {
        let memory = alloc(CHUNK);
        let chunk = memory.cast::<Chunk>();
        if !chunk.is_null() {
            chunk.write(Chunk {
                free: ptr::null_mut(),
                fresh: memory.add(HEAD),
                used: 0,
                capacity: ((CHUNK.size() - HEAD) / size) as u32,
                previous: ptr::null_mut(),
                next: ptr::null_mut(),
            });
            open(list, chunk);
        }
        chunk
    }
}

impl Pool {
    /// A block of `size` bytes, 1 to [`SMALL`]; null if there is no memory.
    fn take(&self, size: usize) -> *mut u8 {
        let class = class(size);
        let (list, size) = (&self.open[class], (class + 1) * STEP);
        let mut chunk = list.get();
        if chunk.is_null() {
            chunk = new_chunk(list, size);
            if chunk.is_null() {
                return ptr::null_mut();
            }
        }
        // SAFETY: a chunk in a list is alive and has a free block: one that was given back, which holds the next one, or
        // one that was never used.
        unsafe {
            let chunk_ref = &mut *chunk;
            let first = chunk_ref.free;
            let block = if first.is_null() {
                let fresh = chunk_ref.fresh;
                chunk_ref.fresh = fresh.add(size);
                fresh
            } else {
                chunk_ref.free = (*first).next;
                first.cast()
            };
            chunk_ref.used += 1;
            if chunk_ref.used == chunk_ref.capacity {
                close(list, chunk);
            }
            block
        }
    }

    /// Gives a block of `size` bytes back.
    ///
    /// # Safety
    /// It came from [`Pool::take`] with a size of the same class, and no other code uses it.
    unsafe fn give(&self, block: *mut u8, size: usize) {
        let list = &self.open[class(size)];
        // SAFETY: the block lies in a chunk, whose address is the multiple of its size before the block; it is at least as
        // large as `Free` and as aligned.
        unsafe {
            let chunk = block.map_addr(|address| address & !(CHUNK.size() - 1)).cast::<Chunk>();
            let block = block.cast::<Free>();
            block.write(Free { next: (*chunk).free });
            (*chunk).free = block;
            if (*chunk).used == (*chunk).capacity {
                open(list, chunk);
            }
            (*chunk).used -= 1;
            let is_only = (*chunk).previous.is_null() && (*chunk).next.is_null();
            if (*chunk).used == 0 && !is_only {
                close(list, chunk);
                dealloc(chunk.cast(), CHUNK);
            }
        }
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

    /// Chunks with free blocks.
    fn chunks(pool: &Pool) -> usize {
        let mut count = 0;
        for list in &pool.open {
            let mut chunk = list.get();
            while !chunk.is_null() {
                count += 1;
                // SAFETY: chunks in lists are alive.
                chunk = unsafe { (*chunk).next };
            }
        }
        count
    }

    #[test]
    fn memory_of_one_size_serves_another_when_it_is_free() {
        let pool = Pool::default();
        for size in [16, 100, SMALL] {
            let count = 4 * CHUNK.size() / size;
            let blocks: Vec<_> = (0..count).map(|_| pool.take(size)).collect();
            assert!(chunks(&pool) <= 3, "full chunks are in no list");
            let (even, odd): (Vec<_>, Vec<_>) = blocks.chunks(2).map(|pair| (pair[0], pair.get(1))).unzip();
            // SAFETY: the blocks came from `take`, each once.
            unsafe {
                even.into_iter().for_each(|block| pool.give(block, size));
                assert!(chunks(&pool) >= 4, "half of each chunk is free");
                odd.into_iter().flatten().for_each(|block| pool.give(*block, size));
            }
            let used = pool.open[class(size)].get();
            // SAFETY: the one chunk that stays is alive.
            assert!(unsafe { (*used).used == 0 && (*used).next.is_null() }, "{size}");
        }
        assert_eq!(chunks(&pool), 3, "one of each size stays");
    }

    #[test]
    fn blocks_do_not_overlap_and_keep_what_they_hold() {
        let pool = Pool::default();
        let mut blocks = Vec::new();
        for number in 0..4000_usize {
            let size = 1 + number * 37 % 600;
            let block = take(&pool, size);
            assert!(!block.is_null() && block.addr().is_multiple_of(ALIGNMENT));
            // SAFETY: the block has this number of bytes.
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
