//! Numbers that look random and follow from a seed alone.

/// A generator of 64 bits of state (SplitMix64). Equal seeds give equal numbers on every machine and in every release.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator that goes its own way from here.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `times` on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `items`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// One of the items, each as often as its weight says. At least one weight must be positive.
    pub(crate) fn weighted<T: Copy>(&mut self, items: &[(u32, T)]) -> T {
        let total = items.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut place = self.below(total);
        for &(weight, item) in items {
            match place.checked_sub(weight.into()) {
                Some(rest) => place = rest,
                None => return item,
            }
        }
        unreachable!("the place is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_kept_forever() {
        let mut random = Random::new(1);
        assert_eq!([random.next(), random.next()], [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
    }

    #[test]
    fn choices_follow_weights() {
        let mut random = Random::new(2);
        assert!((0..100).all(|_| random.weighted(&[(0, 'a'), (3, 'b')]) == 'b'));
        assert!((0..100).all(|_| (3..=5).contains(&random.between(3, 5))));
    }
}
