//! Invariants between the indexes of a space.

use std::hash::{DefaultHasher, Hash, Hasher};

use lycosa_store::{IndexId, IteratorType, SpaceId, Store, user};

/// Every index of a space holds every tuple of it exactly once, and their bytes are counted. Deferred entries count
/// like those in the trees.
///
/// # Panics
/// If one does not.
pub(crate) fn check(store: &Store) {
    for space in store.spaces().filter(|space| space.engine().has_tuples()) {
        let mut contents = space.indexes().iter().map(|index| content(store, space.id(), index.id()));
        let Some(primary) = contents.next() else { continue };
        assert_eq!(primary.bytes, space.bytes(), "bytes of {}", space.name());
        assert_eq!(primary.tuples, space.len(), "tuples of {}", space.name());
        for secondary in contents {
            assert_eq!(secondary, primary, "an index of {}", space.name());
        }
    }
}

/// The tuples of an index, in any order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    tuples: u64,
    bytes: u64,
    hashes: u64,
}

fn content(store: &Store, space: SpaceId, index: IndexId) -> Content {
    let mut content = Content::default();
    let mut add = |tuple: &[u8]| {
        let mut hasher = DefaultHasher::new();
        tuple.hash(&mut hasher);
        content.tuples += 1;
        content.bytes += tuple.len() as u64;
        content.hashes = content.hashes.wrapping_add(hasher.finish());
    };
    let all = IteratorType::All;
    store
        .select(user::ADMIN, space, index, all, &[0x90], 0, u64::MAX, &mut add)
        .expect("admin may read everything");
    content
}
