//! The types that expressions have in metadata.

use lycosa_tuple::value::Value;

use super::Context;
use crate::functions::Function;
use crate::tree::{AggregateKind, Comparison, Expr};

/// The type that an expression has in metadata; `None`: that of a parameter.
pub(super) fn type_of(expr: &Expr, context: &Context<'_>) -> Option<&'static str> {
    let of = |expr: &Expr| type_of(expr, context).unwrap_or_default();
    Some(match expr {
        Expr::Parameter(_) => return None,
        Expr::Column(field) => context.space.map_or("any", |space| space.format().field_type(*field).name()),
        Expr::Slot(slot, field) => {
            let names = context.names.as_ref();
            names.and_then(|names| names.field(*slot, *field)).map_or("any", |field| field.ty)
        }
        Expr::Tuple(_) => "array",
        Expr::Scalar(query) => {
            let query = context.names.as_ref().and_then(|names| names.queries.get(*query));
            return query?.columns.first()?.ty;
        }
        Expr::Exists(_) | Expr::InQuery(..) => "boolean",
        Expr::Literal(value) => match value {
            Value::Nil => "scalar",
            Value::Bool(_) => "boolean",
            Value::Uint(_) | Value::Int(_) => "integer",
            Value::Double(_) => "double",
            Value::Str(_) => "string",
            _ => "varbinary",
        },
        Expr::Aggregate(number) => match context.aggregates.get(*number).map(|it| it.kind) {
            Some(AggregateKind::Count) => "integer",
            Some(AggregateKind::Min | AggregateKind::Max) => "scalar",
            Some(AggregateKind::GroupConcat) => "string",
            _ => "number",
        },
        // As in Tarantool 2.6, which has no type for this operator, and takes LIKE for a function of integers.
        Expr::Compare(Comparison::AtLeast, ..) => "any",
        Expr::Like(..) => "integer",
        Expr::And(..)
        | Expr::Or(..)
        | Expr::Not(_)
        | Expr::Compare(..)
        | Expr::Between(..)
        | Expr::IsNull(_)
        | Expr::In(..) => "boolean",
        Expr::Arithmetic(_, left, right) => {
            let types = [of(left), of(right)];
            let widest =
                ["number", "double", "integer", "unsigned"].into_iter().find(|ty| types.contains(ty));
            widest.unwrap_or("scalar")
        }
        Expr::Minus(inner) | Expr::Invert(inner) | Expr::Ordered(inner, _) | Expr::Collate(inner, _) => {
            return type_of(inner, context);
        }
        Expr::Concat(..) => "string",
        Expr::Cast(_, ty) => ty.name(),
        Expr::Case(_, branches, otherwise) => {
            let mut types = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref()).map(of);
            let first = types.next().unwrap_or_default();
            if types.all(|ty| ty == first) { first } else { "scalar" }
        }
        Expr::Call(Function::Likely, arguments) => return type_of(arguments.first()?, context),
        Expr::Call(function, _) => match function {
            Function::Abs => "number",
            Function::Random => "integer",
            Function::Randomblob => "varbinary",
            Function::Coalesce | Function::Greatest | Function::Least | Function::Nullif => "scalar",
            Function::Ifnull | Function::Length | Function::Position | Function::Round => "integer",
            Function::ToBytes | Function::Zeroblob => "varbinary",
            _ => "string",
        },
    })
}
