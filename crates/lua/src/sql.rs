//! SQL over one space: SELECT, INSERT, UPDATE and DELETE with parameters; CREATE TABLE and DROP TABLE.
//!
//! A text is parsed by the crate `sqlparser` ([`parse`]), its names are resolved in the schema ([`resolve`]), which gives a
//! [`Plan`], and a plan runs in steps over a cursor ([`Run`]). Parsing, resolving and evaluating recurse and run on the big
//! stack; the depth of a statement is bounded before. A plan is good for one version of the schema.
//!
//! A statement without words for it here is refused with what is supported. Differences from Tarantool: strings are compared
//! byte by byte (a column with a collation can be read, not compared), and a comparison of two types that Tarantool answers
//! through an index may be an error of types here.
//!
//! Absent: definitions of anything but tables, joins, subqueries, GROUP BY, transactions by SQL.

mod changes;
mod define;
mod eval;
mod parse;
mod resolve;
mod run;
mod tree;
mod value;

use lycosa_instance::store_error;
use lycosa_iproto::error::ErrorObject;
use lycosa_store::{Access, Object, SpaceId, StatementKind, Store, UserId};

use crate::big_stack::on_big_stack;
use crate::error::Error;

pub(crate) use define::Definition;
pub(crate) use run::{Inserted, Run, Step, inserted, metadata};
pub(crate) use tree::Plan;

/// Why a statement cannot run, with Tarantool's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: u32,
    message: String,
}

impl Failure {
    fn new(code: u32, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Box { code: failure.code, message: failure.message }
    }
}

impl From<Failure> for ErrorObject {
    fn from(failure: Failure) -> Self {
        let mut object = Self::lua(failure.message);
        object.kind = "ClientError".into();
        object.code = failure.code;
        object
    }
}

