//! SQL: queries, INSERT, UPDATE and DELETE with parameters; definitions of tables, views, indexes, triggers, foreign keys and check
//! constraints, whose expressions the store evaluates; transactions.
//!
//! A text is parsed by the crate `sqlparser` ([`parse`]), its names are resolved in the schema ([`resolve`]), which gives a
//! [`Plan`], and a plan runs in steps over a cursor ([`Run`]). A statement of several sources or queries runs in a [`machine`]
//! of nested loops; a statement of one space does not pay for it. Parsing, resolving and evaluating recurse, within
//! [`STACK`] bytes: the depth of a statement is bounded before. A plan is good for one version of the schema. The process
//! that lends its data is a [`Rows`].
//!
//! A statement that is not supported is refused with a list of the supported ones. Two differences from Tarantool:
//! a comparison of strings in the order of a collation is no lookup in an index ([`strings`]); and a comparison of two types may be
//! an error here where Tarantool answers through an index.
//!
//! Absent: Lua, the instance, protocols, the clock (work is counted, see [`effort`]); what triggers and foreign keys do to rows, which
//! the process runs as statements; when a tuple is checked, which the store decides; window functions.

mod aggregate;
mod changes;
mod check;
mod collect;
mod define;
mod dialect;
mod effort;
mod eval;
mod functions;
mod insert;
mod join;
mod limits;
mod machine;
mod nulls;
mod parse;
mod printf;
mod query;
mod resolve;
mod rewrite;
mod run;
mod schema_text;
mod strings;
mod subquery;
mod tree;
mod trigger;
mod value;
mod walk;

use std::ops::ControlFlow;

use lycosa_store::{
    Access, Budget, Cursor, Error as StoreError, Object, Progress, Space, SpaceId, StatementKind, Store,
    UserId,
};

pub use check::compile_check;
pub use define::{Definition, Field, ForeignKey, Key, KeyField, KeyKind, NewCheck};
pub use insert::{Inserted, inserted, inserted_of_query};
pub use limits::Limits;
pub use lycosa_store::SqlFault;
pub use parse::MAX_PARAMETERS;
pub use run::{Change, Run, metadata};
pub use schema_text::{check_text, spaces_of_view};
pub use tree::Plan;
pub use trigger::{Piece, Trigger, renamed_trigger};

use tree::Body;

/// `ER_UNSUPPORTED` of Tarantool 2.6.
const UNSUPPORTED: u32 = 5;

/// Bytes of stack that the deepest accepted statement needs, in a build without optimization: parsing, resolving, evaluating
/// and dropping a [`Plan`] recurse. Callers with a smaller stack switch to a larger one first.
pub const STACK: usize = 16 << 20;

/// Why a statement does not run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The statement's own fault.
    #[error(transparent)]
    Statement(#[from] SqlFault),
    /// The store refuses, for example a user without the right.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The data that statements read, as the process lets them be read.
pub trait Rows {
    /// Why the process refuses.
    type Refusal: From<Error>;

    /// Schema and tuples.
    fn store(&self) -> &Store;

    /// As [`Store::advance_while`], with what the process does before a read.
    ///
    /// # Errors
    /// [`Advance::IndexAltered`]: the walk has to begin again. [`Advance::Refused`]: anything else.
    fn advance_while(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Progress, Advance<Self::Refusal>>;
}

/// Why [`Rows::advance_while`] does not go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Advance<R> {
    /// The index was built anew, in another order.
    IndexAltered,
    /// The process refuses.
    Refused(R),
}

/// The definition that a text is; `None` for any other statement.
///
/// # Errors
/// Text that is no SQL, or a definition that is not supported.
pub fn definition(text: &str) -> Result<Option<Definition>, SqlFault> {
    // The parser refuses such a text; looking for its first word would walk all its blanks.
    if text.len() > parse::MAX_TEXT {
        return Ok(None);
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    let first = first.trim_end_matches(';');
    if !["alter", "create", "drop", "truncate", "start", "commit", "rollback", "savepoint", "release"]
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word))
    {
        return Ok(None);
    }
    if let Some(trigger) = trigger::created(text)? {
        return Ok(Some(Definition::CreateTrigger(Box::new(trigger))));
    }
    if let Some((name, is_optional)) = trigger::dropped(text)? {
        return Ok(Some(Definition::DropTrigger { name, is_optional }));
    }
    if let Some(switched) = check::switched(text)? {
        return Ok(Some(switched));
    }
    define::definition_of(parse::parse(text)?, text)
}

