//! Stacks of fibers: how many there may be.
//!
//! Each stack takes two of the process's mappings, its own and the one of the guard page below it, and the system allows a certain
//! number of mappings (`vm.max_map_count`). Memory is mapped as well: a process whose allocator gets no mapping ends. So stacks
//! leave [`RESERVE`] of the mappings, and a program that wants more gets an error. Requests of clients take three quarters of the
//! stacks: a program's own fibers and its triggers find one.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;

use crate::error::Error;

/// The mappings of a process where the system tells no number: Linux's default.
const USUAL_MAPPINGS: usize = 65_530;

/// The mappings that are left for everything else, but for a quarter of them at most.
const RESERVE: usize = 5_000;

/// The stacks of a program's fibers.
pub(crate) struct Stacks {
    mappings: usize,
    count: Rc<Cell<usize>>,
    of_requests: Rc<Cell<usize>>,
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

    /// Whether a client's request may have a fiber.
    pub(crate) fn may_begin_request(&self) -> bool {
        self.of_requests.get() < self.most() / 4 * 3
    }

    /// Counts a request's fiber, as long as the returned value lives.
    pub(crate) fn begin_request(&self) -> Counted {
        Counted::of(&self.of_requests)
    }
}

/// One that is counted.
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
        let mut requests: Vec<Counted> = (0..18).map(|_| stacks.begin_request()).collect();
        assert!(!stacks.may_begin_request());
        requests.pop();
        assert!(stacks.may_begin_request());
    }
}
