//! Forms of Tarantool's grammar that the parser does not know, as forms of the same meaning that it knows.
//!
//! - `~~` is one sign of another language, and two here.
//! - `IN ((SELECT …), …)` is a list, whose first value is a subquery; `IN t` is `IN (SELECT * FROM t)`.
//! - `WITH ENGINE = 'name'` of a CREATE TABLE is taken apart; `ROW_COUNT()` is a parameter.
//! - `(VALUES (…))` with one row is a SELECT where a value stands; TRIM with a side and no characters gets a name for them.
//! - In a FROM, a comma and `CROSS JOIN` are inner joins, which may have a condition.

use sqlparser::ast::{SetExpr, Statement, With};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};

use crate::SqlFault;
use crate::parse::unexpected;
use crate::resolve::{generic, name};

/// A level of parentheses.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// A comma joins two sources.
    joins: bool,
    /// The next token begins a source.
    begins_source: bool,
    /// The parentheses are a source.
    is_source: bool,
    /// The clause that ends a query, once it was seen.
    end: Option<&'static str>,
}

/// The tokens without blanks, in forms that the parser knows.
///
/// # Errors
/// ORDER BY or LIMIT before the last part of a compound query.
pub(crate) fn rewritten(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, SqlFault> {
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut out = Vec::with_capacity(tokens.len());
    let mut levels = vec![Level::default()];
    let pairs = pairs_of(&tokens);
    let mut dropped = vec![false; tokens.len()];
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).map_or(&Token::EOF, |next| &next.token);
        let is_after = |keyword| at > 0 && is_keyword(&tokens[at - 1].token, keyword);
        let (after_in, after_null) = (is_after(Keyword::IN), is_after(Keyword::NULL));
        let made = |token: Token| TokenWithSpan { token, span: tokens[at].span };
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { break };
        let begins_source = std::mem::take(&mut level.begins_source);
        if dropped[at] {
            continue;
        }
        if let Some(end) = end_of_value(&tokens, &pairs, at).filter(|_| !level.is_source) {
            out.push(made(Token::make_keyword("SELECT")));
            (dropped[at + 1], dropped[end]) = (true, true);
            continue;
        }
        match &token.token {
            Token::DoubleTilde => out.extend([made(Token::Tilde), made(Token::Tilde)]),
            Token::Comma if level.joins => {
                level.begins_source = true;
                out.extend(["INNER", "JOIN"].map(|word| made(Token::make_keyword(word))));
            }
            Token::LParen => {
                let joins = begins_source && !begins_query(next);
                levels.push(Level { joins, begins_source: joins, is_source: begins_source, end: None });
                out.push(token.clone());
                if after_in && *next == Token::LParen {
                    out.push(made(Token::Plus));
                }
            }
            Token::RParen if depth > 1 => {
                levels.pop();
                out.push(token.clone());
            }
            Token::Word(_) if after_in => {
                let begin =
                    [Token::LParen, Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
                out.extend(begin.map(made));
                out.extend([token.clone(), made(Token::RParen)]);
            }
            Token::Word(word) => {
                if word.keyword == Keyword::CROSS && level.joins && is_keyword(next, Keyword::JOIN) {
                    out.push(made(Token::make_keyword("INNER")));
                } else {
                    out.push(token.clone());
                }
                let sides = [Keyword::LEADING, Keyword::TRAILING, Keyword::BOTH];
                if sides.contains(&word.keyword) && is_keyword(next, Keyword::FROM) {
                    out.push(made(Token::Word(Word {
                        value: TRIM_DEFAULT.into(),
                        quote_style: Some('"'),
                        keyword: Keyword::NoKeyword,
                    })));
                }
                if word.keyword == Keyword::ON && is_keyword(next, Keyword::CONFLICT) && !after_null {
                    return Err(unexpected(&token.token, token.span.start));
                }
                level.check_end(word.keyword, next)?;
                level.see(word.keyword);
            }
            _ => out.push(token.clone()),
        }
    }
    Ok(out)
}

/// The place of the parenthesis that closes the only row of a VALUES which is a value; `None` for any other token.
fn end_of_value(tokens: &[TokenWithSpan], pairs: &[Option<usize>], at: usize) -> Option<usize> {
    let is_at = |at: Option<usize>, wanted: &dyn Fn(&Token) -> bool| {
        at.and_then(|at| tokens.get(at)).is_some_and(|token| wanted(&token.token))
    };
    let end = pairs.get(at + 1).copied().flatten()?;
    let is_row = is_keyword(&tokens[at].token, Keyword::VALUES)
        && is_at(at.checked_sub(1), &|token| *token == Token::LParen)
        && !is_at(at.checked_sub(2), &|token| is_keyword(token, Keyword::AS))
        && is_at(Some(end + 1), &|token| *token == Token::RParen);
    is_row.then_some(end)
}

