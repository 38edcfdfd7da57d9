//! Small changes of an input: those that find faults in decoders.
//!
//! Besides what knows nothing of the bytes (flipped bits, cut ends, copied stretches), some changes know MessagePack: they
//! replace, copy or remove whole values, and lie about lengths.

use lycosa_tuple::mp::{self, Kind, value_len};

use crate::grammar;
use crate::random::Random;
use crate::shape::{Part, Shape};

/// The longest input that is made.
const MAX_INPUT: usize = 64 << 10;

/// Numbers at which something ends or turns over.
const INTERESTING: [u64; 26] = [
    0,
    1,
    2,
    15,
    16,
    31,
    32,
    127,
    128,
    255,
    256,
    257,
    280,
    288,
    304,
    330,
    511,
    512,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    u64::MAX,
];

/// An input with a few changes. `others` are inputs to borrow from.
pub(crate) fn mutate(random: &mut Random, input: &[u8], others: &[Vec<u8>], shape: Shape) -> Vec<u8> {
    let mut parts = shape.parts(input);
    for _ in 0..=random.small(8) {
        if shape == Shape::Steps && random.one_in(2) {
            add_steps(random, &mut parts);
        } else if parts.is_empty() || (shape == Shape::Steps && random.one_in(4)) {
            arrange(random, &mut parts, others, shape);
        } else {
            let place = random.below(parts.len());
            let Part { control, content } = &mut parts[place];
            if let Some(control) = control
                && random.one_in(6)
            {
                *control = random.next() as u8;
            } else {
                change(random, content, others);
            }
        }
    }
    let mut input = shape.join(&parts);
    input.truncate(MAX_INPUT);
    input
}

/// Adds steps that make sense.
fn add_steps(random: &mut Random, parts: &mut Vec<Part>) {
    let at = random.below(parts.len() + 1);
    let steps = (0..=random.small(8)).map(|_| {
        let (control, content) = grammar::step(random);
        Part { control: Some(control), content }
    });
    let steps: Vec<_> = steps.collect();
    parts.splice(at..at, steps);
}

/// Changes which parts there are and in what order.
fn arrange(random: &mut Random, parts: &mut Vec<Part>, others: &[Vec<u8>], shape: Shape) {
    let borrowed = if others.is_empty() { Vec::new() } else { shape.parts(random.pick::<Vec<u8>>(others)) };
    match random.below(5) {
        0 if parts.len() > 1 => {
            parts.remove(random.below(parts.len()));
        }
        1 if !parts.is_empty() => {
            let copied = random.pick(parts).clone();
            parts.insert(random.below(parts.len() + 1), copied);
        }
        2 if !parts.is_empty() => {
            let (one, other) = (random.below(parts.len()), random.below(parts.len()));
            parts.swap(one, other);
        }
        3 if !borrowed.is_empty() => {
            let range = random.range(borrowed.len());
            let at = random.below(parts.len() + 1);
            parts.splice(at..at, borrowed[range].iter().cloned());
        }
        _ if !borrowed.is_empty() => {
            let at = random.below(parts.len() + 1);
            parts.insert(at, random.pick(&borrowed).clone());
        }
        _ => {}
    }
}

/// Changes bytes.
fn change(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(14) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes[at] = bytes[at].wrapping_add([1, 255][random.below(2)]),
        3 => bytes.truncate(at),
        4 => {
            let range = random.range(bytes.len());
            bytes.drain(range);
        }
        5 => {
            let range = random.range(bytes.len());
            let copied = bytes[range].to_vec();
            bytes.splice(at..at, copied);
        }
        6 if !others.is_empty() => {
            let other = random.pick(others);
            let range = random.range(other.len());
            bytes.splice(at..at, other[range].iter().copied());
        }
        7 => {
            let width = [1, 2, 4, 8][random.below(4)];
            let number = random.pick(&INTERESTING).to_be_bytes();
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[8 - width..][..end - at]);
        }
        8 => lie_about_length(random, bytes, at),
        9 => {
            let value = any_value(random, 2);
            bytes.splice(at..at, value);
        }
        10 => {
            if let Some(range) = value_at(random, bytes) {
                bytes.drain(range);
            }
        }
        11 => {
            if let Some(range) = value_at(random, bytes) {
                let copied = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, copied);
            }
        }
        _ => {
            if let Some(range) = value_at(random, bytes) {
                let value = match others.is_empty() || random.one_in(2) {
                    true => any_value(random, 2),
                    false => {
                        let other = random.pick(others);
                        value_at(random, other).map_or_else(Vec::new, |range| other[range].to_vec())
                    }
                };
                bytes.splice(range, value);
            }
        }
    }
}

