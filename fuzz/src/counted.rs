//! Runs of a target over a fixed number of changed inputs, without coverage: the same inputs on every machine.
//!
//! The input with a number follows from seed, target and number alone, so that a failing one is made again without those
//! before it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, bail};

use crate::random::Random;
use crate::{FuzzTarget, Shape, bytes, mutate_steps};

/// Mutations of an input that is a list of steps.
const MAX_MUTATIONS: usize = 6;

/// Gives the target the inputs with the numbers from `first` on.
///
/// # Errors
/// The target panicked; the error names the input's number. The seeds cannot be read.
pub fn run(target: &FuzzTarget, seed: u64, first: u64, inputs: u64) -> Result<()> {
    let seeds = (target.seeds)()?;
    let some = seeds.first().map(|_| &seeds[..]);
    let seeds = some.with_context(|| format!("the target {} has no seeds", target.name))?;
    for number in first..first.saturating_add(inputs) {
        let input = input(target, seeds, seed, number);
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            bail!(
                "the target {} broke at input {number} of seed {seed} ({} bytes); repeat it: \
                 cargo run --profile checked -p lycosa-fuzz -- run --seed {seed} --first {number} --inputs 1 {}",
                target.name,
                input.len(),
                target.name
            );
        }
    }
    Ok(())
}

fn input(target: &FuzzTarget, seeds: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    // Odd, so that equal sums of seed and number are different inputs.
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let mut input = random.pick(seeds).clone();
    let other = random.pick(seeds);
    match target.shape {
        Shape::Plain => bytes::change(&mut random, &mut input, other),
        Shape::Steps => {
            for _ in 0..=random.small(MAX_MUTATIONS) {
                let seed = random.next() as u32;
                input = mutate_steps(&input, seed, &mut |content| bytes::change(&mut random, content, other));
            }
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn an_input_follows_from_its_number_and_nearly_all_differ() {
        for target in &TARGETS {
            let seeds = (target.seeds)().unwrap();
            let inputs = (0..60).map(|number| input(target, &seeds, 5, number)).collect::<Vec<_>>();
            assert_eq!(input(target, &seeds, 5, 59), inputs[59], "{}", target.name);
            let mut different = inputs.clone();
            different.sort();
            different.dedup();
            assert!(different.len() > 50, "{}: {} of 60", target.name, different.len());
            assert_ne!(input(target, &seeds, 6, 59), inputs[59], "{}", target.name);
        }
    }

    #[test]
    fn a_failing_input_is_named() {
        let target = FuzzTarget {
            name: "short_inputs_only",
            run: |bytes| assert!(bytes.len() < 40),
            shape: Shape::Plain,
            seeds: || Ok(vec![vec![0; 30]]),
        };
        let error = run(&target, 1, 0, 1000).unwrap_err().to_string();
        let number = error.split("--first ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(run(&target, 1, number.parse().unwrap(), 1).is_err(), "{error}");
    }
}
