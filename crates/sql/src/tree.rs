//! A statement as it runs: names are resolved, parameters have numbers.

use std::rc::Rc;
use std::sync::Arc;

use lycosa_store::StatementKind;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::value::Value;

use crate::functions::Function;
use crate::query::{General, GeneralChange};
use crate::strings::{self, StringOrder};

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub(crate) fn mirrored(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::AtMost => Comparison::AtLeast,
            Comparison::Greater => Comparison::Less,
            Comparison::AtLeast => Comparison::AtMost,
            same => same,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Literal(Value),
    /// A field, from 0.
    Column(u32),
    /// A field of the current row of a source, in a statement of several; both from 0.
    Slot(u32, u32),
    /// All of the current row of a source.
    Tuple(u32),
    /// The value of a subquery, by its number.
    Scalar(usize),
    /// Whether a subquery has a row.
    Exists(usize),
    /// Whether a subquery has a row with this value.
    InQuery(Box<Expr>, usize),
    /// A parameter, from 0.
    Parameter(usize),
    /// A result of an aggregate function, from 0.
    Aggregate(usize),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// The value, the least and the greatest.
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    Arithmetic(u8, Box<Expr>, Box<Expr>),
    Minus(Box<Expr>),
    Invert(Box<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    Like(Box<Expr>, Box<Expr>, Option<char>),
    Call(Function, Vec<Expr>),
    Cast(Box<Expr>, FieldType),
    /// The value that is compared, conditions with their results, and the result of ELSE.
    Case(Option<Box<Expr>>, Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// A comparison, or a call of a function that compares: its strings have this order.
    Ordered(Box<Expr>, Arc<StringOrder>),
    /// `COLLATE`: the value, and the order that comparisons of it take.
    Collate(Box<Expr>, Arc<StringOrder>),
}

impl Expr {
    /// Shows each part of the expression, itself first.
    pub(crate) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Expr)) {
        see(self);
        match self {
            Expr::Literal(_)
            | Expr::Column(_)
            | Expr::Slot(..)
            | Expr::Tuple(_)
            | Expr::Scalar(_)
            | Expr::Exists(_)
            | Expr::Parameter(_)
            | Expr::Aggregate(_) => {}
            Expr::Not(inner)
            | Expr::Minus(inner)
            | Expr::Invert(inner)
            | Expr::IsNull(inner)
            | Expr::Cast(inner, _)
            | Expr::Ordered(inner, _)
            | Expr::Collate(inner, _)
            | Expr::InQuery(inner, _) => inner.visit(see),
            Expr::And(left, right)
            | Expr::Or(left, right)
            | Expr::Compare(_, left, right)
            | Expr::Arithmetic(_, left, right)
            | Expr::Concat(left, right)
            | Expr::Like(left, right, _) => {
                left.visit(see);
                right.visit(see);
            }
            Expr::Between(inner, low, high) => [inner, low, high].iter().for_each(|part| part.visit(see)),
            Expr::In(inner, list) => {
                inner.visit(see);
                list.iter().for_each(|item| item.visit(see));
            }
            Expr::Call(_, arguments) => arguments.iter().for_each(|argument| argument.visit(see)),
            Expr::Case(operand, branches, otherwise) => {
                operand.iter().chain(otherwise).for_each(|part| part.visit(see));
                for (condition, result) in branches {
                    condition.visit(see);
                    result.visit(see);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Count,
    Sum,
    Total,
    Min,
    Max,
    Avg,
    GroupConcat,
}

impl AggregateKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            AggregateKind::Count => "COUNT",
            AggregateKind::Sum => "SUM",
            AggregateKind::Total => "TOTAL",
            AggregateKind::Min => "MIN",
            AggregateKind::Max => "MAX",
            AggregateKind::Avg => "AVG",
            AggregateKind::GroupConcat => "GROUP_CONCAT",
        }
    }
}

/// An aggregate function; without an argument it counts rows.
#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    pub(crate) kind: AggregateKind,
    pub(crate) argument: Option<Expr>,
    /// Equal values count once.
    pub(crate) distinct: bool,
    /// What GROUP_CONCAT puts between two texts; `None` for a comma.
    pub(crate) separator: Option<Expr>,
    /// The order of the argument's strings.
    pub(crate) order: strings::Order,
}

/// A column of a result.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `None`: the type of the parameter that it is.
    pub(crate) ty: Option<&'static str>,
    /// It has an aggregate function.
    pub(crate) is_aggregate: bool,
    /// The order of its strings.
    pub(crate) order: strings::Order,
    /// Shared with the terms of ORDER BY and GROUP BY that name the column.
    pub(crate) expr: Rc<Expr>,
}

