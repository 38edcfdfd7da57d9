//! CREATE TRIGGER and DROP TRIGGER: from the text to the pieces that run.
//!
//! A trigger is kept as its text, in a row of `_trigger`. Its condition and its statements are pieces of that text in which
//! `NEW.column` and `OLD.column` are parameters. The process that changes a row gives the values of both and runs each
//! piece as a statement.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use crate::SqlFault;
use crate::dialect::Tarantool;
use crate::parse::{self, MAX_TEXT, near, unexpected};
use crate::resolve::{generic, name};

/// `ER_SQL_PARSER_GENERIC_WITH_POS` of Tarantool 2.6.
const UNSUPPORTED_AT: u32 = 206;

/// Statements of a trigger.
const MAX_STATEMENTS: usize = 1000;

/// A part of a trigger that runs as a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The text. Its parameters `$1`, `$2` and so on are `fields`.
    pub text: String,
    /// Columns of the row: whether of the new one, and the name.
    pub fields: Vec<(bool, String)>,
}

/// A trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// IF NOT EXISTS.
    pub is_optional: bool,
    /// The name of its space.
    pub space: String,
    /// `before`, `after` or `instead`.
    pub time: &'static str,
    /// `insert`, `update` or `delete`.
    pub event: &'static str,
    /// Of `UPDATE OF`; none for all.
    pub columns: Vec<String>,
    /// A query whose value is the condition.
    pub when: Option<Piece>,
    /// What it runs.
    pub statements: Vec<Piece>,
    /// The text that a row of `_trigger` has.
    pub text: String,
}

/// The tokens of a text, without blanks at its end.
pub(crate) struct Tokens {
    list: Vec<TokenWithSpan>,
    at: usize,
}

impl Tokens {
    pub(crate) fn of(text: &str) -> Result<Tokens, SqlFault> {
        // Strings stay as they are written.
        let mut tokenizer = Tokenizer::new(&Tarantool, text).with_unescape(false);
        let list = tokenizer.tokenize_with_location().map_err(|error| {
            let text = error.message;
            generic(format!("Syntax error: {text}"))
        })?;
        Ok(Tokens { list, at: 0 })
    }

    fn skip_blanks(&mut self) {
        while self.list.get(self.at).is_some_and(|token| matches!(token.token, Token::Whitespace(_))) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> &Token {
        self.skip_blanks();
        self.list.get(self.at).map_or(&Token::EOF, |token| &token.token)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    /// Passes over a keyword. Returns whether it stands there.
    pub(crate) fn word(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted));
        self.at += usize::from(is_there);
        is_there
    }

    pub(crate) fn expect(&mut self, wanted: &str) -> Result<(), SqlFault> {
        if self.word(wanted) { Ok(()) } else { Err(self.refused()) }
    }

    /// The error of a token that does not belong where it stands.
    fn refused(&mut self) -> SqlFault {
        self.skip_blanks();
        match self.list.get(self.at) {
            Some(token) => unexpected(&token.token, token.span.start),
            None => near(1, ""),
        }
    }

    pub(crate) fn name(&mut self) -> Result<String, SqlFault> {
        let Token::Word(word) = self.peek().clone() else { return Err(self.refused()) };
        let span = self.list[self.at].span;
        self.at += 1;
        name(&word.into_ident(span))
    }

    /// Passes over a semicolon at the end.
    pub(crate) fn end(&mut self) -> Result<(), SqlFault> {
        if *self.peek() == Token::SemiColon {
            self.at += 1;
        }
        if *self.peek() == Token::EOF { Ok(()) } else { Err(self.refused()) }
    }

    fn is_optional(&mut self, words: &[&str]) -> Result<bool, SqlFault> {
        if !self.word("IF") {
            return Ok(false);
        }
        words.iter().try_for_each(|word| self.expect(word)).map(|()| true)
    }
}

