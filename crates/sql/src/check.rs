//! Check constraints: expressions over one row of a space, in definitions and for the store.
//!
//! A definition keeps the text of an expression, in Tarantool's form: each run of blanks outside of quotes is one blank. The
//! expression is resolved in the space that the constraint belongs to, and evaluated over each new tuple.
//!
//! Bounds: the text has the bounds of every statement, and all checks of one tuple have [`MAX_ROW`] units of work.
//! Absent, as in Tarantool: subqueries, parameters, aggregate functions.

use lycosa_store::{RowCheck, Space, Store};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::SqlFault;
use crate::define::Definition;
use crate::effort::{Effort, MAX_ROW};
use crate::eval::Row;
use crate::parse;
use crate::resolve::Context;
use crate::tree::Expr;
use crate::trigger::Tokens;

/// `ER_CK_DEF_UNSUPPORTED`, `ER_SQL_PARSER_GENERIC_WITH_POS` of Tarantool 2.6.
const DEFINITION: u32 = 193;
const GENERIC_AT: u32 = 206;

/// The expression of a check constraint.
#[derive(Debug)]
struct Check(Expr);

impl RowCheck for Check {
    fn passes(&self, tuple: &[u8], spent: &mut u64) -> Result<bool, SqlFault> {
        let effort = Effort::default();
        effort.spend((*spent).min(MAX_ROW))?;
        let truth = Row::of(tuple, &[], &effort).condition(&self.0);
        *spent = effort.spent();
        Ok(truth? != Some(false))
    }
}

/// Resolves the expression of a check constraint in its space.
///
/// # Errors
/// Text that is no expression; parts that no check has; columns and functions that do not exist.
pub fn compile_check(store: &Store, space: &Space, text: &str) -> Result<Box<dyn RowCheck>, SqlFault> {
    let parsed = parse::expression(text)?;
    if let Some(at) = parsed.parameter {
        let message =
            format!("At line {} at or near position {}: bindings are not allowed in DDL", at.line, at.column);
        return Err(SqlFault::new(GENERIC_AT, message));
    }
    if parsed.has_query {
        let message = "Subqueries are prohibited in a ck constraint definition";
        return Err(SqlFault::new(DEFINITION, message));
    }
    let mut context = Context::of_space(space.name(), None, store)?;
    Ok(Box::new(Check(context.expression(parsed.expr)?)))
}

/// Takes the expressions of `CHECK (…)` out of a CREATE TABLE or ALTER TABLE. A number stands in the place of each, which is its
/// place in the list of texts.
///
/// # Errors
/// An expression that cannot be parsed.
pub(crate) fn taken_out(
    text: &str,
    tokens: Vec<TokenWithSpan>,
) -> Result<(Vec<TokenWithSpan>, Vec<String>), SqlFault> {
    let is_word = |token: &TokenWithSpan, wanted| matches!(&token.token, Token::Word(word) if word.keyword == wanted && word.quote_style.is_none());
    let mut words = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let defines =
        words.next().is_some_and(|first| is_word(first, Keyword::CREATE) || is_word(first, Keyword::ALTER))
            && words.next().is_some_and(|second| is_word(second, Keyword::TABLE));
    if !defines || !tokens.iter().any(|token| is_word(token, Keyword::CHECK)) {
        return Ok((tokens, Vec::new()));
    }
    let (mut kept, mut texts) = (Vec::with_capacity(tokens.len()), Vec::new());
    // In front of the columns of a new table the word is its name, which the parser refuses.
    let mut is_behind_name = tokens.iter().any(|token| is_word(token, Keyword::ALTER));
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        is_behind_name |= token.token == Token::LParen;
        let begins = is_behind_name && is_word(&token, Keyword::CHECK);
        kept.push(token);
        if !begins {
            continue;
        }
        while let Some(blank) = tokens.next_if(|next| matches!(next.token, Token::Whitespace(_))) {
            kept.push(blank);
        }
        let Some(open) = tokens.next_if(|next| next.token == Token::LParen) else { continue };
        let (mut inner, mut depth) = (Vec::new(), 1);
        let close = loop {
            let Some(token) = tokens.next() else { break None };
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break Some(token);
            }
            inner.push(token);
        };
        let (begin, end) = (open.span.end, close.as_ref().map_or(open.span.end, |close| close.span.start));
        let number = TokenWithSpan { token: Token::Number(texts.len().to_string(), false), span: open.span };
        kept.extend([open, number]);
        kept.extend(close);
        texts.push(spaced(slice(text, begin, end).trim()));
        parse::expression_of(inner)?;
    }
    Ok((kept, texts))
}

/// The part of a text between two places.
fn slice(text: &str, begin: Location, end: Location) -> &str {
    let offset = |place: Location| {
        let line = usize::try_from(place.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let before: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let rest = text.get(before..).unwrap_or_default();
        let columns = usize::try_from(place.column.saturating_sub(1)).unwrap_or(usize::MAX);
        before + rest.char_indices().nth(columns).map_or(rest.len(), |(at, _)| at)
    };
    text.get(offset(begin)..offset(end)).unwrap_or_default()
}

/// The text with one blank for each run of blanks outside of quotes.
fn spaced(text: &str) -> String {
    let (mut out, mut quote) = (String::with_capacity(text.len()), None);
    for character in text.chars() {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, _) if character.is_ascii_whitespace() || character == '\u{b}' => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
                continue;
            }
            _ => {}
        }
        out.push(character);
    }
    out
}

/// `ALTER TABLE t ENABLE CHECK CONSTRAINT c` and DISABLE; `None` for any other text.
///
/// # Errors
/// A text that begins so and goes on otherwise.
pub(crate) fn switched(text: &str) -> Result<Option<Definition>, SqlFault> {
    if text.len() > parse::MAX_TEXT {
        return Ok(None);
    }
    let mut tokens = Tokens::of(text)?;
    if !tokens.word("ALTER") || !tokens.word("TABLE") {
        return Ok(None);
    }
    let Ok(space) = tokens.name() else { return Ok(None) };
    let is_enabled = tokens.word("ENABLE");
    if !is_enabled && !tokens.word("DISABLE") {
        return Ok(None);
    }
    tokens.expect("CHECK")?;
    tokens.expect("CONSTRAINT")?;
    let name = tokens.name()?;
    tokens.end()?;
    Ok(Some(Definition::SwitchCheck { name, space, is_enabled }))
}

#[cfg(test)]
mod tests;
