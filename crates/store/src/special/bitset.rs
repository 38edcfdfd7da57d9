//! BITSET indexes: which bits are set in an unsigned number or a string.
//!
//! Each tuple has a slot, and each bit that occurs in a key has a bitmap over the slots. A walk combines bitmaps word by
//! word and yields tuples in the order of their slots; a slot that was left last is taken first, as in Tarantool. The bits
//! of a string are those of its bytes, the lowest bit of each byte first.

use std::collections::{BTreeMap, HashMap};

use lycosa_tuple::key::KeyDef;
use lycosa_tuple::mp::Reader;

use crate::arena::Handle;
use crate::index::SelectError;
use crate::statement::IteratorType;

/// Slots of a word of a bitmap.
const WORD: usize = u64::BITS as usize;

/// A BITSET index.
#[derive(Debug)]
pub(crate) struct Bitset {
    key: KeyDef,
    /// Tuples by their slots.
    slots: Vec<Option<Handle>>,
    /// Slots without a tuple, the last one that was left at the end.
    free: Vec<u32>,
    slot_of: HashMap<Handle, u32>,
    /// Slots with a tuple.
    present: Vec<u64>,
    /// For each bit that is set in some key, the slots of the tuples that have it.
    bits: BTreeMap<u32, Vec<u64>>,
}

/// What a walk asks of a tuple's bits.
#[derive(Debug, Clone)]
enum Wanted {
    Everything,
    /// These and no others.
    Exactly(Vec<u32>),
    All(Vec<u32>),
    Any(Vec<u32>),
    None(Vec<u32>),
}

/// A walk over a BITSET index.
#[derive(Debug, Clone)]
pub(crate) struct BitsetWalk<'a> {
    bitset: &'a Bitset,
    wanted: Wanted,
    /// The next word to look at.
    next: usize,
    /// The bits of the word before it that are not handed out yet.
    word: u64,
}

impl Iterator for BitsetWalk<'_> {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        while self.word == 0 {
            if self.next >= self.bitset.present.len() {
                return None;
            }
            self.word = self.bitset.word(&self.wanted, self.next);
            self.next += 1;
        }
        let slot = (self.next - 1) * WORD + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        self.bitset.slots.get(slot).copied().flatten()
    }
}

/// The bits that are set in a key's value.
fn set_bits(value: &[u8]) -> Vec<u32> {
    let number = Reader::new(value).uint().map(u64::to_le_bytes);
    let bytes: &[u8] = match &number {
        Ok(number) => number,
        Err(_) => Reader::new(value).str().unwrap_or_default(),
    };
    let bits = (0..).zip(bytes).flat_map(|(place, byte)| {
        (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| place * 8 + bit)
    });
    bits.collect()
}

fn set(bitmap: &mut Vec<u64>, slot: u32, is_set: bool) {
    let (word, bit) = (slot as usize / WORD, slot as usize % WORD);
    if bitmap.len() <= word {
        if !is_set {
            return;
        }
        bitmap.resize(word + 1, 0);
    }
    if is_set {
        bitmap[word] |= 1 << bit;
    } else {
        bitmap[word] &= !(1 << bit);
    }
}

impl Bitset {
    /// An empty index.
    pub(crate) fn new(key: KeyDef) -> Self {
        Self {
            key,
            slots: Vec::new(),
            free: Vec::new(),
            slot_of: HashMap::new(),
            present: Vec::new(),
            bits: BTreeMap::new(),
        }
    }

    fn bits_of(&self, tuple: &[u8]) -> Vec<u32> {
        let mut key = Vec::new();
        self.key.extract(tuple, &mut key);
        set_bits(&key)
    }

    /// Adds a tuple.
    pub(crate) fn insert(&mut self, tuple: &[u8], handle: Handle) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a slot has a tuple, and a tuple's handle has 32 bits")
        });
        self.slots[slot as usize] = Some(handle);
        self.slot_of.insert(handle, slot);
        set(&mut self.present, slot, true);
        for bit in self.bits_of(tuple) {
            set(self.bits.entry(bit).or_default(), slot, true);
        }
    }

    /// Removes a tuple; nothing if it is not there.
    pub(crate) fn remove(&mut self, tuple: &[u8], handle: Handle) {
        let Some(slot) = self.slot_of.remove(&handle) else { return };
        self.slots[slot as usize] = None;
        self.free.push(slot);
        set(&mut self.present, slot, false);
        for bit in self.bits_of(tuple) {
            if let Some(bitmap) = self.bits.get_mut(&bit) {
                set(bitmap, slot, false);
            }
        }
    }

    /// The slots of one word that a walk yields.
    fn word(&self, wanted: &Wanted, place: usize) -> u64 {
        let of = |bit: &u32| self.bits.get(bit).and_then(|bitmap| bitmap.get(place)).copied().unwrap_or(0);
        let present = self.present[place];
        let all = |bits: &[u32]| bits.iter().fold(present, |word, bit| word & of(bit));
        let any = |bits: &[u32]| bits.iter().fold(0, |word, bit| word | of(bit));
        match wanted {
            Wanted::Everything => present,
            Wanted::All(bits) => all(bits),
            Wanted::Any(bits) => any(bits),
            Wanted::None(bits) => present & !any(bits),
            Wanted::Exactly(bits) => {
                let others = self.bits.keys().filter(|bit| !bits.contains(bit));
                all(bits) & !others.fold(0, |word, bit| word | of(bit))
            }
        }
    }

    /// Walks the tuples whose bits `iterator` asks for. The key fits the index.
    pub(crate) fn walk(&self, iterator: IteratorType, key: &[u8]) -> Result<BitsetWalk<'_>, SelectError> {
        let bits = set_bits(key);
        // As in Tarantool, all of no bits are set nowhere, and a string of no bytes equals every other.
        let is_empty = Reader::new(key).str().is_ok_and(<[u8]>::is_empty);
        let wanted = match iterator {
            IteratorType::All => Wanted::Everything,
            IteratorType::Eq if is_empty => Wanted::Everything,
            IteratorType::BitsAllSet if bits.is_empty() => Wanted::Any(bits),
            IteratorType::Eq => Wanted::Exactly(bits),
            IteratorType::BitsAllSet => Wanted::All(bits),
            IteratorType::BitsAnySet => Wanted::Any(bits),
            IteratorType::BitsAllNotSet => Wanted::None(bits),
            _ => return Err(SelectError::Iterator),
        };
        Ok(BitsetWalk { bitset: self, wanted, next: 0, word: 0 })
    }

    /// The number of tuples.
    pub(crate) fn len(&self) -> u64 {
        self.slot_of.len() as u64
    }

    /// Bytes of the slots and bitmaps, about.
    pub(crate) fn memory(&self) -> u64 {
        let words: usize = self.bits.values().map(Vec::capacity).sum();
        let slots =
            self.slots.capacity() * size_of::<Option<Handle>>() + self.free.capacity() * size_of::<u32>();
        let handles = self.slot_of.capacity() * (size_of::<(Handle, u32)>() + 1);
        ((words + self.present.capacity()) * size_of::<u64>() + slots + handles) as u64
    }
}
