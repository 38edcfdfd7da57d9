//! A plan that runs: which index it walks, and what becomes of the tuples.
//!
//! A walk goes in steps of [`SLICE`] over a cursor that survives changes, so a statement that reads a whole space can let
//! others run in between. The bound of a result is [`MAX_RESULT`], as for a SELECT request.

use std::cmp::Ordering;
use std::collections::HashSet;

use lycosa_instance::{Instance, WalkError, store_error};
use lycosa_iproto::error::ErrorObject;
use lycosa_store::{
    Budget, Cursor, CursorError, IndexKind, IteratorType, Progress, Space, SpaceIndex, Store,
};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use super::Failure;
use super::eval::{Row, is_constant};
use super::tree::{Aggregate, AggregateKind, Body, Comparison, Expr, OnConflict, Order, Plan, Select};
use super::value::{self, Number};

/// What a statement may read in one step.
const SLICE: Budget = Budget { rows: 512, bytes: 256 << 10 };

/// Bytes of a result.
const MAX_RESULT: usize = 512 << 20;

/// `ER_MEMORY_ISSUE`.
const MEMORY_ISSUE: u32 = 2;

/// Whether a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to read.
    More,
    /// The result is there.
    End,
}

/// A change that a statement asks for: key and operations of an UPDATE, or a key to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The primary key: a MessagePack array.
    pub(crate) key: Vec<u8>,
    /// Operations of an UPDATE: a MessagePack array, whose fields count from 1.
    pub(crate) operations: Vec<u8>,
}

/// What a walk may stop at.
#[derive(Debug, Default)]
struct Bounds {
    /// A tuple whose first parts are no longer these ends the walk: their number and values.
    prefix: Option<(u32, Vec<u8>)>,
    /// A tuple whose part of that number is beyond the value ends it; `true`: or equal to it.
    upper: Option<(usize, Value, bool)>,
}

/// A SELECT, UPDATE or DELETE under way.
pub(crate) struct Run {
    cursor: Option<Cursor>,
    bounds: Bounds,
    parameters: Vec<Value>,
    /// The rows come in the order that was asked for.
    is_ordered: bool,
    limit: u64,
    offset: u64,
    rows: Vec<(Vec<Value>, Vec<u8>)>,
    seen: HashSet<Vec<u8>>,
    changes: Vec<Change>,
    states: Vec<State>,
    /// The tuple that plain columns beside aggregate functions are of.
    chosen: Vec<u8>,
    bytes: usize,
}

impl Run {
    /// A run as a user.
    ///
    /// # Errors
    /// A LIMIT or OFFSET that is no whole number.
    pub(crate) fn new(
        plan: &Plan,
        store: &Store,
        user: u32,
        parameters: Vec<Value>,
    ) -> Result<Run, ErrorObject> {
        let (limit, offset) = match &plan.body {
            Body::Select(select) => (
                count_of(select.limit.as_ref(), "LIMIT", &parameters)?.unwrap_or(u64::MAX),
                count_of(select.offset.as_ref(), "OFFSET", &parameters)?.unwrap_or(0),
            ),
            _ => (u64::MAX, 0),
        };
        let mut run = Run {
            cursor: None,
            bounds: Bounds::default(),
            parameters,
            is_ordered: true,
            limit,
            offset,
            rows: Vec::new(),
            seen: HashSet::new(),
            changes: Vec::new(),
            states: Vec::new(),
            chosen: Vec::new(),
            bytes: 0,
        };
        if let Body::Select(select) = &plan.body {
            run.states = select.aggregates.iter().map(|_| State::default()).collect();
        }
        if plan.space != 0 {
            let space = store.space(plan.space).map_err(|error| store_error(&error))?;
            run.choose_walk(plan, space, user)?;
        }
        Ok(run)
    }

