//! Trees whose hints are exact: dense leaves beside sorted ones.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use super::*;

/// A tree of numbers and what should be in it. The tree is shown an arena without tuples, so it cannot read any.
struct Numbers<const L: usize, const W: usize, const I: usize> {
    key: KeyDef,
    empty: Arena,
    handles: Handles,
    tree: TreeOf<L, W, I>,
    model: BTreeMap<u64, Handle>,
}

/// Distinct handles.
struct Handles {
    arena: Arena,
    free: Vec<Handle>,
}

impl Handles {
    fn take(&mut self) -> Handle {
        self.free.pop().unwrap_or_else(|| self.arena.insert(&[0x90]).unwrap())
    }
}

impl<const L: usize, const W: usize, const I: usize> Numbers<L, W, I> {
    fn new() -> Self {
        Self {
            key: KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned)]),
            empty: Arena::new(),
            handles: Handles { arena: Arena::new(), free: Vec::new() },
            tree: TreeOf::new(),
            model: BTreeMap::new(),
        }
    }

    fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut all = Self::new();
        numbers.into_iter().for_each(|number| all.insert(number));
        all
    }

    fn order(&self) -> Order<'_> {
        Order { arena: &self.empty, key: &self.key, exact: true }
    }

    fn insert(&mut self, number: u64) {
        let handle = self.handles.take();
        let order = Order { arena: &self.empty, key: &self.key, exact: true };
        let replaced = self.tree.insert(order, Entry { hint: number, handle });
        assert_eq!(replaced, self.model.insert(number, handle), "{number}");
        self.handles.free.extend(replaced);
    }

    fn remove(&mut self, number: u64) {
        let stranger = self.handles.take();
        let handle = self.model.get(&number).copied().unwrap_or(stranger);
        let order = Order { arena: &self.empty, key: &self.key, exact: true };
        let removed = self.tree.remove(order, Entry { hint: number, handle });
        assert_eq!(removed, self.model.remove(&number), "{number}");
        self.handles.free.push(stranger);
        self.handles.free.extend(removed);
    }

    fn remove_run(&mut self, from: u64, count: usize) {
        let run = self.model.range(from..).take(count);
        let gone: Vec<Entry> = run.map(|(&hint, &handle)| Entry { hint, handle }).collect();
        let order = Order { arena: &self.empty, key: &self.key, exact: true };
        assert_eq!(self.tree.remove_run(order, gone.len(), |at| gone[at]), gone.len(), "{from}");
        for Entry { hint, handle } in gone {
            self.model.remove(&hint);
            self.handles.free.push(handle);
        }
    }

    fn replace(&mut self, number: u64) {
        let new = self.handles.take();
        let order = Order { arena: &self.empty, key: &self.key, exact: true };
        let replaced = self.tree.replace(order, Entry { hint: number, handle: new }, new);
        match self.model.entry(number) {
            Slot::Occupied(mut slot) => assert_eq!(replaced, Some(slot.insert(new))),
            Slot::Vacant(_) => assert_eq!(replaced, None),
        }
        self.handles.free.push(replaced.unwrap_or(new));
    }

    fn rebuild(&mut self) {
        let entries = self.model.iter().map(|(&hint, &handle)| Entry { hint, handle });
        self.tree = TreeOf::from_ascending(true, entries);
    }

    fn entries(&self) -> Vec<Entry> {
        self.model.iter().map(|(&hint, &handle)| Entry { hint, handle }).collect()
    }

    /// Everything that can be asked, against the list.
    fn check(&self) {
        let tree = &self.tree;
        assert_eq!(tree.len(), self.model.len() as u64);
        let mut census = Census::default();
        if let Some(root) = tree.root() {
            let (_, count) = check_node(root, true, true, &mut census);
            assert_eq!(u64::from(count), tree.len());
        }
        assert_eq!(tree.census, census);

        let all = self.entries();
        let mut cursor = tree.start();
        assert!(std::iter::from_fn(|| cursor.forward()).eq(all.iter().copied()));
        assert_eq!(cursor.rank(), tree.len());
        assert_eq!(cursor.forward(), None);
        assert_eq!(cursor.backward(), all.last().copied());
        let mut cursor = tree.end();
        assert!(std::iter::from_fn(|| cursor.backward()).eq(all.iter().rev().copied()));
        assert_eq!(cursor.rank(), 0);
        assert_eq!(cursor.backward(), None);
        assert_eq!(cursor.forward(), all.first().copied());

        for rank in 0..=all.len() {
            let cursor = tree.at(rank as u64);
            assert_eq!(cursor.rank(), rank as u64);
            assert_eq!(cursor.clone().forward(), all.get(rank).copied());
            assert_eq!(cursor.clone().backward(), rank.checked_sub(1).map(|before| all[before]));
        }
        assert_eq!(tree.at(u64::MAX).rank(), tree.len());
        for entry in all {
            assert_eq!(tree.find(self.order(), entry.hint, &[]), Some(entry.handle));
        }
    }

    fn check_bounds(&self, number: u64) {
        let key = parts(&[number]);
        for (low, high, part_count) in [(number, number, 1), (0, u64::MAX, 0)] {
            let probe = Probe { key: &key, part_count, low, high, decided: true };
            let below = self.model.range(..low).count() as u64;
            let upto = self.model.range(..=high).count() as u64;
            let (lower, upper) =
                (self.tree.lower_bound(self.order(), &probe), self.tree.upper_bound(self.order(), &probe));
            assert_eq!((lower.rank(), upper.rank()), (below, upto));
            let entry = |(&hint, &handle): (&u64, &Handle)| Entry { hint, handle };
            let next = self.model.range(low..).next().map(entry);
            assert_eq!(lower.clone().forward(), next);
            assert_eq!(lower.clone().backward(), self.model.range(..low).next_back().map(entry));
            assert_eq!(upper.clone().backward(), self.model.range(..=high).next_back().map(entry));
            let within = next.filter(|entry| entry.hint <= high);
            assert_eq!(self.tree.first_match(self.order(), &probe), within);
            assert_eq!(next.is_some_and(|next| probe.matches(self.order(), next)), within.is_some());
        }
        assert_eq!(self.tree.find(self.order(), number, &[]), self.model.get(&number).copied());
    }

    fn bytes_per_entry(&self) -> f64 {
        self.tree.memory() as f64 / self.tree.len() as f64
    }

    /// How many leaves are sorted and how many dense.
    fn forms(&self) -> (usize, usize) {
        fn count<const L: usize, const W: usize, const I: usize>(node: &Node<L, W, I>) -> (usize, usize) {
            match node {
                Node::Leaf(Leaf::Sorted(_)) => (1, 0),
                Node::Leaf(Leaf::Dense(_)) => (0, 1),
                Node::Inner(inner) => inner
                    .children()
                    .iter()
                    .map(count)
                    .fold((0, 0), |(a, b), (sorted, dense)| (a + sorted, b + dense)),
            }
        }
        self.tree.root().map_or((0, 0), count)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    /// Ascending numbers: the first one, their number, their distance.
    Run(u64, u64, u64),
    /// Descending numbers: the first one, their number.
    Fall(u64, u64),
    Remove(u64),
    /// Removes numbers from one on: the first one, their number; every which one is skipped.
    Drain(u64, usize, usize),
    /// Removes numbers as one run: the first one, their greatest number.
    Cut(u64, usize),
    /// Takes this number of entries away at the left, and adds one at the right for each.
    Queue(usize),
    Replace(u64),
    Rebuild,
}

