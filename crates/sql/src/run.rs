//! A plan that runs: what becomes of the tuples of its walk.
//!
//! A walk goes in steps over a cursor that survives changes, so a statement that reads a whole space lets others run in
//! between. A step ends after [`SLICE`] tuples or after [`effort::STEP`] units of work, whichever comes first; so does the
//! collection of a sorted result.
//!
//! Bounds: a result has at most [`Limits::bytes`], with sort keys, changes and what DISTINCT and groups remember.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use lycosa_store::{Budget, Cursor, Progress, SpaceIndex, Store};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::collect::{COLLECTED, Collector, bounds_of};
use crate::effort::{self, Effort};
use crate::eval::Row;
use crate::limits::{Limits, OVERHEAD, Share, check_changes};
use crate::machine::Machine;
use crate::nulls::or_default;
use crate::query::{General, GeneralChange};
use crate::tree::{Body, Expr, OnConflict, Plan, Select, Target};
use crate::walk::{Ends, Walk};
use crate::{Advance, Error, Rows, SqlFault, value};

/// What a statement may read in one step.
const SLICE: Budget<'static> = Budget::new(512, 256 << 10);

/// The error of a client's UPDATE or DELETE that looks at too many rows.
pub(crate) const TOO_LONG_AT_ONCE: &str = "it looks at too many rows at once, which would keep other clients waiting: \
                                           narrow it by a key or a range of keys, and change the rest with further \
                                           statements";

/// A change that a statement asks for: key and operations of an UPDATE, or a key to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The primary key, or the whole row of a view: a MessagePack array.
    pub key: Vec<u8>,
    /// Operations of an UPDATE: a MessagePack array, whose fields count from 1.
    pub operations: Vec<u8>,
}

/// A SELECT, UPDATE or DELETE under way.
pub struct Run {
    cursor: Option<Cursor>,
    ends: Ends,
    parameters: Vec<Value>,
    limits: Limits,
    /// Work that was done without a pause.
    spent: u64,
    collector: Collector,
    changes: Vec<Change>,
    /// What runs a statement of several sources.
    machine: Option<Box<Machine>>,
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
        let select = match &plan.body {
            Body::Select(select) => Some(select),
            Body::General(general) => return Run::of_general(general, store, user, parameters, limits),
            _ => None,
        };
        let (limit, offset) = match select {
            Some(select) => bounds_of(select.limit.as_ref(), select.offset.as_ref(), &parameters)?,
            None => (u64::MAX, 0),
        };
        let (mut is_ordered, mut cursor, mut ends) = (true, None, Ends::default());
        if plan.space != 0 {
            let space = store.space(plan.space)?;
            let walk = Walk::choose(plan, space, &parameters)?;
            is_ordered = walk.is_ordered;
            cursor = Some(Cursor::new(user, plan.space, walk.index, walk.iterator, &walk.encoded_key()));
            ends = walk.ends;
        }
        let collector = Collector::new(select, (limit, offset), limits, is_ordered, Share::default());
        Ok(Run { cursor, ends, parameters, limits, spent: 0, collector, changes: Vec::new(), machine: None })
    }

    fn of_general(
        general: &Rc<General>,
        store: &Store,
        user: u32,
        parameters: Vec<Value>,
        limits: Limits,
    ) -> Result<Run, Error> {
        let machine = Machine::new(general, store, user, &parameters, limits)?;
        let collector = Collector::new(None, (0, 0), limits, true, Share::default());
        Ok(Run {
            cursor: None,
            ends: Ends::default(),
            parameters,
            limits,
            spent: 0,
            collector,
            changes: Vec::new(),
            machine: Some(Box::new(machine)),
        })
    }

    /// Goes on.
    ///
    /// # Errors
    /// What an expression or the process refuses; the statement takes too long or its result too much.
    pub fn step<R: Rows>(&mut self, plan: &Plan, rows: &mut R) -> Result<Progress, R::Refusal> {
        if let Some(machine) = &mut self.machine {
            let progress = machine.step(rows)?;
            if progress == Progress::End
                && let Body::General(general) = &plan.body
            {
                self.take_changes(general, rows.store()).map_err(Error::from)?;
            }
            return Ok(progress);
        }
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
    fn finish_walk(&mut self, plan: &Plan) -> Result<Progress, SqlFault> {
        let Body::Select(select) = &plan.body else { return Ok(Progress::End) };
        for _ in 0..COLLECTED {
            let Some(group) = self.collector.pop_group() else { break };
            let (results, effort) = (group.results(select)?, Effort::default());
            let tuple = (!group.tuple.is_empty()).then(|| TupleRef::trusted(&group.tuple));
            let row = Row {
                tuple,
                parameters: &self.parameters,
                aggregates: &results,
                effort: &effort,
                slots: None,
            };
            self.collector.take_group(select, &row)?;
        }
        if self.collector.has_groups() {
            return Ok(Progress::More);
        }
        Ok(if self.collector.collect()? { Progress::End } else { Progress::More })
    }

    fn restart(&mut self, plan: &Plan) {
        self.changes.clear();
        self.collector.restart(select_of(plan));
    }

    /// Whether no further row can change the result.
    fn has_enough(&self, plan: &Plan) -> bool {
        select_of(plan).is_some_and(|select| self.collector.has_enough(select))
    }

    /// The rows of an UPDATE or DELETE of several sources are the tuples to change, each with the values to write.
    fn take_changes(&mut self, general: &General, store: &Store) -> Result<(), SqlFault> {
        let Some(written) = general.change.as_ref().and_then(GeneralChange::assignments) else {
            return Ok(());
        };
        let space = store.space(general.target).ok();
        // A view has no key: its triggers get the whole row.
        let primary = space.and_then(|space| space.index(0)).map(SpaceIndex::key);
        let (_, rows) = self.machine.as_ref().map_or((0, &[][..]), |machine| machine.rows());
        let mut rows = Reader::new(rows);
        while let Ok(row) = rows.raw() {
            let mut fields = TupleRef::trusted(row).fields();
            let tuple = TupleRef::trusted(fields.next().unwrap_or(&[0x90]));
            let mut key = Vec::new();
            match primary {
                Some(primary) => {
                    mp::write_array(&mut key, primary.part_count());
                    primary.extract(tuple.bytes(), &mut key);
                }
                None => key.extend_from_slice(tuple.bytes()),
            }
            let values = written.iter().zip(fields).map(|(target, value)| {
                Ok((target, Value::read(&mut Reader::new(value)).unwrap_or(Value::Nil)))
            });
            let conflict = match &general.change {
                Some(GeneralChange::Update(_, conflict)) => *conflict,
                _ => OnConflict::Default,
            };
            let operations = match written {
                [] => Some(Vec::new()),
                _ => operations_of(tuple.len(), values, conflict)?,
            };
            let Some(operations) = operations else { continue };
            self.collector.grow(key.len() + operations.len() + 2 * OVERHEAD)?;
            self.changes.push(Change { key, operations });
            check_changes(self.limits, self.changes.len() as u64)?;
        }
        Ok(())
    }

    /// Looks at a tuple, and takes it if it passes the filter. Returns the units of work.
    fn look(&mut self, plan: &Plan, tuple: &[u8], own_key: &[u8]) -> Result<u64, SqlFault> {
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
                return Err(value::execution(TOO_LONG_AT_ONCE));
            }
        }
        Ok(units)
    }

    /// Takes a row that passes the filter.
    fn take(&mut self, plan: &Plan, row: &Row<'_>, tuple: &[u8], own_key: &[u8]) -> Result<(), SqlFault> {
        match &plan.body {
            Body::Select(select) => self.collector.take(select, row, tuple)?,
            Body::Update(assignments, conflict) => {
                let Some(operations) = operations(row, assignments, *conflict)? else { return Ok(()) };
                self.collector.grow(own_key.len() + operations.len() + 2 * OVERHEAD)?;
                self.changes.push(Change { key: own_key.to_vec(), operations });
            }
            Body::Delete => {
                self.collector.grow(own_key.len() + 2 * OVERHEAD)?;
                self.changes.push(Change { key: own_key.to_vec(), operations: Vec::new() });
            }
            Body::Insert { .. } | Body::General(_) => {}
        }
        check_changes(self.limits, self.changes.len() as u64)
    }

    /// Looks at one row of nothing.
    #[cfg(test)]
    pub(crate) fn look_at_nothing(&mut self, plan: &Plan) -> Result<u64, SqlFault> {
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
        match &self.machine {
            Some(machine) => machine.rows(),
            None => self.collector.rows(),
        }
    }
}

