//! A plan that runs: which index it walks, and what becomes of the tuples.
//!
//! A walk goes in steps over a cursor that survives changes, so a statement that reads a whole space lets others run in
//! between. A step ends after [`SLICE`] tuples or after [`effort::STEP`] units of work, whichever comes first; so does the
//! collection of a sorted result.
//!
//! Bounds: a result has at most [`Bound::bytes`], with sort keys, changes and what DISTINCT and aggregates remember; all runs
//! together have at most [`MAX_RUNNING`], of which one may have as much as is left, so that a greedy one leaves half.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use lycosa_instance::{Instance, WalkError, store_error};
use lycosa_iproto::error::ErrorObject;
use lycosa_store::{
    Budget, Cursor, CursorError, IndexKind, IteratorType, Progress, Space, SpaceIndex, Store,
};
use lycosa_tuple::collation::Collation;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::scalar;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use super::Failure;
use super::effort::{self, Effort, weight};
use super::eval::{Row, is_constant};
use super::tree::{Aggregate, AggregateKind, Body, Comparison, Expr, OnConflict, Order, Plan, Select};
use super::value::{self, Number};

/// What a statement may read in one step.
const SLICE: Budget = Budget { rows: 512, bytes: 256 << 10 };

/// Rows of a sorted result that are collected in one step.
const COLLECTED: usize = 1024;

/// Bytes of all statements that run.
const MAX_RUNNING: usize = 512 << 20;

/// Comparisons of a row with others when it finds its place in a sorted result.
const DEPTH: u64 = 20;

/// Bytes of keeping a row, beside its own.
const OVERHEAD: usize = 64;

/// `ER_MEMORY_ISSUE`.
const MEMORY_ISSUE: u32 = 2;

thread_local! {
    /// Bytes of all statements that run in this thread, which is the one of the instance.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// What a statement may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Bytes of its result.
    pub(crate) bytes: usize,
    /// Units of work without a pause, and rows that it may change in its one transaction.
    pub(crate) whole: Option<(u64, u64)>,
}

impl Bound {
    /// For a program, whose time the watchdog looks at.
    pub(crate) const PROGRAM: Bound = Bound { bytes: 512 << 20, whole: None };

    /// For a client that may run programs.
    pub(crate) const TRUSTED_CLIENT: Bound = Bound { bytes: 32 << 20, whole: None };

    /// For any other client: it holds the loop for about 40 ms at most.
    pub(crate) const CLIENT: Bound = Bound { bytes: 32 << 20, whole: Some((effort::MAX_WHOLE, 4096)) };
}

/// Whether a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to read.
    More,
    /// The result is complete.
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
    /// A tuple whose part of that number is beyond the value ends it; `true`: or equal to it. The value is encoded.
    upper: Option<(usize, Vec<u8>, bool)>,
}

/// Where a row stands in a sorted result: the values of ORDER BY, encoded back to back, and the row's number.
#[derive(Debug, PartialEq, Eq)]
struct SortKey {
    values: Vec<u8>,
    descending: Rc<[bool]>,
    number: u64,
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (Reader::new(&self.values), Reader::new(&other.values));
        for descending in &*self.descending {
            let values = (left.raw().unwrap_or(&[0xc0]), right.raw().unwrap_or(&[0xc0]));
            let found = scalar::compare(values.0, values.1, &Collation::Binary);
            if found != Ordering::Equal {
                return if *descending { found.reverse() } else { found };
            }
        }
        self.number.cmp(&other.number)
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Bytes that a run has, in the sum of all runs.
#[derive(Debug, Default)]
struct Share(usize);

impl Share {
    fn grow(&mut self, bytes: usize, limit: usize) -> Result<(), Failure> {
        let others = RUNNING.get().saturating_sub(self.0);
        let limit = limit.min(MAX_RUNNING.saturating_sub(others) / 2);
        if self.0 + bytes > limit {
            let message = format!(
                "Failed to allocate a result of more than {limit} bytes for SQL: read fewer rows at a time with LIMIT"
            );
            return Err(Failure::new(MEMORY_ISSUE, message));
        }
        self.0 += bytes;
        RUNNING.set(RUNNING.get() + bytes);
        Ok(())
    }

    fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.0);
        self.0 -= bytes;
        RUNNING.set(RUNNING.get().saturating_sub(bytes));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.0);
    }
}

/// A SELECT, UPDATE or DELETE under way.
pub(crate) struct Run {
    cursor: Option<Cursor>,
    bounds: Bounds,
    parameters: Vec<Value>,
    bound: Bound,
    /// Work that was done without a pause.
    spent: u64,
    /// The rows come in the order that was asked for.
    is_ordered: bool,
    descending: Rc<[bool]>,
    limit: u64,
    offset: u64,
    /// Rows that passed the filter and DISTINCT.
    passed: u64,
    /// Rows of the result, back to back, and their number.
    rows: Vec<u8>,
    count: u32,
    /// Rows that wait for their places.
    sorted: BTreeMap<SortKey, Vec<u8>>,
    /// Rows of the sorted result that were passed over for OFFSET.
    skipped: u64,
    seen: HashSet<Vec<u8>>,
    changes: Vec<Change>,
    states: Vec<State>,
    /// The tuple that plain columns beside aggregate functions are of.
    chosen: Vec<u8>,
    share: Share,
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
        bound: Bound,
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
            bound,
            spent: 0,
            is_ordered: true,
            descending: Rc::default(),
            limit,
            offset,
            passed: 0,
            rows: Vec::new(),
            count: 0,
            sorted: BTreeMap::new(),
            skipped: 0,
            seen: HashSet::new(),
            changes: Vec::new(),
            states: Vec::new(),
            chosen: Vec::new(),
            share: Share::default(),
        };
        if let Body::Select(select) = &plan.body {
            run.states = select.aggregates.iter().map(|_| State::default()).collect();
            run.descending = select.order.iter().map(|order| order.descending).collect();
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
    /// What an expression or the store refuses; the statement takes too long or its result too much.
    pub(crate) fn step(&mut self, plan: &Plan, instance: &mut Instance) -> Result<Step, ErrorObject> {
        let Some(mut cursor) = self.cursor.take() else {
            if plan.space == 0 {
                self.look(plan, &[0x90], &[])?;
            }
            return Ok(self.finish_walk(plan)?);
        };
        let space = instance.store().space(plan.space).ok();
        let key_of = |index| space.and_then(|space| space.index(index)).map(|index| index.key().clone());
        let (primary, key) = (key_of(0).filter(|_| plan.kind().is_some()), key_of(cursor.index()));
        let (mut outcome, mut is_over, mut spent) = (Ok(()), self.has_enough(plan), 0);
        let budget = if is_over { Budget { rows: 0, bytes: 0 } } else { SLICE };
        let advanced = instance.advance_while(&mut cursor, budget, &mut |tuple: &[u8]| {
            if key.as_ref().is_some_and(|key| self.is_beyond(key, tuple)) {
                is_over = true;
                return ControlFlow::Break(());
            }
            let mut own_key = Vec::new();
            if let Some(primary) = &primary {
                mp::write_array(&mut own_key, primary.part_count());
                primary.extract(tuple, &mut own_key);
            }
            match self.look(plan, tuple, &own_key) {
                Ok(units) => spent += units,
                Err(failure) => outcome = Err(failure),
            }
            is_over = self.has_enough(plan);
            match outcome.is_err() || is_over || spent > effort::STEP {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
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
            return Ok(self.finish_walk(plan)?);
        }
        self.cursor = Some(cursor);
        Ok(Step::More)
    }

    /// The tuples were read: the sorted result has to be collected, a part in each step.
    fn finish_walk(&mut self, plan: &Plan) -> Result<Step, Failure> {
        let Body::Select(select) = &plan.body else { return Ok(Step::End) };
        if !select.aggregates.is_empty() {
            if self.offset == 0 && self.limit > 0 {
                self.rows = self.aggregated(select)?;
                self.count = 1;
            }
            return Ok(Step::End);
        }
        for _ in 0..COLLECTED {
            let Some((key, row)) = self.sorted.pop_first() else { return Ok(Step::End) };
            self.share.shrink(key.values.len() + row.len() + 2 * OVERHEAD);
            if self.skipped < self.offset {
                self.skipped += 1;
            } else if u64::from(self.count) < self.limit {
                self.append(&row)?;
            }
        }
        Ok(if self.sorted.is_empty() { Step::End } else { Step::More })
    }

    fn restart(&mut self) {
        self.rows.clear();
        self.sorted.clear();
        self.seen.clear();
        self.changes.clear();
        self.chosen.clear();
        self.states.iter_mut().for_each(|state| *state = State::default());
        (self.count, self.passed) = (0, 0);
        self.share = Share::default();
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
        let order = scalar::compare(bytes, upper, &Collation::Binary);
        order == Ordering::Greater || (*or_equal && order == Ordering::Equal)
    }

    /// Whether no further row can change the result.
    fn has_enough(&self, plan: &Plan) -> bool {
        match &plan.body {
            Body::Select(select) if select.aggregates.is_empty() => {
                self.limit == 0 || self.is_ordered && self.passed >= self.offset.saturating_add(self.limit)
            }
            _ => false,
        }
    }

    /// Looks at a tuple, and takes it if it passes the filter. Returns the units of work.
    fn look(&mut self, plan: &Plan, tuple: &[u8], own_key: &[u8]) -> Result<u64, Failure> {
        let effort = Effort::default();
        let parameters = std::mem::take(&mut self.parameters);
        let row = Row::of(tuple, &parameters, &effort);
        let taken = row.passes(plan.filter.as_ref()).and_then(|passes| match passes {
            true => self.take(plan, &row, tuple, own_key),
            false => Ok(()),
        });
        self.parameters = parameters;
        taken?;
        let units = effort::ROW + effort.spent();
        if let Some((limit, _)) = self.bound.whole.filter(|_| plan.kind().is_some()) {
            self.spent += units;
            if self.spent > limit {
                return Err(value::execution(
                    "it looks at too many rows at once, which would keep other clients waiting: narrow it by a key \
                     or a range of keys, and change the rest with further statements",
                ));
            }
        }
        Ok(units)
    }

    /// Takes a row that passes the filter.
    fn take(&mut self, plan: &Plan, row: &Row<'_>, tuple: &[u8], own_key: &[u8]) -> Result<(), Failure> {
        match &plan.body {
            Body::Select(select) if !select.aggregates.is_empty() => {
                let (mut chosen, mut grown, mut picks) = (false, 0, false);
                for (aggregate, state) in select.aggregates.iter().zip(&mut self.states) {
                    let before = state.bytes();
                    chosen |= state.add(aggregate, row)?;
                    grown += state.bytes().saturating_sub(before);
                    picks |= matches!(aggregate.kind, AggregateKind::Min | AggregateKind::Max);
                }
                if chosen || !picks {
                    row.effort.spend((tuple.len() / 128) as u64)?;
                    grown += tuple.len().saturating_sub(self.chosen.len());
                    self.chosen.clear();
                    self.chosen.extend_from_slice(tuple);
                }
                self.grow(grown)?;
            }
            Body::Select(select) => self.take_row(select, row)?,
            Body::Update(assignments) => {
                let operations = operations(row, assignments)?;
                self.grow(own_key.len() + operations.len() + 2 * OVERHEAD)?;
                self.changes.push(Change { key: own_key.to_vec(), operations });
            }
            Body::Delete => {
                self.grow(own_key.len() + 2 * OVERHEAD)?;
                self.changes.push(Change { key: own_key.to_vec(), operations: Vec::new() });
            }
            Body::Insert { .. } => {}
        }
        check_changes(self.bound, self.changes.len() as u64)
    }

    fn take_row(&mut self, select: &Select, row: &Row<'_>) -> Result<(), Failure> {
        let mut values = Vec::new();
        mp::write_array(&mut values, u32::try_from(select.columns.len()).unwrap_or(0));
        for column in &select.columns {
            write_column(row, &column.expr, &mut values)?;
            self.check_free(values.len())?;
        }
        if select.distinct {
            row.effort.spend(1 + (values.len() / 16) as u64)?;
            if self.seen.contains(&values) {
                return Ok(());
            }
            self.grow(values.len() + OVERHEAD)?;
            self.seen.insert(values.clone());
        }
        self.passed += 1;
        if self.is_ordered {
            return if self.passed > self.offset { self.append(&values) } else { Ok(()) };
        }
        let mut keys = Vec::new();
        for order in &select.order {
            row.evaluate(&order.expr)?.write(&mut keys);
            self.check_free(values.len() + keys.len())?;
        }
        // It is compared with the keys between it and the root of the tree.
        row.effort.spend(DEPTH * (select.order.len() + keys.len() / 256) as u64)?;
        self.grow(keys.len() + values.len() + 2 * OVERHEAD)?;
        let key = SortKey { values: keys, descending: Rc::clone(&self.descending), number: self.passed };
        self.sorted.insert(key, values);
        // Rows behind the last that is wanted are never shown.
        if self.sorted.len() as u64 > self.offset.saturating_add(self.limit)
            && let Some((key, row)) = self.sorted.pop_last()
        {
            self.share.shrink(key.values.len() + row.len() + 2 * OVERHEAD);
        }
        Ok(())
    }

    fn append(&mut self, row: &[u8]) -> Result<(), Failure> {
        self.grow(row.len())?;
        self.rows.extend_from_slice(row);
        self.count += 1;
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        self.share.grow(bytes, self.bound.bytes)
    }

    /// Refuses this number of further bytes before they are counted.
    fn check_free(&mut self, bytes: usize) -> Result<(), Failure> {
        self.grow(bytes)?;
        self.share.shrink(bytes);
        Ok(())
    }

    /// Looks at one row of nothing.
    #[cfg(test)]
    pub(super) fn look_at_nothing(&mut self, plan: &Plan) -> Result<u64, Failure> {
        self.look(plan, &[0x90], &[])
    }

    /// The changes of an UPDATE or DELETE that has ended.
    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Names and types of the columns of a SELECT that has ended.
    pub(crate) fn metadata(&self, plan: &Plan) -> Vec<(String, String)> {
        metadata(plan, Some(&self.parameters))
    }

    /// The rows of a SELECT that has ended: their number, and MessagePack arrays back to back.
    pub(crate) fn rows(&self) -> (u32, &[u8]) {
        (self.count, &self.rows)
    }

    fn aggregated(&self, select: &Select) -> Result<Vec<u8>, Failure> {
        let results: Result<Vec<Value>, Failure> = select
            .aggregates
            .iter()
            .zip(&self.states)
            .map(|(aggregate, state)| state.result(aggregate))
            .collect();
        let (results, effort) = (results?, Effort::default());
        let tuple = (!self.chosen.is_empty()).then(|| TupleRef::trusted(&self.chosen));
        let row = Row { tuple, parameters: &self.parameters, aggregates: &results, effort: &effort };
        let mut values = Vec::new();
        mp::write_array(&mut values, u32::try_from(select.columns.len()).unwrap_or(0));
        for column in &select.columns {
            write_column(&row, &column.expr, &mut values)?;
            if values.len() > self.bound.bytes {
                return Err(Failure::new(
                    MEMORY_ISSUE,
                    "Failed to allocate a result of SQL: it has too many bytes",
                ));
            }
        }
        Ok(values)
    }

    /// Chooses the index and the part of it that is walked.
    fn choose_walk(&mut self, plan: &Plan, space: &Space, user: u32) -> Result<(), ErrorObject> {
        let mut terms = Vec::new();
        if let Some(filter) = &plan.filter {
            self.collect_terms(filter, &Effort::default(), &mut terms)?;
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

    fn constant(&self, expr: &Expr, effort: &Effort) -> Result<Value, Failure> {
        Row::nothing(&self.parameters, effort).evaluate(expr)
    }

    /// The comparisons of a field with a constant that every row has to pass.
    fn collect_terms(
        &self,
        filter: &Expr,
        effort: &Effort,
        terms: &mut Vec<(u32, Comparison, Value)>,
    ) -> Result<(), Failure> {
        match filter {
            Expr::And(left, right) => {
                self.collect_terms(left, effort, terms)?;
                self.collect_terms(right, effort, terms)
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
                terms.push((field, comparison, self.constant(constant, effort)?));
                Ok(())
            }
            Expr::Between(inner, low, high) => {
                let Expr::Column(field) = **inner else { return Ok(()) };
                for (comparison, constant) in [(Comparison::AtLeast, low), (Comparison::AtMost, high)] {
                    if is_constant(constant) {
                        terms.push((field, comparison, self.constant(constant, effort)?));
                    }
                }
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
        bounds.upper =
            upper.map(|(comparison, value)| (equal, value.encode(), comparison == Comparison::Less));
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
            let is_field = matches!(*order.expr, Expr::Column(field) if field == part.field);
            let is_plain = part.path.is_none() && part.collation.is_binary();
            is_field && is_plain
        })
        && order.windows(2).all(|pair| pair[0].descending == pair[1].descending)
}

/// Refuses this number of changed rows.
///
/// # Errors
/// They are more than the statement may change.
fn check_changes(bound: Bound, count: u64) -> Result<(), Failure> {
    match bound.whole {
        Some((_, limit)) if count > limit => Err(value::execution(&format!(
            "it changes more than {limit} rows at once, which would keep other clients waiting: change fewer with each \
             statement, by a range of keys"
        ))),
        _ => Ok(()),
    }
}

/// A column of any type is copied as it stands.
fn write_column(row: &Row<'_>, expr: &Expr, out: &mut Vec<u8>) -> Result<(), Failure> {
    match expr {
        Expr::Column(field) => {
            let bytes = row.tuple.and_then(|tuple| tuple.field(*field)).unwrap_or(&[0xc0]);
            row.effort.spend(1 + u64::from(*field / 8) + (bytes.len() / 128) as u64)?;
            out.extend_from_slice(bytes);
        }
        expr => row.evaluate(expr)?.write(out),
    }
    Ok(())
}

/// LIMIT or OFFSET.
fn count_of(expr: Option<&Expr>, name: &str, parameters: &[Value]) -> Result<Option<u64>, Failure> {
    let Some(expr) = expr else { return Ok(None) };
    match Row::nothing(parameters, &Effort::default()).evaluate(expr)? {
        Value::Uint(count) => Ok(Some(count)),
        _ => Err(value::execution(&format!("Only positive integers are allowed in the {name} clause"))),
    }
}

/// The operations of an UPDATE of one tuple; fields in between that the tuple does not have become NULL.
fn operations(row: &Row<'_>, assignments: &[(super::tree::Target, Expr)]) -> Result<Vec<u8>, Failure> {
    let mut written: BTreeMap<u32, Value> = BTreeMap::new();
    for (target, expr) in assignments {
        let value = value::assigned(row.evaluate(expr)?, target.ty)?;
        if value == Value::Nil && target.required {
            return Err(value::execution(&format!("NOT NULL constraint failed: {}", target.name)));
        }
        written.insert(target.field, value);
    }
    let present = row.tuple.map_or(0, TupleRef::len);
    let last = written.last_key_value().map_or(0, |(field, _)| *field);
    for field in present..last {
        written.entry(field).or_insert(Value::Nil);
    }
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
        let ty = column.ty.unwrap_or_else(|| of_parameter(&column.expr));
        (column.name.clone(), ty.to_owned())
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
    /// Bytes of what it remembers.
    fn bytes(&self) -> usize {
        match &self.best {
            Some(Value::Str(bytes) | Value::Bin(bytes) | Value::Ext(_, bytes)) => bytes.len(),
            Some(value) => 16 * weight(value) as usize,
            None => 0,
        }
    }

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
                row.effort.spend(2 * weight(&value))?;
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
pub(crate) fn inserted(plan: &Plan, parameters: &[Value], bound: Bound) -> Result<Inserted, Failure> {
    let Body::Insert { targets, rows, conflict, sequence } = &plan.body else {
        return Err(Failure::new(0, "the plan is no INSERT"));
    };
    let conflict = match conflict {
        OnConflict::Fail => "fail",
        OnConflict::Replace => "replace",
        OnConflict::Ignore => "ignore",
    };
    check_changes(bound, rows.len() as u64)?;
    let mut share = Share::default();
    // All rows together may take as long as one: nothing pauses between them.
    let effort = Effort::default();
    let nothing = Row::nothing(parameters, &effort);
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
            share.grow(tuple.len(), bound.bytes)?;
            share.shrink(tuple.len());
        }
        share.grow(tuple.len() + OVERHEAD, bound.bytes)?;
        tuples.push(tuple);
    }
    Ok(Inserted { tuples, conflict, sequence: *sequence })
}
