//! A statement of several sources or queries: joins, subqueries, compound queries, changes by a query.
//!
//! Every source of the statement has a slot, which holds its current row; an expression names a field by its slot. A
//! subquery therefore reads the rows of the queries around it without a chain of scopes.

use std::rc::Rc;

use crate::strings;
use crate::tree::{Column, Expr, OnConflict, Select, Target};

/// Where the rows of a source come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    Space(u32),
    /// A derived table: the number of its query.
    Query(usize),
}

/// A source of a SELECT.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) slot: u32,
    pub(crate) origin: Origin,
    /// `Some`: the right side of a LEFT JOIN, with the terms of its condition.
    pub(crate) outer: Option<Vec<Term>>,
}

/// A condition: an operand of AND, or all of a WHERE.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    pub(crate) expr: Expr,
    /// The slots that it reads, also through its subqueries.
    pub(crate) slots: Vec<u32>,
}

/// A SELECT over any number of sources.
#[derive(Debug, Clone)]
pub(crate) struct Joined {
    /// Columns, groups, order and bounds.
    pub(crate) select: Select,
    /// In the order of FROM.
    pub(crate) sources: Vec<Source>,
    /// WHERE, and the conditions of inner joins.
    pub(crate) terms: Vec<Term>,
    /// Expressions with a subquery: of a row, and of a row of the result.
    pub(crate) of_row: Vec<Expr>,
    pub(crate) of_result: Vec<Expr>,
}

/// How a part of a compound query joins the parts before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperation {
    UnionAll,
    Union,
    Intersect,
    Except,
}

/// A part of a query.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// The number of a [`Joined`].
    Select(usize),
    Values(Vec<Vec<Expr>>),
}

/// The part of its rows that a query is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The value of its only row.
    Scalar,
    /// Whether it has a row.
    Exists,
    /// The values of its rows.
    Set,
    Rows,
}

/// A query; a single SELECT has its order and bounds itself.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) wanted: Wanted,
    pub(crate) first: Part,
    pub(crate) others: Vec<(SetOperation, Part)>,
    pub(crate) columns: Vec<Column>,
    /// The order of strings that a comparison with its values takes.
    pub(crate) compared: strings::Order,
    /// Columns, whether they descend, and the orders of their strings.
    pub(crate) order: Vec<(u32, bool, strings::Order)>,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    /// The slots of the queries around it that it reads.
    pub(crate) slots: Vec<u32>,
    /// The part that reads the rows of the query itself.
    pub(crate) recursion: Option<Box<Recursion>>,
}

impl Query {
    /// A query of one part, without an order or bounds of its own.
    pub(crate) fn of_part(wanted: Wanted, first: Part, columns: Vec<Column>, slots: Vec<u32>) -> Query {
        Query {
            wanted,
            first,
            others: Vec::new(),
            columns,
            compared: None,
            order: Vec::new(),
            limit: None,
            offset: None,
            slots,
            recursion: None,
        }
    }
}

/// The part of a recursive query that is run again for the rows which it has found last.
#[derive(Debug, Clone)]
pub(crate) struct Recursion {
    /// The number of the query.
    pub(crate) number: usize,
    pub(crate) part: Part,
    /// UNION: a row that was found before is dropped.
    pub(crate) is_distinct: bool,
}

/// What becomes of the rows of the query.
#[derive(Debug, Clone)]
pub(crate) enum GeneralChange {
    /// Each row gives values to these fields, in this order.
    Insert {
        targets: Vec<Target>,
        written: Vec<u32>,
        conflict: OnConflict,
        sequence: Option<u32>,
        /// Of all fields.
        defaults: Vec<Option<Rc<Expr>>>,
    },
    /// Each row is a tuple and the values of these fields.
    Update(Vec<Target>, OnConflict),
    /// Each row is a tuple.
    Delete,
}

impl GeneralChange {
    /// The fields that an UPDATE writes, none for a DELETE; `None` for an INSERT.
    pub(crate) fn assignments(&self) -> Option<&[Target]> {
        match self {
            GeneralChange::Insert { .. } => None,
            GeneralChange::Update(targets, _) => Some(targets),
            GeneralChange::Delete => Some(&[]),
        }
    }
}

/// A statement of several sources or queries.
#[derive(Debug, Clone)]
pub(crate) struct General {
    pub(crate) root: Query,
    /// All SELECTs of the statement.
    pub(crate) joined: Vec<Joined>,
    /// Subqueries and derived tables.
    pub(crate) queries: Vec<Query>,
    /// The number of slots.
    pub(crate) slots: usize,
    /// The spaces that it reads.
    pub(crate) spaces: Vec<u32>,
    /// The space that it changes; 0 for none.
    pub(crate) target: u32,
    pub(crate) change: Option<GeneralChange>,
}
