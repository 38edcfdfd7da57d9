//! Text to the parser's tree, with parameters numbered.

use std::collections::HashMap;

use sqlparser::ast::{Expr, Statement, With};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::dialect::Tarantool;
use crate::resolve::{at_most, reserved};
use crate::{SqlFault, check, rewrite};

/// Bytes of a statement.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// Words and signs of a statement, those in its strings and comments included: a bound on what the tokenizer and the parser
/// do, neither of which can be interrupted.
const MAX_WORDS: usize = 32_768;

/// Parameters of a statement.
pub const MAX_PARAMETERS: usize = 16_384;

/// Characters of a piece of the statement that an error shows.
pub(crate) const SHOWN: usize = 200;

/// Tokens that may build one branch of a tree: those since the last comma on each level of parentheses.
pub(crate) const MAX_DEPTH: usize = 1000;

/// Levels of the parser's own recursion.
const MAX_RECURSION: usize = 50;

/// Operators between parts of compound queries, in all queries of a statement.
const MAX_COMPOUNDS: usize = 500;
pub(crate) const COMPOUNDS: &str = "The number of UNION or EXCEPT or INTERSECT operations";

/// `ER_SQL_SYNTAX_NEAR_TOKEN`, `ER_SQL_UNKNOWN_TOKEN`, `ER_SQL_STATEMENT_EMPTY`, `ER_HEX_LITERAL_MAX`, `ER_SQL_PARSER_GENERIC` of
/// Tarantool 2.6.
const SYNTAX_NEAR: u32 = 184;
const UNKNOWN_TOKEN: u32 = 185;
const EMPTY: u32 = 182;
const HEX_LITERAL_MAX: u32 = 189;
const GENERIC: u32 = 186;

/// A statement that is parsed.
pub(crate) struct Parsed {
    pub(crate) statement: Statement,
    /// The WITH of an UPDATE or DELETE.
    pub(crate) with: Option<With>,
    /// The names of parameters.
    pub(crate) parameters: Vec<String>,
    pub(crate) count: QueryCount,
    /// Words and signs in the deepest expression.
    pub(crate) depth: usize,
    /// The expressions of check constraints; their numbers stand in the statement.
    pub(crate) checks: Vec<String>,
    /// The engine that a CREATE TABLE names.
    pub(crate) engine: Option<String>,
}

/// An expression that stands alone.
pub(crate) struct ParsedExpression {
    pub(crate) expr: Expr,
    /// The place behind a parameter.
    pub(crate) parameter: Option<Location>,
    /// It has a subquery.
    pub(crate) has_query: bool,
}

/// How often the words SELECT and VALUES stand in a statement: at least as often as it has queries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueryCount {
    pub(crate) selects: usize,
    pub(crate) values: usize,
}

impl QueryCount {
    fn of(tokens: &[TokenWithSpan]) -> Result<QueryCount, SqlFault> {
        let mut count = QueryCount::default();
        let mut compounds = 0;
        for token in tokens {
            if let Token::Word(word) = &token.token {
                count.selects += usize::from(word.keyword == Keyword::SELECT);
                count.values += usize::from(word.keyword == Keyword::VALUES);
                let is_operator =
                    matches!(word.keyword, Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT);
                compounds += usize::from(is_operator);
            }
        }
        // The parser nests them, so that even dropping its tree recurses.
        at_most(MAX_COMPOUNDS, COMPOUNDS, compounds)?;
        Ok(count)
    }
}

pub(crate) fn near(line: u64, token: impl std::fmt::Display) -> SqlFault {
    let token = shown(&token.to_string());
    SqlFault::new(SYNTAX_NEAR, format!("Syntax error at line {line} near '{token}'"))
}

/// The error of a token that does not belong where it stands.
pub(crate) fn unexpected(token: &Token, at: Location) -> SqlFault {
    let reserved = match token {
        Token::Word(word) if word.quote_style.is_none() => {
            reserved::refused(&word.value, &word.value.to_uppercase(), at)
        }
        _ => None,
    };
    reserved.unwrap_or_else(|| near(at.line.max(1), token))
}

/// The error of the first token of a text behind a place.
pub(crate) fn unexpected_behind(text: &str, place: Location) -> SqlFault {
    let tokens = Tokenizer::new(&Tarantool, text).tokenize_with_location().unwrap_or_default();
    let mut rest = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    match rest.find(|token| token.span.start >= place) {
        Some(token) => unexpected(&token.token, token.span.start),
        None => near(place.line.max(1), ""),
    }
}

