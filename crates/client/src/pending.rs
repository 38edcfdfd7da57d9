//! Requests that await their replies.

use tokio::sync::oneshot;

use crate::error::Result;
use crate::give_back::GiveBack;
use crate::response::Response;

/// Where the reply to a request is delivered.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<Result<Response>>,
    /// What becomes of the request's tasks if the answer arrives after the caller has stopped waiting.
    pub(crate) give_back: Option<GiveBack>,
}

/// Requests that await their replies, by `sync`.
///
/// A `sync` is a slot in a table in its lower half and, in its upper half, how often that slot has been used before.
/// So a reply finds its request without hashing, and a reply without a waiting caller finds none.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: Vec<PendingSlot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct PendingSlot {
    uses: u32,
    waiter: Option<Waiter>,
}

impl Pending {
    /// Notes a request and gives it a `sync`. Never more than 2^32 − 1 at once; the last number is never used.
    pub(crate) fn insert(&mut self, waiter: Waiter) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(PendingSlot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.waiter = Some(waiter);
        u64::from(slot.uses) << 32 | u64::from(index)
    }

    /// The request with this `sync`, which is forgotten.
    pub(crate) fn remove(&mut self, sync: u64) -> Option<Waiter> {
        let (uses, index) = ((sync >> 32) as u32, sync as u32);
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.uses == uses)?;
        let waiter = slot.waiter.take()?;
        slot.uses = slot.uses.wrapping_add(1);
        self.free.push(index);
        Some(waiter)
    }

    /// All requests, which are forgotten.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        self.free.clear();
        std::mem::take(&mut self.slots).into_iter().filter_map(|slot| slot.waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_good_once() {
        let mut pending = Pending::default();
        let insert =
            |pending: &mut Pending| pending.insert(Waiter { answer: oneshot::channel().0, give_back: None });
        let (first, second) = (insert(&mut pending), insert(&mut pending));
        assert_ne!(first, second);
        assert!(pending.remove(first).is_some());
        assert!(pending.remove(first).is_none());
        let third = insert(&mut pending);
        assert_ne!(third, first);
        assert!(pending.remove(first).is_none());
        assert!(pending.remove(u64::MAX).is_none());
        assert_eq!(pending.drain().count(), 2);
        assert!(pending.remove(third).is_none());
    }
}