/// Takes `WITH ENGINE = 'name'` from behind the columns of a CREATE TABLE.
///
/// # Errors
/// Another form of such a clause.
pub(crate) fn take_engine(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<String>, SqlFault> {
    let is_word = |token: &TokenWithSpan, word: &str| matches!(&token.token, Token::Word(own) if own.quote_style.is_none() && own.value.eq_ignore_ascii_case(word));
    let begins = tokens.first().is_some_and(|token| is_word(token, "CREATE"))
        && tokens.get(1).is_some_and(|token| is_word(token, "TABLE"));
    if !begins {
        return Ok(None);
    }
    let mut places = tokens.windows(2).skip(2);
    let Some(at) = places.position(|pair| is_word(&pair[0], "WITH") && is_word(&pair[1], "ENGINE")) else {
        return Ok(None);
    };
    let clause = tokens.split_off(at + 2);
    let mut rest = clause.iter().skip(2);
    let last = clause.last().map_or(Location::empty(), |token| token.span.end);
    let mut next = |is_wanted: fn(&Token) -> bool| match rest.next() {
        Some(token) if is_wanted(&token.token) => Ok(token),
        Some(token) => Err(unexpected(&token.token, token.span.start)),
        None => Err(unexpected(&Token::EOF, last)),
    };
    next(|token| *token == Token::Eq)?;
    let name = next(|token| matches!(token, Token::SingleQuotedString(_)))?;
    let Token::SingleQuotedString(name) = &name.token else { return Ok(None) };
    tokens.extend(rest.cloned());
    Ok(Some(name.clone()))
}

/// The name that stands for the characters which TRIM with a side removes without naming them.
pub(crate) const TRIM_DEFAULT: &str = "blanks of TRIM";

/// Stands between the names of a table and of its index in the text that is the argument of a PRAGMA.
pub(crate) const PRAGMA_SEPARATOR: char = '\0';

/// `PRAGMA name(table)` and `PRAGMA name(table.index)` get a text for the argument.
///
/// # Errors
/// A name that is a reserved word.
pub(crate) fn name_pragma(tokens: &mut Vec<TokenWithSpan>) -> Result<(), SqlFault> {
    let is_pragma = tokens.first().is_some_and(|token| is_keyword(&token.token, Keyword::PRAGMA));
    if !is_pragma || tokens.get(2).is_none_or(|token| token.token != Token::LParen) {
        return Ok(());
    }
    let names = tokens.get(3..).unwrap_or_default().iter().step_by(2).take(2);
    let mut arguments = Vec::new();
    for token in names {
        let Token::Word(word) = &token.token else { break };
        arguments.push(name(&word.clone().into_ident(token.span))?);
    }
    let count: usize = match &arguments[..] {
        [] => return Ok(()),
        [_, _] if tokens.get(4).is_some_and(|token| token.token == Token::Period) => 3,
        _ => 1,
    };
    arguments.truncate(count.div_ceil(2));
    let text = arguments.join(&PRAGMA_SEPARATOR.to_string());
    let made = TokenWithSpan { token: Token::SingleQuotedString(text), span: tokens[3].span };
    tokens.splice(3..3 + count, [made]);
    Ok(())
}

/// The name of the parameter that has the value of `ROW_COUNT()`.
pub(crate) const ROW_COUNT: &str = "ROW_COUNT()";

/// `ROW_COUNT()` becomes an integer parameter behind all others, whose value the caller gives.
pub(crate) fn number_row_counts(tokens: &mut Vec<TokenWithSpan>, names: &mut Vec<String>) {
    let is_call = |tokens: &[TokenWithSpan]| {
        matches!(&tokens[0].token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("ROW_COUNT"))
            && tokens[1].token == Token::LParen
            && tokens[2].token == Token::RParen
    };
    if !tokens.windows(3).any(is_call) {
        return;
    }
    let place = names.len();
    names.push(ROW_COUNT.to_owned());
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if at + 3 <= tokens.len() && is_call(&tokens[at..at + 3]) {
            let made = |token: Token| TokenWithSpan { token, span: tokens[at].span };
            let [cast, integer] = ["CAST", "INTEGER"].map(Token::make_keyword);
            let value = Token::Placeholder(format!("?{place}"));
            let call = [cast, Token::LParen, value, Token::make_keyword("AS"), integer, Token::RParen];
            out.extend(call.map(made));
            at += 3;
        } else {
            out.push(tokens[at].clone());
            at += 1;
        }
    }
    *tokens = out;
}

/// `WITH … INSERT` as the INSERT whose query has the WITH; `WITH … UPDATE` and `WITH … DELETE` as the change, and the WITH.
///
/// # Errors
/// A query that has a WITH of its own.
pub(crate) fn inner(statement: Statement) -> Result<(Statement, Option<With>), SqlFault> {
    let Statement::Query(mut query) = statement else { return Ok((statement, None)) };
    match &mut *query.body {
        SetExpr::Insert(Statement::Insert(insert)) => {
            let Some(source) = insert.source.as_mut() else { return Ok((Statement::Query(query), None)) };
            if source.with.is_some() && query.with.is_some() {
                let text = "Lycosa does not support two WITH of one INSERT: name all queries in one of them";
                return Err(generic(text));
            }
            source.with = source.with.take().or(query.with.take());
            Ok((Statement::Insert(insert.clone()), None))
        }
        SetExpr::Update(change @ Statement::Update(_)) | SetExpr::Delete(change @ Statement::Delete(_)) => {
            Ok((change.clone(), query.with.take()))
        }
        _ => Ok((Statement::Query(query), None)),
    }
}

