//! Tuples in memory: size-class slabs behind 4-byte handles.
//!
//! All tuples of an instance live in one arena. A tuple never moves and keeps its length; bytes of it may give way to
//! others ([`Arena::swap`]); the store then updates every holder of the tuple. Indexes, transactions
//! and read views hold [`Handle`]s, so that an index entry costs 4 bytes and not a pointer with a count.
//!
//! A slot is a two-byte header (the tuple's length) followed by the tuple. Slot sizes step by 8 bytes up to 256 and
//! by a sixteenth of the power of two below them after that, so a slot wastes less than 8 bytes or less than 6.25 %.
//! Slots of one size share a page of at most 64 KiB; a longer tuple has an allocation of its own. A handle is the
//! page's number and the slot's: reading a tuple is one load from the page table and one from the slot.
//!
//! Invariants:
//! - a page is in exactly one of these states: in its class's list (it has free slots and used ones), full, the class's one
//!   spare (all slots free), or vacant (no memory, its number waits for reuse);
//! - a free slot's header carries the mark [`FREE`] and the next free slot of its page;
//! - slots at and beyond a page's `fresh` mark have never been used, and their memory was never touched.
//!
//! Freed slots are reused before untouched ones, in the page that was full most recently: the fullest pages fill up and
//! the rest run empty, and a page that runs empty is given back to the allocator unless its class has no other spare.
//!
//! Absent: compaction (a page is held by its last tuple), reference counts (the store knows when a tuple is garbage), and
//! checks that a handle belongs to this arena beyond the checks for memory safety.

use std::num::NonZeroU32;

use lycosa_tuple::mp;

#[cfg(test)]
mod tests;

/// A tuple's place in the [`Arena`], 4 bytes, also as `Option<Handle>`.
///
/// Valid from [`Arena::insert`] until [`Arena::remove`]; a later tuple may get the same handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// A value for array places that hold no entry; never given out by an arena.
    pub(crate) const NOWHERE: Self = Self(NonZeroU32::MAX);

    fn new(page: u32, slot: u32) -> Self {
        debug_assert!(page < MAX_PAGES && slot <= SLOT_MASK);
        Self(NonZeroU32::MIN.saturating_add(page << SLOT_BITS | slot))
    }

    /// The handle as a number; those of one page are neighbours.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The handle with this number; 0 is no handle.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    fn page(self) -> usize {
        ((self.0.get() - 1) >> SLOT_BITS) as usize
    }

    fn slot(self) -> usize {
        ((self.0.get() - 1) & SLOT_MASK) as usize
    }
}

/// Bits of a handle that number the slot in its page.
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Pages, and so tuples with a page of their own, that handles can tell apart; the last number is kept for
/// [`Handle::NOWHERE`].
const MAX_PAGES: u32 = (1 << (u32::BITS - SLOT_BITS)) - 1;
/// Bytes of a page of small slots, at most.
const PAGE_BYTES: usize = 64 * 1024;
/// Bytes in front of each tuple in a slot.
const HEADER: usize = 2;
/// The longest slot that shares a page.
const MAX_SLOT: usize = 8 * 1024;
/// Up to here slot sizes are multiples of [`STEP`].
const FINE_SLOT: usize = 256;
const STEP: usize = 8;
/// Slot sizes between one power of two and the next, above [`FINE_SLOT`].
const STEPS_PER_DOUBLING: usize = 16;
const CLASSES: usize =
    FINE_SLOT / STEP + STEPS_PER_DOUBLING * (MAX_SLOT.ilog2() - FINE_SLOT.ilog2()) as usize;
/// In the header of a free slot; the other bits are the next free slot of the page or [`NO_SLOT`].
const FREE: u16 = 1 << 15;
const NO_SLOT: u16 = FREE - 1;

const _: () = assert!(MAX_SLOT < FREE as usize && (SLOT_MASK as usize) < NO_SLOT as usize);
const _: () = assert!(class_size(CLASSES - 1) == MAX_SLOT);

/// The class of the smallest slot of at least `bytes`, which is not above [`MAX_SLOT`].
const fn class_of(bytes: usize) -> usize {
    if bytes <= FINE_SLOT {
        return bytes.saturating_sub(1) / STEP;
    }
    let last = bytes - 1;
    let doubling = last.ilog2();
    let step = doubling - STEPS_PER_DOUBLING.ilog2();
    FINE_SLOT / STEP
        + (doubling - FINE_SLOT.ilog2()) as usize * STEPS_PER_DOUBLING
        + ((last >> step) - STEPS_PER_DOUBLING)
}

