//! SELECT to a plan: its columns, groups and order.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use lycosa_store::Store;
use lycosa_tuple::value::Value;
use sqlparser::ast::{self, SelectItem, SetExpr};

use super::names::{Named, ambiguous};
use super::types::type_of;
use super::{Context, MAX_COLUMNS, at_most, generic, name, no_such_space, none, simple_name, unsupported};
use crate::parse::near;
use crate::tree::{Column, Expr, Order, Select};
use crate::{SqlFault, strings, value};

/// SELECT from one space at most.
pub(super) fn query_of(
    query: ast::Query,
    store: &Store,
) -> Result<(Context<'_>, Option<Expr>, Select), SqlFault> {
    let (body, Clauses { with, order, limit }) = clauses_of(query)?;
    none(with.is_none(), "such a WITH")?;
    let SetExpr::Select(select) = body else {
        return Err(unsupported("such a query"));
    };
    let (from, parts) = parts_of(*select)?;
    let mut context =
        if from.is_empty() { Context::of_store(store) } else { Context::of_table(from, store)? };
    let (filter, select) = context.fill(parts, order, limit)?;
    Ok((context, filter, select))
}

/// The clauses of a query around its SELECT.
pub(super) struct Clauses {
    pub(super) with: Option<ast::With>,
    pub(super) order: Vec<ast::OrderByExpr>,
    pub(super) limit: Option<ast::LimitClause>,
}

pub(super) fn clauses_of(query: ast::Query) -> Result<(SetExpr, Clauses), SqlFault> {
    let ast::Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    none(fetch.is_none() && locks.is_empty() && for_clause.is_none(), "FETCH and FOR")?;
    none(settings.is_none() && format_clause.is_none() && pipe_operators.is_empty(), "such a clause")?;
    let order = match order_by {
        None => Vec::new(),
        Some(ast::OrderBy { kind, interpolate }) => {
            none(interpolate.is_none(), "INTERPOLATE")?;
            let ast::OrderByKind::Expressions(terms) = kind else { return Err(unsupported("ORDER BY ALL")) };
            at_most(MAX_COLUMNS, "The number of terms in ORDER BY clause", terms.len())?;
            terms
        }
    };
    Ok((*body, Clauses { with, order, limit: limit_clause }))
}

/// LIMIT and OFFSET.
pub(super) fn bounds_of(clause: Option<ast::LimitClause>) -> Result<(Option<Expr>, Option<Expr>), SqlFault> {
    let (limit, offset) = match clause {
        None => (None, None),
        Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) => {
            none(limit_by.is_empty(), "LIMIT BY")?;
            let rows_are_plain =
                offset.as_ref().is_none_or(|offset| matches!(offset.rows, ast::OffsetRows::None));
            none(rows_are_plain && (limit.is_some() || offset.is_none()), "OFFSET without LIMIT")?;
            (limit, offset.map(|offset| offset.value))
        }
    };
    let constant = |expr: Option<ast::Expr>| {
        if matches!(expr, Some(ast::Expr::Collate { .. })) {
            return Err(near(1, "COLLATE"));
        }
        let mut nothing = Context::nothing();
        expr.map(|expr| nothing.expression(expr)).transpose()
    };
    Ok((constant(limit)?, constant(offset)?))
}

