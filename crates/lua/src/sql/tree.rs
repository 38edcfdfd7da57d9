//! A statement as it runs: names are resolved, parameters have numbers.

use std::rc::Rc;

use lycosa_store::StatementKind;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::value::Value;

use super::value::Function;

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub(super) fn mirrored(self) -> Comparison {
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
pub(super) enum Expr {
    Literal(Value),
    /// A field, from 0.
    Column(u32),
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateKind {
    Count,
    Sum,
    Total,
    Min,
    Max,
    Avg,
}

/// An aggregate function; without an argument it counts rows.
#[derive(Debug, Clone)]
pub(super) struct Aggregate {
    pub(super) kind: AggregateKind,
    pub(super) argument: Option<Expr>,
}

/// A column of a result.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// `None`: the type of the parameter that it is.
    pub(super) ty: Option<&'static str>,
    /// Shared with the terms of ORDER BY that name the column.
    pub(super) expr: Rc<Expr>,
}

/// What a result is ordered by.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) expr: Rc<Expr>,
    pub(super) descending: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Select {
    pub(super) columns: Vec<Column>,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) distinct: bool,
    pub(super) order: Vec<Order>,
    pub(super) limit: Option<Expr>,
    pub(super) offset: Option<Expr>,
}

/// A field that is written.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) field: u32,
    pub(super) name: String,
    pub(super) ty: FieldType,
    /// NULL is refused.
    pub(super) required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnConflict {
    Fail,
    Replace,
    Ignore,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Select(Select),
    /// Rows of values: an expression for each field of the space.
    Insert {
        targets: Vec<Target>,
        rows: Vec<Vec<Option<Expr>>>,
        conflict: OnConflict,
        /// The field that a sequence fills.
        sequence: Option<u32>,
    },
    Update(Vec<(Target, Expr)>),
    Delete,
}

/// A statement that can run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The names of parameters: `?`, `:name`, `@name` or `$1`.
    pub(crate) parameters: Vec<String>,
    pub(super) space: u32,
    pub(super) filter: Option<Expr>,
    pub(super) body: Body,
    /// The version of the schema that the names were resolved in.
    pub(crate) schema_version: u32,
    /// Parts of its expressions, its columns and its parameters: what it takes to keep it.
    pub(crate) weight: usize,
}

impl Plan {
    /// The space; 0 for a SELECT of constants.
    pub(crate) fn space(&self) -> u32 {
        self.space
    }

    /// What it does to rows; `None` for a SELECT.
    pub(crate) fn kind(&self) -> Option<StatementKind> {
        match &self.body {
            Body::Select(_) => None,
            Body::Insert { .. } => Some(StatementKind::Insert),
            Body::Update(_) => Some(StatementKind::Update),
            Body::Delete => Some(StatementKind::Delete),
        }
    }
}

impl Body {
    /// Columns of a SELECT's result, which are kept with their names.
    pub(super) fn column_count(&self) -> usize {
        match self {
            Body::Select(select) => select.columns.len(),
            _ => 0,
        }
    }
}
