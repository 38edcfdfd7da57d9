//! The fibers that are ready to run, in the order in which they run.
//!
//! A fiber belongs to a *share*: the session of the client that it works for, or the program itself ([`OWN`]). A share runs its
//! new and woken fibers in the order in which they became ready, and then one fiber that has yielded or slept, as Tarantool
//! does: fibers that this one begins and wakes run before the next one of its kind. The shares take turns, one fiber each: a
//! client with a thousand ready fibers delays a client with one fiber by one function, not by a thousand. The program's own
//! fibers run in every second place, however many clients there are: otherwise each further client would slow the program's
//! timers and workers down.
//!
//! A request of a client begins with a fiber of its own, and each fiber takes memory. So a share with many ready fibers begins no
//! further one; the fibers that wait for an event do not count.
//!
//! Invariants: between two fibers of a share, every other share with a ready fiber runs at least one; after [`MAX_WOKEN`] fibers
//! that were woken, one that has yielded runs.

use std::collections::{HashMap, VecDeque};

/// The share of fibers that no client has started.
pub(crate) const OWN: u64 = 0;

/// Ready fibers with which a share begins no further request of its client: the fibers that are ready already delay it more than
/// the line in front of it does.
const MAX_BEGUN: usize = 16;

/// Ready fibers of all shares with which a share begins no second request.
const MAX_BEGUN_TOTAL: usize = 1024;

/// Queues of shares that have ended, kept for the next ones.
const MAX_SPARE: usize = 64;

/// After this number of fibers that wake each other, the other fibers of their share run.
const MAX_WOKEN: usize = 1024;

/// The ready fibers of one share.
#[derive(Debug)]
struct Share<T> {
    /// New ones and woken ones.
    woken: VecDeque<T>,
    /// Fibers that have yielded, and fibers after their timeouts.
    due: VecDeque<T>,
    /// How often one of `woken` has run since one of `due` did.
    woken_in_a_row: usize,
}

impl<T> Default for Share<T> {
    fn default() -> Self {
        Self { woken: VecDeque::new(), due: VecDeque::new(), woken_in_a_row: 0 }
    }
}

impl<T> Share<T> {
    fn len(&self) -> usize {
        self.woken.len() + self.due.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pop(&mut self) -> Option<T> {
        if self.woken_in_a_row < MAX_WOKEN
            && let Some(fiber) = self.woken.pop_front()
        {
            self.woken_in_a_row += 1;
            return Some(fiber);
        }
        self.woken_in_a_row = 0;
        self.due.pop_front().or_else(|| self.woken.pop_front())
    }
}

/// The ready fibers.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    /// Runs before all others.
    first: Option<T>,
    own: Share<T>,
    /// The program's own fibers are next, if any of them is ready.
    is_own_next: bool,
    shares: HashMap<u64, Share<T>>,
    /// The keys of `shares`, in the order of their turns.
    turns: VecDeque<u64>,
    spare: Vec<Share<T>>,
    len: usize,
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Self {
            first: None,
            own: Share::default(),
            is_own_next: true,
            shares: HashMap::new(),
            turns: VecDeque::new(),
            spare: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Ready<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a share may begin another request of its client. A share without ready fibers always may.
    pub(crate) fn may_begin(&self, share: u64) -> bool {
        let own = self.shares.get(&share).map_or(0, Share::len);
        own == 0 || (own < MAX_BEGUN && self.len < MAX_BEGUN_TOTAL)
    }

    /// Adds a fiber that is new or was woken at the end of its share's.
    pub(crate) fn push(&mut self, share: u64, fiber: T) {
        self.share(share).woken.push_back(fiber);
    }

    /// Adds a fiber that has yielded, or whose timeout is over.
    pub(crate) fn push_due(&mut self, share: u64, fiber: T) {
        self.share(share).due.push_back(fiber);
    }

    /// The share, into which a fiber is put.
    fn share(&mut self, share: u64) -> &mut Share<T> {
        self.len += 1;
        if share == OWN {
            return &mut self.own;
        }
        self.shares.entry(share).or_insert_with(|| {
            self.turns.push_back(share);
            self.spare.pop().unwrap_or_default()
        })
    }

    /// Puts a fiber before all others, and behind none: one that was put there before keeps its place among its share.
    pub(crate) fn push_first(&mut self, fiber: T) {
        self.len += 1;
        if let Some(former) = self.first.replace(fiber) {
            self.own.woken.push_front(former);
        }
    }

    /// Takes the next fiber.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let fiber = self.first.take().or_else(|| self.pop_in_turn())?;
        self.len -= 1;
        Some(fiber)
    }

