//! The rows of an INSERT.

use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::effort::Effort;
use crate::eval::Row;
use crate::limits::{Limits, OVERHEAD, Share, check_changes};
use crate::nulls::or_default;
use crate::query::GeneralChange;
use crate::run::Run;
use crate::tree::{Body, OnConflict, Plan, Target};
use crate::{SqlFault, value};

/// The rows of an INSERT.
pub struct Inserted {
    /// The tuples: MessagePack arrays.
    pub tuples: Vec<Vec<u8>>,
    /// The field that a sequence fills.
    pub sequence: Option<u32>,
}

/// Evaluates the rows of an INSERT.
///
/// # Errors
/// A value that its field does not take.
pub fn inserted(plan: &Plan, parameters: &[Value], limits: Limits) -> Result<Inserted, SqlFault> {
    let Body::Insert { targets, rows, conflict, sequence } = &plan.body else {
        return Err(SqlFault::new(0, "the plan is no INSERT"));
    };
    check_changes(limits, rows.len() as u64)?;
    let mut share = Share::default();
    // All rows together may take as long as one: nothing pauses between them.
    let effort = Effort::default();
    let nothing = Row::nothing(parameters, &effort);
    let mut tuples = Vec::with_capacity(rows.len());
    for row in rows {
        let mut tuple = Vec::new();
        mp::write_array(&mut tuple, u32::try_from(row.len()).unwrap_or(0));
        let mut is_kept = true;
        for (target, expr) in targets.iter().zip(row) {
            let value = expr.as_ref().map_or(Ok(Value::Nil), |expr| nothing.evaluate(expr))?;
            is_kept &= write_field(value, target, *sequence, *conflict, &nothing, &mut tuple)?;
            share.grow(tuple.len(), limits.bytes)?;
            share.shrink(tuple.len());
        }
        if !is_kept {
            continue;
        }
        share.grow(tuple.len() + OVERHEAD, limits.bytes)?;
        tuples.push(tuple);
    }
    Ok(Inserted { tuples, sequence: *sequence })
}

/// The tuples of an INSERT whose values are the rows of a query that has ended.
///
/// # Errors
/// As [`inserted`].
pub fn inserted_of_query(plan: &Plan, run: &Run, limits: Limits) -> Result<Inserted, SqlFault> {
    let change = match &plan.body {
        Body::General(general) => general.change.as_ref(),
        _ => None,
    };
    let Some(GeneralChange::Insert { targets, written, conflict, sequence, defaults }) = change else {
        return Err(SqlFault::new(0, "the plan is no INSERT of a query"));
    };
    let (count, rows) = run.rows();
    check_changes(limits, count.into())?;
    let (mut share, mut rows, mut tuples) = (Share::default(), Reader::new(rows), Vec::new());
    while let Ok(row) = rows.raw() {
        let effort = Effort::default();
        let nothing = Row::nothing(&[], &effort);
        let mut values = vec![None; targets.len()];
        for (field, value) in written.iter().zip(TupleRef::trusted(row).fields()) {
            values[*field as usize] = Some(Value::read(&mut Reader::new(value)).unwrap_or(Value::Nil));
        }
        let mut tuple = Vec::new();
        mp::write_array(&mut tuple, u32::try_from(targets.len()).unwrap_or(0));
        let mut is_kept = true;
        for ((target, value), default) in targets.iter().zip(values).zip(defaults) {
            let value = match (value, default) {
                (Some(value), _) => value,
                (None, Some(default)) => nothing.evaluate(default)?,
                (None, None) => Value::Nil,
            };
            is_kept &= write_field(value, target, *sequence, *conflict, &nothing, &mut tuple)?;
        }
        if !is_kept {
            continue;
        }
        share.grow(tuple.len() + OVERHEAD, limits.bytes)?;
        tuples.push(tuple);
    }
    Ok(Inserted { tuples, sequence: *sequence })
}

/// Writes a value as its field takes it. Returns whether the row is kept.
fn write_field(
    value: Value,
    target: &Target,
    sequence: Option<u32>,
    conflict: OnConflict,
    nothing: &Row<'_>,
    tuple: &mut Vec<u8>,
) -> Result<bool, SqlFault> {
    let value = value::assigned(value, target.ty)?;
    let value = if sequence == Some(target.field) {
        Some(value)
    } else {
        or_default(value, target, conflict, nothing)?
    };
    if let Some(value) = &value {
        value.write(tuple);
    }
    Ok(value.is_some())
}
