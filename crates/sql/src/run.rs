//! A plan that runs: what becomes of the tuples of its walk.
//!
//! A walk goes in steps over a cursor that survives changes, so a statement that reads a whole space lets others run in
//! between. A step ends after [`SLICE`] tuples or after [`effort::STEP`] units of work, whichever comes first; so does the
//! collection of a sorted result.
//!
//! Bounds: a result has at most [`Limits::bytes`], with sort keys, changes and what DISTINCT and groups remember.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use lycosa_store::{Budget, Cursor, Progress, Store};
use lycosa_tuple::collation::Collation;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::scalar;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::aggregate::Group;
use crate::effort::{self, Effort};
use crate::eval::Row;
use crate::limits::{Limits, OVERHEAD, Share, check_changes};
use crate::tree::{Body, Expr, Plan, Select, Target};
use crate::walk::{Ends, Walk};
use crate::{Advance, Error, Failure, Rows, value};

/// What a statement may read in one step.
const SLICE: Budget<'static> = Budget::new(512, 256 << 10);

/// Rows of a sorted result that are collected in one step.
const COLLECTED: usize = 1024;

/// Comparisons of a row with others when it finds its place in a sorted result.
const DEPTH: u64 = 20;

/// A change that a statement asks for: key and operations of an UPDATE, or a key to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The primary key: a MessagePack array.
    pub key: Vec<u8>,
    /// Operations of an UPDATE: a MessagePack array, whose fields count from 1.
    pub operations: Vec<u8>,
}

/// Where a row stands in a sorted result: the values of ORDER BY, encoded back to back, and the row's number.
#[derive(Debug, PartialEq, Eq)]
struct SortKey {
    values: Vec<u8>,
    descending: Rc<[bool]>,
    number: u64,
}

impl SortKey {
    /// The place of a group: the values of the terms of GROUP BY.
    fn of_group(values: Vec<u8>, select: &Select) -> SortKey {
        SortKey { values, descending: select.groups.iter().map(|_| false).collect(), number: 0 }
    }
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

/// A SELECT, UPDATE or DELETE under way.
pub struct Run {
    cursor: Option<Cursor>,
    ends: Ends,
    parameters: Vec<Value>,
    limits: Limits,
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
    groups: BTreeMap<SortKey, Group>,
    share: Share,
}

impl Run {
    /// A run as a user.
    ///
    /// # Errors
    /// A LIMIT or OFFSET that is no whole number.
    pub fn new(
        plan: &Plan,
        store: &Store,
        user: u32,
        parameters: Vec<Value>,
        limits: Limits,
    ) -> Result<Run, Error> {
        let (limit, offset) = match &plan.body {
            Body::Select(select) => (
                count_of(select.limit.as_ref(), "LIMIT", &parameters)?.unwrap_or(u64::MAX),
                count_of(select.offset.as_ref(), "OFFSET", &parameters)?.unwrap_or(0),
            ),
            _ => (u64::MAX, 0),
        };
        let mut run = Run {
            cursor: None,
            ends: Ends::default(),
            parameters,
            limits,
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
            groups: BTreeMap::new(),
            share: Share::default(),
        };
        if let Body::Select(select) = &plan.body {
            run.descending = select.order.iter().map(|order| order.descending).collect();
        }
        run.begin_groups(plan);
        if plan.space != 0 {
            let space = store.space(plan.space)?;
            let walk = Walk::choose(plan, space, &run.parameters)?;
            run.is_ordered = walk.is_ordered;
            run.cursor = Some(Cursor::new(user, plan.space, walk.index, walk.iterator, &walk.encoded_key()));
            run.ends = walk.ends;
        }
        if let Body::Select(select) = &plan.body
            && select.is_grouped()
        {
            run.is_ordered = select.order.is_empty();
        }
        Ok(run)
    }