/// The error of a word of a text.
pub(crate) fn unexpected_word(text: &str, wanted: &str) -> SqlFault {
    let tokens = Tokenizer::new(&Tarantool, text).tokenize_with_location().unwrap_or_default();
    let is_wanted = |token: &&TokenWithSpan| {
        matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
    };
    match tokens.iter().find(is_wanted) {
        Some(token) => unexpected(&token.token, token.span.start),
        None => near(1, wanted),
    }
}

/// The texts in parentheses behind the words DEFAULT of a statement, as they are written.
pub(crate) fn default_texts(text: &str) -> Vec<String> {
    let tokens = Tokenizer::new(&Tarantool, text).with_unescape(false).tokenize().unwrap_or_default();
    let is_blank = |token: &Token| matches!(token, Token::Whitespace(_));
    let (mut texts, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let is_default = matches!(&tokens[at], Token::Word(word) if word.keyword == Keyword::DEFAULT);
        at += 1;
        while is_default && tokens.get(at).is_some_and(is_blank) {
            at += 1;
        }
        if !is_default || tokens.get(at) != Some(&Token::LParen) {
            continue;
        }
        let (mut depth, begin) = (0_usize, at + 1);
        while let Some(token) = tokens.get(at) {
            depth = match token {
                Token::LParen => depth + 1,
                Token::RParen => depth - 1,
                _ => depth,
            };
            if depth == 0 {
                break;
            }
            at += 1;
        }
        let inside = tokens.get(begin..at).unwrap_or_default();
        texts.push(inside.iter().map(ToString::to_string).collect::<String>().trim().to_owned());
    }
    texts
}

/// The beginning of a text that may be long.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Refuses a text that is too long, or that has too many words. A run of letters and digits is one word; every other
/// character counts for itself. A token has at least one of them.
fn check_length(text: &str) -> Result<(), SqlFault> {
    if text.len() > MAX_TEXT {
        let message = format!(
            "the statement has {} bytes, and may have {MAX_TEXT}: give long values as parameters",
            text.len()
        );
        return Err(SqlFault::new(GENERIC, message));
    }
    let (mut words, mut is_in_word) = (0, false);
    for byte in text.bytes() {
        let is_of_word = byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        words += usize::from(!is_of_word || !is_in_word);
        is_in_word = is_of_word;
    }
    if words > MAX_WORDS {
        let message = format!(
            "the statement has {words} words and signs, and may have {MAX_WORDS}: insert fewer rows at a time, and give \
             long values as parameters"
        );
        return Err(SqlFault::new(GENERIC, message));
    }
    Ok(())
}

fn tokens_of(text: &str) -> Result<Vec<TokenWithSpan>, SqlFault> {
    check_length(text)?;
    Tokenizer::new(&Tarantool, text).tokenize_with_location().map_err(|error| {
        let at = error.location;
        let rest = text.lines().nth(at.line.max(1) as usize - 1).unwrap_or_default();
        let token: String = rest.chars().skip(at.column.max(1) as usize - 1).take(SHOWN).collect();
        unknown_token(at, &token)
    })
}

/// Parses a text that is one expression.
///
/// # Errors
/// Text that is no expression, or more than one; one that is too long or too deep.
pub(crate) fn expression(text: &str) -> Result<ParsedExpression, SqlFault> {
    expression_of(tokens_of(text)?)
}

/// The same of its tokens.
///
/// # Errors
/// See [`expression`].
pub(crate) fn expression_of(tokens: Vec<TokenWithSpan>) -> Result<ParsedExpression, SqlFault> {
    let end = tokens.last().map_or(Location::of(1, 1), |last| last.span.end);
    let tokens = rewrite::rewritten(number_parameters(tokens, &mut Vec::new())?)?;
    check_depth(&tokens)?;
    let count = QueryCount::of(&tokens)?;
    // Tarantool names the place of the next token.
    let parameter = tokens.iter().position(|token| matches!(token.token, Token::Placeholder(_)));
    let parameter = parameter.map(|at| tokens.get(at + 1).map_or(end, |next| next.span.start));
    let last =
        tokens.last().map_or((1, " ".to_owned()), |last| (last.span.start.line, last.token.to_string()));
    let dialect = Tarantool;
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(MAX_RECURSION).with_tokens_with_locations(tokens);
    let expr = parser.parse_expr().map_err(|error| syntax_error(&error, &last, None))?;
    let next = parser.next_token();
    if next.token != Token::EOF {
        return Err(near(next.span.start.line, next.token));
    }
    Ok(ParsedExpression { expr, parameter, has_query: count.selects + count.values > 0 })
}

