//! Expressions: the parser's tree to the tree that is evaluated.

use std::ops::RangeInclusive;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::value::Value;
use sqlparser::ast::{self, BinaryOperator};

use super::types::type_of;
use super::{
    Context, FUNC_WRONG_ARG_COUNT, INTEGER_LIMIT, MAX_ARGUMENTS, NO_SUCH_FUNCTION, SYNTAX_NEAR, at_most,
    function_name, generic, none, shortened, unsupported,
};
use crate::functions::Function;
use crate::rewrite::TRIM_DEFAULT;
use crate::strings::{self, Standing};
use crate::tree::{Aggregate, AggregateKind, Comparison, Expr};
use crate::trigger::RAISE;
use crate::value::{Number, execution, parse_number};
use crate::{SqlFault, define};

impl Context<'_> {
    fn boxed(&mut self, expr: ast::Expr) -> Result<Box<Expr>, SqlFault> {
        self.expression(expr).map(Box::new)
    }

    pub(super) fn negated(expr: Expr, negated: bool) -> Expr {
        if negated { Expr::Not(Box::new(expr)) } else { expr }
    }

    pub(crate) fn expression(&mut self, expr: ast::Expr) -> Result<Expr, SqlFault> {
        use ast::Expr as Ast;
        self.parts += 1;
        Ok(match expr {
            Ast::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("UNKNOWN") =>
            {
                Expr::Literal(Value::Nil)
            }
            Ast::Identifier(ident) => self.column(&ident)?,
            Ast::CompoundIdentifier(parts) => self.column_of(&parts)?,
            Ast::Subquery(_) | Ast::Exists { .. } | Ast::InSubquery { .. } => return self.queried(expr),
            Ast::Nested(inner) => return self.expression(*inner),
            Ast::Value(value) => literal(value.value)?,
            Ast::IsNull(inner) | Ast::IsUnknown(inner) => Expr::IsNull(Box::new(self.expression(*inner)?)),
            Ast::IsNotNull(inner) | Ast::IsNotUnknown(inner) => {
                Context::negated(Expr::IsNull(Box::new(self.expression(*inner)?)), true)
            }
            Ast::UnaryOp { op, expr } => match op {
                ast::UnaryOperator::Not => Expr::Not(self.boxed(*expr)?),
                ast::UnaryOperator::Plus => return self.expression(*expr),
                ast::UnaryOperator::Minus => match self.expression(*expr)? {
                    Expr::Literal(Value::Uint(number)) => Expr::Literal(
                        Number::Int(-i128::from(number))
                            .into_value()
                            .map_err(|_| too_large(format!("-{number}")))?,
                    ),
                    inner => Expr::Minus(Box::new(inner)),
                },
                ast::UnaryOperator::BitwiseNot => Expr::Invert(self.boxed(*expr)?),
                other => return Err(unsupported(&format!("the operator {other}"))),
            },
            Ast::BinaryOp { left, op, right } => {
                let (left, right) = (self.boxed(*left)?, self.boxed(*right)?);
                self.ordered(binary(&op, left, right)?)?
            }
            Ast::InList { .. } | Ast::Between { .. } | Ast::Like { .. } => self.condition(expr)?,
            Ast::Function(function) => return self.function(function),
            Ast::Substring { expr, substring_from, substring_for, special: _, shorthand } => {
                let name = if shorthand { "SUBSTR" } else { "SUBSTRING" };
                let parts = std::iter::once(expr).chain(substring_from).chain(substring_for);
                call_of(name, parts.map(|part| self.expression(*part)).collect::<Result<_, _>>()?, self)?
            }
            Ast::Trim { trim_where, trim_what, expr, trim_characters } => {
                self.trim(trim_where, trim_what, *expr, trim_characters.as_deref())?
            }
            Ast::Cast { kind, expr, data_type, format } => {
                none(kind == ast::CastKind::Cast && format.is_none(), "such a CAST")?;
                let ty = FieldType::parse(define::type_of(&data_type.to_string())?);
                Expr::Cast(self.boxed(*expr)?, ty.ok_or_else(|| unsupported("such a CAST"))?)
            }
            Ast::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(operand, conditions, else_result)?
            }
            Ast::Collate { expr, collation } => {
                let inner = self.expression(*expr)?;
                self.collate(inner, &collation)?
            }
            other => return Err(unsupported(&format!("the expression {}", shortened(&other.to_string())))),
        })
    }

    /// IN with a list, BETWEEN and LIKE.
    fn condition(&mut self, expr: ast::Expr) -> Result<Expr, SqlFault> {
        use ast::Expr as Ast;
        let (condition, negated) = match expr {
            Ast::InList { expr, list, negated } => {
                let inner = self.boxed(*expr)?;
                let list = list.into_iter().map(|item| self.expression(item)).collect::<Result<_, _>>()?;
                (Expr::In(inner, list), negated)
            }
            Ast::Between { expr, negated, low, high } => {
                let (inner, low, high) = (self.boxed(*expr)?, self.boxed(*low)?, self.boxed(*high)?);
                (Expr::Between(inner, low, high), negated)
            }
            Ast::Like { negated, any, expr, pattern, escape_char } => {
                none(!any, "LIKE ANY")?;
                let (text, pattern) = (self.boxed(*expr)?, self.boxed(*pattern)?);
                let (escape, standing) = self.escape(escape_char)?;
                let standing = self.mixed([&*text, &*pattern])?.mixed(standing)?;
                let Some(escape) = escape else { return Ok(Expr::Literal(Value::Nil)) };
                let like = Expr::Like(text, pattern, escape);
                let like = match strings::unless_binary(standing.order) {
                    Some(order) => Expr::Ordered(Box::new(like), order),
                    None => like,
                };
                return Ok(Context::negated(like, negated));
            }
            other => return Err(unsupported(&format!("the expression {}", shortened(&other.to_string())))),
        };
        Ok(Context::negated(self.ordered(condition)?, negated))
    }

    /// The character of ESCAPE, and the order that its COLLATE gives; `None` for NULL.
    fn escape(
        &mut self,
        escape: Option<Box<ast::Expr>>,
    ) -> Result<(Option<Option<char>>, Standing), SqlFault> {
        let Some(escape) = escape else { return Ok((Some(None), Standing::default())) };
        let escape = self.expression(*escape)?;
        let standing = self.standing(&escape)?;
        let mut inner = &escape;
        while let Expr::Collate(collated, _) = inner {
            inner = collated;
        }
        match inner {
            Expr::Literal(Value::Nil) => Ok((None, standing)),
            Expr::Literal(Value::Str(text)) => {
                match String::from_utf8_lossy(text).chars().collect::<Vec<_>>()[..] {
                    [character] => Ok((Some(Some(character)), standing)),
                    _ => Err(execution("ESCAPE expression must be a single character")),
                }
            }
            _ => Err(unsupported("an ESCAPE that is no literal")),
        }
    }

    fn trim(
        &mut self,
        side: Option<ast::TrimWhereField>,
        what: Option<Box<ast::Expr>>,
        text: ast::Expr,
        list: Option<&[ast::Expr]>,
    ) -> Result<Expr, SqlFault> {
        none(list.is_none(), "TRIM with a list of characters")?;
        let what =
            what.filter(|what| !matches!(&**what, ast::Expr::Identifier(name) if name.value == TRIM_DEFAULT));
        let (text, what) = (self.expression(text)?, what.map(|what| self.expression(*what)).transpose()?);
        let default = if matches!(text, Expr::Literal(Value::Bin(_))) { "\0" } else { " " };
        let what = what.unwrap_or_else(|| Expr::Literal(Value::str(default)));
        let trims = |other| Expr::Literal(Value::Bool(side != Some(other)));
        let sides = [trims(ast::TrimWhereField::Trailing), trims(ast::TrimWhereField::Leading)];
        Ok(Expr::Call(Function::Trim, [text, what].into_iter().chain(sides).collect()))
    }

    fn case(
        &mut self,
        operand: Option<Box<ast::Expr>>,
        conditions: Vec<ast::CaseWhen>,
        otherwise: Option<Box<ast::Expr>>,
    ) -> Result<Expr, SqlFault> {
        let operand = operand.map(|operand| self.boxed(*operand)).transpose()?;
        let mut branches = Vec::with_capacity(conditions.len());
        for ast::CaseWhen { condition, result } in conditions {
            branches.push((self.expression(condition)?, self.expression(result)?));
        }
        let otherwise = otherwise.map(|result| self.expression(*result).map(Box::new)).transpose()?;
        self.ordered(Expr::Case(operand, branches, otherwise))
    }

    fn function(&mut self, function: ast::Function) -> Result<Expr, SqlFault> {
        let ast::Function {
            name,
            uses_odbc_syntax: _,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over,
        } = function;
        let name = function_name(&name)?;
        if name == "RAISE" {
            return Err(generic("RAISE() may only be used within a trigger-program"));
        }
        let is_plain = matches!(parameters, ast::FunctionArguments::None) && within_group.is_empty();
        none(
            is_plain && filter.is_none() && null_treatment.is_none() && over.is_none(),
            "a window function",
        )?;
        let ast::FunctionArguments::List(list) = args else { return Err(unsupported("a subquery")) };
        none(list.clauses.is_empty(), "such arguments of a function")?;
        let is_distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let aggregate = aggregate_of(&name);
        none(!is_distinct || aggregate.is_some(), "DISTINCT in such a function")?;
        at_most(MAX_ARGUMENTS, &format!("Number of arguments to function {name}"), list.args.len())?;
        let (mut arguments, mut is_all) = (Vec::new(), list.args.is_empty());
        let may_aggregate = self.may_aggregate;
        self.may_aggregate = may_aggregate && aggregate.is_none();
        for argument in list.args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push(self.expression(expr)?);
                }
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) => is_all = true,
                _ => return Err(unsupported("a named argument")),
            }
        }
        self.may_aggregate = may_aggregate;
        // Without arguments it has become a parameter before.
        if name == "ROW_COUNT" && !arguments.is_empty() {
            return Err(wrong_count(&name, "0", arguments.len()));
        }
        if let Some(kind) = aggregate {
            if !self.may_aggregate {
                return Err(generic(format!("misuse of aggregate function {name}()")));
            }
            if is_distinct && is_all {
                return Err(SqlFault::new(SYNTAX_NEAR, "Syntax error at line 1 near '*'"));
            }
            if is_distinct && arguments.len() > 1 {
                return Err(generic("DISTINCT aggregates must have exactly one argument"));
            }
            let most = if kind == AggregateKind::GroupConcat { 2 } else { 1 };
            if is_all && kind != AggregateKind::Count || arguments.len() > most {
                let expected = match kind {
                    AggregateKind::Count => "0 or 1",
                    _ if most == 2 => "1 or 2",
                    _ => "1",
                };
                return Err(wrong_count(&name, expected, arguments.len()));
            }
            let separator = (arguments.len() > 1).then(|| arguments.pop()).flatten();
            let argument = arguments.pop();
            let order = self.mixed(&argument)?.order;
            self.aggregates.push(Aggregate { kind, argument, distinct: is_distinct, separator, order });
            return Ok(Expr::Aggregate(self.aggregates.len() - 1));
        }
        call_of(&name, arguments, self)
    }
}

