mod numbers;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::KeyPart;
use lycosa_tuple::mp;
use proptest::prelude::*;

use super::*;

type Key = (u64, u64);

/// A tree and a sorted list of what should be in it. Hints lose their lowest `blunt` bits.
struct Pair<const L: usize, const I: usize> {
    arena: Arena,
    key: KeyDef,
    blunt: u32,
    tree: TreeOf<L, WINDOW, I>,
    model: Vec<(Key, Handle)>,
}

fn tuple((a, b): Key) -> Vec<u8> {
    let mut tuple = Vec::new();
    mp::write_array(&mut tuple, 2);
    tuple.extend(parts(&[a, b]));
    tuple
}

fn parts(values: &[u64]) -> Vec<u8> {
    let mut key = Vec::new();
    for &value in values {
        mp::write_uint(&mut key, value);
    }
    key
}

fn two_numbers() -> KeyDef {
    KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned), KeyPart::new(1, FieldType::Unsigned)])
}

impl<const L: usize, const I: usize> Pair<L, I> {
    fn new(blunt: u32) -> Self {
        Self { arena: Arena::new(), key: two_numbers(), blunt, tree: TreeOf::new(), model: Vec::new() }
    }

    fn order(&self) -> Order<'_> {
        Order { arena: &self.arena, key: &self.key, exact: false }
    }

    fn dull(&self, hint: u64) -> u64 {
        hint.checked_shr(self.blunt).unwrap_or(0)
    }

    fn entry(&self, handle: Handle) -> Entry {
        Entry { hint: self.dull(self.key.hint(self.arena.get(handle))), handle }
    }

    fn probe<'k>(&self, key: &'k [u8], part_count: u32) -> Probe<'k> {
        let probe = Probe::new(&self.key, key, part_count);
        let decided = probe.decided && self.blunt == 0;
        Probe { low: self.dull(probe.low), high: self.dull(probe.high), decided, ..probe }
    }

    fn place(&self, key: Key) -> Result<usize, usize> {
        self.model.binary_search_by_key(&key, |&(key, _)| key)
    }

    fn insert(&mut self, key: Key) {
        let handle = self.arena.insert(&tuple(key)).unwrap();
        let entry = self.entry(handle);
        let replaced = self.tree.insert(Order { arena: &self.arena, key: &self.key, exact: false }, entry);
        match self.place(key) {
            Ok(at) => {
                assert_eq!(replaced, Some(self.model[at].1));
                self.arena.remove(self.model[at].1);
                self.model[at].1 = handle;
            }
            Err(at) => {
                assert_eq!(replaced, None);
                self.model.insert(at, (key, handle));
            }
        }
    }

    fn remove(&mut self, key: Key) {
        let probe = self.arena.insert(&tuple(key)).unwrap();
        let found = self.tree.find(self.order(), self.entry(probe).hint, &tuple(key));
        let target = self.entry(found.unwrap_or(probe));
        let removed = self.tree.remove(Order { arena: &self.arena, key: &self.key, exact: false }, target);
        assert_eq!(removed, found);
        self.arena.remove(probe);
        match self.place(key) {
            Ok(at) => {
                let (_, handle) = self.model.remove(at);
                assert_eq!(removed, Some(handle));
                self.arena.remove(handle);
            }
            Err(_) => assert_eq!(removed, None),
        }
    }

    fn remove_run(&mut self, key: Key, count: usize) {
        let from = self.place(key).unwrap_or_else(|at| at);
        let end = self.model.len().min(from + count);
        let gone: Vec<_> = self.model.drain(from..end).map(|(_, handle)| handle).collect();
        let Self { tree, arena, key, blunt, .. } = self;
        let entry = |at: usize| {
            let hint = key.hint(arena.get(gone[at])).checked_shr(*blunt).unwrap_or(0);
            Entry { hint, handle: gone[at] }
        };
        let removed = tree.remove_run(Order { arena, key, exact: false }, gone.len(), entry);
        assert_eq!(removed, gone.len());
        gone.into_iter().for_each(|handle| self.arena.remove(handle));
    }

    fn replace(&mut self, key: Key) {
        let new = self.arena.insert(&tuple(key)).unwrap();
        let at = self.place(key);
        let target = self.entry(at.map_or(new, |at| self.model[at].1));
        let replaced =
            self.tree.replace(Order { arena: &self.arena, key: &self.key, exact: false }, target, new);
        match at {
            Ok(at) => {
                assert_eq!(replaced, Some(self.model[at].1));
                self.arena.remove(std::mem::replace(&mut self.model[at].1, new));
            }
            Err(_) => {
                assert_eq!(replaced, None);
                self.arena.remove(new);
            }
        }
    }

    /// Everything that can be asked, against the list.
    fn check(&self) {
        let (tree, order) = (&self.tree, self.order());
        assert_eq!(tree.len(), self.model.len() as u64);
        let mut census = Census::default();
        if let Some(root) = tree.root() {
            let (_, count) = check_node(root, false, true, &mut census);
            assert_eq!(u64::from(count), tree.len());
        }
        assert_eq!(tree.census, census);

        let all: Vec<Handle> = self.model.iter().map(|&(_, handle)| handle).collect();
        let mut cursor = tree.start();
        let forward: Vec<Handle> =
            std::iter::from_fn(|| cursor.forward()).map(|entry| entry.handle).collect();
        assert_eq!(forward, all);
        assert_eq!(cursor.rank(), tree.len());
        assert_eq!(cursor.forward(), None);
        assert_eq!(cursor.backward().map(|entry| entry.handle), all.last().copied());
        let mut cursor = tree.end();
        let mut backward: Vec<Handle> =
            std::iter::from_fn(|| cursor.backward()).map(|entry| entry.handle).collect();
        backward.reverse();
        assert_eq!(backward, all);
        assert_eq!(cursor.rank(), 0);

        for rank in 0..=all.len() {
            let cursor = tree.at(rank as u64);
            assert_eq!(cursor.rank(), rank as u64);
            assert_eq!(cursor.clone().forward().map(|entry| entry.handle), all.get(rank).copied());
            let before = rank.checked_sub(1).map(|before| all[before]);
            assert_eq!(cursor.clone().backward().map(|entry| entry.handle), before);
        }
        assert_eq!(tree.at(u64::MAX).rank(), tree.len());

        for &((a, b), handle) in &self.model {
            let entry = self.entry(handle);
            assert_eq!(tree.find(order, entry.hint, &tuple((a, b))), Some(handle));
        }
    }

    fn check_bounds(&self, key: Key) {
        let bytes = parts(&[key.0, key.1]);
        for part_count in 0..=2 {
            let cut = |(a, b): Key| match part_count {
                0 => (0, 0),
                1 => (a, 0),
                _ => (a, b),
            };
            let probe = self.probe(&bytes, part_count);
            let below = self.model.iter().filter(|&&(other, _)| cut(other) < cut(key)).count();
            let upto = self.model.iter().filter(|&&(other, _)| cut(other) <= cut(key)).count();
            assert_eq!(self.tree.lower_bound(self.order(), &probe).rank(), below as u64);
            assert_eq!(self.tree.upper_bound(self.order(), &probe).rank(), upto as u64);
            let next = self.tree.lower_bound(self.order(), &probe).forward();
            assert_eq!(next.map(|entry| entry.handle), self.model.get(below).map(|&(_, handle)| handle));
            assert_eq!(next.is_some_and(|entry| probe.matches(self.order(), entry)), below < upto);
            assert_eq!(self.tree.first_match(self.order(), &probe), next.filter(|_| below < upto));
        }
    }

    /// Builds the same tree in bulk.
    fn rebuild(&mut self) {
        self.tree = TreeOf::from_ascending(false, self.model.iter().map(|&(_, handle)| self.entry(handle)));
    }
}

