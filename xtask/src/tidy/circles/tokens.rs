//! Words and punctuation of a Rust file, without comments, literals and tests.
//!
//! A literal leaves one empty token behind. Nothing is checked: the compiler has read the file before.

/// The tokens of `code`: words, `::`, and every other character alone.
pub(super) fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let (length, is_token) = if first.is_whitespace() {
            (first.len_utf8(), false)
        } else if let Some(length) = comment(rest) {
            (length, false)
        } else if let Some(length) = literal(rest) {
            tokens.push("");
            (length, false)
        } else if is_word(first) {
            (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), true)
        };
        let (token, behind) = rest.split_at(length);
        tokens.extend(is_token.then_some(token));
        rest = behind;
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether the token is a word, and no literal or punctuation.
pub(super) fn is_name(token: &str) -> bool {
    token.starts_with(is_word)
}

/// The length of the comment at the beginning of `code`.
fn comment(code: &str) -> Option<usize> {
    if code.starts_with("//") {
        return Some(code.find('\n').unwrap_or(code.len()));
    }
    code.starts_with("/*").then(|| {
        let mut depth = 0;
        let ends = code.as_bytes().windows(2).enumerate().find(|(_, pair)| {
            depth += i32::from(*pair == b"/*") - i32::from(*pair == b"*/");
            depth == 0
        });
        ends.map_or(code.len(), |(at, _)| at + 2)
    })
}

/// The length of the string or character at the beginning of `code`; a lifetime is no literal.
fn literal(code: &str) -> Option<usize> {
    let marks = ["br", "cr", "b", "c", "r", ""];
    let mark = marks.into_iter().find(|mark| {
        code.strip_prefix(mark).is_some_and(|rest| rest.starts_with(['"', '\'']) || is_raw(mark, rest))
    })?;
    let inside = &code[mark.len()..];
    if mark.ends_with('r') {
        let hashes = inside.find('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let text = mark.len() + hashes + 1;
        return Some(code[text..].find(&end).map_or(code.len(), |at| text + at + end.len()));
    }
    let quote = inside.chars().next()?;
    let is_lifetime = quote == '\'' && !inside[1..].starts_with('\\') && inside.chars().nth(2) != Some('\'');
    if is_lifetime {
        return None;
    }
    let mut is_escaped = false;
    let end = inside.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == quote && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    Some(end.map_or(code.len(), |(at, _)| mark.len() + at + 1))
}

fn is_raw(mark: &str, rest: &str) -> bool {
    mark.ends_with('r') && rest.starts_with('#') && rest.trim_start_matches('#').starts_with('"')
}

/// Takes items under `#[cfg(test)]` out of `tokens`; returns the names of modules among them.
pub(super) fn cut_tests<'a>(tokens: &mut Vec<&'a str>) -> Vec<&'a str> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut modules = Vec::new();
    while let Some(start) = tokens.windows(TEST.len()).position(|seen| seen == TEST) {
        let mut depth = 0;
        let end = tokens[start + TEST.len()..].iter().position(|token| {
            depth += match *token {
                "{" | "(" | "[" => 1,
                "}" | ")" | "]" => -1,
                _ => 0,
            };
            depth == 0 && matches!(*token, "}" | ";")
        });
        let end = end.map_or(tokens.len(), |end| start + TEST.len() + end + 1);
        let item = tokens.drain(start..end).collect::<Vec<_>>();
        modules.extend(item.windows(3).filter(|seen| seen[0] == "mod" && seen[2] == ";").map(|seen| seen[1]));
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_words() {
        let code = "a /* b /* c */ d */ \"e \\\" f\" 'g' '\\'' b'h' br#\"i \" j\"# &'k l // m\n\
                    n::o r\"\\\" p";
        assert_eq!(tokens(code), ["a", "", "", "", "", "", "&", "'", "k", "l", "n", "::", "o", "", "p"]);
        assert_eq!(tokens("'ü' \"ü"), ["", ""]);
        assert_eq!(tokens("bar(r)"), ["bar", "(", "r", ")"]);
    }

    #[test]
    fn tests_are_cut_out_and_their_modules_named() {
        let code =
            "#[cfg(test)] mod fakes; fn a() {} #[cfg(test)] pub(crate) fn b(x: [u8; 2]) { c(); } fn d() {}";
        let mut tokens = tokens(code);
        assert_eq!(cut_tests(&mut tokens), ["fakes"]);
        assert_eq!(tokens.concat(), "fna(){}fnd(){}");
    }
}