/// The function by which the rules of foreign keys make strings of bytes of their parameters.
const TO_BYTES: &str = "bytes of a key";

fn wrong_count(name: &str, expected: &str, count: usize) -> SqlFault {
    let text = format!("Wrong number of arguments is passed to {name}(): expected {expected}, got {count}");
    SqlFault::new(FUNC_WRONG_ARG_COUNT, text)
}

fn call_of(name: &str, mut arguments: Vec<Expr>, context: &Context<'_>) -> Result<Expr, SqlFault> {
    let (function, expected) = function_of(name)?;
    if !expected.contains(&arguments.len()) {
        let expected = match function {
            Function::Round | Function::Substr => "1 or 2".to_owned(),
            Function::Greatest | Function::Least => "at least two".to_owned(),
            _ if expected.end() == expected.start() => expected.start().to_string(),
            _ => format!("at least {}", expected.start()),
        };
        return Err(wrong_count(name, &expected, arguments.len()));
    }
    if function == Function::Typeof
        && let Some(argument @ (Expr::Column(_) | Expr::Slot(..) | Expr::Cast(..) | Expr::Concat(..))) =
            arguments.first()
        && let Some(ty) = type_of(argument, context).filter(|ty| *ty != FieldType::Scalar.name())
    {
        arguments.push(Expr::Literal(Value::str(ty)));
    }
    context.ordered(Expr::Call(function, arguments))
}