/// The slot size of a class.
const fn class_size(class: usize) -> usize {
    if class < FINE_SLOT / STEP {
        return (class + 1) * STEP;
    }
    let above = class - FINE_SLOT / STEP;
    let base = FINE_SLOT << (above / STEPS_PER_DOUBLING);
    base + (above % STEPS_PER_DOUBLING + 1) * (base / STEPS_PER_DOUBLING)
}

/// The store of all tuples; see the module's documentation.
#[derive(Debug, Default)]
pub struct Arena {
    pages: Vec<Page>,
    /// Pages without memory whose numbers can be used again.
    vacant: Vec<u32>,
    classes: Vec<Class>,
    len: u64,
    used_bytes: u64,
    reserved_bytes: u64,
}

/// A run of slots of one size, or one long tuple.
#[derive(Debug)]
struct Page {
    bytes: Box<[u8]>,
    /// Size of a slot; 0 when `bytes` is one long tuple, or nothing.
    slot_size: u32,
    /// Free slots that have been used before: the head of their chain.
    free: u16,
    /// Slots from here on have never been used.
    fresh: u16,
    used: u16,
    /// Slots in the page.
    slots: u16,
    class: u16,
    /// Neighbours in the class's list of pages with free and used slots.
    previous: Option<u32>,
    next: Option<u32>,
}

#[derive(Debug, Clone, Default)]
struct Class {
    /// First of the pages with free and used slots.
    partial: Option<u32>,
    /// A page without used slots, kept so that a tuple that comes and goes does not cost a page each time.
    spare: Option<u32>,
}

impl Page {
    fn vacant() -> Self {
        Self {
            bytes: Box::default(),
            slot_size: 0,
            free: NO_SLOT,
            fresh: 0,
            used: 0,
            slots: 0,
            class: 0,
            previous: None,
            next: None,
        }
    }

    fn is_full(&self) -> bool {
        self.used == self.slots
    }

    fn header(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.bytes[offset], self.bytes[offset + 1]])
    }

    fn set_header(&mut self, offset: usize, header: u16) {
        mp::overwrite(&mut self.bytes, offset, header.to_le_bytes());
    }
}

impl Arena {
    /// Drops up to `count` pages with all tuples in them. Returns whether pages are left. The arena must not be used again.
    pub fn drop_pages(&mut self, count: usize) -> bool {
        self.pages.truncate(self.pages.len().saturating_sub(count));
        !self.pages.is_empty()
    }

    /// An empty arena; it takes no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a copy of `tuple`. `None` when the handles are used up: that is after 4 million pages, each of which is
    /// 64 KiB of tuples or one tuple longer than 8 KiB.
    pub fn insert(&mut self, tuple: &[u8]) -> Option<Handle> {
        let slot_bytes = tuple.len() + HEADER;
        if slot_bytes > MAX_SLOT {
            return self.insert_long(tuple);
        }
        let class = class_of(slot_bytes);
        let number = self.page_with_free_slot(class)?;
        let page = &mut self.pages[number as usize];
        let size = page.slot_size as usize;
        let slot = if page.free == NO_SLOT {
            page.fresh += 1;
            page.fresh - 1
        } else {
            let slot = page.free;
            page.free = page.header(usize::from(slot) * size) & !FREE;
            slot
        };
        let offset = usize::from(slot) * size;
        page.set_header(offset, u16::try_from(tuple.len()).expect("a shared slot is shorter than 32 KiB"));
        page.bytes[offset + HEADER..offset + slot_bytes].copy_from_slice(tuple);
        page.used += 1;
        if page.is_full() {
            self.unlink(number);
        }
        self.len += 1;
        self.used_bytes += size as u64;
        Some(Handle::new(number, u32::from(slot)))
    }

    /// The tuple of a handle that has not been removed.
    // A cycle of a task reads 17 tuples. Inlined, this makes a cycle 1 % cheaper (`cargo xtask count`).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: see the line above")]
    pub fn get(&self, handle: Handle) -> &[u8] {
        let page = &self.pages[handle.page()];
        let size = page.slot_size as usize;
        if size == 0 {
            return &page.bytes;
        }
        let slot = page.bytes[handle.slot() * size..].split_first_chunk();
        let (header, tuple) = slot.expect("a slot is longer than its header");
        let header = u16::from_le_bytes(*header);
        debug_assert!(header & FREE == 0, "a removed tuple is read");
        &tuple[..usize::from(header)]
    }