impl Context<'_> {
    /// Columns, groups, order and bounds of a SELECT whose FROM is resolved, and its WHERE.
    pub(super) fn fill(
        &mut self,
        parts: Parts,
        order_by: Vec<ast::OrderByExpr>,
        limit: Option<ast::LimitClause>,
    ) -> Result<(Option<Expr>, Select), SqlFault> {
        let Parts { selection, projection, distinct, groups, having } = parts;
        self.may_aggregate = true;
        let mut columns = Columns::default();
        for item in projection {
            add_column(item, self, &mut columns)?;
        }
        let Columns { list: columns, by_name, aliases, .. } = columns;
        let aliases = aliases.into_iter().map(|(name, place)| (name, Rc::clone(&columns[place].expr)));
        self.aliases.columns = aliases.collect();
        let mut order = Vec::new();
        for (place, term) in order_by.into_iter().enumerate() {
            order.push(order_of(place, term, (&columns, &by_name), self)?);
        }
        let having = self.having(having, &columns, groups.is_empty())?;
        at_most(MAX_COLUMNS, "The number of terms in GROUP BY clause", groups.len())?;
        let groups = (groups.into_iter().enumerate())
            .map(|(place, term)| group_of(place, term, (&columns, &by_name), self))
            .collect::<Result<_, _>>()?;
        self.may_aggregate = false;
        let (limit, offset) = bounds_of(limit)?;
        let filter = selection.map(|filter| self.expression(filter)).transpose()?;
        self.aliases.columns.clear();
        let aggregates = std::mem::take(&mut self.aggregates);
        Ok((filter, Select { columns, aggregates, distinct, groups, having, order, limit, offset }))
    }
}

impl Context<'_> {
    /// HAVING. Without GROUP BY it may look at aggregate functions only, and so may the columns.
    fn having(
        &mut self,
        having: Option<ast::Expr>,
        columns: &[Column],
        is_one_group: bool,
    ) -> Result<Option<Expr>, SqlFault> {
        let Some(having) = having else { return Ok(None) };
        let used = self.aliases.used;
        let having = self.expression(having)?;
        let is_bare = |expr: &Expr| {
            let mut is_bare = false;
            expr.visit(&mut |part| is_bare |= matches!(part, Expr::Column(_) | Expr::Slot(..)));
            is_bare
        };
        let has_bare = is_bare(&having) || columns.iter().any(|column| is_bare(&column.expr));
        if is_one_group && (has_bare || self.aliases.used > used || self.aggregates.is_empty()) {
            return Err(value::execution(
                "HAVING argument must appear in the GROUP BY clause or be used in an aggregate function",
            ));
        }
        Ok(Some(having))
    }
}

/// The parts of a SELECT that are not refused.
pub(super) struct Parts {
    selection: Option<ast::Expr>,
    projection: Vec<SelectItem>,
    distinct: bool,
    groups: Vec<ast::Expr>,
    having: Option<ast::Expr>,
}