impl Level {
    /// Refuses a further part of a compound query behind the clause that ends it.
    fn check_end(&mut self, keyword: Keyword, next: &Token) -> Result<(), SqlFault> {
        let operator = match keyword {
            Keyword::ORDER => {
                self.end = self.end.or(Some("ORDER BY"));
                return Ok(());
            }
            Keyword::LIMIT => {
                self.end = self.end.or(Some("LIMIT"));
                return Ok(());
            }
            Keyword::UNION if is_keyword(next, Keyword::ALL) => "UNION ALL",
            Keyword::UNION => "UNION",
            Keyword::EXCEPT => "EXCEPT",
            Keyword::INTERSECT => "INTERSECT",
            _ => return Ok(()),
        };
        match self.end {
            Some(clause) => Err(generic(format!("{clause} clause should come after {operator} not before"))),
            None => Ok(()),
        }
    }

    /// Notes where a FROM begins and ends.
    fn see(&mut self, keyword: Keyword) {
        match keyword {
            Keyword::FROM => (self.joins, self.begins_source) = (true, true),
            Keyword::JOIN => self.begins_source = self.joins,
            Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
            | Keyword::SELECT => self.joins = false,
            _ => {}
        }
    }
}

/// For each opening parenthesis the place of the one that closes it.
fn pairs_of(tokens: &[TokenWithSpan]) -> Vec<Option<usize>> {
    let (mut pairs, mut open) = (vec![None; tokens.len()], Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open.push(at),
            Token::RParen => {
                if let Some(begin) = open.pop() {
                    pairs[begin] = Some(at);
                }
            }
            _ => {}
        }
    }
    pairs
}

fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

fn begins_query(token: &Token) -> bool {
    [Keyword::SELECT, Keyword::VALUES, Keyword::WITH].iter().any(|keyword| is_keyword(token, *keyword))
}

#[cfg(test)]
mod tests {
    use sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::dialect::Tarantool;

    fn rewrite(text: &str) -> String {
        let tokens = Tokenizer::new(&Tarantool, text).tokenize_with_location().expect("tokens");
        let rewritten = rewritten(tokens).expect("a query");
        rewritten.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn commas_join_sources_only_in_a_from() {
        for (text, expected) in [
            ("SELECT a, b FROM t, u ON a = b", "SELECT a , b FROM t INNER JOIN u ON a = b"),
            ("SELECT 1 FROM t CROSS JOIN u", "SELECT 1 FROM t INNER JOIN u"),
            (
                "SELECT 1 FROM t JOIN u USING (a, b), v GROUP BY a, b",
                "SELECT 1 FROM t JOIN u USING ( a , b ) INNER JOIN v GROUP BY a , b",
            ),
            (
                "SELECT 1 FROM (t, u), (SELECT a, b FROM v)",
                "SELECT 1 FROM ( t INNER JOIN u ) INNER JOIN ( SELECT a , b FROM v )",
            ),
            ("SELECT f(a, b) FROM t WHERE a IN (1, 2)", "SELECT f ( a , b ) FROM t WHERE a IN ( 1 , 2 )"),
        ] {
            assert_eq!(rewrite(text), expected, "{text}");
        }
    }

    #[test]
    fn a_row_of_values_is_a_query_where_a_value_stands() {
        for (text, expected) in [
            ("VALUES ((VALUES ((SELECT 1))))", "VALUES ( ( SELECT ( SELECT 1 ) ) )"),
            (
                "SELECT a = (VALUES (1)) FROM (VALUES (2)), (VALUES (3))",
                "SELECT a = ( SELECT 1 ) FROM ( VALUES ( 2 ) ) INNER JOIN ( VALUES ( 3 ) )",
            ),
            ("SELECT (VALUES (1), (2))", "SELECT ( VALUES ( 1 ) , ( 2 ) )"),
            ("WITH x AS (VALUES (1)) SELECT 1", "WITH x AS ( VALUES ( 1 ) ) SELECT 1"),
            ("SELECT TRIM(BOTH FROM a)", "SELECT TRIM ( BOTH \"blanks of TRIM\" FROM a )"),
        ] {
            assert_eq!(rewrite(text), expected, "{text}");
        }
    }

    #[test]
    fn lists_of_subqueries_and_spaces_stand_behind_in() {
        assert_eq!(rewrite("a IN ((SELECT 1), 2)"), "a IN ( + ( SELECT 1 ) , 2 )");
        assert_eq!(rewrite("a NOT IN t AND ~~b"), "a NOT IN ( SELECT * FROM t ) AND ~ ~ b");
        assert_eq!(rewrite("a IN (SELECT 1)"), "a IN ( SELECT 1 )");
    }
}