fn aggregate_of(name: &str) -> Option<AggregateKind> {
    Some(match name {
        "COUNT" => AggregateKind::Count,
        "SUM" => AggregateKind::Sum,
        "TOTAL" => AggregateKind::Total,
        "MIN" => AggregateKind::Min,
        "MAX" => AggregateKind::Max,
        "AVG" => AggregateKind::Avg,
        "GROUP_CONCAT" => AggregateKind::GroupConcat,
        _ => return None,
    })
}

/// A function of one row, and the numbers of arguments that it takes.
fn function_of(name: &str) -> Result<(Function, RangeInclusive<usize>), SqlFault> {
    Ok(match name {
        "ABS" => (Function::Abs, 1..=1),
        "CHAR" => (Function::Char, 0..=usize::MAX),
        "COALESCE" => (Function::Coalesce, 2..=usize::MAX),
        "GREATEST" => (Function::Greatest, 2..=usize::MAX),
        "HEX" => (Function::Hex, 1..=1),
        "IFNULL" => (Function::Ifnull, 2..=2),
        "LEAST" => (Function::Least, 2..=usize::MAX),
        "LENGTH" | "CHAR_LENGTH" | "CHARACTER_LENGTH" => (Function::Length, 1..=1),
        "LIKELIHOOD" => (Function::Likely, 2..=2),
        "LIKELY" | "UNLIKELY" => (Function::Likely, 1..=1),
        "LOWER" => (Function::Lower, 1..=1),
        "NULLIF" => (Function::Nullif, 2..=2),
        "POSITION" => (Function::Position, 2..=2),
        "PRINTF" => (Function::Printf, 0..=usize::MAX),
        "QUOTE" => (Function::Quote, 1..=1),
        "REPLACE" => (Function::Replace, 3..=3),
        "RANDOM" => (Function::Random, 0..=0),
        "RANDOMBLOB" => (Function::Randomblob, 1..=1),
        RAISE => (Function::Raise, 1..=2),
        "ROUND" => (Function::Round, 1..=2),
        "SOUNDEX" => (Function::Soundex, 1..=1),
        "SUBSTR" => (Function::Substr, 2..=3),
        TO_BYTES => (Function::ToBytes, 1..=1),
        "TYPEOF" => (Function::Typeof, 1..=1),
        "UNICODE" => (Function::Unicode, 1..=1),
        "UPPER" => (Function::Upper, 1..=1),
        "ZEROBLOB" => (Function::Zeroblob, 1..=1),
        _ => {
            let text = format!(
                "Function '{name}' does not exist in Lycosa: it has ABS, CHAR, COALESCE, GREATEST, HEX, IFNULL, LEAST, \
                 LENGTH, LIKELY, LOWER, NULLIF, POSITION, PRINTF, QUOTE, RANDOM, RANDOMBLOB, REPLACE, ROUND, SOUNDEX, SUBSTR, TRIM, TYPEOF, \
                 UNICODE, UPPER, ZEROBLOB, and COUNT, SUM, TOTAL, MIN, MAX, AVG, GROUP_CONCAT"
            );
            return Err(SqlFault::new(NO_SUCH_FUNCTION, text));
        }
    })
}