/// Parses one statement. Parameters become placeholders `?0`, `?1` and so on; returns their names too.
///
/// # Errors
/// Text that is no statement, or several; one that is too long or too deep.
pub(crate) fn parse(text: &str) -> Result<Parsed, SqlFault> {
    let dialect = Tarantool;
    let tokens = tokens_of(text)?;
    let mut names = Vec::new();
    let (tokens, checks) = check::taken_out(text, tokens)?;
    let mut tokens = rewrite::rewritten(number_parameters(tokens, &mut names)?)?;
    let engine = rewrite::take_engine(&mut tokens)?;
    rewrite::number_row_counts(&mut tokens, &mut names);
    rewrite::name_pragma(&mut tokens)?;
    while tokens.last().is_some_and(|last| matches!(last.token, Token::Whitespace(_) | Token::EOF)) {
        tokens.pop();
    }
    if tokens.last().is_some_and(|last| last.token == Token::SemiColon) {
        tokens.pop();
    }
    let words = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF);
    let Some(last) = tokens.iter().rfind(words).map(|last| (last.span.start.line, last.token.to_string()))
    else {
        return Err(SqlFault::new(EMPTY, "Failed to execute an empty SQL statement"));
    };
    let depth = check_depth(&tokens)?;
    let count = QueryCount::of(&tokens)?;
    let first = first_named(&tokens);
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(MAX_RECURSION).with_tokens_with_locations(tokens);
    let statement = parser.parse_statement().map_err(|error| syntax_error(&error, &last, first))?;
    let (statement, with) = rewrite::inner(statement)?;
    let next = parser.next_token();
    if next.token == Token::EOF {
        Ok(Parsed { statement, with, parameters: names, count, depth, checks, engine })
    } else {
        // A second statement: its first word does not belong here.
        let second = (next.token == Token::SemiColon).then(|| parser.next_token());
        let next = second.filter(|second| second.token != Token::EOF).unwrap_or(next);
        let at = next.span.start;
        Err(if first.is_some_and(|first| first < at) {
            unexpected(&next.token, at)
        } else {
            near(at.line, next.token)
        })
    }
}

/// The place of the first word or sign behind which a misplaced reserved word is called reserved: Tarantool's parser calls it so once
/// it has seen a name, a string or a sign, or one of the first words here.
fn first_named(tokens: &[TokenWithSpan]) -> Option<Location> {
    const FIRST: [&str; 8] =
        ["CREATE", "WITH", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "EXPLAIN"];
    let is_named = |(place, token): &(usize, &TokenWithSpan)| match &token.token {
        Token::Number(..) => false,
        Token::Word(word) => {
            let upper = word.value.to_uppercase();
            word.quote_style.is_some()
                || word.keyword == Keyword::NoKeyword
                || *place == 0 && FIRST.contains(&upper.as_str())
        }
        _ => true,
    };
    tokens.iter().enumerate().find(is_named).map(|(_, token)| token.span.start)
}

fn unknown_token(at: Location, token: &str) -> SqlFault {
    let (line, column) = (at.line.max(1), at.column.max(1));
    let message =
        format!("At line {line} at or near position {column}: unrecognized token '{}'", shown(token));
    SqlFault::new(UNKNOWN_TOKEN, message)
}

/// The decimal digits of a hexadecimal number, of which the tokenizer makes a number and a word: `0` and `XFF`.
///
/// # Errors
/// A number of more than 64 bits.
fn number_of_hex(number: &str, word: &str) -> Result<Option<String>, SqlFault> {
    let Some(digits) = word.strip_prefix(['x', 'X']).filter(|_| number == "0") else { return Ok(None) };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    match u64::from_str_radix(digits, 16) {
        Ok(number) => Ok(Some(number.to_string())),
        Err(_) => {
            let length = digits.trim_start_matches('0').len();
            let text =
                format!("Hex literal 0{} length {length} exceeds the supported limit (16)", shown(word));
            Err(SqlFault::new(HEX_LITERAL_MAX, text))
        }
    }
}

