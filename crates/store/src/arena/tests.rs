use proptest::prelude::*;

use super::*;

#[test]
fn a_handle_takes_four_bytes() {
    assert_eq!(size_of::<Option<Handle>>(), 4);
}

#[test]
fn every_length_fits_its_class_and_wastes_little() {
    for bytes in 1..=MAX_SLOT {
        let class = class_of(bytes);
        let size = class_size(class);
        assert!(size >= bytes, "{bytes} bytes in a slot of {size}");
        assert!(class == 0 || class_size(class - 1) < bytes, "{bytes} bytes fit a smaller slot than {size}");
        assert!(size - bytes < STEP.max(bytes / 16 + 1), "{bytes} bytes waste a slot of {size}");
    }
}

#[test]
fn tuples_of_every_length_come_back() {
    let mut arena = Arena::new();
    let lengths: Vec<usize> =
        (0..300).chain([MAX_SLOT - 3, MAX_SLOT - 2, MAX_SLOT - 1, 70_000, 1 << 20]).collect();
    let handles: Vec<Handle> =
        lengths.iter().map(|&len| arena.insert(&vec![len as u8; len]).unwrap()).collect();
    for (&len, &handle) in lengths.iter().zip(&handles) {
        assert_eq!(arena.get(handle), vec![len as u8; len]);
    }
    assert_eq!(arena.len(), lengths.len() as u64);
    assert_eq!(arena.used_bytes(), lengths.iter().map(|&len| Arena::slot_size(len) as u64).sum());
    for handle in handles {
        arena.remove(handle);
    }
    assert!(arena.is_empty());
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn memory_is_dense_and_given_back() {
    let mut arena = Arena::new();
    let handles: Vec<Handle> = (0..100_000).map(|_| arena.insert(&[7; 118]).unwrap()).collect();
    assert_eq!(arena.used_bytes(), 100_000 * 120);
    assert!(arena.reserved_bytes() < arena.used_bytes() * 101 / 100 + PAGE_BYTES as u64);
    for handle in handles {
        arena.remove(handle);
    }
    let spare = PAGE_BYTES + arena.pages.capacity() * size_of::<Page>();
    assert!(arena.reserved_bytes() <= spare as u64);
}

#[test]
fn a_tuple_that_comes_and_goes_keeps_its_page() {
    let mut arena = Arena::new();
    let handle = arena.insert(&[1; 100]).unwrap();
    let reserved = arena.reserved_bytes();
    arena.remove(handle);
    assert_eq!(arena.reserved_bytes(), reserved);
    assert_eq!(arena.insert(&[2; 100]), Some(handle));
}

#[test]
#[should_panic(expected = "removed twice")]
fn a_second_removal_is_refused() {
    let mut arena = Arena::new();
    let handle = arena.insert(&[1; 10]).unwrap();
    arena.insert(&[2; 10]).unwrap();
    arena.remove(handle);
    arena.remove(handle);
}

#[derive(Debug, Clone)]
enum Step {
    Insert(usize),
    Remove(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0..64usize, 2 => 0..9000usize, 1 => 60_000..70_000usize];
    prop_oneof![3 => len.prop_map(Step::Insert), 2 => any::<prop::sample::Index>().prop_map(Step::Remove)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_a_list_of_tuples(steps in prop::collection::vec(step(), 1..400)) {
        let mut arena = Arena::new();
        let mut model: Vec<(Handle, Vec<u8>)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(len) => {
                    let tuple = vec![number as u8; len];
                    let handle = arena.insert(&tuple).unwrap();
                    prop_assert!(model.iter().all(|(other, _)| *other != handle));
                    model.push((handle, tuple));
                }
                Step::Remove(index) if !model.is_empty() => {
                    let (handle, tuple) = model.swap_remove(index.index(model.len()));
                    prop_assert_eq!(arena.get(handle), tuple);
                    arena.remove(handle);
                }
                Step::Remove(_) => {}
            }
            prop_assert_eq!(arena.len(), model.len() as u64);
        }
        for (handle, tuple) in &model {
            prop_assert_eq!(arena.get(*handle), tuple.as_slice());
        }
        let used: usize = model.iter().map(|(_, tuple)| Arena::slot_size(tuple.len())).sum();
        prop_assert_eq!(arena.used_bytes(), used as u64);
        prop_assert!(arena.reserved_bytes() >= arena.used_bytes());
        for (handle, _) in model {
            arena.remove(handle);
        }
        prop_assert_eq!(arena.used_bytes(), 0);
        let spares = arena.classes.iter().filter(|class| class.spare.is_some()).count();
        prop_assert_eq!(arena.pages.len() - arena.vacant.len(), spares);
    }
}
