//! Fields of a space, as its row of `_space` has them: default values, collations.

use std::rc::Rc;

use lycosa_store::{Space, Store, system};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use sqlparser::ast::{self, SetExpr, Statement};

use super::{Context, shortened, unsupported};
use crate::parse::parse;
use crate::tree::Expr;
use crate::{SqlFault, strings};

/// The fields of a space as its row of `_space` has them: a MessagePack array.
fn definition_of_fields<'a>(space: &Space, store: &'a Store) -> Option<&'a [u8]> {
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_uint(&mut key, space.id().into());
    let row = store.get(system::SPACE, 0, &key).ok().flatten()?;
    TupleRef::trusted(row).field(6)
}

/// The values of fields that an INSERT does not name: expressions without columns, or `None` for NULL.
pub(crate) fn defaults_of(space: &Space, store: &Store) -> Result<Vec<Option<Rc<Expr>>>, SqlFault> {
    const WORD: &[u8] = b"default";
    let count = space.format().fields().len();
    let bytes = definition_of_fields(space, store).unwrap_or_default();
    // Most definitions have no default values, and then nothing is decoded.
    if !bytes.windows(WORD.len()).any(|window| window == WORD) {
        return Ok(vec![None; count]);
    }
    let definition = Value::decode(bytes).ok();
    let fields = definition.as_ref().and_then(Value::as_array).unwrap_or_default();
    let text_of = |number: usize| fields.get(number)?.get("default")?.as_str();
    let defaults = (0..count).map(|number| match text_of(number) {
        None => Ok(None),
        Some(text) => {
            Context::of_store(store).expression(parsed_default(text)?).map(|expr| Some(Rc::new(expr)))
        }
    });
    defaults.collect()
}

/// The expression of a default value.
fn parsed_default(text: &str) -> Result<ast::Expr, SqlFault> {
    let wrong = || unsupported(&format!("the default value {}", shortened(text)));
    let parsed = parse(&format!("SELECT ({text})")).map_err(|_| wrong())?;
    let Statement::Query(query) = parsed.statement else { return Err(wrong()) };
    let SetExpr::Select(select) = *query.body else { return Err(wrong()) };
    match <[_; 1]>::try_from(select.projection) {
        Ok([ast::SelectItem::UnnamedExpr(expr)]) if select.from.is_empty() => Ok(expr),
        _ => Err(wrong()),
    }
}

/// Refuses a default value that is no constant expression.
pub(crate) fn check_default(text: &str) -> Result<(), SqlFault> {
    match Context::constant(parsed_default(text)?)? {
        true => Ok(()),
        false => Err(unsupported("parameters in a default value")),
    }
}

/// The fields of a space whose format names a collation, and the orders of their strings.
pub(super) fn collated_fields(space: &Space, store: &Store) -> Result<Vec<(u32, strings::Order)>, SqlFault> {
    const WORD: &[u8] = b"collation";
    let bytes = definition_of_fields(space, store).unwrap_or_default();
    // Most definitions have no collation, and then nothing is decoded.
    if !bytes.windows(WORD.len()).any(|window| window == WORD) {
        return Ok(Vec::new());
    }
    let definition = Value::decode(bytes).ok();
    let fields = definition.as_ref().and_then(Value::as_array).unwrap_or_default();
    let collated = (0..).zip(fields).filter_map(|(number, field)| {
        let id = field.get("collation").and_then(Value::as_u64)?;
        Some(strings::order_by_id(store, id).map(|order| (number, order)))
    });
    collated.collect()
}
