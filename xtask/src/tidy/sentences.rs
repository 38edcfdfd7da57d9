//! The length of sentences in documents and comments, and the width of comments.
//!
//! Headings, tables, indented lines and blocks of code are no sentences. Text between backticks counts as one word. A
//! sentence ends with a full stop, a question or exclamation mark, a colon or a semicolon, and with its paragraph or
//! list item.

use super::{Fault, Source};

/// The most words of a sentence. Writers aim at 25; this bound finds sentences that no reader takes in at once.
const MAX_WORDS: usize = 40;
/// The most characters of a line of a comment, its indentation included.
const WIDTH: usize = 140;

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    let is_code = source.has_extension(&["rs"]);
    if !is_code && !source.has_extension(&["md"]) {
        return;
    }
    let mut paragraph = Paragraph::default();
    let mut in_block = false;
    let lines = source.text.lines().enumerate().map(|(at, line)| (at + 1, line));
    for (number, line) in lines {
        let Some(text) = (if is_code { comment(line) } else { Some(line) }) else {
            in_block = false;
            paragraph.end();
            continue;
        };
        let trimmed = text.trim();
        if trimmed.starts_with("```") {
            in_block = !in_block;
            paragraph.end();
        } else if in_block
            || trimmed.is_empty()
            || trimmed.starts_with(['|', '#', '<'])
            || text.starts_with("    ")
        {
            paragraph.end();
        } else {
            let width = line.chars().count();
            if is_code && width > WIDTH {
                let what = format!("a comment {width} characters wide (the limit is {WIDTH})");
                faults.push(Fault::at(&source.path, number, what));
            }
            let item = item(trimmed);
            if item.is_some() {
                paragraph.end();
            }
            paragraph.read(item.unwrap_or(trimmed), number);
        }
    }
    paragraph.end();
    for (line, words) in paragraph.long {
        let what = format!("a sentence of {words} words: cut it (the limit is {MAX_WORDS})");
        faults.push(Fault::at(&source.path, line, what));
    }
}

/// The text of a line that is a comment as a whole.
pub(super) fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// The text of a list's item.
fn item(text: &str) -> Option<&str> {
    let (mark, rest) = text.split_once(' ')?;
    let number =
        mark.strip_suffix('.').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    (matches!(mark, "-" | "*") || number).then(|| rest.trim_start())
}

#[derive(Debug, Default)]
struct Paragraph {
    /// Words of the open sentence, and the line where it began.
    words: usize,
    line: usize,
    /// Between backticks.
    in_code: bool,
    /// Sentences over the limit: line and words.
    long: Vec<(usize, usize)>,
}

impl Paragraph {
    fn read(&mut self, text: &str, line: usize) {
        for word in text.split_whitespace() {
            if self.words == 0 {
                self.line = line;
            }
            let was_in_code = self.in_code;
            self.in_code ^= word.matches('`').count() % 2 == 1;
            // A span between backticks counts where it begins.
            let counts = word.contains(char::is_alphanumeric) && !was_in_code;
            self.words += usize::from(counts);
            let bare = word.trim_end_matches([')', '"', '\'', '*', '_', '”']);
            if !self.in_code && (bare.ends_with(['.', '!', '?', ':', ';']) || bare == "·") {
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        if self.words > MAX_WORDS {
            self.long.push((self.line, self.words));
        }
        self.words = 0;
    }

    fn end(&mut self) {
        self.finish();
        self.in_code = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(&Source { path: name.into(), text: text.to_owned() }, &mut faults);
        faults.into_iter().map(|fault| fault.place).collect()
    }

    #[test]
    fn long_sentences_are_found_where_they_begin() {
        let long = "word ".repeat(MAX_WORDS + 1);
        let short = "word ".repeat(MAX_WORDS);
        let comment = "/// word word word word\n".repeat(MAX_WORDS / 4);
        assert_eq!(lines("a.md", &format!("One.\n{long}")), ["a.md:2"]);
        assert_eq!(lines("a.md", &format!("One.\n{short}.\n\n{short}")), Vec::<String>::new());
        assert_eq!(lines("a.rs", &format!("fn f() {{}}\n{comment}/// more.\n")), ["a.rs:2"]);
        assert_eq!(lines("a.rs", &format!("    // {}\n", "w".repeat(WIDTH - 6))), ["a.rs:1"]);
        assert_eq!(lines("a.rs", &format!("let x = \"{long}\";\n")), Vec::<String>::new());
    }

    #[test]
    fn code_tables_and_lists_are_no_sentences() {
        let long = "word ".repeat(MAX_WORDS + 1);
        let items = format!("- {}\n", "word ".repeat(MAX_WORDS)).repeat(3);
        for text in [
            format!("```\n{long}\n```\n"),
            format!("| {long} |\n"),
            format!("    {long}\n"),
            format!("a `{long}` b.\n"),
            items,
        ] {
            assert_eq!(lines("a.md", &text), Vec::<String>::new(), "{text}");
        }
    }
}
