//! Texts of SQL in rows of `_space`, `_trigger` and `_ck_constraint`: the definitions of views and triggers, and expressions.
//!
//! A Tarantool parses such a text whenever it reads the row, and does not start on one that it cannot parse. The store knows no SQL.
//! So a process that knows SQL gives the store a [`SqlKnowledge`], and without one, new views and triggers are refused.
//!
//! Invariant: a space that a view reads is neither dropped nor renamed, as far as the process knows SQL.
//! Absent: the rows of a Tarantool's folder and of a master, which are kept as they are; checks of the tables that a trigger's
//! statements change, which each run finds.

use super::constraint::trigger_options;
use super::expression::EXPRESSIONS;
use super::row::{Options, Row};
use super::space::SpaceDef;
use crate::check::Compiled;
use crate::error::Error;
use crate::space::Space;
use crate::{SpaceId, Store, system};

/// A definition by SQL.
#[derive(Debug, Clone, Copy)]
pub enum SqlText<'a> {
    /// CREATE VIEW.
    View {
        /// The text.
        text: &'a str,
    },
    /// CREATE TRIGGER.
    Trigger {
        /// The name that the row has.
        name: &'a str,
        /// The space that the row names.
        space: SpaceId,
        /// The text.
        text: &'a str,
    },
    /// The default value of a field.
    Default {
        /// The text of the expression.
        text: &'a str,
    },
}

/// Makes the expression of a check constraint of a space.
pub type CompileCheck = fn(&Store, &Space, &str) -> Compiled;

/// The part of SQL that the store asks for.
#[derive(Debug, Clone, Copy)]
pub struct SqlKnowledge {
    /// Why a text is no such definition.
    pub check: fn(&Store, SqlText<'_>) -> Result<(), String>,
    /// The spaces and views that a view reads, by the view's name.
    pub spaces_of_view: fn(&Store, &str) -> Vec<SpaceId>,
    /// The expression of a check constraint of a space.
    pub compile_check: CompileCheck,
}

impl Store {
    /// Lets SQL decide about views, triggers and check constraints that are defined from now on, and evaluate all of the latter.
    pub fn set_sql(&mut self, sql: SqlKnowledge) {
        self.sql = Some(sql);
        self.catalog.iter_mut().for_each(|space| space.checks.forget_compiled());
    }

    /// Refuses a text that makes no such definition. `what` names the kind.
    pub(crate) fn check_sql(&self, what: &str, text: SqlText<'_>) -> Result<(), Error> {
        let Some(sql) = self.sql else { return Err(Error::lacks(what)) };
        (sql.check)(self, text).map_err(|reason| Error::lacks(&format!("{what} from this text: {reason}")))
    }

    /// Refuses a new view whose text makes none.
    pub(crate) fn check_view(&self, row: Row<'_>) -> Result<(), Error> {
        let options = Options::read(row.raw(5)?, &SpaceDef::OPTIONS, false, |reason| {
            Error::WrongSpaceOptions { field: 5, reason }
        })?;
        self.check_sql("SQL views", SqlText::View { text: &options.text("sql").unwrap_or_default() })
    }

    /// The views and triggers of a folder whose texts this process does not understand, with the reasons. Statements of SQL that need
    /// one of them fail.
    pub fn unknown_texts(&self) -> Vec<(String, Error)> {
        let rows = |id| self.catalog.get(id).into_iter().flat_map(|space| space.handles(&self.arena));
        let views = rows(system::SPACE).filter_map(|row| {
            let row = Row::new(self.arena.get(row));
            let space = self.space(row.id(0).ok()?).ok().filter(|space| space.def.view)?;
            Some((format!("the view '{}'", space.def.name), self.check_view(row).err()?))
        });
        let triggers = rows(system::TRIGGER).filter_map(|row| {
            let row = Row::new(self.arena.get(row));
            let name = row.text(0).ok()?;
            Some((format!("the trigger '{name}'"), self.check_trigger(row).err()?))
        });
        views.chain(triggers).collect()
    }

    /// Refuses a new trigger whose text makes none.
    pub(crate) fn check_trigger(&self, row: Row<'_>) -> Result<(), Error> {
        let (name, options) = (row.text(0)?, trigger_options(row)?);
        let text = options.text("sql").unwrap_or_default();
        self.check_sql("SQL triggers", SqlText::Trigger { name: &name, space: row.id(1)?, text: &text })
    }

    /// Refuses the default value of a field that is neither a literal nor a constant expression.
    pub(crate) fn check_default(&self, text: &str) -> Result<(), Error> {
        self.check_sql(EXPRESSIONS, SqlText::Default { text })
    }

    /// Whether a view reads the space.
    pub(crate) fn is_read_by_view(&self, space: SpaceId) -> bool {
        let Some(sql) = self.sql else { return false };
        let mut views = self.catalog.iter().filter(|other| other.def.view && other.def.id != space);
        views.any(|view| (sql.spaces_of_view)(self, &view.def.name).contains(&space))
    }
}
