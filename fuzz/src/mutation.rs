//! Changes of an input that is a list of steps: requests are added, repeated, moved and removed as a whole.
//!
//! libFuzzer changes bytes, and the compiler's counters tell it which changes reach new code. It knows nothing of frames: a
//! changed length would make the rest of the input unreadable. So [`mutate_steps`] takes the input apart, lets libFuzzer
//! change the content of one frame, or changes the list, and puts the input together again.

use crate::grammar;
use crate::random::Random;
use crate::shape::{Part, Shape};

/// Most steps that are added at once.
const MAX_ADDED: usize = 8;

/// An input of steps with one change that follows from `seed`. `change_bytes` changes the content of one frame.
pub fn mutate_steps(input: &[u8], seed: u32, change_bytes: &mut dyn FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut random = Random::new(seed.into());
    let mut parts = Shape::Steps.parts(input);
    if parts.is_empty() || random.one_in(3) {
        add_steps(&mut random, &mut parts);
    } else if random.one_in(4) {
        arrange(&mut random, &mut parts);
    } else {
        let place = random.below(parts.len());
        let Part { control, content } = &mut parts[place];
        if random.one_in(6) {
            *control = Some(random.next() as u8);
        } else {
            change_bytes(content);
        }
    }
    Shape::Steps.join(&parts)
}

/// Adds steps that make sense.
fn add_steps(random: &mut Random, parts: &mut Vec<Part>) {
    let at = random.below(parts.len() + 1);
    let steps = (0..=random.small(MAX_ADDED)).map(|_| {
        let (control, content) = grammar::step(random);
        Part { control: Some(control), content }
    });
    let steps: Vec<_> = steps.collect();
    parts.splice(at..at, steps);
}

/// Removes, repeats or swaps steps of a list that has some.
fn arrange(random: &mut Random, parts: &mut Vec<Part>) {
    let (one, other) = (random.below(parts.len()), random.below(parts.len()));
    match random.below(3) {
        0 => drop(parts.remove(one)),
        1 => parts.insert(other, parts[one].clone()),
        _ => parts.swap(one, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::steps;

    #[test]
    fn changed_inputs_are_whole_steps_and_follow_from_the_seed() {
        let mut changed = 0;
        let mut input = Vec::new();
        for seed in 0..2000 {
            let mut flip = |bytes: &mut Vec<u8>| {
                changed += 1;
                bytes.push(seed as u8);
            };
            let next = mutate_steps(&input, seed, &mut flip);
            let read: usize = steps(&next).map(|(_, content)| 6 + content.len()).sum();
            assert_eq!(read, next.len(), "every byte belongs to a step");
            assert_eq!(mutate_steps(&input, seed, &mut |bytes| bytes.push(seed as u8)), next);
            input = next;
            input.truncate(if seed % 100 == 0 { 0 } else { input.len() });
        }
        assert!(changed > 500);
    }
}
