//! Expectations of a scenario about a value or a text.

use std::collections::HashMap;

use lycosa_tuple::value::Value;
use serde_json::Value as Json;

use crate::rig::SECOND;

/// The bytes that hexadecimal digits stand for; blanks do not count.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Enough of regular expressions for the scenarios: literals, escapes, `[…]`, `\w`, `\d`, `+`, `{n}`, anchors.
pub(crate) fn search(pattern: &str, text: &str) -> bool {
    let (pattern, anchored) = pattern.strip_prefix('^').map_or((pattern, false), |rest| (rest, true));
    let starts = if anchored { 0..=0 } else { 0..=text.len() };
    let atoms = atoms(pattern);
    starts.into_iter().any(|start| text.get(start..).is_some_and(|text| matches_here(&atoms, text)))
}

enum Atom {
    One(Box<dyn Fn(char) -> bool>, usize, usize),
    End,
}

fn atoms(pattern: &str) -> Vec<Atom> {
    let mut atoms = Vec::new();
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        let class: Box<dyn Fn(char) -> bool> = match letter {
            '$' if letters.peek().is_none() => {
                atoms.push(Atom::End);
                continue;
            }
            '\\' => match letters.next() {
                Some('w') => Box::new(|c| c.is_alphanumeric() || c == '_'),
                Some('d') => Box::new(|c| c.is_ascii_digit()),
                other => Box::new(move |c| Some(c) == other),
            },
            '[' => {
                let set: Vec<char> = letters.by_ref().take_while(|c| *c != ']').collect();
                Box::new(move |c| {
                    set.contains(&c) || set.windows(3).any(|w| w[1] == '-' && (w[0]..=w[2]).contains(&c))
                })
            }
            '.' => Box::new(|_| true),
            other => Box::new(move |c| c == other),
        };
        let (least, most) = match letters.peek() {
            Some('+') => {
                letters.next();
                (1, usize::MAX)
            }
            Some('{') => {
                letters.next();
                let count: String = letters.by_ref().take_while(|c| *c != '}').collect();
                let count = count.parse().expect("a count");
                (count, count)
            }
            _ => (1, 1),
        };
        atoms.push(Atom::One(class, least, most));
    }
    atoms
}

fn matches_here(atoms: &[Atom], text: &str) -> bool {
    match atoms.split_first() {
        None => true,
        Some((Atom::End, _)) => text.is_empty(),
        Some((Atom::One(class, least, most), rest)) => {
            let run = text.chars().take_while(|letter| class(*letter)).count().min(*most);
            (*least..=run).rev().any(|count| {
                let end = text.char_indices().nth(count).map_or(text.len(), |(end, _)| end);
                matches_here(rest, &text[end..])
            })
        }
    }
}

/// Compares values with their patterns, and captures named values.
pub(crate) struct Matcher<'a> {
    /// µs since the epoch.
    pub(crate) now: u64,
    /// Captured values, by name.
    pub(crate) captured: &'a mut HashMap<String, Value>,
}

