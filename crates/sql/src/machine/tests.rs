//! Queries over several spaces: an index changes no result, and every bound ends a statement.

use lycosa_store::{Progress, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use crate::walk::tests::{Lent, Row, lend};
use crate::{Asker, Error, Limits, Run, SqlFault};

/// The rows of a query in the order of their text, and the number of steps that it took.
fn rows_of(lent: &mut Lent, text: &str, limits: Limits) -> Result<(Vec<String>, u32), Error> {
    let asker = Asker { user: user::ADMIN, is_hidden: &|_| false };
    let plan = crate::plan(text, &lent.store, asker)?;
    let mut run = Run::new(&plan, &lent.store, user::ADMIN, Vec::new(), limits)?;
    let mut steps = 1;
    while run.step(&plan, lent)? == Progress::More {
        steps += 1;
    }
    let (count, rows) = run.rows();
    let mut reader = Reader::new(rows);
    let mut shown = Vec::new();
    for _ in 0..count {
        shown.push(format!("{:?}", Value::decode(reader.raw().expect("a row")).expect("a row")));
    }
    shown.sort();
    Ok((shown, steps))
}

fn found(lent: &mut Lent, text: &str) -> Vec<String> {
    rows_of(lent, text, Limits::PROGRAM).unwrap_or_else(|error| panic!("{text}: {error}")).0
}

fn refused(lent: &mut Lent, text: &str, limits: Limits) -> SqlFault {
    match rows_of(lent, text, limits) {
        Err(Error::Statement(failure)) => failure,
        Err(Error::Store(error)) => panic!("{text}: the store refuses: {error}"),
        Ok((rows, _)) => panic!("{text}: {} rows", rows.len()),
    }
}

/// A row of each id, whose number is the id modulo `modulus`.
fn numbered(count: u64, modulus: u64) -> Vec<Row> {
    (1..=count).map(|id| (id, Some((id % modulus) as i64), format!("name {}", id % 3))).collect()
}

/// Queries over two spaces, which have indexes or have none.
const JOINS: &[&str] = &[
    "SELECT a.\"id\", b.\"id\" FROM {x} a, {y} b WHERE a.\"number\" = b.\"number\"",
    "SELECT a.\"id\", b.\"id\" FROM {x} a JOIN {y} b ON a.\"id\" = b.\"number\" AND b.\"id\" > 3",
    "SELECT a.\"id\", b.\"id\" FROM {x} a LEFT JOIN {y} b ON b.\"number\" < a.\"number\" AND b.\"name\" = a.\"name\"",
    "SELECT a.\"id\", b.\"id\" FROM {x} a LEFT JOIN {y} b ON b.\"number\" = a.\"id\" WHERE b.\"id\" IS NULL",
    "SELECT a.\"id\", b.\"id\", c.\"id\" FROM {x} a, {y} b, {x} c WHERE a.\"id\" = b.\"number\" AND c.\"id\" = b.\"id\" + 1",
    "SELECT * FROM {x} a NATURAL JOIN {y} b",
    "SELECT b.* FROM {x} a JOIN {y} b USING (\"name\", \"number\")",
    "SELECT a.\"id\", b.\"id\" FROM {x} a, {y} b WHERE b.\"number\" BETWEEN a.\"number\" AND a.\"id\"",
    "SELECT a.\"name\", COUNT(*), SUM(b.\"number\") FROM {x} a LEFT JOIN {y} b ON a.\"id\" = b.\"number\" GROUP BY a.\"name\"",
    "SELECT \"id\" FROM {x} a WHERE \"number\" IN (SELECT \"number\" FROM {y} WHERE \"name\" = a.\"name\" AND \"id\" <> a.\"id\")",
    "SELECT \"id\" FROM {x} a WHERE \"number\" IN (SELECT \"id\" - 1 FROM {y} UNION ALL SELECT 1 UNION ALL SELECT '1')",
    "SELECT a.\"id\", b.\"id\" FROM {x} a, {y} b WHERE b.\"name\" IN (SELECT \"name\" FROM {x} c WHERE c.\"id\" > a.\"id\")",
    "SELECT a.\"id\", b.\"id\" FROM {x} a LEFT JOIN {y} b ON b.\"id\" IN (SELECT \"number\" FROM {x} WHERE \"id\" <> a.\"id\")",
    "SELECT \"id\" FROM {x} a WHERE NOT EXISTS (SELECT 1 FROM {y} b WHERE b.\"number\" = a.\"id\")",
    "SELECT \"id\", (SELECT MAX(b.\"id\") FROM {y} b WHERE b.\"number\" = a.\"number\" AND b.\"name\" < a.\"name\") FROM {x} a",
    "SELECT a.\"id\", q.\"N\" FROM {x} a JOIN (SELECT \"number\" k, COUNT(*) \"N\" FROM {y} GROUP BY \"number\") q ON q.k = a.\"id\"",
    "SELECT \"number\" FROM {x} EXCEPT SELECT \"number\" FROM {y} WHERE \"id\" > 4 UNION ALL SELECT \"id\" FROM {y}",
    "SELECT \"number\" FROM {x} INTERSECT SELECT \"id\" FROM {y}",
];

fn over(text: &str, x: &str, y: &str) -> String {
    text.replace("{x}", &format!("\"{x}\"")).replace("{y}", &format!("\"{y}\""))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whichever side has indexes, and whichever steps find an index altered, the rows are the same.
    #[test]
    fn an_index_changes_no_join(
        rows in prop::collection::vec((prop::option::of(-2_i64..8), 0_u8..3), 1..9),
        altered_at in 1_u32..40,
    ) {
        let rows: Vec<Row> = (1..).zip(rows).map(|(id, (number, name))| (id, number, format!("{name}"))).collect();
        let mut lent = lend(&rows);
        for text in JOINS {
            let plain = found(&mut lent, &over(text, "one", "one"));
            for (x, y) in [("one", "many"), ("many", "one"), ("many", "many")] {
                let text = over(text, x, y);
                prop_assert_eq!(&plain, &found(&mut lent, &text), "{}", text);
                (lent.steps, lent.altered_at) = (0, Some(altered_at));
                let altered = found(&mut lent, &text);
                lent.altered_at = None;
                prop_assert_eq!(&plain, &altered, "{}", text);
            }
        }
    }
}

/// The rows of joins that a reader can count.
#[test]
fn joins_have_the_rows_of_nested_loops() {
    let mut lent = lend(&numbered(12, 4));
    for (text, count) in [
        ("SELECT 1 FROM \"one\" a, \"many\" b", 144),
        ("SELECT 1 FROM \"one\" a, \"many\" b WHERE a.\"number\" = b.\"number\"", 36),
        ("SELECT 1 FROM \"one\" a LEFT JOIN \"many\" b ON a.\"id\" = b.\"number\"", 18),
        ("SELECT 1 FROM \"one\" a LEFT JOIN \"many\" b ON a.\"id\" = b.\"number\" WHERE b.\"id\" IS NULL", 9),
        ("SELECT 1 FROM \"one\" a LEFT JOIN \"many\" b ON 1 = 0", 12),
        ("SELECT DISTINCT a.\"number\" FROM \"one\" a, \"many\" b", 4),
        ("SELECT 1 FROM \"one\" a, \"many\" b ORDER BY a.\"id\", b.\"id\" LIMIT 5 OFFSET 142", 2),
        ("SELECT \"id\" FROM \"one\" WHERE \"id\" IN (SELECT \"number\" FROM \"many\")", 3),
        ("SELECT \"id\" FROM \"one\" WHERE \"id\" NOT IN (SELECT \"number\" FROM \"many\")", 9),
        ("SELECT 1 FROM (SELECT \"id\" FROM \"one\" LIMIT 3) a, (SELECT \"id\" FROM \"many\" LIMIT 2) b", 6),
        ("VALUES (1), (2) UNION VALUES (2), (3)", 3),
        ("SELECT (SELECT 1 WHERE 1 = 0)", 1),
        ("SELECT 1 WHERE 1 = (SELECT 2)", 0),
    ] {
        assert_eq!(found(&mut lent, text).len(), count, "{text}");
    }
}

/// A statement that would hold the thread pauses, and one that goes on for too long ends. The number of rows that it would
/// have does not matter: `one` joined with itself six times has three million million rows.
#[test]
fn a_join_of_any_size_pauses_and_ends() {
    let mut lent = lend(&numbered(120, 7));
    let everything = "SELECT COUNT(*) FROM \"one\" a, \"one\" b, \"one\" c, \"one\" d, \"one\" e, \"one\" f";
    let limits = Limits { total: Some(1 << 22), ..Limits::CLIENT };
    for text in [
        everything.to_owned(),
        format!("SELECT ({everything})"),
        format!("SELECT 1 FROM ({everything})"),
        format!("SELECT 1 WHERE 1 IN ({everything})"),
        format!("SELECT 1 UNION {everything}"),
        "SELECT (SELECT MAX(b.\"id\" + a.\"id\") FROM \"one\" b, \"one\" c, \"one\" d) FROM \"one\" a"
            .to_owned(),
        "SELECT 1 FROM \"one\" a, \"one\" b, \"one\" c, \"one\" d WHERE a.\"id\" + b.\"id\" + c.\"id\" < 0"
            .to_owned(),
    ] {
        let failure = refused(&mut lent, &text, limits);
        assert!(failure.message.contains("too many rows"), "{text}: {}", failure.message);
    }
    let (_, steps) = rows_of(&mut lent, "SELECT COUNT(*) FROM \"one\" a, \"one\" b, \"one\" c", limits)
        .expect_err("it is longer than the bound")
        .to_string()
        .split_once("too many")
        .map_or(((), 0), |_| ((), 1));
    assert_eq!(steps, 1);
    let (rows, steps) =
        rows_of(&mut lent, "SELECT COUNT(*) FROM \"one\" a, \"one\" b", limits).expect("it is short");
    assert!(rows.len() == 1 && steps >= 3, "{steps} steps");
    // An UPDATE never pauses, so its bound is lower.
    let failure = refused(
        &mut lent,
        "UPDATE \"one\" SET \"number\" = (SELECT COUNT(*) FROM \"many\" a, \"many\" b WHERE a.\"id\" <> \"one\".\"id\")",
        Limits::CLIENT,
    );
    assert!(failure.message.contains("too many rows at once"), "{}", failure.message);
}

/// Rows of results, of derived tables, of sets and of sorted parts are all counted.
#[test]
fn a_query_has_a_bound_of_bytes() {
    let mut lent = lend(&numbered(100, 7));
    let limits = Limits { bytes: 20_000, whole: None, total: None };
    let pairs = "SELECT a.\"name\" || b.\"name\" n FROM \"one\" a, \"one\" b";
    for text in [
        pairs.to_owned(),
        format!("SELECT COUNT(*) FROM ({pairs})"),
        format!("SELECT 1 WHERE 'x' IN ({pairs})"),
        format!("{pairs} ORDER BY 1"),
        "SELECT a.\"id\", b.\"id\" FROM \"one\" a, \"one\" b UNION SELECT 1, 2".to_owned(),
        "SELECT a.\"id\", b.\"id\", COUNT(*) FROM \"one\" a, \"one\" b GROUP BY a.\"id\", b.\"id\""
            .to_owned(),
    ] {
        assert_eq!(refused(&mut lent, &text, limits).code, 2, "{text}");
    }
    assert_eq!(rows_of(&mut lent, &format!("{pairs} LIMIT 10"), limits).expect("it is short").0.len(), 10);
}

/// A user learns of no space by a join, and of no column of a space that it must not read.
#[test]
fn every_source_needs_the_right_to_read() {
    let mut lent = lend(&numbered(2, 2));
    let hidden = lent.store.space_by_name("many").map(lycosa_store::Space::id).expect("a space");
    for text in [
        "SELECT 1 FROM \"many\", \"_space\"",
        "SELECT nosuch FROM \"many\" a, \"many\" b",
        "SELECT 1 WHERE 1 IN (SELECT nosuch FROM \"many\")",
        "SELECT (SELECT MAX(nosuch) FROM \"many\")",
        "SELECT 1 UNION SELECT nosuch FROM \"many\"",
        "SELECT 1 FROM (SELECT nosuch FROM \"many\")",
    ] {
        let asker = Asker { user: user::GUEST, is_hidden: &|_| false };
        let denied = crate::plan(text, &lent.store, asker).map(drop).expect_err(text).to_string();
        assert_eq!(denied, "Read access to space 'many' is denied for user 'guest'", "{text}");
        let blind = Asker { user: user::GUEST, is_hidden: &|space| space == hidden };
        let refused = crate::plan(text, &lent.store, blind).map(drop).expect_err(text).to_string();
        assert_eq!(refused, "Space 'many' does not exist", "{text}");
    }
    // Another user's plan is refused as well.
    let admin = Asker { user: user::ADMIN, is_hidden: &|_| false };
    let plan = crate::plan("SELECT (SELECT 1 FROM \"many\" LIMIT 1)", &lent.store, admin).expect("a plan");
    let guest = Asker { user: user::GUEST, is_hidden: &|_| false };
    assert!(crate::check_plan(&plan, &lent.store, guest).is_err());
    assert!(rows_of(&mut lent, "SELECT 1 FROM \"many\", \"one\"", Limits::CLIENT).is_ok());
}

/// Names and shapes that do not fit get the errors of Tarantool.
#[test]
fn wrong_queries_get_the_errors_of_tarantool() {
    let mut lent = lend(&numbered(3, 2));
    let many = |word: &str, count: usize| vec![word; count].join(",");
    for (text, code, message) in [
        ("SELECT \"id\" FROM \"one\", \"many\"", 186, "ambiguous column name: id"),
        ("SELECT * FROM \"one\", \"one\"", 186, "ambiguous column name: one.id"),
        ("SELECT z.* FROM \"one\", \"many\"", 36, "Space 'Z' does not exist"),
        (
            "SELECT 1 FROM \"one\" JOIN \"many\" USING (z)",
            186,
            "cannot join using column Z - column not present in both tables",
        ),
        (
            "SELECT 1 FROM \"one\" RIGHT JOIN \"many\" ON 1 = 1",
            5,
            "Tarantool does not support RIGHT and FULL OUTER JOINs",
        ),
        (
            "SELECT (SELECT 1, 2)",
            197,
            "Unequal number of entries in row expression: left side has 2, but right side - 1",
        ),
        (
            "SELECT (SELECT \"id\" FROM \"one\")",
            159,
            "Failed to execute SQL statement: Expression subquery returned more than 1 row",
        ),
        ("SELECT 'x' IN (SELECT \"id\" FROM \"one\")", 171, "Type mismatch: can not convert x to unsigned"),
        (
            "SELECT 1 UNION SELECT 1, 2",
            186,
            "SELECTs to the left and right of UNION do not have the same number of result columns",
        ),
        ("VALUES (1), (1, 2)", 186, "all VALUES must have the same number of terms"),
        (
            "SELECT 1 UNION SELECT 2 ORDER BY 2",
            186,
            "Error at ORDER BY in place 1: term out of range - should be between 1 and 1",
        ),
        ("INSERT INTO \"one\" SELECT 1", 186, "table one has 3 columns but 1 values were supplied"),
        (
            "SELECT 1 AS table",
            183,
            "At line 1 at or near position 13: keyword 'table' is reserved. Please use double quotes if 'table' is an identifier.",
        ),
    ] {
        let failure = refused(&mut lent, text, Limits::PROGRAM);
        assert_eq!((failure.code, failure.message.as_str()), (code, message), "{text}");
    }
    for (text, message) in [
        (
            format!("SELECT 1 FROM {}", many("\"one\"", 65)),
            "The number of tables in a join 65 exceeds the limit (64)",
        ),
        (
            format!("SELECT 1{}", " UNION SELECT 1".repeat(30)),
            "The number of UNION or EXCEPT or INTERSECT operations 31 exceeds the limit (30)",
        ),
        (
            format!("SELECT 1,1{}", " UNION SELECT 1,1".repeat(3000)),
            "The number of UNION or EXCEPT or INTERSECT operations 3000 exceeds the limit (500)",
        ),
    ] {
        let failure = refused(&mut lent, &text, Limits::PROGRAM);
        assert_eq!((failure.code, failure.message.as_str()), (191, message));
    }
    let nested = format!("SELECT 1 FROM {}\"one\"{}", "(SELECT 1 FROM ".repeat(3000), ")".repeat(3000));
    assert!(refused(&mut lent, &nested, Limits::PROGRAM).message.contains("too deep"));
    let wide = format!("SELECT {}", many("(SELECT 1 FROM \"one\" LIMIT 1)", 300));
    assert!(refused(&mut lent, &wide, Limits::PROGRAM).message.contains("256 sources"));
}
