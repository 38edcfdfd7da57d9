//! A few worlds of groups, of nodes alone and of whole instances, fixed: that they are repeatable, and that each event which they
//! count happens in some of them.

use lycosa_sim::{Kind, Summary, Trace};

const STEPS: u64 = 2_000;

fn run(kind: Kind, seed: u64) -> Summary {
    kind.run(seed, STEPS, &mut Trace::new(false)).unwrap_or_else(|failure| panic!("{failure}"))
}

fn is_a_world(kind: Kind) {
    let hash = run(kind, 7).hash;
    assert_eq!(run(kind, 7).hash, hash);
    assert_ne!(run(kind, 8).hash, hash);
}

fn everything_happens(kind: Kind) {
    let mut sum = run(kind, 1).counts;
    let mut seed = 2;
    while sum.iter().any(|(_, count)| *count == 0) {
        assert!(seed < 200, "in worlds 1 to {seed} some things never happen: {sum:?}");
        let counts = run(kind, seed).counts;
        sum.iter_mut().zip(counts).for_each(|((_, sum), (_, count))| *sum += count);
        seed += 1;
    }
}

#[test]
fn a_seed_is_a_world_of_nodes() {
    is_a_world(Kind::Group);
}

#[test]
fn a_seed_is_a_world_of_instances() {
    is_a_world(Kind::Members);
}

#[test]
fn everything_happens_in_some_world_of_nodes() {
    everything_happens(Kind::Group);
}

#[test]
fn everything_happens_in_some_world_of_instances() {
    everything_happens(Kind::Members);
}
