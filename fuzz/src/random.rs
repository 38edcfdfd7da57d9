//! Choices of the grammar and of mutations, which follow from a seed alone.

/// A generator of numbers with the choices that mutations make.
#[derive(Debug, Clone)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    /// A number up to `limit`, most often a small one.
    pub(crate) fn small(&mut self, limit: usize) -> usize {
        let bits = self.below(limit.max(1).ilog2() as usize + 1);
        self.below((1 << bits) + 1).min(limit)
    }

    /// True once in `times` on average.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of `items`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
