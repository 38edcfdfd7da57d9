//! Filters as people type them: `state=buried older_than=10m error="no such host"`.

use lycosa_client::{Filter, TaskState};
use lycosa_server::config::nearest;

use crate::payload;
use crate::values::span;

const NAMES: &str = "state, id_from, id_to, utube, pri_from, pri_to, older_than, younger_than, attempts_from, attempts_to, error, \
                     field, equals, contains";

/// Words apart by blanks; a part in quotation marks is one word with its blanks.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_word) = (Vec::new(), String::new(), false, false);
    for character in text.chars() {
        match character {
            '"' => (is_quoted, is_word) = (!is_quoted, true),
            ' ' if !is_quoted => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            character => {
                word.push(character);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// Reads a filter; an empty text matches every task. The error says what would be right.
pub(super) fn parse(text: &str) -> Result<Filter, String> {
    let mut filter = Filter::new();
    let mut ranges = [("id", None, None), ("pri", None, None), ("attempts", None, None)];
    let (mut field, mut equals, mut contains) = (None, None, None);
    for word in words(text) {
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!("{word:?} is no filter: write NAME=VALUE, for example state=buried"));
        };
        let number =
            || value.parse::<u64>().map_err(|_| format!("{name}: expected a whole number, not {value:?}"));
        let age = || span(value).map_err(|error| format!("{name}: {error}"));
        filter = match name {
            "state" => filter.state(state(value)?),
            "utube" => filter.utube(value),
            "older_than" => filter.older_than(age()?),
            "younger_than" => filter.younger_than(age()?),
            "error" => filter.error(value),
            "field" | "equals" | "contains" => {
                let place = match name {
                    "field" => &mut field,
                    "equals" => &mut equals,
                    _ => &mut contains,
                };
                *place = Some(value.to_owned());
                filter
            }
            _ => {
                let (range, end) = name.rsplit_once('_').unwrap_or((name, ""));
                let found = ranges.iter_mut().find(|(known, ..)| *known == range);
                match (found, end) {
                    (Some((_, from, _)), "from") => *from = Some(number()?),
                    (Some((_, _, to)), "to") => *to = Some(number()?),
                    _ => {
                        let advice = nearest(name, NAMES.split(", ").map(str::to_owned))
                            .map_or_else(|| NAMES.to_owned(), |near| format!("did you mean {near}?"));
                        return Err(format!("{name} is no member of a filter ({advice})"));
                    }
                }
                filter
            }
        };
    }
    for (name, from, to) in ranges.into_iter().filter(|(_, from, to)| from.or(*to).is_some()) {
        let range = from.unwrap_or(0)..=to.unwrap_or(u64::MAX);
        filter = match name {
            "id" => filter.ids(range),
            "pri" => filter.priorities(range),
            _ => filter.attempts(range),
        };
    }
    match (field, equals, contains) {
        (None, None, None) => Ok(filter),
        (Some(field), None, None) => Ok(filter.has_field(&field)),
        (Some(field), Some(value), None) => Ok(filter.field_equals(&field, payload::from_argument(&value))),
        (Some(field), None, Some(part)) => Ok(filter.field_contains(&field, &part)),
        (Some(_), Some(_), Some(_)) => Err("equals and contains: one of them".to_owned()),
        (None, ..) => Err("equals and contains need field=PATH".to_owned()),
    }
}

/// The state of this name.
pub(super) fn state(name: &str) -> Result<TaskState, String> {
    Ok(match name {
        "ready" => TaskState::Ready,
        "taken" => TaskState::Taken,
        "delayed" => TaskState::Delayed,
        "buried" => TaskState::Buried,
        other => return Err(format!("state: expected ready, taken, delayed or buried, not {other:?}")),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn filters_are_read_as_the_server_takes_them() {
        let read =
            parse("state=buried older_than=10m error=\"no such host\" attempts_from=3").expect("a filter");
        let wanted = Filter::new()
            .state(TaskState::Buried)
            .older_than(Duration::from_secs(600))
            .error("no such host")
            .attempts(3..=u64::MAX);
        assert_eq!(read, wanted);
        assert_eq!(parse("field=a.b equals=5"), Ok(Filter::new().field_equals("a.b", 5_u64)));
        assert_eq!(parse("  "), Ok(Filter::new()));
    }

    #[test]
    fn a_wrong_filter_says_what_would_be_right() {
        assert!(parse("stat=buried").expect_err("a wrong name").contains("did you mean state?"));
        assert!(parse("buried").expect_err("no name").contains("NAME=VALUE"));
        assert!(parse("state=bury").expect_err("a wrong state").contains("buried"));
        assert!(parse("id_from=x").expect_err("no number").contains("whole number"));
        assert!(parse("equals=5").expect_err("no field").contains("field=PATH"));
    }
}
