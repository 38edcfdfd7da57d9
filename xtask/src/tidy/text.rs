//! Rules for every text file: its length, its blanks, forbidden words.

use super::{Fault, Source};

/// From this length on a file asks whether it holds two nouns.
const LONG: usize = 800;
/// From this length on it does.
const TOO_LONG: usize = 1000;

/// Kinds of files that people read from top to bottom.
const CODE: [&str; 4] = ["rs", "py", "js", "lua"];

/// A word that must not stand in a file.
struct Word {
    text: &'static str,
    why: &'static str,
}

// Cut in two, so that this file follows its own rules.
const WORDS: &[Word] = &[
    Word { text: concat!("to", "do!"), why: "unfinished code" },
    Word { text: concat!("TO", "DO"), why: "an unfinished thing belongs into an issue" },
    Word { text: concat!("FIX", "ME"), why: "an unfinished thing belongs into an issue" },
    Word { text: concat!("XX", "X"), why: "an unfinished thing belongs into an issue" },
    Word { text: concat!("unimple", "mented!"), why: "unfinished code" },
    Word { text: concat!("for", " now"), why: "say what holds, not until when" },
    Word { text: concat!("#[igno", "re]"), why: "a test runs, or is not there" },
    Word {
        text: concat!("not(te", "st)"),
        why: "Clippy's compiler has builds with tests alone (xtask/src/compiler.rs)",
    },
    Word { text: concat!("/ro", "ot/"), why: "a path of one machine" },
    Word { text: concat!("/ho", "me/"), why: "a path of one machine" },
    Word { text: concat!("/wo", "rk/"), why: "a path of one machine" },
    Word { text: concat!("//registry.npm", "js.org"), why: "registries are the machine's setting" },
    Word { text: concat!("//py", "pi.org"), why: "registries are the machine's setting" },
    Word { text: concat!("//static.cra", "tes.io"), why: "registries are the machine's setting" },
    Word { text: concat!("//index.cra", "tes.io"), why: "registries are the machine's setting" },
    Word { text: concat!("//deb.deb", "ian.org"), why: "registries are the machine's setting" },
];

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    let mut count = 0;
    for (number, line) in source.text.lines().enumerate() {
        count = number + 1;
        if line.ends_with([' ', '\t', '\r']) {
            faults.push(Fault::at(&source.path, count, "blanks at the end of the line"));
        }
        for word in WORDS {
            if stands_in(line, word.text) {
                faults.push(Fault::at(&source.path, count, format!("`{}`: {}", word.text, word.why)));
            }
        }
    }
    if !source.text.is_empty() && (!source.text.ends_with('\n') || source.text.ends_with("\n\n")) {
        faults.push(Fault::at(&source.path, count, "a file ends with one line end"));
    }
    if source.has_extension(&CODE) && count > TOO_LONG {
        let what = format!("{count} lines: cut it along its nouns (the limit is {TOO_LONG})");
        faults.push(Fault::new(source.path.display().to_string(), what));
    }
}

/// Whether the word stands in the line as a whole, not as a part of a longer one.
fn stands_in(line: &str, word: &str) -> bool {
    let is_edge = |inside: Option<char>, outside: Option<char>| {
        let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !(in_word(inside) && in_word(outside))
    };
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        is_edge(word.chars().next(), before.chars().next_back())
            && is_edge(word.chars().next_back(), after.chars().next())
    })
}

/// A warning for a file that is long, but not too long.
pub(super) fn long_file(source: &Source) -> Option<Fault> {
    let count = source.text.lines().count();
    let is_long = source.has_extension(&CODE) && (LONG + 1..=TOO_LONG).contains(&count);
    is_long.then(|| {
        Fault::new(source.path.display().to_string(), format!("{count} lines: does it hold two nouns?"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(&Source { path: path.into(), text: text.into() }, &mut faults);
        faults.into_iter().map(|fault| format!("{} {}", fault.place, fault.what)).collect()
    }

    #[test]
    fn clean_text_has_no_faults() {
        assert!(faults_of("a.rs", "fn a() {}\n").is_empty());
        assert!(faults_of("empty.rs", "").is_empty());
    }

    #[test]
    fn blanks_and_ends_are_seen_with_their_line() {
        assert!(faults_of("a.rs", "fine\nnot fine \n")[0].starts_with("a.rs:2 "));
        assert!(faults_of("a.rs", "no end").len() == 1);
        assert!(faults_of("a.rs", "two ends\n\n").len() == 1);
    }

    #[test]
    fn unfinished_words_are_seen() {
        let text = concat!("// TO", "DO: more\n");
        assert_eq!(faults_of("a.rs", text).len(), 1);
        assert_eq!(faults_of("a.md", text).len(), 1);
    }

    #[test]
    fn parts_of_longer_words_are_not_those_words() {
        assert!(stands_in(concat!("it holds for", " now."), concat!("for", " now")));
        assert!(!stands_in("for nowhere in places", concat!("for", " now")));
        assert!(!stands_in("the formula_for now", concat!("for", " now")));
    }

    #[test]
    fn long_files_warn_and_then_fail() {
        let source = |lines: usize| Source { path: "a.rs".into(), text: "x\n".repeat(lines) };
        assert!(long_file(&source(LONG)).is_none());
        assert!(long_file(&source(LONG + 1)).is_some());
        assert!(faults_of("a.rs", &source(TOO_LONG).text).is_empty());
        assert_eq!(faults_of("a.rs", &source(TOO_LONG + 1).text).len(), 1);
        assert!(faults_of("a.txt", &source(TOO_LONG + 1).text).is_empty());
    }
}
