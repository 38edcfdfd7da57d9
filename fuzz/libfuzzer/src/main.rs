//! One target of `lycosa-fuzz` under libFuzzer: the one that the variable `LYCOSA_FUZZ_TARGET` names.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use lycosa_fuzz::{Shape, TARGETS, FuzzTarget, mutate_steps};

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("LYCOSA_FUZZ_TARGET").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        panic!("LYCOSA_FUZZ_TARGET is {name:?}; it names one of {}", names.join(", "))
    })
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if TARGET.shape == Shape::Plain {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut change_bytes = |bytes: &mut Vec<u8>| {
        let length = bytes.len();
        bytes.resize(2 * length + 64, 0);
        let changed = fuzzer_mutate(bytes, length, 2 * length + 64);
        bytes.truncate(changed);
    };
    let mut changed = mutate_steps(&data[..size], seed, &mut change_bytes);
    changed.truncate(max_size);
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
});
