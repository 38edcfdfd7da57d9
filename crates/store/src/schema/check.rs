//! Rows of `_ck_constraint`, and where tuples are checked.
//!
//! A check holds for each INSERT, REPLACE, UPDATE and UPSERT that this instance accepts, from every door. As in a Tarantool it
//! is asked after the indexes have taken the tuple, so a taken key is the first error. Rows of a data folder and of a master
//! are history and are not checked: the instance that accepted them has done it. A Tarantool checks both again, and does not
//! start on a snapshot whose tuples fail ([`Store::misfits`]). Changes without which a queue could not start again are not checked
//! either ([`Store::lift_limit`]).
//!
//! A space without enabled checks pays nothing: [`Space::has_special`] leads both special indexes and checks to one
//! cold path.
//!
//! A text that this process's SQL does not understand comes only from a folder or a master. Changes of such a space are refused
//! until the constraint is disabled or dropped: a constraint must not be passed over silently.

use crate::arena::Handle;
use crate::check::{Check, SqlFault};
use crate::error::Error;
use crate::schema::row::Row;
use crate::space::{Engine, PutMode, Space};
use crate::{SpaceId, Store, system};

/// `ER_UNSUPPORTED`, `ER_SQL_EXECUTE` of Tarantool 2.6.
const UNSUPPORTED: u32 = 5;
const SQL_EXECUTE: u32 = 159;

/// The name of a check and the check itself, as the row says.
fn check_of(row: Row<'_>) -> Result<Check, Error> {
    let is_enabled = if row.len() > 5 { row.bool(5)? } else { true };
    Ok(Check::new(row.text(1)?, row.text(4)?, is_enabled))
}

