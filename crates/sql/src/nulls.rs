//! What becomes of a NULL that a field refuses.

use lycosa_tuple::value::Value;

use crate::eval::Row;
use crate::tree::{OnConflict, Target};
use crate::{SqlFault, value};

/// The value that a field gets in place of one: another one only for a NULL that the field refuses. `None`: the row is passed over.
pub(crate) fn or_default(
    value: Value,
    target: &Target,
    conflict: OnConflict,
    nothing: &Row<'_>,
) -> Result<Option<Value>, SqlFault> {
    if value != Value::Nil || !target.required {
        return Ok(Some(value));
    }
    let conflict = if conflict == OnConflict::Default { target.on_null } else { conflict };
    match (conflict, &target.default) {
        (OnConflict::Ignore, _) => Ok(None),
        (OnConflict::Replace, Some(default)) => {
            value::assigned(nothing.evaluate(default)?, target.ty).map(Some)
        }
        _ => Err(value::execution(&format!("NOT NULL constraint failed: {}", target.name))),
    }
}
