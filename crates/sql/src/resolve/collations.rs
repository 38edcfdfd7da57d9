//! `COLLATE`, and the order in which expressions compare strings.

use std::sync::Arc;

use super::types::type_of;
use super::{Context, generic};
use crate::SqlFault;
use crate::functions::Function;
use crate::strings::{self, Standing, id_by_name, order_by_id};
use crate::tree::Expr;

impl Context<'_> {
    /// The order that the collation of that name gives.
    pub(super) fn order_named(
        &self,
        collation: &sqlparser::ast::ObjectName,
    ) -> Result<strings::Order, SqlFault> {
        let name = super::simple_name(collation)?;
        let store = self.store.ok_or_else(|| super::unsupported("COLLATE here"))?;
        order_by_id(store, id_by_name(store, &name)?)
    }

    /// `COLLATE`.
    ///
    /// # Errors
    /// A value that is no string; a collation that does not exist.
    pub(super) fn collate(
        &self,
        inner: Expr,
        collation: &sqlparser::ast::ObjectName,
    ) -> Result<Expr, SqlFault> {
        let mut of = &inner;
        while let Expr::Collate(inner, _) = of {
            of = inner;
        }
        if !matches!(type_of(of, self), Some("string" | "scalar")) {
            return Err(generic("COLLATE clause can't be used with non-string arguments"));
        }
        Ok(match self.order_named(collation)? {
            Some(order) => Expr::Collate(Box::new(inner), order),
            None => inner,
        })
    }

    /// The order of an expression's strings.
    pub(super) fn standing(&self, expr: &Expr) -> Result<Standing, SqlFault> {
        Ok(match expr {
            Expr::Collate(_, order) => Standing { order: Some(Arc::clone(order)), is_explicit: true },
            Expr::Cast(inner, _) | Expr::Ordered(inner, _) => self.standing(inner)?,
            Expr::Column(field) => {
                let found = self.collated.iter().find(|(number, _)| number == field);
                Standing::implicit(found.and_then(|(_, order)| order.clone()))
            }
            Expr::Slot(slot, field) => {
                let names = self.names.as_ref();
                let field = names.and_then(|names| names.field(*slot, *field));
                Standing::implicit(field.and_then(|field| field.order.clone()))
            }
            Expr::Concat(left, right) => self.standing(left)?.concatenated(self.standing(right)?)?,
            Expr::Call(
                Function::Trim | Function::Upper | Function::Lower | Function::Replace | Function::Substr,
                arguments,
            ) => match arguments.first() {
                Some(first) => self.standing(first)?,
                None => Standing::default(),
            },
            _ => Standing::default(),
        })
    }

    /// The order in which several expressions are compared with each other.
    pub(super) fn mixed<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Result<Standing, SqlFault> {
        exprs.into_iter().try_fold(Standing::default(), |mixed, expr| mixed.mixed(self.standing(expr)?))
    }

    /// A comparison or a call, in the order that its strings take.
    pub(super) fn ordered(&self, expr: Expr) -> Result<Expr, SqlFault> {
        let standing = match &expr {
            Expr::Compare(_, left, right) => self.mixed([&**left, &**right])?,
            Expr::Between(inner, low, high) => self.mixed([&**inner, &**low, &**high])?,
            Expr::In(inner, _) => self.mixed([&**inner])?,
            Expr::Like(text, pattern, _) => self.mixed([&**text, &**pattern])?,
            Expr::Call(
                Function::Nullif | Function::Greatest | Function::Least | Function::Position,
                arguments,
            ) => self.mixed(arguments)?,
            Expr::Case(Some(operand), branches, _) => {
                self.mixed(std::iter::once(&**operand).chain(branches.iter().map(|(wanted, _)| wanted)))?
            }
            _ => return Ok(expr),
        };
        Ok(match strings::unless_binary(standing.order) {
            Some(order) => Expr::Ordered(Box::new(expr), order),
            None => expr,
        })
    }
}
