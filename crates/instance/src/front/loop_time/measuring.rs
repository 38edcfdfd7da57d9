//! An instance measures its turns, their parts, and long requests between turns.

use std::time::Duration;

use super::{Outside, TurnPart};
use crate::Instance;

impl Instance {
    /// Gives the instance a monotonic clock, in microseconds: background work then takes at most a share of each
    /// turn, and the status tells the longest turn and its parts.
    pub fn set_elapsed(&mut self, elapsed: Box<dyn Fn() -> u64 + Send>) {
        self.loop_time.clocks.elapsed = Some(elapsed);
    }

    /// Gives the instance a clock of the processor's time that its thread has had, in microseconds, for the status.
    pub fn set_processor_time(&mut self, processor: Box<dyn Fn() -> u64 + Send>) {
        self.loop_time.clocks.processor = Some(processor);
    }

    forward! { loop_time:
        /// A turn begins: what holds the loop is measured from here on.
        pub fn begin_turn(&mut self, now: u64);
        /// The turn has ended with the part that was ended last.
        pub fn end_turn(&mut self);
    }

    /// What the turn has done since its beginning, or since the part before, was this.
    pub fn end_part(&mut self, part: TurnPart) {
        self.loop_time.end_part(part.place());
    }

    /// Does something that may hold the loop, and notes for how long.
    pub(crate) fn measured<T>(&mut self, what: Outside, work: impl FnOnce(&mut Self) -> T) -> T {
        let began = self.loop_time.elapsed();
        let result = work(self);
        let elapsed = self.loop_time.elapsed().saturating_sub(began);
        self.loop_time.note(what.place(), elapsed);
        self.loop_time.held += elapsed;
        result
    }

    /// How long requests of the kinds that may take long have held the loop since the last call of this function.
    pub fn take_held(&mut self) -> Duration {
        Duration::from_micros(std::mem::take(&mut self.loop_time.held))
    }
}
