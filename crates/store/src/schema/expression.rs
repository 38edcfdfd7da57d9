//! Default values of fields: SQL expressions, of which the store understands literals.
//!
//! A Tarantool parses the expression when it reads the definition, also at a start, and does not start on one that it
//! cannot parse. So the store accepts what it surely parses: a number, a string, a blob, a boolean or NULL, with a
//! sign before a number. A text that is no expression is refused as there; SQL decides about any other one.

use crate::error::Error;

/// Words that begin a statement or a clause, never an expression.
const RESERVED: [&str; 24] = [
    "select", "insert", "update", "delete", "replace", "create", "drop", "alter", "group", "order", "from",
    "where", "having", "limit", "union", "join", "on", "as", "set", "values", "date", "datetime", "int",
    "integer",
];

/// What a store without SQL lacks.
pub(crate) const EXPRESSIONS: &str = "SQL expressions as defaults, other than literals";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Literal,
    Word,
    Open,
    Close,
    Operator,
    End,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

/// Checks the `default` of a field; `sql` checks an expression that is no literal.
pub(crate) fn check_default(text: &str, sql: &dyn Fn(&str) -> Result<(), Error>) -> Result<(), Error> {
    let tokens = tokens(text)?;
    let near = |token: &str| Err(Error::SqlSyntaxNearToken(token.to_owned()));
    if tokens.is_empty() && !text.is_empty() {
        return near(text);
    }
    let tokens = match tokens.split_last() {
        Some((last, rest)) if last.kind == Kind::End => rest,
        _ => &tokens,
    };
    let (signs, value) = match tokens {
        [sign, rest @ ..] if matches!(sign.text, "+" | "-") => (1, rest),
        tokens => (0, tokens),
    };
    match value {
        [] if signs == 0 => return Ok(()),
        [one]
            if one.kind == Kind::Literal
                && (signs == 0 || one.text.starts_with(|c: char| c.is_ascii_digit() || c == '.')) =>
        {
            return Ok(());
        }
        _ => {}
    }
    let mut depth = 0_usize;
    let mut before = Kind::Operator;
    for (number, token) in tokens.iter().enumerate() {
        let is_reserved = || RESERVED.iter().any(|word| word.eq_ignore_ascii_case(token.text));
        let is_sign = matches!(token.text, "+" | "-" | "~");
        match token.kind {
            Kind::Literal if before == Kind::Literal => return near(token.text),
            Kind::Word if before == Kind::Operator && depth == 0 && is_reserved() => return near(token.text),
            Kind::Operator if matches!(before, Kind::Operator | Kind::Open) && !is_sign && number == 0 => {
                return near(token.text);
            }
            Kind::Open => depth += 1,
            Kind::Close => match depth.checked_sub(1) {
                Some(left) => depth = left,
                None => return near(token.text),
            },
            Kind::End => return near(tokens.get(number + 1).map_or(token.text, |next| next.text)),
            _ => {}
        }
        before = token.kind;
    }
    if let Some(last) = tokens.last()
        && (depth > 0 || last.kind == Kind::Operator)
    {
        return near(last.text);
    }
    sql(text)
}