/// Checks a node's separators and counts; returns its first entry and number of entries.
fn check_node<const L: usize, const W: usize, const I: usize>(
    node: &Node<L, W, I>,
    exact: bool,
    is_root: bool,
    census: &mut Census,
) -> (Entry, u32) {
    match node {
        Node::Leaf(leaf) => {
            census.leaves += 1;
            match leaf {
                Leaf::Sorted(block) => {
                    assert!(block.hints().is_sorted());
                    assert!(!exact || block.hints().is_sorted_by(|a, b| a < b));
                }
                Leaf::Dense(dense) => {
                    assert!(exact);
                    assert_eq!(dense.rank(W), dense.len());
                    assert!(dense.next(0).is_some_and(|place| place < W));
                }
            }
            (leaf.first(), leaf.len() as u32)
        }
        Node::Inner(inner) => {
            census.inners += 1;
            assert!(inner.children().len() > usize::from(is_root));
            assert_eq!(inner.firsts().len(), inner.children().len());
            let mut depths = inner.children().iter().map(depth);
            let first_depth = depths.next();
            assert!(depths.all(|depth| Some(depth) == first_depth));
            let mut total = 0;
            for (at, child) in inner.children().iter().enumerate() {
                let (first, count) = check_node(child, exact, false, census);
                assert_eq!(first, inner.firsts().entry(at));
                assert_eq!(count, inner.counts()[at]);
                total += count;
            }
            (inner.firsts().entry(0), total)
        }
    }
}

