//! Rows as text: JSON, of which a row needs arrays, maps, strings without escapes, integers, booleans and null.
//!
//! The lists of this folder are written in it, and so are tests.

use lycosa_tuple::mp;

/// Why a text is not a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotationError {
    /// The rest of the text from where it went wrong.
    pub(crate) rest: String,
}

/// Reads one value and returns its MessagePack.
pub(crate) fn encode(text: &str) -> Result<Vec<u8>, NotationError> {
    let mut out = Vec::new();
    let rest = value(text, &mut out)?.trim_start();
    if rest.is_empty() { Ok(out) } else { Err(wrong(rest)) }
}

fn wrong(rest: &str) -> NotationError {
    NotationError { rest: rest.to_owned() }
}

/// Appends the value that `text` begins with, and returns what follows it.
fn value<'t>(text: &'t str, out: &mut Vec<u8>) -> Result<&'t str, NotationError> {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix('[') {
        let (count, items, rest) = list(rest, ']', &mut value)?;
        mp::write_array(out, count);
        out.extend(items);
        return Ok(rest);
    }
    if let Some(rest) = text.strip_prefix('{') {
        let (count, items, rest) = list(rest, '}', &mut |text, out| {
            let rest = value(text, out)?.trim_start();
            value(rest.strip_prefix(':').ok_or_else(|| wrong(rest))?, out)
        })?;
        mp::write_map(out, count);
        out.extend(items);
        return Ok(rest);
    }
    if let Some(rest) = text.strip_prefix('"') {
        let (string, rest) = rest.split_once('"').ok_or_else(|| wrong(text))?;
        mp::write_str(out, string.as_bytes());
        return Ok(rest);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    match word {
        "null" => mp::write_nil(out),
        "true" => mp::write_bool(out, true),
        "false" => mp::write_bool(out, false),
        _ => match (word.parse(), word.parse()) {
            (Ok(number), _) => mp::write_uint(out, number),
            (_, Ok(number)) => mp::write_int(out, number),
            _ => return Err(wrong(text)),
        },
    }
    Ok(rest)
}

/// Appends an item that a text begins with, and returns what follows it.
type ReadItem<'r, 't> = dyn FnMut(&'t str, &mut Vec<u8>) -> Result<&'t str, NotationError> + 'r;

/// Reads items until `close`: how many, their bytes, and what follows.
fn list<'t>(
    mut text: &'t str,
    close: char,
    item: &mut ReadItem<'_, 't>,
) -> Result<(u32, Vec<u8>, &'t str), NotationError> {
    let (mut count, mut items) = (0, Vec::new());
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix(close) {
            return Ok((count, items, rest));
        }
        if count > 0 {
            text = text.strip_prefix(',').ok_or_else(|| wrong(text))?;
        }
        text = item(text, &mut items)?;
        count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_messagepack() {
        let all = encode(r#" [1, -1, "a", [], {"k": [true, false]}, null, 18446744073709551615] "#).unwrap();
        assert_eq!(
            all,
            b"\x97\x01\xff\xa1a\x90\x81\xa1k\x92\xc3\xc2\xc0\xcf\xff\xff\xff\xff\xff\xff\xff\xff"
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "[", "[1 2]", "{1}", "\"open", "[1] 2", "[what]", "[1,]"] {
            assert!(encode(text).is_err(), "{text}");
        }
    }
}