/// FROM and the other parts of a SELECT.
pub(super) fn parts_of(select: ast::Select) -> Result<(Vec<ast::TableWithJoins>, Parts), SqlFault> {
    let ast::Select {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    let is_distinct = match distinct {
        None | Some(ast::Distinct::All) => false,
        Some(ast::Distinct::Distinct) => true,
        Some(ast::Distinct::On(_)) => return Err(unsupported("DISTINCT ON")),
    };
    let groups = match group_by {
        ast::GroupByExpr::Expressions(terms, modifiers) if modifiers.is_empty() => terms,
        _ => return Err(unsupported("such a GROUP BY")),
    };
    none(named_window.is_empty() && qualify.is_none(), "WINDOW")?;
    none(optimizer_hints.is_empty() && select_modifiers.is_none() && top.is_none(), "such a SELECT")?;
    none(
        exclude.is_none() && into.is_none() && lateral_views.is_empty() && prewhere.is_none(),
        "such a SELECT",
    )?;
    none(connect_by.is_empty() && cluster_by.is_empty() && distribute_by.is_empty(), "such a SELECT")?;
    none(sort_by.is_empty() && value_table_mode.is_none(), "such a SELECT")?;
    none(matches!(flavor, ast::SelectFlavor::Standard), "FROM before SELECT")?;
    Ok((from, Parts { selection, projection, distinct: is_distinct, groups, having }))
}

/// The columns of a result, as they are found.
#[derive(Default)]
struct Columns {
    list: Vec<Column>,
    /// The first column of each name.
    by_name: HashMap<String, usize>,
    /// Columns that were called by their number.
    unnamed: usize,
    /// The first column of each name that AS gives.
    aliases: HashMap<String, usize>,
}

impl Columns {
    fn add(&mut self, column: Column) -> Result<(), SqlFault> {
        at_most(MAX_COLUMNS, "The number of columns in result set", self.list.len() + 1)?;
        self.unnamed += usize::from(column.name.starts_with("COLUMN_"));
        self.by_name.entry(column.name.clone()).or_insert(self.list.len());
        self.list.push(column);
        Ok(())
    }
}

fn add_column(item: SelectItem, context: &mut Context<'_>, columns: &mut Columns) -> Result<(), SqlFault> {
    let is_qualified = matches!(item, SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(_)));
    let (expr, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(name(&alias)?)),
        SelectItem::Wildcard(options) => {
            none(options == ast::WildcardAdditionalOptions::default(), "such a *")?;
            return add_all(context, columns);
        }
        SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(of), options) => {
            none(options == ast::WildcardAdditionalOptions::default(), "such a *")?;
            let wanted = simple_name(&of)?;
            if context.names.is_some() {
                return add_all_of(context, Some(&wanted), columns);
            }
            if wanted != context.alias {
                return Err(no_such_space(&wanted));
            }
            return add_all(context, columns);
        }
        _ => return Err(unsupported("such a column")),
    };
    let known = context.aggregates.len();
    let expr = context.expression(expr)?;
    let is_aggregate = context.aggregates.len() > known;
    let own_name = match &expr {
        Expr::Column(field) => {
            context.space.and_then(|space| Some(space.format().fields().get(*field as usize)?.name.clone()))
        }
        Expr::Slot(slot, field) => {
            let names = context.names.as_ref();
            names.and_then(|names| names.field(*slot, *field)).map(|field| field.name.clone())
        }
        _ => None,
    };
    let order = context.standing(&expr)?.order;
    if let Some(alias) = &alias {
        columns.aliases.entry(alias.clone()).or_insert(columns.list.len());
    }
    // The columns of a statement of several queries are numbered when all are known.
    let name = match (alias.or(own_name), &context.names, &expr) {
        (Some(name), Some(names), Expr::Slot(slot, _)) if is_qualified && names.shows_sources() => {
            format!("{}.{name}", names.alias_of(*slot))
        }
        (Some(name), ..) => name,
        (None, Some(_), _) => String::new(),
        (None, None, _) => format!("COLUMN_{}", columns.unnamed + 1),
    };
    let ty = type_of(&expr, context);
    columns.add(Column { name, ty, is_aggregate, order, expr: Rc::new(expr) })
}

fn add_all(context: &Context<'_>, columns: &mut Columns) -> Result<(), SqlFault> {
    if context.names.as_ref().is_some_and(|names| !names.sources().is_empty()) {
        return add_all_of(context, None, columns);
    }
    let Some(space) = context.space else {
        return Err(SqlFault::new(181, "Failed to expand '*' in SELECT statement without FROM clause"));
    };
    for (number, field) in (0..).zip(space.format().fields()) {
        columns.add(Column {
            name: field.name.clone(),
            ty: Some(field.ty.name()),
            is_aggregate: false,
            order: context.standing(&Expr::Column(number))?.order,
            expr: Rc::new(Expr::Column(number)),
        })?;
    }
    Ok(())
}

/// The columns of all sources, or of one by its name.
fn add_all_of(context: &Context<'_>, alias: Option<&str>, columns: &mut Columns) -> Result<(), SqlFault> {
    let Some(names) = &context.names else { return Ok(()) };
    let is_wanted = |source: &&Named| alias.is_none_or(|alias| source.alias == alias);
    let mut seen = HashSet::new();
    let mut is_known = false;
    for source in names.sources().iter().filter(is_wanted) {
        is_known = true;
        for (number, field) in (0..).zip(names.fields(source.slot)) {
            if !seen.insert((&source.alias, &field.name)) && !source.alias.is_empty() {
                return Err(ambiguous(Some(&source.alias), &field.name));
            }
            if alias.is_none() && source.merged.contains(&number) {
                continue;
            }
            columns.add(Column {
                name: field.name.clone(),
                ty: Some(field.ty),
                is_aggregate: false,
                order: field.order.clone(),
                expr: Rc::new(Expr::Slot(source.slot, number)),
            })?;
        }
    }
    match alias {
        Some(alias) if !is_known => Err(no_such_space(alias)),
        _ => Ok(()),
    }
}

