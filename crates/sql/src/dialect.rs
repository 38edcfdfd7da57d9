//! The SQL of Tarantool as the parser knows it: that of SQLite, with shifts of bits and all blanks of Unicode.

use std::any::TypeId;

use sqlparser::ast::{Expr, Statement};
use sqlparser::dialect::{Dialect, SQLiteDialect};
use sqlparser::parser::{Parser, ParserError};

/// The SQL of Tarantool.
#[derive(Debug)]
pub(crate) struct Tarantool;

const BASE: SQLiteDialect = SQLiteDialect {};

impl Dialect for Tarantool {
    // The parser asks for SQLite by its type in some places.
    fn dialect(&self) -> TypeId {
        TypeId::of::<SQLiteDialect>()
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn is_delimited_identifier_start(&self, character: char) -> bool {
        BASE.is_delimited_identifier_start(character)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }

    fn is_identifier_start(&self, character: char) -> bool {
        let is_other = !character.is_ascii() && !character.is_whitespace();
        character.is_ascii_alphabetic() || character == '_' || is_other
    }

    fn is_identifier_part(&self, character: char) -> bool {
        self.is_identifier_start(character) || character.is_ascii_digit()
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        BASE.supports_filter_during_aggregation()
    }

    fn supports_start_transaction_modifier(&self) -> bool {
        BASE.supports_start_transaction_modifier()
    }

    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        BASE.parse_statement(parser)
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        BASE.parse_infix(parser, expr, precedence)
    }

    fn supports_in_empty_list(&self) -> bool {
        BASE.supports_in_empty_list()
    }

    fn supports_limit_comma(&self) -> bool {
        BASE.supports_limit_comma()
    }

    fn supports_asc_desc_in_column_definition(&self) -> bool {
        BASE.supports_asc_desc_in_column_definition()
    }

    fn supports_dollar_placeholder(&self) -> bool {
        BASE.supports_dollar_placeholder()
    }

    fn supports_notnull_operator(&self) -> bool {
        BASE.supports_notnull_operator()
    }

    fn supports_comma_separated_trim(&self) -> bool {
        BASE.supports_comma_separated_trim()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        BASE.supports_numeric_literal_underscores()
    }
}