fn select_of(plan: &Plan) -> Option<&Select> {
    match &plan.body {
        Body::Select(select) => Some(select),
        _ => None,
    }
}

/// The operations of an UPDATE of one tuple; `None`: the tuple is passed over.
fn operations(
    row: &Row<'_>,
    assignments: &[(Target, Expr)],
    conflict: OnConflict,
) -> Result<Option<Vec<u8>>, SqlFault> {
    let present = row.tuple.map_or(0, TupleRef::len);
    let values = assignments.iter().map(|(target, expr)| Ok((target, row.evaluate(expr)?)));
    operations_of(present, values, conflict)
}

/// The operations that write values to fields of a tuple; fields in between that the tuple does not have become NULL. `None`: the
/// tuple is passed over.
///
/// # Errors
/// A value that its field does not take.
pub(crate) fn operations_of<'a>(
    present: u32,
    values: impl Iterator<Item = Result<(&'a Target, Value), SqlFault>>,
    conflict: OnConflict,
) -> Result<Option<Vec<u8>>, SqlFault> {
    let effort = Effort::default();
    let nothing = Row::nothing(&[], &effort);
    let mut written: BTreeMap<u32, Value> = BTreeMap::new();
    for assignment in values {
        let (target, value) = assignment?;
        let value = value::assigned(value, target.ty)?;
        let Some(value) = or_default(value, target, conflict, &nothing)? else { return Ok(None) };
        written.insert(target.field, value);
    }
    let last = written.last_key_value().map_or(0, |(field, _)| *field);
    for field in present..last {
        written.entry(field).or_insert(Value::Nil);
    }
    let list = written
        .into_iter()
        .map(|(field, value)| Value::Array(vec![Value::str("="), Value::Uint(u64::from(field) + 1), value]));
    Ok(Some(Value::Array(list.collect()).encode()))
}

/// Names and types of columns. A parameter has the type of its value.
pub fn metadata(plan: &Plan, parameters: Option<&[Value]>) -> Vec<(String, String)> {
    let columns = match &plan.body {
        Body::Select(select) => &select.columns,
        Body::General(general) if general.change.is_none() => &general.root.columns,
        _ => return Vec::new(),
    };
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
    let columns = columns.iter().map(|column| {
        let ty = column.ty.unwrap_or_else(|| of_parameter(&column.expr));
        (column.name.clone(), ty.to_owned())
    });
    columns.collect()
}
