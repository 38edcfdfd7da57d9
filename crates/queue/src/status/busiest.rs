//! The sub-queues of a tube into which the most tasks are put: a Space-Saving sketch over a sample of the puts.

/// Sub-queues that are known at most.
const LIMIT: usize = 8;
/// Bytes of a name at most; sub-queues with longer names are left out.
const MAX_NAME: usize = 64;
/// One put of this number is looked at.
const SAMPLED: u32 = 4;

/// Names and how many sampled puts each has had at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busiest {
    known: Vec<(Box<[u8]>, u64)>,
    puts: u32,
}

impl Busiest {
    /// Bytes that one takes at most.
    pub(crate) const MAX_BYTES: usize =
        size_of::<Self>() + LIMIT * (size_of::<(Box<[u8]>, u64)>() + MAX_NAME);

    /// A task is put into a sub-queue.
    #[inline]
    pub(crate) fn note(&mut self, name: &[u8]) {
        self.puts = self.puts.wrapping_add(1);
        if self.puts.is_multiple_of(SAMPLED) || self.known.len() < LIMIT {
            self.note_sampled(name);
        }
    }

    fn note_sampled(&mut self, name: &[u8]) {
        if let Some(known) = self.known.iter_mut().find(|known| *known.0 == *name) {
            known.1 += 1;
        } else if name.len() > MAX_NAME {
        } else if self.known.len() < LIMIT {
            self.known.reserve_exact(LIMIT - self.known.len());
            self.known.push((name.into(), 1));
        } else if let Some(least) = self.known.iter_mut().min_by_key(|known| known.1) {
            // The newcomer inherits the count: it may have had as many puts while it was not known.
            *least = (name.into(), least.1 + 1);
        }
    }

    /// The names, the busiest first.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_by_key(|known| std::cmp::Reverse(known.1));
        known.into_iter().map(|known| &*known.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_names_stay_among_any_number_of_others() {
        let mut busiest = Busiest::default();
        for number in 0..10_000_u32 {
            busiest.note(format!("rare {number}").as_bytes());
            busiest.note(b"often");
            busiest.note(b"very often");
            busiest.note(if number % 2 == 0 { b"very often" } else { b"now and then" });
            busiest.note(&[b'x'; MAX_NAME + 1]);
        }
        assert!(busiest.known.len() <= LIMIT);
        assert_eq!(busiest.names()[..2], [&b"very often"[..], b"often"]);
        assert!(!busiest.names().contains(&&[b'x'; MAX_NAME + 1][..]));
    }
}