    /// Goes on.
    ///
    /// # Errors
    /// What an expression or the store refuses.
    pub(crate) fn step(&mut self, plan: &Plan, instance: &mut Instance) -> Result<Step, ErrorObject> {
        let Some(mut cursor) = self.cursor.take() else {
            if plan.space == 0 && Row::of(&[0x90], &self.parameters).passes(plan.filter.as_ref())? {
                self.take(plan, &[0x90], &[])?;
            }
            return Ok(Step::End);
        };
        let space = instance.store().space(plan.space).ok();
        let key_of = |index| space.and_then(|space| space.index(index)).map(|index| index.key().clone());
        let (primary, key) = (key_of(0), key_of(cursor.index()));
        let (mut outcome, mut is_over) = (Ok(()), false);
        let advanced = instance.advance(&mut cursor, SLICE, &mut |tuple: &[u8]| {
            if outcome.is_err() || is_over {
                return;
            }
            if key.as_ref().is_some_and(|key| self.is_beyond(key, tuple)) {
                is_over = true;
                return;
            }
            let mut own_key = Vec::new();
            if let Some(primary) = &primary {
                mp::write_array(&mut own_key, primary.part_count());
                primary.extract(tuple, &mut own_key);
            }
            match Row::of(tuple, &self.parameters).passes(plan.filter.as_ref()) {
                Ok(true) => outcome = self.take(plan, tuple, &own_key),
                Ok(false) => {}
                Err(failure) => outcome = Err(failure),
            }
            is_over |= self.has_enough(plan);
        });
        outcome?;
        let progress = match advanced {
            Ok(_) if is_over => Progress::End,
            Ok(progress) => progress,
            Err(WalkError::Cursor(CursorError::IndexAltered { .. })) => {
                cursor.rewind();
                self.restart();
                Progress::More
            }
            Err(error) => return Err(error.into()),
        };
        if progress == Progress::End {
            return Ok(Step::End);
        }
        self.cursor = Some(cursor);
        Ok(Step::More)
    }

    fn restart(&mut self) {
        self.rows.clear();
        self.seen.clear();
        self.changes.clear();
        self.states.iter_mut().for_each(|state| *state = State::default());
        self.bytes = 0;
    }

    fn is_beyond(&self, key: &lycosa_tuple::key::KeyDef, tuple: &[u8]) -> bool {
        if let Some((count, values)) = &self.bounds.prefix
            && key.compare_with_key(tuple, values, *count) != Ordering::Equal
        {
            return true;
        }
        let Some((part, upper, or_equal)) = &self.bounds.upper else { return false };
        let field = key.parts().get(*part).map_or(u32::MAX, |part| part.field);
        let bytes = TupleRef::trusted(tuple).field(field).unwrap_or(&[0xc0]);
        let order = lycosa_tuple::scalar::compare(
            bytes,
            &upper.encode(),
            &lycosa_tuple::collation::Collation::Binary,
        );
        order == Ordering::Greater || (*or_equal && order == Ordering::Equal)
    }

    /// Whether no further row can change the result.
    fn has_enough(&self, plan: &Plan) -> bool {
        match &plan.body {
            Body::Select(select) if select.aggregates.is_empty() => {
                self.is_ordered && self.rows.len() as u64 >= self.offset.saturating_add(self.limit)
            }
            _ => false,
        }
    }