/// The user, and the spaces that it may know.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// Whose rights count.
    pub user: UserId,
    /// The spaces whose existence it must not learn.
    pub is_hidden: &'a dyn Fn(SpaceId) -> bool,
}

/// Parses a text and resolves its names. A user without a right to the space gets an error that says nothing of its
/// columns. A user who must not know of a space gets the error of a space that does not exist.
///
/// # Errors
/// Text that is no SQL, or SQL that is not supported; names that do not exist; the right that is lacking.
pub fn plan(text: &str, store: &Store, asker: Asker<'_>) -> Result<Plan, Error> {
    let parsed = parse::parse(text)?;
    if let Some((name, access)) = resolve::first_need(&parsed.statement)
        && let Some(space) = store.space_by_name(&name)
    {
        check_access(store, asker, space, access)?;
        check_primary(space)?;
    }
    let plan = resolve::resolve(parsed, store, asker)?;
    for id in plan.spaces() {
        store.space(*id).map_or(Ok(()), check_primary)?;
    }
    Ok(plan)
}

/// Refuses a space whose rows no key names.
fn check_primary(space: &Space) -> Result<(), SqlFault> {
    if space.index(0).is_some() || space.is_view() {
        return Ok(());
    }
    Err(SqlFault::new(UNSUPPORTED, "SQL does not support spaces without primary key"))
}

/// The spaces and views that the query of a view reads, with or without a primary key.
pub(crate) fn spaces_read_by(text: &str, store: &Store, asker: Asker<'_>) -> Result<Vec<SpaceId>, Error> {
    Ok(resolve::resolve(parse::parse(text)?, store, asker)?.spaces().to_vec())
}

/// The format that a CREATE VIEW gives its view.
///
/// # Errors
/// As [`plan`].
pub fn fields_of_view(text: &str, store: &Store, asker: Asker<'_>) -> Result<Vec<Field>, Error> {
    resolve::fields_of_view(parse::parse(text)?, store, asker)
}

/// The number of a collation.
///
/// # Errors
/// A name that no collation has.
pub fn collation_id(name: &str, store: &Store) -> Result<u64, SqlFault> {
    strings::id_by_name(store, name)
}

/// Refuses a plan, perhaps of another user's making, to users without the right to its space.
///
/// # Errors
/// As [`plan`].
pub fn check_plan(plan: &Plan, store: &Store, asker: Asker<'_>) -> Result<(), Error> {
    if let Body::General(general) = &plan.body {
        for id in &general.spaces {
            if let Ok(space) = store.space(*id) {
                check_access(store, asker, space, Access::READ)?;
            }
        }
    }
    let access = if plan.kind() == Some(StatementKind::Insert) { Access::WRITE } else { Access::READ };
    match store.space(plan.space()) {
        Ok(space) if plan.space() != 0 => check_access(store, asker, space, access),
        _ => Ok(()),
    }
}

fn check_access(store: &Store, asker: Asker<'_>, space: &Space, access: Access) -> Result<(), Error> {
    if (asker.is_hidden)(space.id()) {
        return Err(resolve::no_such_space(space.name()).into());
    }
    Ok(store.check_access(asker.user, Object::Space(space.id()), access)?)
}

#[cfg(test)]
mod tests {
    use lycosa_store::user;

    use super::*;