    /// Exchanges the tuple's bytes from `offset` on with `bytes`. Panics when the tuple ends before them.
    #[inline]
    pub fn swap(&mut self, handle: Handle, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.get(handle).len(), "a tuple keeps its length");
        let page = &mut self.pages[handle.page()];
        let start = match page.slot_size as usize {
            0 => offset,
            size => handle.slot() * size + HEADER + offset,
        };
        page.bytes[start..start + bytes.len()].swap_with_slice(bytes);
    }

    /// Frees the tuple's slot. Panics when the tuple was removed before: two owners of one slot would corrupt each other's
    /// tuples.
    pub fn remove(&mut self, handle: Handle) {
        let number = u32::try_from(handle.page()).expect("a part of a u32");
        let page = &mut self.pages[handle.page()];
        if page.slot_size == 0 {
            self.remove_long(number);
            return;
        }
        let was_full = page.is_full();
        let offset = handle.slot() * page.slot_size as usize;
        assert!(page.header(offset) & FREE == 0, "a tuple is removed twice");
        page.set_header(offset, FREE | page.free);
        page.free = u16::try_from(handle.slot()).expect("slots are numbered by 10 bits");
        page.used -= 1;
        let is_empty = page.used == 0;
        self.len -= 1;
        self.used_bytes -= u64::from(page.slot_size);
        match (was_full, is_empty) {
            (true, false) => self.link(number),
            (true, true) => self.retire(number),
            (false, true) => {
                self.unlink(number);
                self.retire(number);
            }
            (false, false) => {}
        }
    }

    /// Tuples in the arena.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the arena holds no tuple.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all slots in use: tuples, headers and the unused ends of their slots.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes taken from the allocator for pages and for the page table.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes + (self.pages.capacity() * size_of::<Page>()) as u64
    }

    /// Bytes that a tuple of `len` bytes adds to [`Arena::used_bytes`].
    pub fn slot_size(len: usize) -> usize {
        if len + HEADER > MAX_SLOT { len } else { class_size(class_of(len + HEADER)) }
    }

    /// The page of the class that the next tuple goes to.
    fn page_with_free_slot(&mut self, class: usize) -> Option<u32> {
        if self.classes.is_empty() {
            self.classes = vec![Class::default(); CLASSES];
        }
        if let Some(number) = self.classes[class].partial {
            return Some(number);
        }
        let number = match self.classes[class].spare.take() {
            Some(number) => number,
            None => {
                let size = class_size(class);
                let slots = (PAGE_BYTES / size).min(1 << SLOT_BITS);
                let number = self.adopt(vec![0; slots * size].into_boxed_slice())?;
                let page = &mut self.pages[number as usize];
                page.slot_size = u32::try_from(size).expect("slots are at most 8 KiB");
                page.slots = u16::try_from(slots).expect("slots are numbered by 10 bits");
                page.class = u16::try_from(class).expect("there are some hundred classes");
                number
            }
        };
        self.link(number);
        Some(number)
    }

    fn insert_long(&mut self, tuple: &[u8]) -> Option<Handle> {
        let number = self.adopt(tuple.into())?;
        self.len += 1;
        self.used_bytes += tuple.len() as u64;
        Some(Handle::new(number, 0))
    }

    fn remove_long(&mut self, number: u32) {
        let bytes = self.pages[number as usize].bytes.len() as u64;
        assert!(bytes > 0, "a long tuple is removed twice");
        self.len -= 1;
        self.used_bytes -= bytes;
        self.release(number);
    }

    /// Numbers a new page.
    fn adopt(&mut self, bytes: Box<[u8]>) -> Option<u32> {
        let number = match self.vacant.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(self.pages.len()).ok().filter(|&number| number < MAX_PAGES)?;
                self.pages.push(Page::vacant());
                number
            }
        };
        self.reserved_bytes += bytes.len() as u64;
        self.pages[number as usize] = Page { bytes, ..Page::vacant() };
        Some(number)
    }

    /// Gives a page's memory back.
    fn release(&mut self, number: u32) {
        let page = std::mem::replace(&mut self.pages[number as usize], Page::vacant());
        self.reserved_bytes -= page.bytes.len() as u64;
        self.vacant.push(number);
    }

    /// Keeps a page without used slots as its class's spare, or releases it.
    fn retire(&mut self, number: u32) {
        let class = usize::from(self.pages[number as usize].class);
        if self.classes[class].spare.is_some() {
            self.release(number);
        } else {
            self.classes[class].spare = Some(number);
        }
    }

    /// Puts a page at the head of its class's list.
    fn link(&mut self, number: u32) {
        let class = usize::from(self.pages[number as usize].class);
        let head = self.classes[class].partial.replace(number);
        if let Some(head) = head {
            self.pages[head as usize].previous = Some(number);
        }
        let page = &mut self.pages[number as usize];
        page.previous = None;
        page.next = head;
    }

    /// Takes a page out of its class's list.
    fn unlink(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        let (class, previous, next) = (usize::from(page.class), page.previous.take(), page.next.take());
        match previous {
            Some(previous) => self.pages[previous as usize].next = next,
            None => self.classes[class].partial = next,
        }
        if let Some(next) = next {
            self.pages[next as usize].previous = previous;
        }
    }
}
