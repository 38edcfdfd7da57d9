//! Rows of `_trigger` and `_fk_constraint`: what only statements of SQL obey, as in a Tarantool.
//!
//! The store enforces none of it. A wrong row is refused as a Tarantool refuses it, as far as that can be said without SQL; SQL
//! checks the texts of triggers (`sql_text.rs`). Rows of a Tarantool's folder and of a master are kept, and can be deleted.
//!
//! A foreign key refers to an index of its parent: the first that is unique and has exactly the key's fields. That index can be
//! neither dropped nor changed, since a Tarantool does not start on a key without one.

use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::arena::Handle;
use crate::error::Error;
use crate::schema::collation::collation_in;
use crate::schema::row::{OptionType, Options, Row};
use crate::space::Space;
use crate::{IndexId, Store, system};

/// The options of a row of `_trigger`.
pub(super) fn trigger_options<'a>(row: Row<'a>) -> Result<Options<'a>, Error> {
    Options::read(row.raw(2)?, &[("sql", OptionType::String)], false, |reason| Error::WrongSpaceOptions {
        field: 5,
        reason,
    })
}

impl Store {
    /// A row that something would have to enforce came or changed.
    pub(crate) fn constraint_row_changed(&self, space: u32, new: Option<Handle>) -> Result<(), Error> {
        let Some(new) = new.filter(|_| !self.is_history()) else { return Ok(()) };
        let row = Row::new(self.arena.get(new));
        self.check_constraint(space, row)?;
        match space {
            system::TRIGGER => self.check_trigger(row),
            system::FK_CONSTRAINT => {
                self.check_constraint_name(self.space(row.id(1)?)?, &row.text(0)?, system::FK_CONSTRAINT)
            }
            _ => Ok(()),
        }
    }

    /// Checks a row as a Tarantool does, as far as that can be said without SQL. Returns the name of what the row is.
    pub(crate) fn check_constraint(&self, space: u32, row: Row<'_>) -> Result<&'static str, Error> {
        Ok(match space {
            system::TRIGGER => {
                trigger_options(row)?;
                "SQL triggers"
            }
            system::FK_CONSTRAINT => {
                self.check_foreign_key(row)?;
                "foreign keys"
            }
            system::CK_CONSTRAINT => {
                self.check_check(row)?;
                "check constraints"
            }
            _ => "constraints",
        })
    }

    fn check_foreign_key(&self, row: Row<'_>) -> Result<(), Error> {
        let wrong = |name: &str, reason: &str| {
            Err(Error::CreateForeignKey { name: name.to_owned(), reason: reason.to_owned() })
        };
        let name = row.name(0, |name| {
            let reason = "constraint name is too long".to_owned();
            Error::CreateForeignKey { name, reason }
        })?;
        let columns = |field| Ok::<_, Error>(TupleRef::trusted(row.raw(field)?).fields());
        let (children, parents) = (columns(7)?.count(), columns(8)?.count());
        if parents == 0 {
            return wrong(&name, "at least one link must be specified");
        }
        if children != parents {
            return wrong(&name, "number of referenced and referencing fields must be the same");
        }
        let is_number = |column: &[u8]| Reader::new(column).uint().is_ok();
        let odd = columns(7)?.zip(columns(8)?).position(|(a, b)| !is_number(a) || !is_number(b));
        if let Some(odd) = odd {
            return wrong(&name, &format!("value of {odd} link is not unsigned"));
        }
        let is_known = |field, known: &[&str]| {
            let text = row.text(field)?;
            Ok::<_, Error>(known.iter().any(|known| known.eq_ignore_ascii_case(&text)))
        };
        const ACTIONS: [&str; 5] = ["no_action", "set_null", "set_default", "cascade", "restrict"];
        if !is_known(4, &["simple", "partial", "full"])? {
            return wrong(&name, "unknown MATCH clause");
        }
        if !is_known(5, &ACTIONS)? {
            return wrong(&name, "unknown ON DELETE action");
        }
        if !is_known(6, &ACTIONS)? {
            return wrong(&name, "unknown ON UPDATE action");
        }
        let (child, parent) = (self.space(row.id(1)?)?, self.space(row.id(2)?)?);
        if child.def.view {
            return wrong(&name, "referencing space can't be VIEW");
        }
        if parent.def.view {
            return wrong(&name, "referenced space can't be VIEW");
        }
        if !child.is_empty() {
            return wrong(&name, "referencing space must be empty");
        }
        let parent_fields = fields_of(row, 8)?;
        for (child_field, &parent_field) in fields_of(row, 7)?.into_iter().zip(&parent_fields) {
            let defs = (child.def.fields.get(child_field), parent.def.fields.get(parent_field));
            let (Some(child_def), Some(parent_def)) = defs else {
                return wrong(&name, "foreign key refers to nonexistent field");
            };
            if !parent_def.ty.contains(child_def.ty) {
                return wrong(&name, "field type mismatch");
            }
            if self.collation_of(child, child_field) != self.collation_of(parent, parent_field) {
                return wrong(&name, "field collation mismatch");
            }
        }
        if parent_fields.iter().enumerate().any(|(place, field)| parent_fields[..place].contains(field)) {
            return wrong(&name, "referenced fields can not contain duplicates");
        }
        if referenced_index(parent, &parent_fields).is_none() {
            return wrong(&name, "referenced fields don't compose unique index");
        }
        Ok(())
    }

    /// The number of the collation that the format of a space gives a field.
    fn collation_of(&self, space: &Space, field: usize) -> Option<u64> {
        let rows = self.catalog.get(system::SPACE)?;
        let mut rows = rows.handles(&self.arena).map(|handle| Row::new(self.arena.get(handle)));
        let row = rows.find(|row| row.id(0) == Ok(space.def.id))?;
        let format = TupleRef::trusted(row.raw(6).ok()?);
        collation_in(format.fields().nth(field)?)
    }

    /// Refuses to `change` ("drop", "alter") an index that a foreign key refers to.
    pub(super) fn check_referenced(&self, parent: &Space, index: IndexId, change: &str) -> Result<(), Error> {
        let keys = self.catalog.get(system::FK_CONSTRAINT).filter(|_| !self.is_history());
        let keys = keys.into_iter().flat_map(|keys| keys.handles(&self.arena));
        for row in keys.map(|handle| Row::new(self.arena.get(handle))) {
            if row.id(2) == Ok(parent.def.id) && referenced_index(parent, &fields_of(row, 8)?) == Some(index)
            {
                let reason = format!("can not {change} a referenced index");
                return Err(Error::AlterSpace { name: parent.def.name.clone(), reason });
            }
        }
        Ok(())
    }
}

/// The numbers of fields in a column of a row of `_fk_constraint`; a value that is no number becomes a number that no field has.
fn fields_of(row: Row<'_>, column: u32) -> Result<Vec<usize>, Error> {
    let number =
        |field: &[u8]| Reader::new(field).uint().ok().and_then(|number| usize::try_from(number).ok());
    let fields = TupleRef::trusted(row.raw(column)?).fields();
    Ok(fields.map(|field| number(field).unwrap_or(usize::MAX)).collect())
}

/// The first unique index of exactly these fields, in any order.
fn referenced_index(parent: &Space, fields: &[usize]) -> Option<IndexId> {
    let defs = parent.indexes.iter().map(|index| &index.def).filter(|def| {
        let parts = def.key.parts();
        let is_part = |field: &usize| parts.iter().any(|part| part.field as usize == *field);
        def.unique && parts.len() == fields.len() && fields.iter().all(is_part)
    });
    defs.map(|def| def.id).min()
}