/// `?`, `:name`, `@name` and `$1` become placeholders with a number from 0.
fn number_parameters(
    tokens: Vec<TokenWithSpan>,
    names: &mut Vec<String>,
) -> Result<Vec<TokenWithSpan>, SqlFault> {
    let mut numbered = Vec::with_capacity(tokens.len());
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(mut token) = tokens.next() {
        let line = token.span.start.line;
        if let Token::Number(number, _) = &token.token
            && let Some(next) = tokens.peek().filter(|next| next.span.start == token.span.end)
            && let Token::Word(word) = &next.token
            && word.quote_style.is_none()
        {
            let Some(hex) = number_of_hex(number, &word.value)? else {
                return Err(unknown_token(token.span.start, &format!("{number}{}", word.value)));
            };
            token.token = Token::Number(hex, false);
            tokens.next();
        }
        // `0x10` is a number and `x'10'` is a string of bytes; the parser has one token for both.
        if let Token::HexStringLiteral(digits) = &token.token
            && token.span.end.column.saturating_sub(token.span.start.column) == digits.len() as u64 + 2
        {
            let digits = format!("x{digits}");
            let Some(number) = number_of_hex("0", &digits)? else {
                return Err(unknown_token(token.span.start, &format!("0{digits}")));
            };
            token.token = Token::Number(number, false);
        }
        if let Token::HexStringLiteral(digits) = &token.token
            && !(digits.len().is_multiple_of(2) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            return Err(unknown_token(token.span.start, &format!("x'{digits}'")));
        }
        let name = match &token.token {
            Token::Placeholder(name) => Some(name.clone()),
            Token::Colon | Token::AtSign => match tokens.next_if(|next| matches!(next.token, Token::Word(_)))
            {
                Some(word) => Some(format!("{}{}", token.token, word.token)),
                None => return Err(near(line, &token.token)),
            },
            Token::Word(word) if word.value.starts_with('@') && word.quote_style.is_none() => {
                Some(word.value.clone())
            }
            _ => None,
        };
        if let Some(name) = name {
            let place = match (name.as_bytes(), name[1..].parse::<usize>()) {
                ([b'?'], _) => None,
                ([b'?', ..], _) => return Err(near(line, name)),
                ([b'$', ..], Ok(number @ 1..)) => Some(number - 1),
                ([b'$', ..], _) => {
                    return Err(SqlFault::new(GENERIC, "Index of binding slots must start from 1"));
                }
                _ => known.get(&name).copied(),
            };
            let place = place.unwrap_or(names.len());
            if place >= MAX_PARAMETERS {
                let message = format!("a statement may have {MAX_PARAMETERS} parameters");
                return Err(SqlFault::new(GENERIC, message));
            }
            while names.len() <= place {
                names.push(name.clone());
            }
            known.entry(name).or_insert(place);
            token.token = Token::Placeholder(format!("?{place}"));
        }
        numbered.push(token);
    }
    Ok(numbered)
}

/// Refuses what would make a tree so deep that walking it needs more than the big stack. Returns the words and signs of the
/// deepest expression.
fn check_depth(tokens: &[TokenWithSpan]) -> Result<usize, SqlFault> {
    let (mut levels, mut total, mut deepest) = (vec![0], 0, 0);
    for token in tokens {
        match token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => levels.push(0),
            Token::RParen if levels.len() > 1 => total -= levels.pop().unwrap_or(0),
            Token::Comma => {
                if let Some(level) = levels.last_mut() {
                    total -= std::mem::take(level);
                }
            }
            _ => {}
        }
        if let Some(level) = levels.last_mut() {
            *level += 1;
        }
        total += 1;
        deepest = deepest.max(total);
        if total > MAX_DEPTH {
            let message =
                format!("the statement is too deep: more than {MAX_DEPTH} words and signs in one expression");
            return Err(SqlFault::new(GENERIC, message));
        }
    }
    Ok(deepest)
}

/// The parser's error as Tarantool words it. `first`: see [`first_named`].
fn syntax_error(error: &ParserError, last: &(u64, String), first: Option<Location>) -> SqlFault {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => {
            let message = "the statement is too deep: more than 50 levels of parentheses and operators";
            return SqlFault::new(GENERIC, message);
        }
    };
    let Some((_, found)) = text.rsplit_once("found: ") else {
        return SqlFault::new(GENERIC, format!("Syntax error: {}", shown(text)));
    };
    match found.rsplit_once(" at Line: ") {
        Some((token, place)) => {
            let mut numbers = place.split(|character: char| !character.is_ascii_digit());
            let mut number = || numbers.by_ref().find_map(|digits| digits.parse().ok()).unwrap_or(1);
            let at = Location { line: number(), column: number() };
            let is_named = first.is_some_and(|first| first < at);
            let reserved = reserved::refused(token, &token.to_uppercase(), at).filter(|_| is_named);
            reserved.unwrap_or_else(|| near(at.line, token))
        }
        None => near(last.0, &last.1),
    }
}
