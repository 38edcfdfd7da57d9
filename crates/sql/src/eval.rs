//! Expressions over a row.

use std::cmp::Ordering;

use lycosa_tuple::collation::Collation;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::SqlFault;
use crate::effort::{Effort, weight, weight_of_encoded, weight_of_text};
use crate::functions::{self, Function};
use crate::subquery::{Slots, not_answered};
use crate::tree::{Comparison, Expr};
use crate::value::{self, Number};

/// What expressions are evaluated with.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) tuple: Option<TupleRef<'a>>,
    pub(crate) parameters: &'a [Value],
    pub(crate) aggregates: &'a [Value],
    pub(crate) effort: &'a Effort,
    /// The current rows of all sources, in a statement of several.
    pub(crate) slots: Option<&'a Slots>,
}

/// Bytes of a text that an expression makes.
pub(crate) const MAX_MADE: usize = 16 << 20;

impl<'a> Row<'a> {
    pub(crate) fn of(tuple: &'a [u8], parameters: &'a [Value], effort: &'a Effort) -> Row<'a> {
        Row { tuple: Some(TupleRef::trusted(tuple)), parameters, aggregates: &[], effort, slots: None }
    }

    /// A row of nothing, for constants.
    pub(crate) fn nothing(parameters: &'a [Value], effort: &'a Effort) -> Row<'a> {
        Row { tuple: None, parameters, aggregates: &[], effort, slots: None }
    }