/// Numbers in clusters, at both ends of what there is, and anywhere.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..400u64,
        3 => (0..8u64, 0..40u64).prop_map(|(cluster, number)| (cluster << 32) + number),
        3 => (0..400u64).prop_map(|number| u64::MAX - number),
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => number().prop_map(Step::Insert),
        3 => (number(), 1..120u64, 1..4u64).prop_map(|(from, count, by)| Step::Run(from, count, by)),
        2 => (number(), 1..60u64).prop_map(|(from, count)| Step::Fall(from, count)),
        6 => number().prop_map(Step::Remove),
        3 => (number(), 1..150usize, 2..9usize).prop_map(|(from, count, keep)| Step::Drain(from, count, keep)),
        2 => (number(), 1..150usize).prop_map(|(from, count)| Step::Cut(from, count)),
        2 => (1..120usize).prop_map(Step::Queue),
        3 => number().prop_map(Step::Replace),
        1 => Just(Step::Rebuild),
    ]
}

fn run<const L: usize, const W: usize, const I: usize>(steps: &[Step]) {
    let mut all = Numbers::<L, W, I>::new();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(number) => all.insert(number),
            Step::Run(from, count, by) => {
                (0..count).filter_map(|n| from.checked_add(n * by)).for_each(|number| all.insert(number));
            }
            Step::Fall(from, count) => {
                (0..count).filter_map(|n| from.checked_sub(n)).for_each(|number| all.insert(number));
            }
            Step::Remove(number) => all.remove(number),
            Step::Drain(from, count, keep) => {
                let numbers: Vec<u64> =
                    all.model.range(from..).map(|(&number, _)| number).take(count).collect();
                let gone = numbers.into_iter().enumerate().filter(|(place, _)| place % keep != 0);
                gone.for_each(|(_, number)| all.remove(number));
            }
            Step::Cut(from, count) => all.remove_run(from, count),
            Step::Queue(count) => {
                for _ in 0..count {
                    let ends = (all.model.first_key_value(), all.model.last_key_value());
                    let (Some((&first, _)), Some((&last, _))) = ends else { break };
                    all.remove(first);
                    last.checked_add(1).into_iter().for_each(|next| all.insert(next));
                }
            }
            Step::Replace(number) => all.replace(number),
            Step::Rebuild => all.rebuild(),
        }
        if index % 16 == 0 {
            all.check();
        }
        if let Step::Insert(number)
        | Step::Run(number, ..)
        | Step::Fall(number, _)
        | Step::Remove(number)
        | Step::Drain(number, ..)
        | Step::Cut(number, _)
        | Step::Replace(number) = *step
        {
            all.check_bounds(number);
            all.check_bounds(number.wrapping_add(W as u64));
        }
    }
    all.check();
    [0, u64::MAX].into_iter().for_each(|number| all.check_bounds(number));
    while let Some((&number, _)) = all.model.first_key_value() {
        all.remove(number);
    }
    all.check();
    assert_eq!(all.tree.memory(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_a_sorted_list_with_two_entries_a_block(steps in prop::collection::vec(step(), 1..100)) {
        run::<2, 5, 3>(&steps);
    }

    #[test]
    fn behaves_like_a_sorted_list_with_small_nodes(steps in prop::collection::vec(step(), 1..150)) {
        run::<5, 12, 3>(&steps);
        run::<8, 70, 4>(&steps);
    }

    #[test]
    fn behaves_like_a_sorted_list_with_nodes_for_use(steps in prop::collection::vec(step(), 1..250)) {
        run::<LEAF_ENTRIES, WINDOW, INNER_CHILDREN>(&steps);
    }

    #[test]
    fn behaves_like_a_sorted_list_with_the_widest_window(steps in prop::collection::vec(step(), 1..150)) {
        run::<16, 255, 3>(&steps);
    }
}

type Real = Numbers<LEAF_ENTRIES, WINDOW, INNER_CHILDREN>;

#[test]
fn consecutive_numbers_take_a_handle_each() {
    let mut all = Real::of(0..100_000);
    assert!(all.bytes_per_entry() < 4.5, "{}", all.bytes_per_entry());
    all.rebuild();
    assert!(all.bytes_per_entry() < 4.5, "{}", all.bytes_per_entry());
    let down = Real::of((0..100_000).rev());
    assert!(down.bytes_per_entry() < 4.5, "{}", down.bytes_per_entry());
    let last = Real::of(u64::MAX - 99_999..=u64::MAX);
    assert!(last.bytes_per_entry() < 4.5, "{}", last.bytes_per_entry());
    last.check_bounds(u64::MAX);
}

#[test]
fn consecutive_numbers_in_several_ranges_are_dense() {
    let side_by_side = Real::of((0..100_000).map(|number| ((number % 10) << 40) + number / 10));
    assert!(side_by_side.bytes_per_entry() < 5.0, "{}", side_by_side.bytes_per_entry());
    let others = (0..1000).flat_map(|number| [number, (1 << 50) + number]);
    let between = Real::of(others.chain((0..50_000).map(|number| (1 << 40) + number)));
    assert!(between.bytes_per_entry() < 4.8, "{}", between.bytes_per_entry());
}

#[test]
fn numbers_far_apart_take_what_they_take_in_any_order() {
    for stride in [3, 4, 7, 100, 1 << 40] {
        let mut all = Real::of((0..20_000).map(|number| number * stride));
        assert!(all.bytes_per_entry() < 12.8, "{stride}: {}", all.bytes_per_entry());
        all.rebuild();
        assert!(all.bytes_per_entry() < 12.8, "{stride}: {}", all.bytes_per_entry());
    }
    let mut all = Real::of(scattered(50_000));
    assert!(all.bytes_per_entry() < 16.5, "{}", all.bytes_per_entry());
    all.check();
    all.rebuild();
    assert!(all.bytes_per_entry() < 12.8, "{}", all.bytes_per_entry());
}

#[test]
fn a_shuffled_range_becomes_dense() {
    let mut order: Vec<(u64, u64)> = scattered(50_000).zip(0..).collect();
    order.sort_unstable();
    let all = Real::of(order.into_iter().map(|(_, number)| number));
    all.check();
    assert!(all.bytes_per_entry() < 9.0, "{}", all.bytes_per_entry());
}

#[test]
fn entries_that_come_in_descending_order_behind_full_leaves_share_leaves() {
    // 31 360 dense entries fill an inner node with its leaves, as 10 880 sorted ones do.
    for (count, stride) in [(31_360, 1), (40_000, 1), (10_880, 4), (12_000, 4)] {
        let mut all = Real::of((0..count).map(|number| number * stride));
        let dense = all.tree.memory();
        (0..2000).rev().for_each(|number| all.insert(1_000_000 + number * 1000));
        all.check();
        let more = all.tree.memory() - dense;
        assert!(more < 2000 * 48, "{count} {stride} {more}");
    }
}

#[test]
fn a_leaf_goes_from_form_to_form() {
    let mut all = Real::of(0..50);
    assert_eq!(all.forms(), (0, 1));
    all.insert(1_000_000);
    assert_eq!(all.forms(), (1, 0), "an entry from far away");
    all.remove(1_000_000);
    assert_eq!(all.forms(), (1, 0), "a block is left as it is until it is full");
    (50..86).for_each(|number| all.insert(number));
    assert_eq!(all.forms(), (0, 1), "a full block becomes dense");
    (86..245).for_each(|number| all.insert(number));
    assert_eq!(all.forms(), (0, 1));
    all.insert(245);
    assert_eq!(all.forms(), (0, 2), "a full window");
    (20..241).for_each(|number| all.remove(number));
    assert_eq!(
        all.forms(),
        (0, 2),
        "the next leaf is too far away for one window, and the leaf is not sparse"
    );
    all.check();
    (10..20).for_each(|number| all.remove(number));
    assert_eq!(all.forms(), (1, 0), "leaves that are too far apart for a window merge into a block");
    all.check();
    (0..10).for_each(|number| all.remove(number));
    (246..400).for_each(|number| all.insert(number));
    assert_eq!(all.forms(), (0, 1));
    all.check();
}

#[test]
fn sparse_neighbours_in_one_window_merge_into_it() {
    let mut all = Real::of(0..400);
    assert_eq!(all.forms(), (0, 2));
    (0..225).for_each(|number| all.remove(number));
    assert_eq!(all.forms(), (0, 1));
    all.check();
    assert_eq!(all.tree.memory(), 1024);
}

#[test]
fn a_queue_of_numbers_stays_in_a_leaf_or_two() {
    for outstanding in [1, 40, 200, 260] {
        let mut all = Real::of(0..outstanding);
        for number in 0..5000 {
            all.insert(outstanding + number);
            all.remove(number);
            let (sorted, dense) = all.forms();
            assert!(sorted == 0 && dense <= 3, "{outstanding} {number} {sorted} {dense}");
        }
        all.check();
    }
}

#[test]
fn a_dense_tree_thinned_at_random_gives_memory_back() {
    let mut all = Real::of(0..50_000);
    for number in (0..50_000).filter(|number| number % 16 != 0) {
        all.remove(number);
    }
    all.check();
    assert!(all.bytes_per_entry() < 1024.0 / 21.0, "{}", all.bytes_per_entry());
}