/// The definition that a text is; `None` for any other statement.
///
/// # Errors
/// Text that is no SQL, or a definition that is not supported.
pub(crate) fn definition(text: &str) -> Result<Option<Definition>, Failure> {
    let first = text.split_whitespace().next().unwrap_or_default();
    if !["create", "drop"].iter().any(|word| first.eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    on_big_stack(|| define::definition_of(parse::parse(text)?.0))
}

/// Parses a text and resolves its names. Who lacks the right to the space is told that, and nothing of its columns.
///
/// # Errors
/// Text that is no SQL, or SQL that is not supported; names that do not exist; the right that `user` lacks.
pub(crate) fn plan(text: &str, store: &Store, user: UserId) -> Result<Plan, ErrorObject> {
    on_big_stack(|| {
        let (statement, parameters) = parse::parse(text)?;
        if let Some((name, access)) = resolve::first_need(&statement)
            && let Some(space) = store.space_by_name(&name)
        {
            check_access(store, user, space.id(), access)?;
        }
        Ok(resolve::resolve(statement, &parameters, store)?)
    })
}

/// Refuses a plan that somebody else has made, perhaps, to those who lack the right to its space.
///
/// # Errors
/// The right that `user` lacks.
pub(crate) fn check_plan(plan: &Plan, store: &Store, user: UserId) -> Result<(), ErrorObject> {
    let access = if plan.kind() == Some(StatementKind::Insert) { Access::WRITE } else { Access::READ };
    if plan.space() == 0 { Ok(()) } else { check_access(store, user, plan.space(), access) }
}

fn check_access(store: &Store, user: UserId, space: SpaceId, access: Access) -> Result<(), ErrorObject> {
    store.check_access(user, Object::Space(space), access).map_err(|error| store_error(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lycosa_store::user;

    fn plan(text: &str, store: &Store) -> Result<Plan, ErrorObject> {
        super::plan(text, store, user::ADMIN)
    }

    /// Neither a plan of one's own nor one that another user has made tells columns of a space without the right.
    #[test]
    fn who_lacks_a_right_learns_no_columns() {
        let mut store = Store::new(lycosa_store::Settings::default());
        let uuid = "00000000-0000-4000-8000-000000000001";
        store.bootstrap(uuid, uuid).expect("an empty store takes it");
        for (text, what) in [
            ("INSERT INTO \"_space\" VALUES (1)", "Write"),
            ("INSERT INTO \"_space\" (nosuch) VALUES (1)", "Write"),
            ("SELECT nosuch FROM \"_space\"", "Read"),
            ("UPDATE \"_space\" SET nosuch = 1", "Read"),
            ("DELETE FROM \"_space\" WHERE nosuch = 1", "Read"),
        ] {
            let refused = super::plan(text, &store, user::GUEST).map(drop).expect_err(text);
            let expected = format!("{what} access to space '_space' is denied for user 'guest'");
            assert_eq!((refused.code, refused.message), (42, expected), "{text}");
            let refused = plan(text, &store).map(drop).expect_err(text);
            assert_ne!(refused.code, 42, "{text}: {}", refused.message);
        }
        let made = plan("DELETE FROM \"_space\"", &store).expect("admin may");
        assert_eq!(check_plan(&made, &store, user::GUEST).expect_err("guest may not").code, 42);
        assert!(check_plan(&made, &store, user::ADMIN).is_ok());
    }

    /// A chain of operators and nested parentheses of any length are an error, or a plan, and never the end of a stack.
    #[test]
    fn deep_statements_end_with_an_error() {
        let store = Store::new(lycosa_store::Settings::default());
        let chain = |length: usize| format!("SELECT 1{}", "+1".repeat(length));
        assert!(plan(&chain(450), &store).is_ok());
        let refused = plan(&chain(1_000_000), &store).map(drop);
        assert!(refused.is_err_and(|error| error.message.contains("too deep")));
        let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
        assert!(plan(&nested(20), &store).is_ok());
        assert!(plan(&nested(100_000), &store).is_err());
        assert!(plan(&format!("SELECT {}true", "NOT ".repeat(1_500)), &store).is_err());
        assert!(plan(&format!("SELECT {}1", "- ".repeat(1_500)), &store).is_err());
    }

    #[test]
    fn a_table_whose_constraints_nobody_would_enforce_is_refused() {
        let Ok(Some(Definition::Create { name, keys, sequence, fields, .. })) =
            definition("CREATE TABLE t (a INT, b TEXT UNIQUE, PRIMARY KEY (a))")
        else {
            panic!("it is supported");
        };
        assert_eq!((name.as_str(), keys, sequence), ("T", vec![vec![1], vec![2]], None));
        assert_eq!(fields.iter().map(|field| field.nullable).collect::<Vec<_>>(), [false, true]);
        for clause in [
            "a INT PRIMARY KEY CHECK (a > 1)",
            "a INT PRIMARY KEY DEFAULT 1",
            "a INT PRIMARY KEY REFERENCES u (a)",
            "a INT PRIMARY KEY, b TEXT COLLATE \"unicode\"",
            "a INT CONSTRAINT c PRIMARY KEY",
            "a INT, CONSTRAINT c PRIMARY KEY (a)",
            "a INT PRIMARY KEY, CHECK (a > 1)",
        ] {
            let refused = definition(&format!("CREATE TABLE t ({clause})")).expect_err(clause);
            assert_eq!(refused.code, 5, "{clause}: {}", refused.message);
        }
        for wrong in ["a INT", "a INT PRIMARY KEY, PRIMARY KEY (a)", "a TEXT PRIMARY KEY AUTOINCREMENT"] {
            assert_eq!(definition(&format!("CREATE TABLE t ({wrong})")).expect_err(wrong).code, 9, "{wrong}");
        }
        assert_eq!(definition("SELECT 1"), Ok(None));
        assert!(definition("CREATE TABLE t AS SELECT 1").is_err());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let store = Store::new(lycosa_store::Settings::default());
        let refused = |text: &str| plan(text, &store).map(drop).expect_err(text);
        for (text, named) in [
            ("SELECT 1 UNION SELECT 2", "UNION"),
            ("SELECT (SELECT 1)", "SELECT 1"),
            ("SELECT 1 GROUP BY 1", "GROUP BY"),
            ("SELECT CAST(1 AS STRING)", "CAST"),
            ("WITH x AS (SELECT 1) SELECT 1", "WITH"),
            ("CREATE TABLE t (id INT)", "CREATE TABLE"),
            ("SELECT 1 LIMIT 1 FOR UPDATE", "FOR"),
            ("VALUES (1)", "VALUES"),
            ("COMMIT", "COMMIT"),
        ] {
            let ErrorObject { code, message, .. } = refused(text);
            assert!(
                code == 5 && message.contains(named) && message.contains("it supports"),
                "{text}: {message}"
            );
        }
        assert_eq!(refused("SELECT * FROM nosuch").message, "Space 'NOSUCH' does not exist");
        assert_eq!(refused("SELECT no_such_function(1)").code, 51);
        assert_eq!(refused("SELECT ?1").message, "Syntax error at line 1 near '?1'");
    }
}