    fn pop_in_turn(&mut self) -> Option<T> {
        let is_own = self.is_own_next || self.turns.is_empty();
        if is_own && let Some(fiber) = self.own.pop() {
            self.is_own_next = false;
            return Some(fiber);
        }
        self.is_own_next = true;
        let share = self.turns.pop_front()?;
        let queue = self.shares.get_mut(&share)?;
        let fiber = queue.pop();
        if !queue.is_empty() {
            self.turns.push_back(share);
        } else if let Some(mut queue) = self.shares.remove(&share)
            && self.spare.len() < MAX_SPARE
        {
            queue.woken_in_a_row = 0;
            self.spare.push(queue);
        }
        fiber
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ready: &mut Ready<&'static str>) -> String {
        std::iter::from_fn(|| ready.pop()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn shares_take_turns_and_keep_their_order() {
        let mut ready = Ready::default();
        for (share, fiber) in
            [(7, "a1"), (7, "a2"), (7, "a3"), (OWN, "p1"), (8, "b1"), (9, "c1"), (OWN, "p2"), (8, "b2")]
        {
            ready.push(share, fiber);
        }
        assert_eq!(ready.len(), 8);
        assert_eq!(all(&mut ready), "p1 a1 p2 b1 c1 a2 b2 a3");
        assert!(ready.is_empty() && ready.shares.is_empty() && ready.turns.is_empty());
    }

    #[test]
    fn who_comes_back_at_once_waits_for_the_others() {
        let mut ready = Ready::default();
        ready.push(7, "a1");
        ready.push(7, "a2");
        ready.push(8, "b1");
        assert_eq!(ready.pop(), Some("a1"));
        ready.push(7, "a1");
        ready.push(9, "c1");
        assert_eq!(all(&mut ready), "b1 a2 c1 a1");
    }

    #[test]
    fn a_share_with_many_ready_fibers_begins_no_further_one() {
        let mut ready = Ready::default();
        for _ in 0..MAX_BEGUN {
            assert!(ready.may_begin(7));
            ready.push(7, "a");
        }
        assert!(!ready.may_begin(7) && ready.may_begin(8));
        ready.pop();
        assert!(ready.may_begin(7), "one has ended, or waits for an event");
        (0..MAX_BEGUN_TOTAL).for_each(|_| ready.push(9, "c"));
        assert!(!ready.may_begin(7), "all together are too many");
        assert!(ready.may_begin(8), "a client with none has its turn");
    }

    #[test]
    fn the_first_comes_before_all() {
        let mut ready = Ready::default();
        ready.push(7, "a1");
        ready.push(OWN, "p1");
        ready.push_first("x");
        ready.push_first("y");
        assert_eq!(ready.len(), 4);
        assert_eq!(all(&mut ready), "y x a1 p1");
        assert_eq!(ready.len(), 0);
    }

    #[test]
    fn what_a_fiber_wakes_runs_before_the_next_one_whose_time_has_come() {
        for share in [OWN, 7] {
            let mut ready = Ready::default();
            ready.push_due(share, "timer 1");
            ready.push_due(share, "timer 2");
            ready.push(share, "new");
            assert_eq!(ready.pop(), Some("new"));
            assert_eq!(ready.pop(), Some("timer 1"));
            ready.push(share, "woken");
            ready.push_due(share, "timer 1 again");
            assert_eq!(all(&mut ready), "woken timer 2 timer 1 again");
        }
    }

    #[test]
    fn fibers_that_wake_each_other_let_the_others_run() {
        let mut ready = Ready::default();
        ready.push_due(7, "timer");
        ready.push(7, "woken");
        let before = std::iter::from_fn(|| {
            let fiber = ready.pop()?;
            ready.push(7, "woken");
            (fiber == "woken").then_some(())
        });
        assert_eq!(before.count(), MAX_WOKEN);
    }
}