fn depth<const L: usize, const W: usize, const I: usize>(node: &Node<L, W, I>) -> usize {
    match node {
        Node::Leaf(_) => 0,
        Node::Inner(inner) => 1 + depth(&inner.children()[0]),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Key),
    /// Ascending keys: the first one, their number.
    Run(Key, u64),
    Remove(Key),
    /// Removes entries from the first one at or behind the key on.
    Drain(Key, usize),
    /// The same as one run.
    Cut(Key, usize),
    Replace(Key),
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0..6u64, 0..60u64);
    prop_oneof![
        12 => key().prop_map(Step::Insert),
        2 => (key(), 1..30u64).prop_map(|(key, count)| Step::Run(key, count)),
        8 => key().prop_map(Step::Remove),
        2 => (key(), 1..40usize).prop_map(|(key, count)| Step::Drain(key, count)),
        2 => (key(), 1..40usize).prop_map(|(key, count)| Step::Cut(key, count)),
        3 => key().prop_map(Step::Replace),
        1 => Just(Step::Rebuild),
    ]
}

fn run<const L: usize, const I: usize>(blunt: u32, steps: &[Step]) {
    let mut pair = Pair::<L, I>::new(blunt);
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(key) => pair.insert(key),
            Step::Run((a, b), count) => (b..b + count).for_each(|b| pair.insert((a, b))),
            Step::Remove(key) => pair.remove(key),
            Step::Drain(key, count) => {
                let from = pair.place(key).unwrap_or_else(|at| at);
                let keys: Vec<Key> = pair.model[from..].iter().take(count).map(|&(key, _)| key).collect();
                keys.into_iter().for_each(|key| pair.remove(key));
            }
            Step::Cut(key, count) => pair.remove_run(key, count),
            Step::Replace(key) => pair.replace(key),
            Step::Rebuild => pair.rebuild(),
        }
        if number % 16 == 0 {
            pair.check();
        }
        let (Step::Insert(key)
        | Step::Remove(key)
        | Step::Replace(key)
        | Step::Run(key, _)
        | Step::Drain(key, _)
        | Step::Cut(key, _)) = *step
        else {
            continue;
        };
        pair.check_bounds(key);
    }
    pair.check();
    while let Some(&(key, _)) = pair.model.first() {
        pair.remove(key);
    }
    pair.check();
    assert_eq!(pair.tree.memory(), 0);
}

/// Bits that hints lose: none, some so that there are ties, all.
fn blunt() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(51), Just(64)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_like_a_sorted_list_with_two_entries_a_node(
        blunt in blunt(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        run::<2, 2>(blunt, &steps);
    }

    #[test]
    fn behaves_like_a_sorted_list_with_small_nodes(
        blunt in blunt(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        run::<5, 3>(blunt, &steps);
        run::<8, 4>(blunt, &steps);
    }

    #[test]
    fn behaves_like_a_sorted_list_with_nodes_for_use(
        blunt in blunt(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        run::<LEAF_ENTRIES, INNER_CHILDREN>(blunt, &steps);
    }
}

#[test]
fn remains_are_freed_leaf_by_leaf_in_order() {
    let mut pair = Pair::<5, 3>::new(0);
    let handles: Vec<_> = (0..500).map(|number| pair.arena.insert(&tuple((number, 0))).unwrap()).collect();
    let entries: Vec<_> = handles.iter().map(|&handle| pair.entry(handle)).collect();
    let mut remains = TreeOf::<5, WINDOW, 3>::from_ascending(false, entries).into_remains();
    let (mut freed, mut leaves) = (Vec::new(), 0);
    while let Some(count) = remains.free_leaf(|handle| freed.push(handle)) {
        assert!((1..=5).contains(&count));
        leaves += 1;
    }
    assert_eq!((freed, leaves), (handles, 100));
    assert_eq!(TreeOf::<5, WINDOW, 3>::new().into_remains().free_leaf(|_| {}), None);
}

/// Entries of the numbers in a real tree, and what an entry takes.
fn bytes_per_entry(keys: impl IntoIterator<Item = Key>) -> f64 {
    let mut pair = Pair::<LEAF_ENTRIES, INNER_CHILDREN>::new(0);
    for key in keys {
        let handle = pair.arena.insert(&tuple(key)).unwrap();
        let entry = pair.entry(handle);
        pair.tree.insert(Order { arena: &pair.arena, key: &pair.key, exact: false }, entry);
    }
    pair.tree.memory() as f64 / pair.tree.len() as f64
}

/// Distinct numbers in a scattered order.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| {
        let mixed = (number ^ 0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
    })
}

