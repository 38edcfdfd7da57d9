//! Tests of check constraints: texts of definitions, and expressions over rows of `_collation`.

use lycosa_tuple::value::Value;

use super::*;
use crate::tests::new_store;
use crate::{NewCheck, definition};

/// Compiles a check of `_collation`, and asks it about a row with this name and owner.
fn asked(text: &str, name: &str, owner: u64) -> Result<bool, SqlFault> {
    let store = new_store();
    let space = store.space_by_name("_collation").expect("a system space");
    let row = Value::Array(vec![1_u64.into(), name.into(), owner.into()]).encode();
    compile_check(&store, space, text)?.passes(&row, &mut 0)
}

#[test]
fn true_and_null_pass() {
    for (text, expected) in [
        ("\"owner\" > 5", true),
        ("\"owner\" > 7", false),
        ("\"owner\" > NULL", true),
        ("\"opts\" IS NOT NULL", false),
        ("\"_collation\".\"name\" = 'abc' AND length(\"name\") = 3", true),
        ("\"owner\" BETWEEN 1 AND 3 OR \"name\" LIKE '%d'", false),
        ("/* a comment */ true", true),
    ] {
        assert_eq!(asked(text, "abc", 7), Ok(expected), "{text}");
    }
}

#[test]
fn an_expression_that_is_no_truth_is_an_error() {
    for (text, code, message) in [
        ("\"owner\"", 171, "Type mismatch: can not convert 7 to boolean"),
        ("1 / 0 = 1", 159, "Failed to execute SQL statement: division by zero"),
    ] {
        assert_eq!(asked(text, "abc", 7), Err(SqlFault::new(code, message)), "{text}");
    }
}

#[test]
fn what_no_check_has_is_refused() {
    for (text, code, message) in [
        ("(SELECT 1) = 1", 193, "Subqueries are prohibited in a ck constraint definition"),
        ("\"owner\" IN (VALUES (1))", 193, "Subqueries are prohibited in a ck constraint definition"),
        ("\"owner\" > ?", 206, "At line 1 at or near position 12: bindings are not allowed in DDL"),
        ("count(*) > 1", 186, "misuse of aggregate function COUNT()"),
        ("nosuch > 1", 176, "Can’t resolve field 'NOSUCH'"),
        ("u.a > 1", 153, "Field 'A' was not found in space 'U' format"),
        ("", 184, "Syntax error at line 1 near ' '"),
        ("1 = 1 FROM t", 184, "Syntax error at line 1 near 'FROM'"),
        ("*", 184, "Syntax error at line 1 near '*'"),
    ] {
        assert_eq!(asked(text, "abc", 7), Err(SqlFault::new(code, message)), "{text}");
    }
}

/// All checks of a tuple share one bound of work, and the work of one over a megabyte is more than that.
#[test]
fn the_work_on_a_tuple_has_a_bound() {
    let long = "a".repeat(1 << 20);
    let fault = asked("\"name\" LIKE '%a%b' OR \"name\" LIKE '%b%a'", &long, 7).expect_err("too much work");
    assert_eq!((fault.code, fault.is_ours), (159, true));
    assert!(fault.message.contains("take too long for one row"), "{fault}");
    let store = new_store();
    let space = store.space_by_name("_collation").expect("a system space");
    let row = Value::Array(vec![1_u64.into(), long[..400_000].into(), 7_u64.into()]).encode();
    let check = compile_check(&store, space, "\"name\" LIKE '%b'").expect("an expression");
    let mut spent = 0;
    assert_eq!(check.passes(&row, &mut spent), Ok(false));
    let once = spent;
    assert!(once > 50_000, "{once}");
    while check.passes(&row, &mut spent).is_ok() {
        assert!(spent <= MAX_ROW, "{spent}");
    }
    assert_eq!(spent, MAX_ROW, "the next check has nothing left");
}

fn checks_of(text: &str) -> Vec<NewCheck> {
    match definition(text) {
        Ok(Some(Definition::Create { checks, .. })) => checks,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_definition_keeps_the_texts_of_its_checks() {
    let text = "CREATE TABLE t (a INT PRIMARY KEY CONSTRAINT one CHECK( a<5 ), b TEXT CHECK(b    LIKE     '1  a'),\n\
                CONSTRAINT \"two\" CHECK ((a + 1) * 2 >\n\t length(b)), CHECK (b IN ('é)', \"B\")))";
    let expected = [
        (Some("ONE"), "a<5"),
        (None, "b LIKE '1  a'"),
        (Some("two"), "(a + 1) * 2 > length(b)"),
        (None, "b IN ('é)', \"B\")"),
    ];
    assert_eq!(checks_of(text), expected.map(|(name, text)| (name.map(str::to_owned), text.to_owned())));
    assert_eq!(checks_of("CREATE TABLE t (\"check\" INT PRIMARY KEY)"), []);
    let added = definition("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 1);");
    let (name, space, text) = ("C".to_owned(), "T".to_owned(), "a > 1".to_owned());
    assert_eq!(added, Ok(Some(Definition::AddCheck { name, space, text })));
    for (wrong, near) in [
        ("CREATE TABLE t (a INT PRIMARY KEY CHECK (a >< 5))", "near '<'"),
        ("CREATE TABLE t (a INT PRIMARY KEY CHECK ())", "near ' '"),
        ("CREATE TABLE t (a INT PRIMARY KEY CHECK (a > 1", "Syntax error"),
        ("CREATE TABLE t (a INT PRIMARY KEY CHECK a > 1)", "Syntax error"),
        ("ALTER TABLE t ADD CHECK (a > 1)", "Syntax error"),
        ("ALTER TABLE t ENABLE CHECK c", "Syntax error"),
        ("ALTER TABLE t DISABLE CHECK CONSTRAINT c d", "near 'd'"),
    ] {
        let failure = definition(wrong).expect_err(wrong);
        assert!(failure.code == 184 && failure.message.contains(near), "{wrong}: {failure}");
    }
}

#[test]
fn a_check_is_enabled_and_disabled_by_name() {
    for (word, is_enabled) in [("ENABLE", true), ("disable", false)] {
        let (name, space) = ("c".to_owned(), "T".to_owned());
        let switched = definition(&format!("ALTER TABLE t {word} CHECK CONSTRAINT \"c\";"));
        assert_eq!(switched, Ok(Some(Definition::SwitchCheck { name, space, is_enabled })));
    }
}
