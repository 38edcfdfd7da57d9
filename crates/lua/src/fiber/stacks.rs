//! Stacks of fibers: how many there may be.
//!
//! Each stack takes two of the process's mappings, its own and the one of the guard page below it, and the system allows a certain
//! number of mappings (`vm.max_map_count`). Memory is mapped as well: a process whose allocator gets no mapping ends. So stacks
//! leave [`RESERVE`] of the mappings, and a program that wants more gets an error. Requests of clients take three quarters of the
//! stacks: a program's own fibers and its triggers find one.
//!
//! One client's requests take a part ([`SHARE`]) of the stacks that are left to requests. So a few clients whose requests wait for
//! hours leave stacks to every other client.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::rc::Rc;

use crate::error::Error;

/// The mappings of a process where the system tells no number: Linux's default.
const USUAL_MAPPINGS: usize = 65_530;

/// The mappings that are left for everything else, but for a quarter of them at most.
const RESERVE: usize = 5_000;

/// The requests of one client may take this part of the stacks that are left to requests.
const SHARE: usize = 4;

/// The stacks of a program's fibers.
pub(crate) struct Stacks {
    mappings: usize,
    count: Rc<Cell<usize>>,
    of_requests: Rc<Requests>,
}

impl Default for Stacks {
    fn default() -> Self {
        let told = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let mappings = told.and_then(|text| text.trim().parse().ok());
        Self {
            mappings: mappings.unwrap_or(USUAL_MAPPINGS),
            count: Rc::default(),
            of_requests: Rc::default(),
        }
    }
}

impl Stacks {
    /// How many there may be.
    fn most(&self) -> usize {
        (self.mappings - RESERVE.min(self.mappings / 4)) / 2
    }

    /// Counts one stack more, as long as the returned value lives.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(crate) fn take(&self) -> Result<Counted, Error> {
        if self.count.get() >= self.most() {
            return Err(Error::text(format!(
                "no stack for another fiber: there are {} fibers, which is what vm.max_map_count = {} has room for beside the data",
                self.most(),
                self.mappings
            )));
        }
        Ok(Counted::of(&self.count))
    }

    /// Whether a request of a share, of a client for example, may have a fiber.
    pub(crate) fn may_begin_request(&self, share: u64) -> bool {
        let left = (self.most() / 4 * 3).saturating_sub(self.of_requests.sum.get());
        left > 0 && self.of_requests.shares.borrow().get(&share).is_none_or(|own| *own < left / SHARE)
    }

    /// Counts the fiber of a request of a share, as long as the returned value lives.
    pub(crate) fn begin_request(&self, share: u64) -> Begun {
        self.of_requests.sum.set(self.of_requests.sum.get() + 1);
        *self.of_requests.shares.borrow_mut().entry(share).or_default() += 1;
        Begun { share, requests: self.of_requests.clone() }
    }
}

/// The fibers of requests.
#[derive(Debug, Default)]
struct Requests {
    sum: Cell<usize>,
    /// Of each share that has any.
    shares: RefCell<HashMap<u64, usize>>,
}

/// A request that is counted.
pub(crate) struct Begun {
    share: u64,
    requests: Rc<Requests>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.requests.sum.set(self.requests.sum.get() - 1);
        let mut shares = self.requests.shares.borrow_mut();
        if let Some(own) = shares.get_mut(&self.share) {
            *own -= 1;
            if *own == 0 {
                shares.remove(&self.share);
            }
        }
    }
}

/// A stack that is counted.
pub(crate) struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn of(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_leave_mappings_to_the_allocator_and_requests_leave_stacks_to_the_program() {
        let stacks = Stacks { mappings: 64, count: Rc::default(), of_requests: Rc::default() };
        let mut taken: Vec<Counted> = (0..24).map(|_| stacks.take().ok().unwrap()).collect();
        let Err(refusal) = stacks.take() else { panic!("too many stacks") };
        assert!(format!("{refusal:?}").contains("there are 24 fibers, which is what vm.max_map_count = 64"));
        taken.pop();
        assert!(stacks.take().is_ok());
    }

    #[test]
    fn a_client_with_many_requests_leaves_stacks_to_the_next_one() {
        let stacks = Stacks { mappings: 1000, count: Rc::default(), of_requests: Rc::default() };
        let most = stacks.most() / 4 * 3;
        let mut begun = Vec::new();
        let mut fill = |share| {
            let before = begun.len();
            while stacks.may_begin_request(share) {
                begun.push(stacks.begin_request(share));
            }
            begun.len() - before
        };
        let counts: Vec<_> = (1..=10).map(&mut fill).collect();
        assert!(counts[0] > most / 6 && counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        assert!(counts[9] > 1, "ten clients leave more than one to the last: {counts:?}");
        let others = (100..).take_while(|&share| fill(share) > 0).count();
        assert!(others > 5 && begun.len() == most, "then each has one until all are taken: {others}");
        begun.clear();
        assert!(stacks.of_requests.shares.borrow().is_empty());
        assert!(stacks.may_begin_request(1));
    }
}