#[test]
fn ascending_entries_are_dense() {
    assert!(bytes_per_entry((0..50_000).map(|number| (1, number))) < 12.8);
}

#[test]
fn ascending_entries_are_dense_between_others() {
    let others = (0..1000).flat_map(|number| [(1, number), (3, number)]);
    assert!(bytes_per_entry(others.chain((0..50_000).map(|number| (2, number)))) < 13.0);
}

#[test]
fn ascending_runs_side_by_side_are_dense() {
    assert!(bytes_per_entry((0..50_000).map(|number| (number % 10, number))) < 13.5);
}

#[test]
fn entries_that_descend_behind_a_full_leaf_share_leaves() {
    let ascending = (0..10_880).map(|number| (1, number));
    let descending = (0..20_000).rev().map(|number| (2, number));
    assert!(bytes_per_entry(ascending.chain(descending)) < 25.0);
}

#[test]
fn scattered_entries_fill_nodes_well() {
    assert!(bytes_per_entry(scattered(50_000).map(|number| (number, 0))) < 16.5);
}

#[test]
fn a_queue_stays_dense_and_gives_memory_back() {
    let mut pair = Pair::<LEAF_ENTRIES, INNER_CHILDREN>::new(0);
    for number in 0..20_000 {
        pair.insert((b'r'.into(), number));
        if number % 2 == 0 {
            pair.remove((b'r'.into(), number / 2));
            pair.insert((b't'.into(), number / 2));
        }
        if number % 4 == 0 {
            pair.remove((b't'.into(), number / 4));
        }
    }
    pair.check();
    assert!(pair.tree.memory() < pair.tree.len() * 14);
    for number in 0..20_000 {
        pair.remove((b'r'.into(), number));
        pair.remove((b't'.into(), number));
    }
    assert_eq!(pair.tree.memory(), 0);
}

#[test]
fn a_queue_whose_tasks_are_done_at_once_stays_dense() {
    let mut pair = Pair::<LEAF_ENTRIES, INNER_CHILDREN>::new(0);
    for number in 0..20_000 {
        pair.insert((b'r'.into(), number));
        if number >= 10_000 {
            let taken = number - 10_000;
            pair.remove((b'r'.into(), taken));
            pair.insert((b't'.into(), taken));
            pair.remove((b't'.into(), taken));
        }
    }
    pair.check();
    assert!(pair.tree.memory() < pair.tree.len() * 13);
}

#[test]
fn a_tree_thinned_at_random_gives_memory_back() {
    let mut pair = Pair::<LEAF_ENTRIES, INNER_CHILDREN>::new(0);
    (0..20_000).for_each(|number| pair.insert((0, number)));
    let full = pair.tree.memory();
    for number in (0..20_000).filter(|number| number % 16 != 0) {
        pair.remove((0, number));
    }
    pair.check();
    assert!(pair.tree.memory() * 4 < full);
}

#[test]
fn bulk_build_fills_nodes() {
    let mut pair = Pair::<LEAF_ENTRIES, INNER_CHILDREN>::new(0);
    scattered(20_000).for_each(|number| pair.insert((number, 0)));
    pair.rebuild();
    pair.check();
    assert!(pair.tree.memory() < pair.tree.len() * 13);
}
