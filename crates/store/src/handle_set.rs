//! A set of handles that never moves what it holds.
//!
//! A hash table of millions of handles would stop the only thread that there is for as long as it takes to move them when
//! it grows. Handles are dense numbers, so a bit for each in blocks that are made where they are needed does as well: each
//! operation touches one word.

use crate::arena::Handle;

/// Bits of a block, 4 KiB of them.
const BLOCK_BITS: usize = 1 << 15;
const WORD_BITS: usize = u64::BITS as usize;

type Block = Box<[u64; BLOCK_BITS / WORD_BITS]>;

/// A set of handles.
#[derive(Debug, Default)]
pub(crate) struct HandleSet {
    blocks: Vec<Option<Block>>,
    len: u64,
}

/// The block, the word in it and the bit in that which stand for a handle.
fn place(handle: Handle) -> (usize, usize, u64) {
    let number = handle.number() as usize;
    (number / BLOCK_BITS, number % BLOCK_BITS / WORD_BITS, 1 << (number % WORD_BITS))
}

impl HandleSet {
    pub(crate) fn insert(&mut self, handle: Handle) {
        let (block, word, bit) = place(handle);
        if block >= self.blocks.len() {
            self.blocks.resize_with(block + 1, || None);
        }
        let words = self.blocks[block].get_or_insert_with(|| Box::new([0; BLOCK_BITS / WORD_BITS]));
        self.len += u64::from(words[word] & bit == 0);
        words[word] |= bit;
    }

    pub(crate) fn contains(&self, handle: Handle) -> bool {
        let (block, word, bit) = place(handle);
        self.blocks.get(block).and_then(Option::as_ref).is_some_and(|words| words[word] & bit != 0)
    }

    /// Takes a handle out. Whether it was there.
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        if self.len == 0 {
            return false;
        }
        let (block, word, bit) = place(handle);
        let Some(words) = self.blocks.get_mut(block).and_then(Option::as_mut) else { return false };
        let was_there = words[word] & bit != 0;
        words[word] &= !bit;
        self.len -= u64::from(was_there);
        was_there
    }

    /// Takes the `count` handles with the least numbers out, or all if there are fewer.
    pub(crate) fn pop(&mut self, count: u64) -> Vec<Handle> {
        let count = usize::try_from(count.min(self.len)).unwrap_or(usize::MAX);
        let popped: Vec<Handle> = self.iter().take(count).collect();
        for &handle in &popped {
            self.remove(handle);
        }
        // What lies behind the last of them may be in its block; the blocks before that one are empty.
        let end = popped.last().map_or(0, |&last| place(last).0);
        for block in &mut self.blocks[..end] {
            *block = None;
        }
        popped
    }

    /// All handles, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Handle> {
        let words = self.blocks.iter().enumerate().flat_map(|(number, block)| {
            let words = block.iter().flat_map(|words| words.iter().enumerate());
            words.map(move |(word, &bits)| (number * BLOCK_BITS + word * WORD_BITS, bits))
        });
        words.filter(|&(_, bits)| bits != 0).flat_map(|(first, bits)| {
            let ones = (0..WORD_BITS).filter(move |bit| bits >> bit & 1 == 1);
            ones.filter_map(move |bit| Handle::of_number(u32::try_from(first + bit).ok()?))
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that the set takes.
    pub(crate) fn memory(&self) -> u64 {
        let blocks = self.blocks.iter().flatten().count() * size_of::<[u64; BLOCK_BITS / WORD_BITS]>();
        (blocks + self.blocks.capacity() * size_of::<Option<Block>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::arena::Arena;

    #[test]
    fn holds_what_was_put_in() {
        let mut arena = Arena::new();
        // Some in shared pages, some with a page of their own, so that numbers are far apart.
        let handles: Vec<_> = (0..500)
            .map(|n| arena.insert(&vec![0xc0; if n % 3 == 0 { 20_000 } else { 60 }]).unwrap())
            .collect();
        let (mut set, mut model) = (HandleSet::default(), HashSet::new());
        for step in 0..4000_usize {
            let handle = handles[step * 7919 % handles.len()];
            if step % 5 < 3 {
                set.insert(handle);
                model.insert(handle);
            } else {
                assert_eq!(set.remove(handle), model.remove(&handle));
            }
            if step % 500 == 499 {
                for handle in set.pop(30) {
                    assert!(!set.contains(handle) && model.remove(&handle));
                }
            }
            assert_eq!(set.len(), model.len() as u64);
        }
        assert!(handles.iter().all(|&handle| set.remove(handle) == model.remove(&handle)));
        assert!(set.len() == 0 && set.memory() > 0);
    }
}