/// What a result is ordered by.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) expr: Rc<Expr>,
    pub(crate) descending: bool,
    pub(crate) order: strings::Order,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Select {
    pub(crate) columns: Vec<Column>,
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) distinct: bool,
    /// The terms of GROUP BY, and the orders of their strings.
    pub(crate) groups: Vec<(Rc<Expr>, strings::Order)>,
    pub(crate) having: Option<Expr>,
    pub(crate) order: Vec<Order>,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
}

/// A field that is written.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) field: u32,
    pub(crate) name: String,
    pub(crate) ty: FieldType,
    /// NULL is refused.
    pub(crate) required: bool,
    /// What becomes of a NULL that is refused, unless the statement says it.
    pub(crate) on_null: OnConflict,
    /// The value that `OnConflict::Replace` writes in place of a NULL.
    pub(crate) default: Option<Rc<Expr>>,
}

/// What becomes of a row that a key or a NULL forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnConflict {
    /// The statement says nothing: `Abort`, unless a field says otherwise of NULL.
    #[default]
    Default,
    /// The statement changes nothing.
    Abort,
    /// The statement ends, and the changes before the row stay.
    Fail,
    /// The transaction is rolled back.
    Rollback,
    /// The rows with the key are deleted first; a NULL becomes the default value.
    Replace,
    /// The row is passed over.
    Ignore,
}

impl OnConflict {
    /// The word of OR, in small letters; an absent word is `abort`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            OnConflict::Default | OnConflict::Abort => "abort",
            OnConflict::Fail => "fail",
            OnConflict::Rollback => "rollback",
            OnConflict::Replace => "replace",
            OnConflict::Ignore => "ignore",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Select(Select),
    /// Rows of values: an expression for each field of the space.
    Insert {
        targets: Vec<Target>,
        rows: Vec<Vec<Option<Expr>>>,
        conflict: OnConflict,
        /// The field that a sequence fills.
        sequence: Option<u32>,
    },
    Update(Vec<(Target, Expr)>, OnConflict),
    Delete,
    /// A statement of several sources or queries.
    General(Rc<General>),
}

/// A statement that can run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The names of parameters: `?`, `:name`, `@name` or `$1`.
    pub parameters: Vec<String>,
    pub(crate) space: u32,
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Body,
    /// The version of the schema that the names were resolved in.
    pub schema_version: u32,
    /// Parts of its expressions, its columns and its parameters: what it takes to keep it.
    pub weight: usize,
}

impl Select {
    /// Whether each result row is a group of rows: the groups of GROUP BY, or all rows as one group.
    pub(crate) fn is_grouped(&self) -> bool {
        !self.aggregates.is_empty() || !self.groups.is_empty()
    }
}

impl Plan {
    /// The space; 0 for a SELECT of constants.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// The spaces and views that a statement of several sources or of a view reads.
    pub fn spaces(&self) -> &[u32] {
        match &self.body {
            Body::General(general) => &general.spaces,
            _ => &[],
        }
    }

    /// Whether it is an INSERT of the rows of a query, which has to run first.
    pub fn inserts_query(&self) -> bool {
        matches!(self.body, Body::General(_)) && self.kind() == Some(StatementKind::Insert)
    }

    /// What it does to rows; `None` for a SELECT.
    pub fn kind(&self) -> Option<StatementKind> {
        match &self.body {
            Body::Select(_) => None,
            Body::Insert { .. } => Some(StatementKind::Insert),
            Body::Update(..) => Some(StatementKind::Update),
            Body::Delete => Some(StatementKind::Delete),
            Body::General(general) => match general.change.as_ref()? {
                GeneralChange::Insert { .. } => Some(StatementKind::Insert),
                GeneralChange::Update(..) => Some(StatementKind::Update),
                GeneralChange::Delete => Some(StatementKind::Delete),
            },
        }
    }
}

impl Plan {
    /// The word behind OR of an INSERT or UPDATE, in small letters; `abort` without one.
    pub fn conflict(&self) -> &'static str {
        let conflict = match &self.body {
            Body::Update(_, conflict) | Body::Insert { conflict, .. } => *conflict,
            Body::General(general) => match &general.change {
                Some(GeneralChange::Update(_, conflict) | GeneralChange::Insert { conflict, .. }) => {
                    *conflict
                }
                _ => OnConflict::Default,
            },
            _ => OnConflict::Default,
        };
        conflict.word()
    }
}

impl Body {
    /// Columns of a SELECT's result, which are kept with their names.
    pub(crate) fn column_count(&self) -> usize {
        match self {
            Body::Select(select) => select.columns.len(),
            Body::General(general) => general.root.columns.len(),
            _ => 0,
        }
    }
}