    /// Takes a row that passes the filter.
    fn take(&mut self, plan: &Plan, tuple: &[u8], own_key: &[u8]) -> Result<(), Failure> {
        let row = Row::of(tuple, &self.parameters);
        match &plan.body {
            Body::Select(select) if !select.aggregates.is_empty() => {
                let mut chosen = false;
                for (aggregate, state) in select.aggregates.iter().zip(&mut self.states) {
                    chosen |= state.add(aggregate, &row)?;
                }
                let picks = select
                    .aggregates
                    .iter()
                    .any(|it| matches!(it.kind, AggregateKind::Min | AggregateKind::Max));
                if chosen || !picks {
                    self.chosen = tuple.to_vec();
                }
            }
            Body::Select(select) => {
                let mut values = Vec::new();
                mp::write_array(&mut values, u32::try_from(select.columns.len()).unwrap_or(0));
                for column in &select.columns {
                    write_column(&row, &column.expr, &mut values)?;
                }
                let keys: Result<Vec<Value>, Failure> = match self.is_ordered {
                    true => Ok(Vec::new()),
                    false => select.order.iter().map(|order| row.evaluate(&order.expr)).collect(),
                };
                if select.distinct && !self.seen.insert(values.clone()) {
                    return Ok(());
                }
                self.grow(values.len())?;
                self.rows.push((keys?, values));
            }
            Body::Update(assignments) => {
                let operations = operations(&row, assignments)?;
                self.grow(own_key.len() + operations.len())?;
                self.changes.push(Change { key: own_key.to_vec(), operations });
            }
            Body::Delete => {
                self.grow(own_key.len())?;
                self.changes.push(Change { key: own_key.to_vec(), operations: Vec::new() });
            }
            Body::Insert { .. } => {}
        }
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes += bytes + size_of::<(Vec<Value>, Vec<u8>)>();
        if self.bytes <= MAX_RESULT {
            return Ok(());
        }
        let message = format!(
            "Failed to allocate a result of more than {MAX_RESULT} bytes for SQL: read fewer rows at a time with LIMIT"
        );
        Err(Failure::new(MEMORY_ISSUE, message))
    }

    /// The changes of an UPDATE or DELETE that has ended.
    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Names and types of the columns of a SELECT that has ended.
    pub(crate) fn metadata(&self, plan: &Plan) -> Vec<(String, String)> {
        metadata(plan, Some(&self.parameters))
    }

    /// The rows of a SELECT that has ended: MessagePack arrays.
    ///
    /// # Errors
    /// An expression over aggregate functions fails.
    pub(crate) fn into_rows(mut self, plan: &Plan) -> Result<Vec<Vec<u8>>, Failure> {
        let Body::Select(select) = &plan.body else { return Ok(Vec::new()) };
        if !select.aggregates.is_empty() {
            self.rows = vec![(Vec::new(), self.aggregated(select)?)];
        }
        if !self.is_ordered {
            self.rows.sort_by(|(left, _), (right, _)| order_of(&select.order, left, right));
        }
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let wanted = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Ok(self.rows.into_iter().skip(skipped).take(wanted).map(|(_, values)| values).collect())
    }

    fn aggregated(&self, select: &Select) -> Result<Vec<u8>, Failure> {
        let results: Result<Vec<Value>, Failure> = select
            .aggregates
            .iter()
            .zip(&self.states)
            .map(|(aggregate, state)| state.result(aggregate))
            .collect();
        let results = results?;
        let tuple = (!self.chosen.is_empty()).then(|| TupleRef::trusted(&self.chosen));
        let row = Row { tuple, parameters: &self.parameters, aggregates: &results };
        let mut values = Vec::new();
        mp::write_array(&mut values, u32::try_from(select.columns.len()).unwrap_or(0));
        for column in &select.columns {
            write_column(&row, &column.expr, &mut values)?;
        }
        Ok(values)
    }

    /// Chooses the index and the part of it that is walked.
    fn choose_walk(&mut self, plan: &Plan, space: &Space, user: u32) -> Result<(), ErrorObject> {
        let mut terms = Vec::new();
        if let Some(filter) = &plan.filter {
            self.collect_terms(filter, &mut terms)?;
        }
        let (order, is_aggregate) = match &plan.body {
            Body::Select(select) => (&select.order[..], !select.aggregates.is_empty()),
            _ => (&[][..], false),
        };
        let candidates = space.indexes().iter().filter_map(|index| Walk::over(index, &terms));
        let best = candidates.max_by_key(|walk| (walk.rank, std::cmp::Reverse(walk.index)));
        let mut walk = best.unwrap_or_default();
        self.is_ordered = order.is_empty() || is_aggregate;
        if !self.is_ordered && walk.rank == 0 {
            let sorted = space.indexes().iter().find(|index| is_in_order(index, order));
            if let Some(index) = sorted {
                let iterator = if order[0].descending { IteratorType::Req } else { IteratorType::All };
                walk = Walk { index: index.id(), iterator, ..Walk::default() };
                self.is_ordered = true;
            }
        }
        let mut key = Vec::new();
        mp::write_array(&mut key, u32::try_from(walk.key.len()).unwrap_or(0));
        walk.key.iter().for_each(|value| value.write(&mut key));
        self.cursor = Some(Cursor::new(user, plan.space, walk.index, walk.iterator, &key));
        self.bounds = walk.bounds;
        Ok(())
    }