/// The name of a trigger to drop, and whether it may be absent; `None` for any other text.
///
/// # Errors
/// A text that begins with DROP TRIGGER and goes on otherwise.
pub(crate) fn dropped(text: &str) -> Result<Option<(String, bool)>, SqlFault> {
    let mut tokens = Tokens::of(text)?;
    if !tokens.word("DROP") || !tokens.word("TRIGGER") {
        return Ok(None);
    }
    let is_optional = tokens.is_optional(&["EXISTS"])?;
    let name = tokens.name()?;
    tokens.end()?;
    Ok(Some((name, is_optional)))
}

/// The trigger that a text creates; `None` for any other text.
///
/// # Errors
/// A text that begins with CREATE TRIGGER and goes on otherwise; a faulty statement of the trigger.
pub(crate) fn created(text: &str) -> Result<Option<Trigger>, SqlFault> {
    if text.len() > MAX_TEXT {
        return Ok(None);
    }
    let mut tokens = Tokens::of(text)?;
    if !tokens.word("CREATE") || !tokens.word("TRIGGER") {
        return Ok(None);
    }
    let is_optional = tokens.is_optional(&["NOT", "EXISTS"])?;
    tokens.skip_blanks();
    let rest = tokens.list.get(tokens.at..).unwrap_or_default().iter().map(|token| token.token.to_string());
    let text = format!("CREATE TRIGGER {}", rest.collect::<String>());
    let name = tokens.name()?;
    let time = match () {
        () if tokens.word("AFTER") => "after",
        () if tokens.word("INSTEAD") => {
            tokens.expect("OF")?;
            "instead"
        }
        () => {
            tokens.word("BEFORE");
            "before"
        }
    };
    let (mut columns, event) = (
        Vec::new(),
        match () {
            () if tokens.word("DELETE") => "delete",
            () if tokens.word("INSERT") => "insert",
            () => {
                tokens.expect("UPDATE")?;
                "update"
            }
        },
    );
    if event == "update" && tokens.word("OF") {
        columns.push(tokens.name()?);
        while *tokens.peek() == Token::Comma {
            tokens.at += 1;
            columns.push(tokens.name()?);
        }
    }
    tokens.expect("ON")?;
    let space = tokens.name()?;
    if !tokens.word("FOR") {
        tokens.skip_blanks();
        let at = tokens.list.get(tokens.at).map(|token| token.span.start);
        let (line, column) = at.map_or((1, 1), |at| (at.line, at.column));
        let text = format!(
            "At line {line} at or near position {column}: FOR EACH STATEMENT triggers are not implemented, please supply \
             FOR EACH ROW clause"
        );
        return Err(SqlFault::new(UNSUPPORTED_AT, text));
    }
    tokens.expect("EACH")?;
    tokens.expect("ROW")?;
    let when = match tokens.word("WHEN") {
        true => Some(condition(&mut tokens)?),
        false => None,
    };
    tokens.expect("BEGIN")?;
    let statements = statements(&mut tokens)?;
    Ok(Some(Trigger { name, is_optional, space, time, event, columns, when, statements, text }))
}

/// The text of a trigger with another name of its space; the same text if it has no such name.
pub fn renamed_trigger(text: &str, space: &str) -> String {
    let Ok(mut tokens) = Tokens::of(text) else { return text.to_owned() };
    while *tokens.peek() != Token::EOF {
        if !tokens.word("ON") {
            tokens.at += 1;
            continue;
        }
        tokens.skip_blanks();
        let place = tokens.at;
        tokens.at += 1;
        if ["FOR", "WHEN", "BEGIN"].into_iter().any(|word| tokens.word(word)) {
            if let Some(name) = tokens.list.get_mut(place) {
                name.token = Token::Word(Word {
                    value: space.to_owned(),
                    quote_style: Some('"'),
                    keyword: Keyword::NoKeyword,
                });
            }
            break;
        }
    }
    tokens.list.iter().map(|token| token.token.to_string()).collect()
}