impl Store {
    /// A row of `_ck_constraint` came, changed or was removed.
    pub(crate) fn check_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        if let Some(new) = new.filter(|_| !self.is_history()) {
            let row = Row::new(self.arena.get(new));
            self.check_check(row)?;
            let space = self.space(row.id(0)?)?;
            if space.is_system() {
                return Err(Error::lacks("check constraints of system spaces"));
            }
            self.check_guard(space)?;
            let check = check_of(row)?;
            let known = space.checks.by_name(&check.name);
            if known.is_none() {
                self.check_constraint_name(space, &check.name, system::CK_CONSTRAINT)?;
            }
            // Another text makes another expression; a check that is enabled or disabled keeps its own.
            if known.is_none_or(|known| known.text != check.text) {
                self.check_expression(space, &check)?;
            }
        }
        self.apply_check(old, new);
        Ok(())
    }

    /// Lets the space's checks follow a row, without checks: forwards and, with the rows exchanged, backwards.
    pub(crate) fn apply_check(&mut self, old: Option<Handle>, new: Option<Handle>) {
        let Some(row) = new.or(old).map(|row| Row::new(self.arena.get(row))) else { return };
        let (Ok(id), Ok(check)) = (row.id(0), check_of(row)) else { return };
        let Some(space) = self.catalog.get_mut(id) else { return };
        match new {
            Some(_) => space.checks.add(check),
            None => space.checks.remove(&check.name),
        }
        space.count_special();
    }

    /// Checks a row as a Tarantool does, but for its expression.
    pub(crate) fn check_check(&self, row: Row<'_>) -> Result<(), Error> {
        let space = self.space(row.id(0)?)?;
        if row.bool(2)? {
            return Err(Error::Unsupported {
                object: "Tarantool".to_owned(),
                feature: "deferred ck constraints".to_owned(),
            });
        }
        let refused = |name, reason: &str| Error::CreateCheck { name, reason: reason.to_owned() };
        let name = row.name(1, |name| refused(name, "check constraint name is too long"))?;
        let language = row.text(3)?;
        if !language.eq_ignore_ascii_case("sql") {
            return Err(Error::FunctionLanguage { language, function: name });
        }
        let check = check_of(row)?;
        if space.checks.by_name(&name).is_some_and(|known| known.text == check.text) {
            return Ok(());
        }
        if space.def.engine != Engine::Blackhole && !space.is_empty() {
            return Err(refused(name, "referencing space must be empty"));
        }
        check_has_format(space)
    }

    /// Refuses the name of a new constraint that another one of the space has: a Tarantool does not start on two of one name. `by` is
    /// the system space with the row of the new one.
    pub(crate) fn check_constraint_name(&self, space: &Space, name: &str, by: SpaceId) -> Result<(), Error> {
        let index = space.index_by_name(name).filter(|index| index.is_unique());
        let kind = match index.map(|index| index.def.id) {
            Some(0) => "PRIMARY KEY",
            Some(_) => "UNIQUE",
            None if space.checks.by_name(name).is_some() => "CHECK",
            None if by != system::FK_CONSTRAINT && self.has_foreign_key(space.def.id, name) => "FOREIGN KEY",
            None => return Ok(()),
        };
        Err(Error::ConstraintExists { kind, name: name.to_owned(), space: space.def.name.clone() })
    }

    fn has_foreign_key(&self, child: SpaceId, name: &str) -> bool {
        let keys = self.catalog.get(system::FK_CONSTRAINT);
        keys.is_some_and(|keys| {
            keys.handles(&self.arena).any(|handle| {
                let row = Row::new(self.arena.get(handle));
                row.id(1) == Ok(child) && row.bytes(0) == Ok(name.as_bytes())
            })
        })
    }

    /// Refuses the definition that a space has now if an expression of its checks does not fit it; as in a Tarantool in the order that
    /// they had before.
    pub(crate) fn check_checks(&self, id: SpaceId) -> Result<(), Error> {
        let space = self.space(id)?;
        if self.is_history() || space.checks.is_empty() {
            return Ok(());
        }
        check_has_format(space)?;
        for check in space.checks.iter().rev() {
            self.check_expression(space, check)?;
        }
        Ok(())
    }

    fn check_expression(&self, space: &Space, check: &Check) -> Result<(), Error> {
        let compiled = self.compiled_check(space, check).map(drop);
        compiled.map_err(|fault| Error::CreateCheck { name: check.name.clone(), reason: fault.message })
    }

    /// The enabled checks that this process cannot evaluate: their spaces, their names and the reasons. No statement changes such a space.
    pub fn unknown_checks(&self) -> impl Iterator<Item = (&Space, &str, SqlFault)> {
        self.catalog.iter().flat_map(move |space| {
            let enabled = space.checks.iter().filter(|check| check.is_enabled);
            enabled.filter_map(move |check| {
                Some((space, check.name.as_str(), self.compiled_check(space, check).err()?))
            })
        })
    }

    fn compiled_check<'c>(
        &self,
        space: &Space,
        check: &'c Check,
    ) -> Result<&'c dyn crate::RowCheck, SqlFault> {
        let compiled = check.compiled(|text| match self.sql {
            Some(sql) => (sql.compile_check)(self, space, text),
            None => Err(SqlFault::new(UNSUPPORTED, "this process has no SQL")),
        });
        compiled.as_ref().map(|check| &**check).map_err(Clone::clone)
    }

    /// [`Space::exchange`] of a space with special indexes or checks.
    #[cold]
    pub(crate) fn exchange_special(
        &mut self,
        id: SpaceId,
        new: Handle,
        mode: PutMode,
    ) -> Result<Option<Handle>, Error> {
        let Some(space) = self.catalog.get_mut(id) else { return Err(Error::NoSuchSpace(id.to_string())) };
        let old = space.exchange_special(&self.arena, new, mode)?;
        let checked = self.check_tuple(id, self.arena.get(new));
        if checked.is_err()
            && let Some(space) = self.catalog.get_mut(id)
        {
            space.restore(&self.arena, old, Some(new));
        }
        checked.map(|()| old)
    }

    /// Refuses a tuple that an enabled check of its space does not let pass.
    #[cold]
    pub(crate) fn check_tuple(&self, id: SpaceId, tuple: &[u8]) -> Result<(), Error> {
        if self.is_history() || self.limit_is_lifted {
            return Ok(());
        }
        let spent = self.ask_checks(self.space(id)?, tuple)?;
        let (left, transaction) = self.check_work.get();
        if transaction != self.transaction.number() {
            return Ok(());
        }
        self.check_work.set((left.saturating_sub(spent), transaction));
        if spent <= left {
            return Ok(());
        }
        let message = "Failed to execute SQL statement: the check constraints of its rows take too long: change fewer rows \
                       with each statement";
        Err(Error::Sql(SqlFault { is_ours: true, ..SqlFault::new(SQL_EXECUTE, message) }))
    }

    /// Bounds the work of all checks in the open transaction. A bound that the transaction has already stays.
    pub fn limit_check_work(&self, units: u64) {
        let (_, transaction) = self.check_work.get();
        if self.transaction.is_open && transaction != self.transaction.number() {
            self.check_work.set((units, self.transaction.number()));
        }
    }

    /// The same, for history too. Returns the work that the checks have done.
    pub(crate) fn ask_checks(&self, space: &Space, tuple: &[u8]) -> Result<u64, Error> {
        let mut spent = 0;
        for check in space.checks.iter().filter(|check| check.is_enabled) {
            let compiled = self.compiled_check(space, check).map_err(|fault| {
                let (name, space) = (&check.name, &space.def.name);
                Error::lacks(&format!(
                    "check constraint '{name}' of space '{space}' ({fault}): disable or drop it to change the space"
                ))
            })?;
            if !compiled.passes(tuple, &mut spent).map_err(Error::Sql)? {
                return Err(Error::CheckFailed { name: check.name.clone(), text: check.text.clone() });
            }
        }
        Ok(spent)
    }
}

fn check_has_format(space: &Space) -> Result<(), Error> {
    if space.def.fields.is_empty() {
        let feature = "CK constraint for space without format".to_owned();
        return Err(Error::Unsupported { object: "Tarantool".to_owned(), feature });
    }
    Ok(())
}