    /// The comparisons of a field with a constant that every row has to pass.
    fn collect_terms(&self, filter: &Expr, terms: &mut Vec<(u32, Comparison, Value)>) -> Result<(), Failure> {
        match filter {
            Expr::And(left, right) => {
                self.collect_terms(left, terms)?;
                self.collect_terms(right, terms)
            }
            Expr::Compare(comparison, left, right) => {
                let (field, comparison, constant) = match (&**left, &**right) {
                    (Expr::Column(field), constant) if is_constant(constant) => {
                        (*field, *comparison, constant)
                    }
                    (constant, Expr::Column(field)) if is_constant(constant) => {
                        (*field, comparison.mirrored(), constant)
                    }
                    _ => return Ok(()),
                };
                let row = Row { tuple: None, parameters: &self.parameters, aggregates: &[] };
                terms.push((field, comparison, row.evaluate(constant)?));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A part of an index.
#[derive(Debug)]
struct Walk {
    index: u32,
    iterator: IteratorType,
    key: Vec<Value>,
    bounds: Bounds,
    /// How good it is; 0 is all of the space.
    rank: u32,
}

impl Default for Walk {
    fn default() -> Walk {
        Walk { index: 0, iterator: IteratorType::All, key: Vec::new(), bounds: Bounds::default(), rank: 0 }
    }
}

impl Walk {
    /// What of an index has the rows that pass; `None` if that is all of it.
    fn over(index: &SpaceIndex, terms: &[(u32, Comparison, Value)]) -> Option<Walk> {
        let parts = index.key().parts();
        let fitting = |place: usize, wanted: &[Comparison]| {
            let part = parts.get(place).filter(|part| part.path.is_none() && part.collation.is_binary())?;
            terms.iter().find_map(|(field, comparison, value)| {
                let is_wanted = *field == part.field && wanted.contains(comparison);
                let value = if is_wanted { value::assigned_exactly(value, part.ty) } else { None };
                value.map(|value| (*comparison, value))
            })
        };
        let mut key: Vec<Value> = Vec::new();
        while let Some((_, value)) = fitting(key.len(), &[Comparison::Equal]) {
            key.push(value);
        }
        let (equal, is_whole) = (key.len(), key.len() == parts.len());
        let rank = u32::try_from(equal).unwrap_or(u32::MAX).saturating_mul(4);
        let (index_id, walk) = (index.id(), Walk::default());
        if is_whole && index.is_unique() {
            return Some(Walk { index: index_id, iterator: IteratorType::Eq, key, rank: u32::MAX, ..walk });
        }
        if index.kind() != IndexKind::Tree {
            return is_whole.then_some(Walk {
                index: index_id,
                iterator: IteratorType::Eq,
                key,
                rank,
                ..walk
            });
        }
        let lower = fitting(equal, &[Comparison::Greater, Comparison::AtLeast]);
        let upper = fitting(equal, &[Comparison::Less, Comparison::AtMost]);
        if lower.is_none() && upper.is_none() {
            return (equal > 0).then_some(Walk {
                index: index_id,
                iterator: IteratorType::Eq,
                key,
                rank,
                ..walk
            });
        }
        let mut bounds = Bounds::default();
        if equal > 0 {
            let mut values = Vec::new();
            key.iter().for_each(|value| value.write(&mut values));
            bounds.prefix = Some((u32::try_from(equal).unwrap_or(0), values));
        }
        let both = u32::from(lower.is_some()) + u32::from(upper.is_some());
        bounds.upper = upper.map(|(comparison, value)| (equal, value, comparison == Comparison::Less));
        let iterator = match lower {
            Some((comparison, value)) => {
                key.push(value);
                if comparison == Comparison::Greater { IteratorType::Gt } else { IteratorType::Ge }
            }
            // NULL comes first, and is below nothing.
            None if parts.get(equal).is_some_and(|part| part.nullable) => {
                key.push(Value::Nil);
                IteratorType::Gt
            }
            None => IteratorType::Ge,
        };
        Some(Walk { index: index_id, iterator, key, bounds, rank: rank + both })
    }
}

/// Whether a walk over all of an index gives rows in an order, forwards or backwards.
fn is_in_order(index: &SpaceIndex, order: &[Order]) -> bool {
    let parts = index.key().parts();
    index.kind() == IndexKind::Tree
        && order.len() <= parts.len()
        && order.iter().zip(parts).all(|(order, part)| {
            let is_field = matches!(order.expr, Expr::Column(field) if field == part.field);
            let is_plain = part.path.is_none() && part.collation.is_binary();
            is_field && is_plain
        })
        && order.windows(2).all(|pair| pair[0].descending == pair[1].descending)
}

fn order_of(order: &[Order], left: &[Value], right: &[Value]) -> Ordering {
    for (order, (left, right)) in order.iter().zip(left.iter().zip(right)) {
        let found = value::order_bytes(left, right);
        if found != Ordering::Equal {
            return if order.descending { found.reverse() } else { found };
        }
    }
    Ordering::Equal
}

/// A column is copied as it stands, whatever it is.
fn write_column(row: &Row<'_>, expr: &Expr, out: &mut Vec<u8>) -> Result<(), Failure> {
    match expr {
        Expr::Column(field) => {
            out.extend_from_slice(row.tuple.and_then(|tuple| tuple.field(*field)).unwrap_or(&[0xc0]));
        }
        expr => row.evaluate(expr)?.write(out),
    }
    Ok(())
}

/// LIMIT or OFFSET.
fn count_of(expr: Option<&Expr>, name: &str, parameters: &[Value]) -> Result<Option<u64>, Failure> {
    let Some(expr) = expr else { return Ok(None) };
    match (Row { tuple: None, parameters, aggregates: &[] }).evaluate(expr)? {
        Value::Uint(count) => Ok(Some(count)),
        _ => Err(value::execution(&format!("Only positive integers are allowed in the {name} clause"))),
    }
}

/// The operations of an UPDATE of one tuple; fields in between that the tuple does not have become NULL.
fn operations(row: &Row<'_>, assignments: &[(super::tree::Target, Expr)]) -> Result<Vec<u8>, Failure> {
    let mut written: Vec<(u32, Value)> = Vec::new();
    for (target, expr) in assignments {
        let value = value::assigned(row.evaluate(expr)?, target.ty)?;
        if value == Value::Nil && target.required {
            return Err(value::execution(&format!("NOT NULL constraint failed: {}", target.name)));
        }
        written.retain(|(field, _)| *field != target.field);
        written.push((target.field, value));
    }
    let present = row.tuple.map_or(0, TupleRef::len);
    let last = written.iter().map(|(field, _)| *field).max().unwrap_or(0);
    for field in present..last {
        if written.iter().all(|(known, _)| *known != field) {
            written.push((field, Value::Nil));
        }
    }
    written.sort_by_key(|(field, _)| *field);
    let list = written
        .into_iter()
        .map(|(field, value)| Value::Array(vec![Value::str("="), Value::Uint(u64::from(field) + 1), value]));
    Ok(Value::Array(list.collect()).encode())
}

/// Names and types of columns. A parameter has the type of its value.
pub(crate) fn metadata(plan: &Plan, parameters: Option<&[Value]>) -> Vec<(String, String)> {
    let Body::Select(select) = &plan.body else { return Vec::new() };
    let of_parameter = |expr: &Expr| match (expr, parameters) {
        (Expr::Parameter(number), Some(values)) => match values.get(*number) {
            Some(Value::Uint(_) | Value::Int(_)) => "integer",
            Some(Value::Double(_)) => "numeric",
            Some(Value::Str(_)) => "text",
            Some(Value::Bin(_)) => "varbinary",
            _ => "boolean",
        },
        _ => "ANY",
    };
    let columns = select.columns.iter().map(|column| {
        let ty = column.ty.clone().unwrap_or_else(|| of_parameter(&column.expr).to_owned());
        (column.name.clone(), ty)
    });
    columns.collect()
}

/// What an aggregate function has seen.
#[derive(Debug, Default)]
struct State {
    count: u64,
    whole: i128,
    sum: f64,
    has_double: bool,
    best: Option<Value>,
}

impl State {
    /// Whether the row is the one that `MIN` or `MAX` shows now.
    fn add(&mut self, aggregate: &Aggregate, row: &Row<'_>) -> Result<bool, Failure> {
        let Some(argument) = &aggregate.argument else {
            self.count += 1;
            return Ok(false);
        };
        let value = row.evaluate(argument)?;
        if value == Value::Nil {
            return Ok(false);
        }
        self.count += 1;
        match aggregate.kind {
            AggregateKind::Count => Ok(false),
            AggregateKind::Min | AggregateKind::Max => {
                let wanted = match aggregate.kind {
                    AggregateKind::Min => Ordering::Less,
                    _ => Ordering::Greater,
                };
                let is_better =
                    self.best.as_ref().is_none_or(|best| value::order_bytes(&value, best) == wanted);
                if is_better {
                    self.best = Some(value);
                }
                Ok(is_better)
            }
            AggregateKind::Sum | AggregateKind::Total | AggregateKind::Avg => {
                match value::summand(&value)? {
                    Number::Int(number) => self.whole = self.whole.saturating_add(number),
                    Number::Double(number) => {
                        self.has_double = true;
                        self.sum += number;
                    }
                }
                Ok(false)
            }
        }
    }

    fn result(&self, aggregate: &Aggregate) -> Result<Value, Failure> {
        let all = self.sum + self.whole as f64;
        Ok(match aggregate.kind {
            AggregateKind::Count => Value::Uint(self.count),
            AggregateKind::Min | AggregateKind::Max => self.best.clone().unwrap_or(Value::Nil),
            AggregateKind::Total => Value::Double(all),
            _ if self.count == 0 => Value::Nil,
            AggregateKind::Avg => Value::Double(all / self.count as f64),
            AggregateKind::Sum if self.has_double => Value::Double(all),
            AggregateKind::Sum => Number::Int(self.whole).into_value()?,
        })
    }
}

/// The rows of an INSERT.
pub(crate) struct Inserted {
    /// The tuples: MessagePack arrays.
    pub(crate) tuples: Vec<Vec<u8>>,
    /// What to do with a key that is taken: `fail`, `replace` or `ignore`.
    pub(crate) conflict: &'static str,
    /// The field that a sequence fills.
    pub(crate) sequence: Option<u32>,
}

/// Evaluates the rows of an INSERT.
///
/// # Errors
/// A value that its field does not take.
pub(crate) fn inserted(plan: &Plan, parameters: &[Value]) -> Result<Inserted, Failure> {
    let Body::Insert { targets, rows, conflict, sequence } = &plan.body else {
        return Err(Failure::new(0, "the plan is no INSERT"));
    };
    let conflict = match conflict {
        OnConflict::Fail => "fail",
        OnConflict::Replace => "replace",
        OnConflict::Ignore => "ignore",
    };
    let nothing = Row { tuple: None, parameters, aggregates: &[] };
    let mut tuples = Vec::with_capacity(rows.len());
    for row in rows {
        let mut tuple = Vec::new();
        mp::write_array(&mut tuple, u32::try_from(row.len()).unwrap_or(0));
        for (target, expr) in targets.iter().zip(row) {
            let value = expr.as_ref().map_or(Ok(Value::Nil), |expr| nothing.evaluate(expr))?;
            let value = value::assigned(value, target.ty)?;
            if value == Value::Nil && target.required && *sequence != Some(target.field) {
                return Err(value::execution(&format!("NOT NULL constraint failed: {}", target.name)));
            }
            value.write(&mut tuple);
        }
        tuples.push(tuple);
    }
    Ok(Inserted { tuples, conflict, sequence: *sequence })
}