/// The condition between WHEN and BEGIN, as a query.
fn condition(tokens: &mut Tokens) -> Result<Piece, SqlFault> {
    let mut piece = Builder::default();
    piece.text.push_str("SELECT CASE WHEN (");
    loop {
        match tokens.peek() {
            Token::Word(word) if word.keyword == Keyword::BEGIN && word.quote_style.is_none() => break,
            Token::EOF => return Err(tokens.refused()),
            _ => piece.take(tokens)?,
        }
    }
    piece.text.push_str(") THEN true END");
    piece.built()
}

/// The statements up to END.
fn statements(tokens: &mut Tokens) -> Result<Vec<Piece>, SqlFault> {
    let mut pieces = Vec::new();
    loop {
        if tokens.word("END") {
            while *tokens.peek() == Token::SemiColon {
                tokens.at += 1;
            }
            return match tokens.peek() {
                Token::EOF if !pieces.is_empty() => Ok(pieces),
                _ => Err(tokens.refused()),
            };
        }
        let mut piece = Builder::default();
        while *tokens.peek() != Token::SemiColon {
            if *tokens.peek() == Token::EOF {
                return Err(tokens.refused());
            }
            piece.take(tokens)?;
        }
        tokens.at += 1;
        pieces.push(piece.built()?);
        if pieces.len() > MAX_STATEMENTS {
            return Err(generic(format!("a trigger may have {MAX_STATEMENTS} statements")));
        }
    }
}

/// A piece that is being made.
#[derive(Default)]
struct Builder {
    text: String,
    fields: Vec<(bool, String)>,
}

impl Builder {
    /// Takes the next token, or the tokens of a column of the row.
    fn take(&mut self, tokens: &mut Tokens) -> Result<(), SqlFault> {
        self.text.push(' ');
        let token = tokens.next();
        match &token {
            Token::Placeholder(_) | Token::Colon | Token::AtSign => {
                // Tarantool names the place of the token behind the parameter.
                if !matches!(token, Token::Placeholder(_)) {
                    tokens.next();
                }
                tokens.skip_blanks();
                let at = tokens.list.get(tokens.at).map_or(Location::empty(), |token| token.span.start);
                let (line, column) = (at.line.max(1), at.column.max(1));
                let text =
                    format!("At line {line} at or near position {column}: bindings are not allowed in DDL");
                return Err(SqlFault::new(UNSUPPORTED_AT, text));
            }
            Token::Word(word) if word.quote_style.is_none() => {
                let is_new = word.value.eq_ignore_ascii_case("NEW");
                if (is_new || word.value.eq_ignore_ascii_case("OLD")) && *tokens.peek() == Token::Period {
                    tokens.at += 1;
                    let field = (is_new, tokens.name()?);
                    let known = self.fields.iter().position(|known| *known == field);
                    if known.is_none() {
                        self.fields.push(field);
                    }
                    self.text.push_str(&format!("${}", known.map_or(self.fields.len(), |known| known + 1)));
                    return Ok(());
                }
                if word.value.eq_ignore_ascii_case("RAISE") && *tokens.peek() == Token::LParen {
                    tokens.at += 1;
                    let Token::Word(action) = tokens.next() else { return Err(tokens.refused()) };
                    self.text.push_str(&format!("\"{RAISE}\"('{}'", action.value.to_uppercase()));
                    return Ok(());
                }
            }
            _ => {}
        }
        self.text.push_str(&token.to_string());
        Ok(())
    }

    /// The piece.
    ///
    /// # Errors
    /// A text that is no statement which a trigger may run.
    fn built(self) -> Result<Piece, SqlFault> {
        use sqlparser::ast::Statement;
        let is_allowed = |statement: &Statement| {
            matches!(
                statement,
                Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)
            )
        };
        match parse::parse(&self.text)?.statement {
            statement if is_allowed(&statement) => Ok(Piece { text: self.text, fields: self.fields }),
            other => {
                let text = other.to_string();
                Err(near(1, text.split_whitespace().next().unwrap_or_default()))
            }
        }
    }
}