    /// The current row of a source; `None` for a row of NULLs.
    pub(crate) fn slot(&self, number: u32) -> Option<TupleRef<'a>> {
        self.slots.and_then(|slots| slots.tuple(number))
    }

    fn field(&self, tuple: Option<TupleRef<'_>>, number: u32) -> Result<Value, SqlFault> {
        let field = tuple.and_then(|tuple| tuple.field(number)).unwrap_or_default();
        // The fields before it are passed over.
        self.effort.spend(u64::from(number / 8) + weight_of_encoded(field))?;
        Ok(Value::read(&mut Reader::new(field)).unwrap_or(Value::Nil))
    }

    fn compare(
        &self,
        left: &Value,
        right: &Value,
        collation: &Collation,
    ) -> Result<Option<Ordering>, SqlFault> {
        self.effort.spend(weight(left) + weight(right))?;
        if !collation.is_binary()
            && let (Value::Str(left), Value::Str(right)) = (left, right)
        {
            self.effort.spend(weight_of_text(left.len().min(right.len())))?;
        }
        value::compare(left, right, collation)
    }

    /// A value of `values`, by its number.
    fn copied(&self, values: &[Value], number: usize) -> Result<Value, SqlFault> {
        values.get(number).map_or(Ok(Value::Nil), |value| self.effort.copy(value))
    }

    pub(crate) fn evaluate(&self, expr: &Expr) -> Result<Value, SqlFault> {
        self.effort.spend(1)?;
        Ok(match expr {
            Expr::Literal(value) => self.effort.copy(value)?,
            Expr::Column(number) => self.field(self.tuple, *number)?,
            Expr::Slot(slot, number) => self.field(self.slot(*slot), *number)?,
            Expr::Tuple(_) => Value::Nil,
            Expr::Scalar(_) | Expr::Exists(_) | Expr::InQuery(..) => self.answer(expr)?,
            Expr::Parameter(number) => self.copied(self.parameters, *number)?,
            Expr::Aggregate(number) => self.copied(self.aggregates, *number)?,
            // As in Tarantool, a value needs both sides, for their errors; a condition stops at the side that decides.
            Expr::And(left, right) if is_false(left) || is_false(right) => Value::Bool(false),
            Expr::And(left, right) | Expr::Or(left, right) => {
                let decides = matches!(expr, Expr::Or(..));
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                value::from_truth(joined(decides, value::truth(&left)?, value::truth(&right)?))
            }
            Expr::Not(inner) => value::from_truth(value::truth(&self.evaluate(inner)?)?.map(|value| !value)),
            Expr::Compare(..)
            | Expr::Between(..)
            | Expr::In(..)
            | Expr::Like(..)
            | Expr::Call(..)
            | Expr::Case(..) => self.ordered(expr, &Collation::Binary)?,
            Expr::Ordered(inner, order) => self.ordered(inner, &order.collation)?,
            Expr::Collate(inner, _) => self.evaluate(inner)?,
            Expr::Arithmetic(operator, left, right) => {
                value::arithmetic(*operator, &self.evaluate(left)?, &self.evaluate(right)?)?
            }
            Expr::Minus(inner) => match self.evaluate(inner)? {
                Value::Nil => Value::Nil,
                other => match value::operand(&other)? {
                    Number::Int(number) => Number::Int(-number),
                    Number::Double(number) => Number::Double(-number),
                }
                .into_value()?,
            },
            Expr::Invert(inner) => match self.evaluate(inner)? {
                Value::Nil => Value::Nil,
                other => Number::Int(!value::whole(&other)?).into_value()?,
            },
            Expr::Concat(left, right) => {
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                self.effort.spend(weight(&left) + weight(&right))?;
                value::concatenate(&left, &right, MAX_MADE)?
            }
            Expr::IsNull(inner) => Value::Bool(self.evaluate(inner)? == Value::Nil),
            Expr::Cast(inner, ty) => functions::cast(self.evaluate(inner)?, *ty, self.effort)?,
        })
    }

    /// The value of an expression that compares strings in the order of a collation.
    fn ordered(&self, expr: &Expr, collation: &Collation) -> Result<Value, SqlFault> {
        Ok(match expr {
            Expr::Compare(comparison, left, right) => {
                let order = self.compare(&self.evaluate(left)?, &self.evaluate(right)?, collation)?;
                value::from_truth(order.map(|order| holds(*comparison, order)))
            }
            Expr::Between(inner, low, high) => {
                value::from_truth(self.is_between(&self.evaluate(inner)?, low, high, collation)?)
            }
            Expr::In(inner, list) => {
                value::from_truth(self.is_in(&self.evaluate(inner)?, list, collation)?)
            }
            Expr::Like(text, pattern, escape) => {
                let (text, pattern) = (self.evaluate(text)?, self.evaluate(pattern)?);
                value::from_truth(value::like(&text, &pattern, *escape, collation, self.effort)?)
            }
            Expr::Call(function, arguments) => {
                let values: Result<Vec<Value>, SqlFault> =
                    arguments.iter().map(|argument| self.evaluate(argument)).collect();
                functions::call(*function, &values?, collation, self.effort)?
            }
            Expr::Case(operand, branches, otherwise) => {
                self.case(operand.as_deref(), branches, otherwise.as_deref(), collation)?
            }
            other => self.evaluate(other)?,
        })
    }

    /// The answer of a subquery.
    fn answer(&self, expr: &Expr) -> Result<Value, SqlFault> {
        let slots = self.slots.ok_or_else(not_answered)?;
        match expr {
            Expr::Scalar(number) => self.effort.copy(slots.scalar(*number)?),
            Expr::Exists(number) => Ok(Value::Bool(slots.exists(*number)?)),
            Expr::InQuery(inner, number) => {
                let wanted = self.evaluate(inner)?;
                Ok(value::from_truth(slots.set(*number)?.has(&wanted, self.effort)?))
            }
            _ => Err(not_answered()),
        }
    }

    /// The result of the first branch whose condition holds, or equals the operand if there is one.
    fn case(
        &self,
        operand: Option<&Expr>,
        branches: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
        collation: &Collation,
    ) -> Result<Value, SqlFault> {
        let operand = operand.map(|operand| self.evaluate(operand)).transpose()?;
        for (condition, result) in branches {
            let holds = match &operand {
                None => self.condition(condition)? == Some(true),
                Some(operand) => {
                    let order = self.compare(operand, &self.evaluate(condition)?, collation)?;
                    order == Some(Ordering::Equal)
                }
            };
            if holds {
                return self.evaluate(result);
            }
        }
        otherwise.map_or(Ok(Value::Nil), |otherwise| self.evaluate(otherwise))
    }

    fn is_between(
        &self,
        value: &Value,
        low: &Expr,
        high: &Expr,
        collation: &Collation,
    ) -> Result<Option<bool>, SqlFault> {
        let is_above = self.compare(value, &self.evaluate(low)?, collation)?.map(Ordering::is_ge);
        if is_above == Some(false) {
            return Ok(Some(false));
        }
        let is_below = self.compare(value, &self.evaluate(high)?, collation)?.map(Ordering::is_le);
        Ok(match (is_above, is_below) {
            (_, Some(false)) => Some(false),
            (Some(true), below) => below,
            _ => None,
        })
    }

    fn is_in(&self, wanted: &Value, list: &[Expr], collation: &Collation) -> Result<Option<bool>, SqlFault> {
        let mut found = Some(false);
        for item in list {
            match self.compare(wanted, &self.evaluate(item)?, collation) {
                Ok(Some(Ordering::Equal)) => return Ok(Some(true)),
                Ok(Some(_)) => {}
                Ok(None) => found = None,
                // As in Tarantool, a longer list of constants is a set, which has no value of another type.
                Err(failure) if failure.code == value::TYPE_MISMATCH && is_set(list) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }

    /// The truth of an expression of which only the truth counts.
    pub(crate) fn condition(&self, expr: &Expr) -> Result<Option<bool>, SqlFault> {
        match expr {
            Expr::And(left, right) | Expr::Or(left, right) => {
                self.effort.spend(1)?;
                let decides = matches!(expr, Expr::Or(..));
                match self.condition(left)? {
                    Some(left) if left == decides => Ok(Some(decides)),
                    left => Ok(joined(decides, left, self.condition(right)?)),
                }
            }
            Expr::Not(inner) => {
                self.effort.spend(1)?;
                Ok(self.condition(inner)?.map(|value| !value))
            }
            other => value::truth(&self.evaluate(other)?),
        }
    }

    /// Whether the row passes a filter.
    pub(crate) fn passes(&self, filter: Option<&Expr>) -> Result<bool, SqlFault> {
        filter.map_or(Ok(true), |filter| Ok(self.condition(filter)? == Some(true)))
    }
}

/// AND, for which false decides, and OR, for which true does.
fn joined(decides: bool, left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(left), _) if left == decides => Some(decides),
        (_, Some(right)) if right == decides => Some(decides),
        (Some(_), Some(_)) => Some(!decides),
        _ => None,
    }
}

fn is_false(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(Value::Bool(false)))
}

/// Whether the list of an IN is a set of constants.
fn is_set(list: &[Expr]) -> bool {
    list.len() > 2 && list.iter().all(is_constant)
}

fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::AtLeast => order.is_ge(),
    }
}

/// Whether an expression is the same for all rows.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Parameter(_) => true,
        Expr::Minus(inner) | Expr::Invert(inner) | Expr::Cast(inner, _) | Expr::Collate(inner, _) => {
            is_constant(inner)
        }
        Expr::Arithmetic(_, left, right) | Expr::Concat(left, right) => {
            is_constant(left) && is_constant(right)
        }
        Expr::Call(Function::Random | Function::Randomblob, _) => false,
        Expr::Call(_, arguments) => arguments.iter().all(is_constant),
        _ => false,
    }
}
