//! The clocks of the process, as the core sees them: none, or two that an embedding program gives.
//!
//! Without them every measured time is 0 and budgets count steps, so that a simulation is repeatable.

use lycosa_store::Budget;

/// Clocks that measure how long something takes.
#[derive(Default)]
pub(crate) struct Clocks {
    /// Microseconds by a clock that never goes back.
    pub(crate) elapsed: Option<Box<dyn Fn() -> u64 + Send>>,
    /// Microseconds of the processor that this thread has had.
    pub(crate) processor: Option<Box<dyn Fn() -> u64 + Send>>,
}

impl Clocks {
    /// Microseconds by the clock, if there is one.
    pub(crate) fn clock(&self) -> Option<u64> {
        self.elapsed.as_ref().map(|clock| clock())
    }

    /// Microseconds by the clock; 0 without one.
    pub(crate) fn elapsed(&self) -> u64 {
        self.clock().unwrap_or(0)
    }

    /// Does work within a budget that ends `microseconds` from now too, if there is a clock.
    pub(crate) fn limit<T>(
        &self,
        budget: Budget<'_>,
        microseconds: u64,
        work: impl FnOnce(Budget<'_>) -> T,
    ) -> T {
        match &self.elapsed {
            Some(clock) => work(budget.within(&**clock, microseconds)),
            None => work(budget),
        }
    }

    /// Microseconds of the processor so far; 0 without a clock for it.
    pub(crate) fn processor(&self) -> u64 {
        self.processor.as_ref().map_or(0, |clock| clock())
    }
}
