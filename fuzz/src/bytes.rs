//! Changes of bytes that follow from a seed, where no libFuzzer changes them.

use crate::random::Random;

/// Most changes of one input.
const MAX_CHANGES: usize = 8;
/// Most bytes that one change inserts, removes or repeats.
const MAX_PIECE: usize = 64;
/// Bytes at the borders of MessagePack's kinds, of varints and of text headers.
const BORDERS: [u8; 18] = [
    0x00, 0x01, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc4, 0xca, 0xcf, 0xd3, 0xdd, 0xdf, 0xe0,
    0xff,
];

/// Changes `input` in a few places. `other`: an input from which pieces are taken.
pub(crate) fn change(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.small(MAX_CHANGES) {
        change_once(random, input, other);
    }
}

fn change_once(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(input.len() + 1);
    let length = 1 + random.small(MAX_PIECE);
    let piece = at..input.len().min(at + length);
    match random.below(8) {
        0 => drop(input.drain(piece)),
        1 => {
            let piece = input[piece].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        2 if !other.is_empty() => {
            let from = random.below(other.len());
            let taken = other[from..other.len().min(from + length)].to_vec();
            input.splice(piece, taken);
        }
        3 => {
            let byte = *random.pick(&BORDERS);
            input.insert(at, byte);
        }
        4 => input.truncate(at),
        change => {
            let Some(byte) = input.get_mut(at) else { return };
            *byte = match change {
                5 => *byte ^ (1 << random.below(8)),
                6 => *random.pick(&BORDERS),
                _ => random.next() as u8,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_follow_from_the_seed_and_reach_short_and_long_inputs() {
        let run = |seed| {
            let mut random = Random::new(seed);
            let mut input = vec![7; 40];
            change(&mut random, &mut input, &[1, 2, 3]);
            input
        };
        let inputs = (0..500).map(run).collect::<Vec<_>>();
        assert_eq!(inputs, (0..500).map(run).collect::<Vec<_>>());
        let changed = inputs.iter().filter(|input| **input != [7; 40]);
        assert!(changed.count() > 450);
        assert!(inputs.iter().any(|input| input.len() > 40) && inputs.iter().any(|input| input.len() < 20));
        let mut empty = Vec::new();
        (0..100).for_each(|seed| change(&mut Random::new(seed), &mut empty, &[]));
    }
}