/// Where a value stands that a few tries have found.
fn value_at(random: &mut Random, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    (0..4).find_map(|_| {
        let start = random.below(bytes.len().max(1));
        let length = value_len(bytes.get(start..)?).ok()?;
        Some(start..start + length)
    })
}

/// Makes the value at `at` or behind it claim another length or number of items.
fn lie_about_length(random: &mut Random, bytes: &mut [u8], at: usize) {
    let sized =
        |byte: u8| matches!(Kind::of(byte), Kind::Str | Kind::Bin | Kind::Array | Kind::Map | Kind::Ext);
    let Some(found) = bytes[at..].iter().position(|&byte| sized(byte)) else { return };
    let at = at + found;
    match bytes[at] {
        0x80..=0xbf => bytes[at] = bytes[at].wrapping_add([1, 255][random.below(2)]),
        _ => {
            if let Some(low) = bytes.get_mut(at + 1 + random.below(4)) {
                *low = low.wrapping_add([1, 255, 128][random.below(3)]);
            }
        }
    }
}

/// Some value, nested at most `depth` deep.
fn any_value(random: &mut Random, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(random, depth, &mut out);
    out
}

fn write_value(random: &mut Random, depth: u32, out: &mut Vec<u8>) {
    let number = *random.pick(&INTERESTING);
    let words: [&[u8]; 18] = [
        b"",
        b"unsigned",
        b"string",
        b"tree",
        b"hash",
        b"memtx",
        b"r",
        b"t",
        b"a.b[1]",
        b"+",
        b"=",
        b"!",
        b"#",
        b":",
        b"timeout",
        b"ttl",
        b"delay",
        &[0xff; 40],
    ];
    match random.below(if depth == 0 { 11 } else { 13 }) {
        0 => mp::write_nil(out),
        1 => mp::write_bool(out, number.is_multiple_of(2)),
        2 | 3 => mp::write_uint(out, number),
        4 => mp::write_int(out, (number as i64).wrapping_neg()),
        5 => mp::write_double(out, [0.0, -0.0, 0.5, 1e300, f64::NAN, f64::INFINITY, -1.0][random.below(7)]),
        6 => mp::write_float(out, number as f32),
        7 | 8 => mp::write_str(out, words[random.below(words.len())]),
        9 => mp::write_bin(out, words[random.below(words.len())]),
        10 => {
            let payloads: [(i8, &[u8]); 4] =
                [(1, &[0x01, 0x1c]), (1, &[0xd3, 0xff, 0x1d]), (2, &[7; 16]), (3, &[0x80])];
            let (kind, payload) = random.pick(&payloads);
            mp::write_ext(out, *kind, payload);
        }
        11 => {
            let count = random.below(4);
            mp::write_array(out, count as u32);
            (0..count).for_each(|_| write_value(random, depth - 1, out));
        }
        _ => {
            let count = random.below(3);
            mp::write_map(out, count as u32);
            (0..2 * count).for_each(|_| write_value(random, depth - 1, out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_follow_from_the_seed() {
        let input: Vec<u8> = (0..200).collect();
        let others = [vec![0x93, 1, 2, 3], vec![0xa1, b'x']];
        let run = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| mutate(&mut random, &input, &others, Shape::Plain)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn values_are_whole() {
        let mut random = Random::new(5);
        for _ in 0..1000 {
            let value = any_value(&mut random, 3);
            assert_eq!(value_len(&value), Ok(value.len()));
        }
    }
}