/// The column that a term of ORDER BY or GROUP BY names by its number.
pub(super) fn column_at<'a>(
    clause: &str,
    place: usize,
    number: u64,
    columns: &'a [Column],
) -> Result<&'a Column, SqlFault> {
    let column = usize::try_from(number).ok().and_then(|number| columns.get(number.checked_sub(1)?));
    column.ok_or_else(|| {
        generic(format!(
            "Error at {clause} BY in place {}: term out of range - should be between 1 and {}",
            place + 1,
            columns.len()
        ))
    })
}

/// A term of GROUP BY: an expression, the number of a column, or its name where no field has it.
fn group_of(
    place: usize,
    term: ast::Expr,
    (columns, by_name): (&[Column], &HashMap<String, usize>),
    context: &mut Context<'_>,
) -> Result<(Rc<Expr>, strings::Order), SqlFault> {
    let refused = || generic("aggregate functions are not allowed in the GROUP BY clause");
    let by_alias = match &term {
        ast::Expr::Identifier(ident) if context.column_of_source(ident).is_err() => {
            by_name.get(&name(ident)?).and_then(|place| columns.get(*place))
        }
        _ => None,
    };
    let column = match by_alias {
        Some(column) => column,
        None => {
            let known = context.aggregates.len();
            match context.expression(term)? {
                Expr::Literal(Value::Uint(number)) => column_at("GROUP", place, number, columns)?,
                _ if context.aggregates.len() > known => return Err(refused()),
                other => {
                    let order = context.standing(&other)?.order;
                    return Ok((Rc::new(other), order));
                }
            }
        }
    };
    if column.is_aggregate {
        return Err(refused());
    }
    Ok((Rc::clone(&column.expr), column.order.clone()))
}

/// A term of ORDER BY, and whether it descends.
pub(super) fn direction_of(term: ast::OrderByExpr) -> Result<(ast::Expr, bool), SqlFault> {
    let ast::OrderByExpr { expr, options: ast::OrderByOptions { sort, nulls_first }, with_fill } = term;
    none(with_fill.is_none() && nulls_first.is_none(), "NULLS FIRST and NULLS LAST")?;
    match sort {
        None | Some(ast::OrderBySort::Asc) => Ok((expr, false)),
        Some(ast::OrderBySort::Desc) => Ok((expr, true)),
        Some(ast::OrderBySort::Using(_)) => Err(unsupported("ORDER BY USING")),
    }
}

fn order_of(
    place: usize,
    term: ast::OrderByExpr,
    (columns, by_name): (&[Column], &HashMap<String, usize>),
    context: &mut Context<'_>,
) -> Result<Order, SqlFault> {
    let (mut expr, descending) = direction_of(term)?;
    let mut given = None;
    if let ast::Expr::Collate { expr: inner, collation } = expr {
        (expr, given) = (*inner, Some(context.order_named(&collation)?));
    }
    let by_alias = match &expr {
        ast::Expr::Identifier(ident) => by_name.get(&name(ident)?).and_then(|place| columns.get(*place)),
        _ => None,
    };
    let expr = match by_alias {
        Some(column) => Rc::clone(&column.expr),
        None => match context.expression(expr)? {
            Expr::Literal(Value::Uint(number)) => {
                Rc::clone(&column_at("ORDER", place, number, columns)?.expr)
            }
            other => Rc::new(other),
        },
    };
    let order = match given {
        Some(order) => order,
        None => context.standing(&expr)?.order,
    };
    Ok(Order { expr, descending, order })
}