fn too_large(number: impl std::fmt::Display) -> SqlFault {
    let text = format!(
        "Integer literal {number} exceeds the supported range [-9223372036854775808, 18446744073709551615]"
    );
    SqlFault::new(INTEGER_LIMIT, text)
}

fn binary(op: &BinaryOperator, left: Box<Expr>, right: Box<Expr>) -> Result<Expr, SqlFault> {
    let comparison = match op {
        BinaryOperator::Eq => Some(Comparison::Equal),
        BinaryOperator::NotEq => Some(Comparison::NotEqual),
        BinaryOperator::Lt => Some(Comparison::Less),
        BinaryOperator::LtEq => Some(Comparison::AtMost),
        BinaryOperator::Gt => Some(Comparison::Greater),
        BinaryOperator::GtEq => Some(Comparison::AtLeast),
        _ => None,
    };
    if let Some(comparison) = comparison {
        return Ok(Expr::Compare(comparison, left, right));
    }
    let arithmetic = match op {
        BinaryOperator::And => return Ok(Expr::And(left, right)),
        BinaryOperator::Or => return Ok(Expr::Or(left, right)),
        BinaryOperator::StringConcat => return Ok(Expr::Concat(left, right)),
        BinaryOperator::Plus => b'+',
        BinaryOperator::Minus => b'-',
        BinaryOperator::Multiply => b'*',
        BinaryOperator::Divide => b'/',
        BinaryOperator::Modulo => b'%',
        BinaryOperator::BitwiseAnd => b'&',
        BinaryOperator::BitwiseOr => b'|',
        BinaryOperator::PGBitwiseShiftLeft => b'<',
        BinaryOperator::PGBitwiseShiftRight => b'>',
        other => return Err(unsupported(&format!("the operator {other}"))),
    };
    Ok(Expr::Arithmetic(arithmetic, left, right))
}

