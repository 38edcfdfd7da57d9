//! Rows of `_trigger` and `_fk_constraint`: what only statements of SQL obey, as in a Tarantool.
//!
//! The store enforces none of it. A wrong row is refused as a Tarantool refuses it, as far as that can be said without SQL; SQL
//! checks the texts of triggers (`sql_text.rs`). Rows of a Tarantool's folder and of a master are kept, and can be deleted.

use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::arena::Handle;
use crate::error::Error;
use crate::schema::row::{OptionType, Options, Row};
use crate::space::Space;
use crate::{Store, system};

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
        let is_beyond = |space: &Space, field| {
            let fields = space.def.fields.len() as u64;
            Ok::<_, Error>(
                columns(field)?.any(|column| Reader::new(column).uint().is_ok_and(|n| n >= fields)),
            )
        };
        if is_beyond(child, 7)? || is_beyond(parent, 8)? {
            return wrong(&name, "foreign key refers to nonexistent field");
        }
        Ok(())
    }
}
