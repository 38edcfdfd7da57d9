//! Rows that a Tarantool 2.6 refuses although the store takes them as history.
//!
//! The rows of a data folder cannot be refused here, and older versions accepted definitions and values that a
//! Tarantool does not. A Tarantool that opens the folder ends at the first such row. [`Store::judge`] finds them.
//!
//! With SQL ([`Store::set_sql`]) it also finds tuples that an enabled check constraint does not let pass: a Tarantool checks the
//! tuples of a snapshot again.
//!
//! Absent: what else only SQL and Lua could tell (the text of views and triggers, bodies of functions, expressions).

use crate::error::Error;
use crate::schema::function::Function;
use crate::schema::index::IndexDef;
use crate::schema::privilege::Privilege;
use crate::schema::row::Row;
use crate::schema::space::SpaceDef;
use crate::statement::Statement;
use crate::{Engine, Space, Store, User, system};

impl Store {
    /// Whether a Tarantool 2.6 takes the row. To be asked before the row is applied.
    ///
    /// # Errors
    /// What a Tarantool says of it, or nearly so.
    pub fn judge(&self, statement: &Statement<'_>) -> Result<(), Error> {
        let (Statement::Insert { space, tuple } | Statement::Replace { space, tuple }) = *statement else {
            return Ok(());
        };
        self.judge_tuple(space, tuple).or_else(|error| if error.is_ours() { Ok(()) } else { Err(error) })
    }

    fn judge_tuple(&self, space: u32, tuple: &[u8]) -> Result<(), Error> {
        let row = Row::new(tuple);
        match space {
            system::SPACE => {
                let is_altered = row.id(0).is_ok_and(|id| self.space(id).is_ok());
                SpaceDef::decode(row, is_altered, &self.schema.collations, false, &|text| {
                    self.check_default(text)
                })
                .map(drop)
            }
            system::INDEX => {
                let space = self.space(row.id(0)?)?;
                // The definitions of a snapshot's first rows are those of the system spaces themselves.
                if matches!(space.engine(), Engine::Sysview | Engine::Service) && space.is_system() {
                    return Ok(());
                }
                IndexDef::decode(row, space, &self.schema, self.settings.make_keys, false).map(drop)
            }
            system::FUNC => Function::decode(row)?.check_new(row),
            system::USER => User::decode(row)?.check_new(row),
            system::PRIV => Privilege::decode(row)?.check_known(),
            system::TRUNCATE => self.space(row.id(0)?).map(drop),
            system::FUNC_INDEX => self.judge_key_function(row),
            system::FK_CONSTRAINT | system::CK_CONSTRAINT | system::TRIGGER => {
                self.check_constraint(space, row).map(drop)
            }
            _ => match self.space(space) {
                Ok(space) if space.engine().has_tuples() => Ok(space.check(tuple)?),
                _ => Ok(()),
            },
        }
    }

    /// A store that makes no keys has no functional indexes, so that only the function can be told.
    fn judge_key_function(&self, row: Row<'_>) -> Result<(), Error> {
        if self.settings.make_keys.is_some() {
            return self.check_key_function(row);
        }
        self.space(row.id(0)?)?;
        let id = row.id(2)?;
        let function = self.schema.functions.get(id).ok_or_else(|| Error::NoSuchFunction(id.to_string()))?;
        function.check_makes_keys()
    }

    /// The tuples of a space that a Tarantool does not take: how many, and the first.
    #[must_use]
    pub fn misfits<'a>(&'a self, space: &'a Space) -> Option<(u64, &'a [u8], Error)> {
        let tuples = space.handles(&self.arena).map(|handle| self.arena.get(handle));
        let misfit = |tuple: &[u8]| {
            let checked =
                space.check(tuple).map_err(Error::from).and_then(|()| self.ask_checks(space, tuple));
            checked.err().filter(|error| !error.is_ours())
        };
        let mut misfits = tuples.filter_map(|tuple| Some((tuple, misfit(tuple)?)));
        let (tuple, error) = misfits.next()?;
        Some((1 + misfits.count() as u64, tuple, error))
    }
}

#[cfg(test)]
mod tests {
    use lycosa_tuple::value::Value;

    use crate::{Settings, Statement, Store};

    fn recovered() -> Store {
        let mut store = Store::new(Settings::default());
        store
            .bootstrap("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
            .unwrap();
        store.take_as_history(true);
        store
    }

    /// Rows that older versions accepted; each is taken, and named.
    #[test]
    fn what_older_versions_accepted_is_named() {
        let mut store = recovered();
        let apply = |store: &mut Store, statement: &Statement<'_>| {
            store.begin(crate::user::ADMIN);
            store.execute(statement).unwrap();
            store.commit();
        };
        let rows = [
            (
                280,
                r#"[600, 1, "m", "memtx", 0, {}, [{"name": "a", "type": "unsigned", "default": "1 +"}, {"name": "b", "type": "any", "is_nullable": true}]]"#,
                "Syntax error",
            ),
            (280, r#"[601, 1, "v", "vinyl", 0, {}, []]"#, ""),
            (288, r#"[601, 0, "pk", "hash", {}, [[0, "unsigned"]]]"#, "Unsupported index type"),
            (280, r#"[602, 1, "h", "blackhole", 0, {}, []]"#, ""),
            (288, r#"[602, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#, "Blackhole does not support indexes"),
            (288, r#"[600, 0, "pk", "tree", {"range_size": 1}, [[0, "unsigned"]]]"#, "page_size must be"),
            (304, r#"[40, 1, "r", "role", {"x": 1}]"#, "authentication data can not be set"),
            (
                296,
                r#"[90, 1, "f", 0, "LUA", "", "function", [], "any", "x", "none", false, false, true, [], {}, "", "", ""]"#,
                "invalid aggregate value",
            ),
            (312, r#"[1, 0, "universe", 0, 1048576]"#, "the grant tuple has no privileges"),
            (364, r#"[600, "c", true, "SQL", "1", true]"#, "deferred ck constraints"),
            (364, r#"[600, "d", false, "SQL", "1", true]"#, ""),
            (600, "[1]", ""),
            (
                280,
                r#"[603, 1, "p", "memtx", 0, {}, [{"name": "a", "type": "unsigned"}, {"name": "b", "type": "map", "is_nullable": true}]]"#,
                "",
            ),
            (288, r#"[603, 0, "pk", "tree", {}, [[0, "unsigned"]]]"#, ""),
            (
                288,
                r#"[603, 1, "path", "tree", {"unique": false}, [{"field": 1, "type": "string", "path": "x", "is_nullable": true}]]"#,
                "",
            ),
            (603, "[1]", ""),
            (603, "[2, null]", "Tuple field 2 type does not match"),
        ];
        for (space, text, expected) in rows {
            let tuple = crate::tests::row(text);
            let statement = Statement::Replace { space, tuple: &tuple };
            let judged = store.judge(&statement).map_err(|error| error.to_string());
            match judged {
                Ok(()) => assert_eq!(expected, "", "{text}"),
                Err(found) => {
                    assert!(!expected.is_empty() && found.contains(expected), "{text}: {found}");
                }
            }
            apply(&mut store, &statement);
        }
        let odd = Value::Array(vec![Value::from(2_u64), Value::Ext(32, vec![1])]).encode();
        apply(&mut store, &Statement::Insert { space: 600, tuple: &odd });
        let (count, tuple, _) = store.misfits(store.space(600).unwrap()).unwrap();
        assert_eq!((count, tuple), (1, odd.as_slice()));
    }
}
