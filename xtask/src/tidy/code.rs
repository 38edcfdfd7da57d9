//! Rust code without its comments and texts: where `unsafe` may stand.

use std::path::Path;

use super::{Fault, Source};

/// Crates whose code may be unsafe, each reviewed for it.
const UNSAFE_ALLOWED: [&str; 1] = ["crates/lua/"];

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    let allowed = UNSAFE_ALLOWED.iter().any(|folder| source.path.starts_with(folder));
    if allowed || !source.has_extension(&["rs"]) {
        return;
    }
    check_unsafe(&source.path, &source.text, faults);
}

fn check_unsafe(path: &Path, text: &str, faults: &mut Vec<Fault>) {
    for (number, line) in without_comments_and_texts(text).lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.any(|word| word == "unsafe") {
            faults.push(Fault::at(path, number + 1, "unsafe code outside of the crates that may have it"));
        }
    }
}

/// The same lines with everything in comments, strings and characters blanked out.
fn without_comments_and_texts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest, out.chars().next_back());
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// The length of the comment, string or character that begins here; 0 if none does.
fn skipped(rest: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if !in_word && let Some(length) = raw_string(rest) {
        return length;
    }
    if rest.starts_with('"') {
        return quoted(rest, '"').unwrap_or(rest.len());
    }
    if let Some(inner) = rest.strip_prefix('\'') {
        // A lifetime has no second quote right behind its first character.
        let mut inner = inner.chars();
        return match (inner.next(), inner.next()) {
            (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\'').unwrap_or(0),
            _ => 0,
        };
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, with `b` or `c` before it.
fn raw_string(rest: &str) -> Option<usize> {
    let after_kind = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let after_r = after_kind.strip_prefix('r')?;
    let hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let inner = after_r[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = rest.len() - inner.len();
    Some(begin + inner.find(&end).map_or(inner.len(), |at| at + end.len()))
}

/// The length of a text in quotes with backslash escapes; `None` if it does not end.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return Some(at + c.len_utf8());
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_with_unsafe(text: &str) -> usize {
        let mut faults = Vec::new();
        check_unsafe(Path::new("a.rs"), text, &mut faults);
        faults.len()
    }

    #[test]
    fn unsafe_code_is_seen() {
        assert_eq!(lines_with_unsafe("fn a() { unsafe { b() } }\n"), 1);
        assert_eq!(lines_with_unsafe("unsafe fn a() {}\nunsafe impl Send for B {}\n"), 2);
    }

    #[test]
    fn words_in_comments_texts_and_names_are_not() {
        let text = "// unsafe\n/* unsafe /* nested */ unsafe */\nlet a = \"unsafe \\\" unsafe\";\n\
                    let b = r#\"unsafe \" unsafe\"#;\n#![deny(unsafe_code)]\nlet c = 'u'; // 'unsafe\n";
        assert_eq!(lines_with_unsafe(text), 0);
    }

    #[test]
    fn lifetimes_do_not_open_a_character() {
        assert_eq!(lines_with_unsafe("fn a<'x>(b: &'x str) { unsafe { c(b, '\\'') } }\n"), 1);
    }

    #[test]
    fn lines_keep_their_numbers() {
        let blanked = without_comments_and_texts("a /* b\n c */ d\n\"e\nf\" g\n");
        assert_eq!(blanked.lines().count(), 4);
        assert!(blanked.contains('d') && blanked.contains('g') && !blanked.contains('f'));
    }
}