/// Splits a text into tokens; white space and comments are none.
fn tokens(text: &str) -> Result<Vec<Token<'_>>, Error> {
    let mut tokens = Vec::new();
    let mut place = 0;
    while let Some(first) = text[place..].chars().next() {
        let rest = &text[place..];
        let run = |more: fn(char) -> bool| rest.find(|c| !more(c)).unwrap_or(rest.len());
        let unknown = |length: usize| Error::SqlUnknownToken {
            position: place + 1,
            token: rest.get(..length).unwrap_or(rest).to_owned(),
        };
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let (kind, length) = match first {
            c if c.is_ascii_whitespace() => {
                place += run(|c| c.is_ascii_whitespace());
                continue;
            }
            '-' if rest.starts_with("--") => {
                place += rest.find('\n').unwrap_or(rest.len());
                // A Tarantool takes a text that begins like a comment for a token if it has nothing else.
                if tokens.is_empty() && place == text.len() {
                    return Err(Error::SqlSyntaxNearToken(rest.to_owned()));
                }
                continue;
            }
            '/' if rest.starts_with("/*") => {
                place += rest.find("*/").map_or(rest.len(), |end| end + 2);
                continue;
            }
            '\'' | '"' => {
                let Some(end) = closing(rest, first) else { return Err(unknown(rest.len())) };
                (if first == '\'' { Kind::Literal } else { Kind::Word }, end)
            }
            'x' | 'X' if rest[1..].starts_with('\'') => {
                let end = closing(&rest[1..], '\'').map(|end| end + 1);
                let digits = end.and_then(|end| rest.get(2..end - 1)).unwrap_or("?");
                if digits.len() % 2 == 1 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(unknown(end.unwrap_or(rest.len())));
                }
                (Kind::Literal, end.unwrap_or(rest.len()))
            }
            '0'..='9' | '.' => {
                let length = number(rest);
                match rest[length..].chars().next() {
                    Some(next) if length > 0 && is_of_word(next) => {
                        return Err(unknown(rest.find(|c| !is_of_word(c) && c != '.').unwrap_or(rest.len())));
                    }
                    _ if length == 0 => (Kind::Operator, 1),
                    _ => (Kind::Literal, length),
                }
            }
            c if c.is_alphabetic() || c == '_' => {
                let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                (if is_literal(&rest[..length]) { Kind::Literal } else { Kind::Word }, length)
            }
            '(' => (Kind::Open, 1),
            ')' => (Kind::Close, 1),
            ';' => (Kind::End, 1),
            '?' | ':' | '$' => {
                return Err(Error::lacks(EXPRESSIONS));
            }
            '+' | '-' | '*' | '/' | '%' | ',' | '=' | '<' | '>' | '!' | '|' | '&' | '~' => {
                let two = ["||", "<<", ">>", "<=", ">=", "<>", "!=", "=="];
                (Kind::Operator, if two.iter().any(|two| rest.starts_with(two)) { 2 } else { 1 })
            }
            other => return Err(unknown(other.len_utf8())),
        };
        tokens.push(Token { kind, text: &rest[..length] });
        place += length;
    }
    Ok(tokens)
}

fn is_literal(word: &str) -> bool {
    ["null", "true", "false", "unknown"].iter().any(|literal| literal.eq_ignore_ascii_case(word))
}

/// The length of a quoted token at the beginning of `text`; a doubled quote stands for itself.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut from = 1;
    loop {
        let end = from + text[from..].find(quote)? + 1;
        if !text[end..].starts_with(quote) {
            return Some(end);
        }
        from = end + 1;
    }
}

/// The length of the number at the beginning of `text`; 0 if there is none.
fn number(text: &str) -> usize {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    if text.starts_with("0x") || text.starts_with("0X") {
        let hex = text[2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        return if hex == 0 { 1 } else { 2 + hex.min(16) };
    }
    let whole = digits(0);
    let mut length = whole;
    if text[length..].starts_with('.') {
        let fraction = digits(length + 1);
        if whole + fraction == 0 {
            return 0;
        }
        length += 1 + fraction;
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::{EXPRESSIONS, check_default};
    use crate::error::Error;

    /// As a store without SQL.
    fn check(text: &str) -> Result<(), Error> {
        check_default(text, &|_| Err(Error::lacks(EXPRESSIONS)))
    }

    /// What a real 2.6 says of each.
    #[test]
    fn defaults_are_literals() {
        for text in [
            "1", "-1", "+1", "- 1", "1.5", "1e3", ".5", "1.", "'a'", "'a''b'", "null", "TRUE", "x'00'", "",
            "1;",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, token) in [
            ("1 +", "+"),
            ("  ", "  "),
            ("nope(", "("),
            ("SELECT 1", "SELECT"),
            ("(1))", ")"),
            ("1 2", "2"),
            ("group", "group"),
            ("= a", "="),
            ("a =", "="),
            ("1; 2", "2"),
            (",", ","),
        ] {
            assert_eq!(check(text), Err(Error::SqlSyntaxNearToken(token.to_owned())), "{text}");
        }
        for (text, token) in
            [("'a", "'a"), ("X'0'", "X'0'"), ("@", "@"), ("#", "#"), ("1a", "1a"), ("[1]", "["), ("{}", "{")]
        {
            let expected = Error::SqlUnknownToken { position: 1, token: token.to_owned() };
            assert_eq!(check(text), Err(expected), "{text}");
        }
        for text in
            ["a", "nope()", "a*b", "case when 1 then 2 end", "1 and 2", "?", "(1)", "ключ", "0x", "é'"]
        {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