    /// Goes on.
    ///
    /// # Errors
    /// What an expression or the process refuses; the statement takes too long or its result too much.
    pub fn step<R: Rows>(&mut self, plan: &Plan, rows: &mut R) -> Result<Progress, R::Refusal> {
        let Some(mut cursor) = self.cursor.take() else {
            if plan.space == 0 {
                self.look(plan, &[0x90], &[]).map_err(Error::from)?;
            }
            return Ok(self.finish_walk(plan).map_err(Error::from)?);
        };
        let space = rows.store().space(plan.space).ok();
        let key_of = |index| space.and_then(|space| space.index(index)).map(|index| index.key().clone());
        let (primary, key) = (key_of(0).filter(|_| plan.kind().is_some()), key_of(cursor.index()));
        let (mut outcome, mut is_over, mut spent) = (Ok(()), self.has_enough(plan), 0);
        let budget = if is_over { Budget::new(0, 0) } else { SLICE };
        let advanced = rows.advance_while(&mut cursor, budget, &mut |tuple: &[u8]| {
            if key.as_ref().is_some_and(|key| self.ends.are_before(key, tuple)) {
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
        outcome.map_err(Error::from)?;
        let progress = match advanced {
            Ok(_) if is_over => Progress::End,
            Ok(progress) => progress,
            Err(Advance::IndexAltered) => {
                cursor.rewind();
                self.restart(plan);
                Progress::More
            }
            Err(Advance::Refused(refusal)) => return Err(refusal),
        };
        if progress == Progress::End {
            return Ok(self.finish_walk(plan).map_err(Error::from)?);
        }
        self.cursor = Some(cursor);
        Ok(Progress::More)
    }

    /// The tuples were read: the sorted result has to be collected, a part in each step.
    fn finish_walk(&mut self, plan: &Plan) -> Result<Progress, Failure> {
        let Body::Select(select) = &plan.body else { return Ok(Progress::End) };
        for _ in 0..COLLECTED {
            let Some((_, group)) = self.groups.pop_first() else { break };
            self.take_group(select, &group)?;
        }
        if !self.groups.is_empty() {
            return Ok(Progress::More);
        }
        for _ in 0..COLLECTED {
            let Some((key, row)) = self.sorted.pop_first() else { return Ok(Progress::End) };
            self.share.shrink(key.values.len() + row.len() + 2 * OVERHEAD);
            if self.skipped < self.offset {
                self.skipped += 1;
            } else if u64::from(self.count) < self.limit {
                self.append(&row)?;
            }
        }
        Ok(if self.sorted.is_empty() { Progress::End } else { Progress::More })
    }

    /// The group of all rows exists without a row, too.
    fn begin_groups(&mut self, plan: &Plan) {
        self.groups.clear();
        if let Body::Select(select) = &plan.body
            && select.is_grouped()
            && select.groups.is_empty()
        {
            self.groups.insert(SortKey::of_group(Vec::new(), select), Group::of(select));
        }
    }

    fn restart(&mut self, plan: &Plan) {
        self.rows.clear();
        self.sorted.clear();
        self.seen.clear();
        self.changes.clear();
        self.begin_groups(plan);
        (self.count, self.passed) = (0, 0);
        self.share = Share::default();
    }

    /// Whether no further row can change the result.
    fn has_enough(&self, plan: &Plan) -> bool {
        match &plan.body {
            Body::Select(select) if !select.is_grouped() => {
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
        if let Some((limit, _)) = self.limits.whole.filter(|_| plan.kind().is_some()) {
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
            Body::Select(select) if select.is_grouped() => {
                let mut keys = Vec::new();
                for term in &select.groups {
                    row.evaluate(term)?.write(&mut keys);
                    self.check_free(keys.len())?;
                }
                row.effort.spend(DEPTH * (select.groups.len() + keys.len() / 256) as u64)?;
                let weight = keys.len() + OVERHEAD * (1 + select.aggregates.len());
                let key = SortKey::of_group(keys, select);
                let (group, mut grown) = match self.groups.entry(key) {
                    Entry::Occupied(known) => (known.into_mut(), 0),
                    Entry::Vacant(free) => (free.insert(Group::of(select)), weight),
                };
                grown += group.add(select, row, tuple)?;
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
        check_changes(self.limits, self.changes.len() as u64)
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

    /// Takes a group as a row of the result.
    fn take_group(&mut self, select: &Select, group: &Group) -> Result<(), Failure> {
        let (results, effort) = (group.results(select)?, Effort::default());
        let parameters = std::mem::take(&mut self.parameters);
        let tuple = (!group.tuple.is_empty()).then(|| TupleRef::trusted(&group.tuple));
        let row = Row { tuple, parameters: &parameters, aggregates: &results, effort: &effort };
        let is_over = self.is_ordered && self.passed >= self.offset.saturating_add(self.limit);
        let taken = row.passes(select.having.as_ref().filter(|_| !is_over)).and_then(|passes| match passes {
            true if !is_over => self.take_row(select, &row),
            _ => Ok(()),
        });
        self.parameters = parameters;
        taken
    }

    fn append(&mut self, row: &[u8]) -> Result<(), Failure> {
        self.grow(row.len())?;
        self.rows.extend_from_slice(row);
        self.count += 1;
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        self.share.grow(bytes, self.limits.bytes)
    }

    /// Refuses this number of further bytes before they are counted.
    fn check_free(&mut self, bytes: usize) -> Result<(), Failure> {
        self.grow(bytes)?;
        self.share.shrink(bytes);
        Ok(())
    }

    /// Looks at one row of nothing.
    #[cfg(test)]
    pub(crate) fn look_at_nothing(&mut self, plan: &Plan) -> Result<u64, Failure> {
        self.look(plan, &[0x90], &[])
    }

    /// The changes of an UPDATE or DELETE that has ended.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Names and types of the columns of a SELECT that has ended.
    pub fn metadata(&self, plan: &Plan) -> Vec<(String, String)> {
        metadata(plan, Some(&self.parameters))
    }

    /// The rows of a SELECT that has ended: their number, and MessagePack arrays back to back.
    pub fn rows(&self) -> (u32, &[u8]) {
        (self.count, &self.rows)
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
fn operations(row: &Row<'_>, assignments: &[(Target, Expr)]) -> Result<Vec<u8>, Failure> {
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
pub fn metadata(plan: &Plan, parameters: Option<&[Value]>) -> Vec<(String, String)> {
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