/// The function that RAISE is in a piece.
pub(crate) const RAISE: &str = "raise in a trigger";

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(text: &str) -> Trigger {
        created(text).expect("a trigger").expect("a CREATE TRIGGER")
    }

    #[test]
    fn columns_of_the_row_are_parameters() {
        let made = trigger(
            "CREATE TRIGGER IF NOT EXISTS tr AFTER UPDATE OF a, \"b\" ON t FOR EACH ROW WHEN new.a > old.a AND NEW.a <> 'it''s' \
             BEGIN INSERT INTO log VALUES (new.\"b\", CASE WHEN old.a THEN 1 END); DELETE FROM t; END;",
        );
        assert_eq!((&made.name[..], &made.space[..], made.time, made.event), ("TR", "T", "after", "update"));
        assert_eq!((made.is_optional, &made.columns[..]), (true, &["A".to_owned(), "b".to_owned()][..]));
        let when = made.when.expect("a condition");
        assert_eq!(when.text, "SELECT CASE WHEN ( $1 > $2 AND $1 <> 'it''s') THEN true END");
        assert_eq!(when.fields, [(true, "A".to_owned()), (false, "A".to_owned())]);
        assert_eq!(made.statements.len(), 2);
        assert_eq!(made.statements[0].text, " INSERT INTO log VALUES ( $1 , CASE WHEN $2 THEN 1 END )");
        assert_eq!(made.statements[0].fields, [(true, "b".to_owned()), (false, "A".to_owned())]);
        assert!(
            made.text.starts_with("CREATE TRIGGER tr AFTER") && made.text.contains("'it''s'"),
            "{}",
            made.text
        );
    }

    #[test]
    fn a_renamed_space_has_its_new_name_in_the_text() {
        for (text, expected) in [
            (
                "CREATE TRIGGER t1 AFTER UPDATE OF a ON t  FOR EACH ROW BEGIN SELECT 'on t for' FROM t; END; ",
                "CREATE TRIGGER t1 AFTER UPDATE OF a ON \"U u\"  FOR EACH ROW BEGIN SELECT 'on t for' FROM t; END; ",
            ),
            ("CREATE TRIGGER t1", "CREATE TRIGGER t1"),
        ] {
            assert_eq!(renamed_trigger(text, "U u"), expected);
        }
    }

    #[test]
    fn a_wrong_trigger_says_where() {
        for (text, said) in [
            ("CREATE TRIGGER t1 AFTER INSERT ON t FOR EACH ROW BEGIN SELECT 1 END", "near"),
            ("CREATE TRIGGER t1 AFTER INSERT ON t FOR EACH ROW BEGIN END", "near"),
            ("CREATE TRIGGER t1 AFTER INSERT ON t FOR EACH ROW BEGIN DROP TABLE t; END", "near 'DROP'"),
            (
                "CREATE TRIGGER t1 AFTER TRUNCATE ON t FOR EACH ROW BEGIN SELECT 1; END",
                "keyword 'TRUNCATE' is reserved",
            ),
            (
                "CREATE TRIGGER t1 AFTER INSERT ON t FOR EACH ROW BEGIN SELECT ?; END",
                "bindings are not allowed in DDL",
            ),
            ("CREATE TRIGGER t1 AFTER INSERT ON t FOR EACH ROW WHEN 1 SELECT 1; END", "near"),
        ] {
            let refused = created(text).expect_err(text);
            assert!(refused.message.contains(said), "{text}: {}", refused.message);
        }
        assert_eq!(created("CREATE TABLE t (a INT PRIMARY KEY)"), Ok(None));
        assert_eq!(dropped("DROP TRIGGER IF EXISTS t1;"), Ok(Some(("T1".to_owned(), true))));
        assert_eq!(dropped("DROP TABLE t1"), Ok(None));
    }
}