impl Matcher<'_> {
    pub(crate) fn matches(&mut self, want: &Json, value: &Value) -> bool {
        match (want, value) {
            (Json::Null, Value::Nil) => true,
            (Json::Bool(want), Value::Bool(value)) => want == value,
            (Json::Number(want), value) => as_f64(value).is_some_and(|value| want.as_f64() == Some(value)),
            (Json::String(want), Value::Str(value)) => want.as_bytes() == value,
            (Json::Array(want), Value::Array(values)) => {
                want.len() == values.len()
                    && want.iter().zip(values).all(|(want, value)| self.matches(want, value))
            }
            (Json::Object(map), value) => match map.iter().next() {
                Some((key, argument)) if key.starts_with('$') => self.special(key, argument, map, value),
                _ => self.map(map, value, true),
            },
            _ => false,
        }
    }

    fn map(&mut self, want: &serde_json::Map<String, Json>, value: &Value, exactly: bool) -> bool {
        let Value::Map(pairs) = value else { return false };
        (!exactly || pairs.len() == want.len())
            && want.iter().all(|(key, want)| value.get(key).is_some_and(|value| self.matches(want, value)))
    }

    #[expect(clippy::too_many_lines, reason = "one match over all methods")]
    fn special(
        &mut self,
        key: &str,
        argument: &Json,
        map: &serde_json::Map<String, Json>,
        value: &Value,
    ) -> bool {
        let text = || argument.as_str().unwrap_or("").to_owned();
        match key {
            "$any" => true,
            "$bin" => matches!(value, Value::Bin(bytes) if *bytes == unhex(&text())),
            "$str" => matches!(value, Value::Str(bytes) if *bytes == unhex(&text())),
            "$uuid16" => {
                matches!(value, Value::Str(bytes) if bytes.len() == 16) && self.capture(text(), value)
            }
            "$let" => self.capture(text(), value),
            "$oneof" => argument.as_array().is_some_and(|wants| {
                wants.iter().any(|want| {
                    let before = self.captured.clone();
                    let matched = self.matches(want, value);
                    if !matched {
                        *self.captured = before;
                    }
                    matched
                })
            }),
            "$set" => {
                let (Some(wants), Some(values)) = (argument.as_array(), value.as_array()) else {
                    return false;
                };
                let mut left: Vec<_> = values.iter().collect();
                wants.len() == values.len()
                    && wants.iter().all(|want| {
                        let found = left.iter().position(|value| self.matches(want, value));
                        found.map(|place| left.remove(place)).is_some()
                    })
            }
            "$has" => argument.as_object().is_some_and(|want| self.map(want, value, false)),
            "$map" => {
                let (Some(wants), Value::Map(pairs)) = (argument.as_array(), value) else { return false };
                wants.len() == pairs.len()
                    && wants.iter().zip(pairs).all(|(want, (key, value))| {
                        self.matches(&want[0], key) && self.matches(&want[1], value)
                    })
            }
            "$len" => {
                let length = match value {
                    Value::Str(bytes) | Value::Bin(bytes) => bytes.len(),
                    Value::Array(values) => values.len(),
                    Value::Map(pairs) => pairs.len(),
                    _ => return false,
                };
                argument.as_u64() == Some(length as u64)
            }
            "$re" => matches!(value, Value::Str(bytes) if search(&text(), &String::from_utf8_lossy(bytes))),
            "$exact" => {
                matches!(
                    (argument.is_f64(), value),
                    (true, Value::Double(_) | Value::Float(_)) | (false, Value::Uint(_) | Value::Int(_))
                ) && self.matches(argument, value)
                    || !argument.is_number() && self.matches(argument, value)
            }
            "$approx" => as_f64(value).is_some_and(|value| {
                let at = |place: usize| argument[place].as_f64().unwrap_or(f64::NAN);
                (value - at(0)).abs() <= at(1)
            }),
            "$gt" | "$ge" | "$lt" | "$le" => as_f64(value).is_some_and(|value| {
                map.iter().all(|(sign, bound)| {
                    let bound = bound.as_f64().unwrap_or(f64::NAN);
                    match sign.as_str() {
                        "$gt" => value > bound,
                        "$ge" => value >= bound,
                        "$lt" => value < bound,
                        _ => value <= bound,
                    }
                })
            }),
            "$now" => value.as_u64().is_some_and(|value| {
                let at = |place: usize| argument[place].as_f64().unwrap_or(f64::NAN) * SECOND as f64;
                let (offset, tolerance) = (at(0) as i128, at(1) as i128);
                (i128::from(value) - i128::from(self.now) - offset).abs() <= tolerance
            }),
            "$repeat" => {
                let text = argument[0].as_str().unwrap_or("");
                let count = argument[1].as_u64().unwrap_or(0) as usize;
                matches!(value, Value::Str(bytes) if *bytes == text.repeat(count).into_bytes())
            }
            "$range" => {
                let bounds = (argument[0].as_u64().unwrap_or(0), argument[1].as_u64().unwrap_or(0));
                *value == Value::array(bounds.0..bounds.1)
            }
            _ => false,
        }
    }

    fn capture(&mut self, name: String, value: &Value) -> bool {
        *self.captured.entry(name).or_insert_with(|| value.clone()) == *value
    }
}

fn as_f64(value: &Value) -> Option<f64> {
    Some(match value {
        Value::Uint(value) => *value as f64,
        Value::Int(value) => *value as f64,
        Value::Float(value) => f64::from(*value),
        Value::Double(value) => *value,
        _ => return None,
    })
}