    fn asker(user: UserId) -> Asker<'static> {
        Asker { user, is_hidden: &|_| false }
    }

    fn plan(text: &str, store: &Store) -> Result<Plan, Error> {
        super::plan(text, store, asker(user::ADMIN))
    }

    /// Runs a test on a stack of the documented size: a larger one would hide that a statement needs it.
    fn on_stack<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(test).expect("a thread starts");
        match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// The statement's own failure.
    fn failure(error: Error) -> SqlFault {
        match error {
            Error::Statement(failure) => failure,
            Error::Store(error) => panic!("the store refuses: {error}"),
        }
    }

    /// A store that has the system spaces alone.
    pub(crate) fn new_store() -> Store {
        let mut store = Store::new(lycosa_store::Settings::default());
        let uuid = "00000000-0000-4000-8000-000000000001";
        store.bootstrap(uuid, uuid).expect("an empty store takes it");
        store
    }

    fn is_denied(error: &Error) -> bool {
        matches!(error, Error::Store(StoreError::AccessDenied { .. }))
    }

    /// Neither a plan of one's own nor one that another user has made tells columns of a space without the right.
    #[test]
    fn who_lacks_a_right_learns_no_columns() {
        let store = new_store();
        for (text, what) in [
            ("INSERT INTO \"_space\" VALUES (1)", "Write"),
            ("INSERT INTO \"_space\" (nosuch) VALUES (1)", "Write"),
            ("SELECT nosuch FROM \"_space\"", "Read"),
            ("UPDATE \"_space\" SET nosuch = 1", "Read"),
            ("DELETE FROM \"_space\" WHERE nosuch = 1", "Read"),
        ] {
            let refused = super::plan(text, &store, asker(user::GUEST)).map(drop).expect_err(text);
            let expected = format!("{what} access to space '_space' is denied for user 'guest'");
            assert!(is_denied(&refused), "{text}: {refused}");
            assert_eq!(refused.to_string(), expected, "{text}");
            let refused = plan(text, &store).map(drop).expect_err(text);
            assert!(!is_denied(&refused), "{text}: {refused}");
        }
        let made = plan("DELETE FROM \"_space\"", &store).expect("admin may");
        assert!(is_denied(&check_plan(&made, &store, asker(user::GUEST)).expect_err("guest may not")));
        assert!(check_plan(&made, &store, asker(user::ADMIN)).is_ok());
        // A hidden space looks like one that does not exist, to the maker of the plan and to later users.
        let blind = Asker { user: user::GUEST, is_hidden: &|space| space == made.space() };
        let nowhere =
            super::plan("DELETE FROM \"_spice\"", &store, blind).map(drop).expect_err("no such space");
        let nowhere = failure(nowhere);
        for refused in
            [super::plan("DELETE FROM \"_space\"", &store, blind).map(drop), check_plan(&made, &store, blind)]
        {
            let refused = failure(refused.expect_err("it is hidden"));
            assert_eq!(
                (refused.code, refused.message.replace("_space", "_spice")),
                (nowhere.code, nowhere.message.clone())
            );
        }
    }

    /// A chain of operators and nested parentheses of any length are an error, or a plan, and never the end of a stack.
    #[test]
    fn deep_statements_end_with_an_error() {
        on_stack(|| {
            let store = Store::new(lycosa_store::Settings::default());
            let chain = |length: usize| format!("SELECT 1{}", "+1".repeat(length));
            assert!(plan(&chain(450), &store).is_ok());
            for (length, said) in [(10_000, "too deep"), (400_000, "words and signs")] {
                let refused = plan(&chain(length), &store).map(drop);
                assert!(refused.is_err_and(|error| error.to_string().contains(said)), "{length}");
            }
            let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
            assert!(plan(&nested(20), &store).is_ok());
            assert!(plan(&nested(100_000), &store).is_err());
            assert!(plan(&format!("SELECT {}true", "NOT ".repeat(1_500)), &store).is_err());
            assert!(plan(&format!("SELECT {}1", "- ".repeat(1_500)), &store).is_err());
        });
    }

    /// Everything that a client sizes has a bound, and long lists are resolved in a time that grows with their length alone. The second
    /// statements are as long as is accepted: with a quadratic resolver, or a plan that doubles with each level, this test
    /// would not end.
    #[test]
    fn long_statements_end_with_an_error_or_soon() {
        on_stack(|| {
            let store = Store::new(lycosa_store::Settings::default());
            let list = |item: &str, count: usize| vec![item; count].join(",");
            let numbered =
                |count: usize| (0..count).map(|at| format!("1 a{at}")).collect::<Vec<_>>().join(",");
            let refused = |text: &str| failure(plan(text, &store).map(drop).expect_err("too long"));
            for (text, code, said) in [
                (format!("SELECT {}", list("1", 160_000)), 186, "words and signs, and may have 32768"),
                (
                    format!("SELECT {}", list("1", 2001)),
                    191,
                    "The number of columns in result set 2001 exceeds the limit (2000)",
                ),
                (format!("SELECT 1 ORDER BY {}", list("1", 800_000)), 186, "the statement has 1600"),
                (
                    format!("SELECT 1 ORDER BY {}", list("1", 2001)),
                    191,
                    "The number of terms in ORDER BY clause 2001 exceeds the limit (2000)",
                ),
                (format!("SELECT '{}'", "x".repeat(2 << 20)), 186, "and may have 1048576"),
                (format!("SELECT {}", "@".repeat(100)), 184, "Syntax error"),
                ("SELECT $16385".to_owned(), 186, "a statement may have 16384 parameters"),
                (format!("SELECT COALESCE({})", list("1", 128)), 191, "exceeds the limit (127)"),
            ] {
                let error = refused(&text);
                assert!(
                    error.code == code && error.message.contains(said),
                    "{}: {}",
                    error.code,
                    error.message
                );
                assert!(error.message.len() < 1000, "{} bytes", error.message.len());
            }
            let wide = plan(&format!("SELECT {} ORDER BY {}", numbered(2000), list("a1999", 2000)), &store);
            assert_eq!(wide.map(|plan| plan.weight), Ok(4000), "a term that names a column is the column's");
            let named = (0..8000).map(|at| format!(":p{at}")).collect::<Vec<_>>().join(",");
            let named = plan(&format!("SELECT 1 IN ({named})"), &store).expect("within the bound");
            assert_eq!(named.parameters.len(), 8000);
            let between = plan(&format!("SELECT 1{}", " BETWEEN 0 AND 2".repeat(40)), &store);
            assert!(between.is_ok_and(|plan| plan.weight < 200), "each part stands in the plan once");
        });
    }

    /// The work on a row is counted, so that no expression over values of any size holds the thread.
    #[test]
    fn an_expression_ends_when_its_work_is_too_much() {
        on_stack(|| {
            use lycosa_tuple::value::Value;
            let store = Store::new(lycosa_store::Settings::default());
            let long = || Value::str("a".repeat(40_000));
            for (text, parameters) in [
                (
                    "SELECT ? LIKE ?".to_owned(),
                    vec![long(), Value::str("%".to_owned() + &"a".repeat(20_000) + "b")],
                ),
                (
                    format!("SELECT $1 IN ({})", vec!["$2"; 8000].join(",")),
                    vec![Value::str("1".repeat(100_000)), Value::str("1".repeat(99_999) + "2")],
                ),
                (format!("SELECT {}?", "? || ".repeat(300)), vec![Value::str("a".repeat(100_000)); 301]),
                (
                    format!("SELECT {}", vec!["LENGTH(?)"; 100].join(" + ")),
                    vec![Value::str("a".repeat(100_000)); 100],
                ),
            ] {
                let plan = plan(&text, &store).expect("a plan");
                let run = Run::new(&plan, &store, user::ADMIN, parameters, Limits::CLIENT);
                let refused = run
                    .map_err(|error| error.to_string())
                    .and_then(|mut run| run.look_at_nothing(&plan).map_err(|failure| failure.message));
                assert!(
                    refused.as_ref().is_err_and(|text| text.contains("take too long for one row")),
                    "{refused:?}"
                );
            }
        });
    }

    fn field(field: usize) -> KeyField<usize> {
        KeyField { field, collation: None }
    }

    #[test]
    fn a_table_with_clauses_that_are_not_supported_is_refused() {
        let Ok(Some(Definition::Create { name, keys, sequence, fields, .. })) =
            definition("CREATE TABLE t (a INT, b TEXT UNIQUE, PRIMARY KEY (a))")
        else {
            panic!("it is supported");
        };
        assert_eq!(
            (name.as_str(), keys, sequence),
            ("T", vec![(None, vec![field(1)]), (None, vec![field(2)])], None)
        );
        assert_eq!(fields.iter().map(|field| field.nullable).collect::<Vec<_>>(), [false, true]);
        let refused =
            definition("CREATE TABLE t (a INT PRIMARY KEY CHECK (a > 1) ENFORCED)").expect_err("ENFORCED");
        assert_eq!(refused.code, 5, "{}", refused.message);
        for wrong in ["a INT", "a INT PRIMARY KEY, PRIMARY KEY (a)", "a TEXT PRIMARY KEY AUTOINCREMENT"] {
            assert_eq!(definition(&format!("CREATE TABLE t ({wrong})")).expect_err(wrong).code, 9, "{wrong}");
        }
        assert_eq!(definition("SELECT 1"), Ok(None));
        assert!(definition("CREATE TABLE t AS SELECT 1").is_err());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        on_stack(|| {
            let store = Store::new(lycosa_store::Settings::default());
            let refused = |text: &str| failure(plan(text, &store).map(drop).expect_err(text));
            for (text, named) in [
                ("(SELECT 1) UNION SELECT 2", "parentheses"),
                ("CREATE TABLE t (id INT)", "CREATE TABLE"),
                ("SELECT 1 LIMIT 1 FOR UPDATE", "FOR"),
                ("COMMIT", "COMMIT"),
            ] {
                let SqlFault { code, message, .. } = refused(text);
                assert!(
                    code == 5 && message.contains(named) && message.contains("it supports"),
                    "{text}: {message}"
                );
            }
            assert_eq!(refused("SELECT * FROM nosuch").message, "Space 'NOSUCH' does not exist");
            assert_eq!(refused("SELECT no_such_function(1)").code, 51);
            assert_eq!(refused("SELECT ?1").message, "Syntax error at line 1 near '?1'");
        });
    }
}