/// A literal that stands alone.
pub(super) fn literal_of(expr: ast::Expr) -> Result<Expr, SqlFault> {
    match expr {
        ast::Expr::Value(value) => literal(value.value),
        other => Err(unsupported(&format!("the literal {}", shortened(&other.to_string())))),
    }
}

fn literal(value: ast::Value) -> Result<Expr, SqlFault> {
    Ok(Expr::Literal(match value {
        ast::Value::Null => Value::Nil,
        ast::Value::Boolean(value) => Value::Bool(value),
        ast::Value::SingleQuotedString(text) => Value::str(text),
        ast::Value::HexStringLiteral(digits) => {
            let pairs = digits.as_bytes().chunks(2);
            let bytes: Option<Vec<u8>> = pairs
                .map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?, 16).ok()
                })
                .collect();
            Value::Bin(
                bytes.ok_or_else(|| generic(format!("X'{digits}' is not an even number of hex digits")))?,
            )
        }
        ast::Value::Number(text, _) => {
            let number = parse_number(&text);
            let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
            match number {
                Some(Number::Int(number)) => Number::Int(number).into_value().map_err(|_| too_large(text))?,
                Some(Number::Double(number)) if !is_digits => Value::Double(number),
                _ => return Err(too_large(text)),
            }
        }
        ast::Value::Placeholder(place) => {
            let number = place.strip_prefix('?').and_then(|digits| digits.parse().ok());
            return number.map(Expr::Parameter).ok_or_else(|| generic("such a parameter is not supported"));
        }
        other => return Err(unsupported(&format!("the literal {}", shortened(&other.to_string())))),
    }))
}
