//! The content of a new instance: the system spaces, their rows, 277 collations, 67 functions, five users and roles.
//!
//! It is what Tarantool 2.6 writes into its first snapshot (schema version 2.3.1). Clients and programs count on the
//! ids, formats and grants, and a real Tarantool must be able to start from our files. The rows are lists of text
//! beside this file; a test compares the result with the rows of a real snapshot.

pub(crate) mod notation;

use std::sync::LazyLock;

use lycosa_tuple::mp;

use crate::arena::Handle;
use crate::error::Error;
use crate::schema::row::Row;
use crate::statement::Statement;
use crate::{SpaceId, Store, system};

const ROWS: &str = include_str!("rows.txt");
const COLLATIONS: &str = include_str!("collations.txt");
const FUNCTIONS: &str = include_str!("functions.txt");
/// The times that the functions of a new instance show.
const MADE: &str = "2019-12-29 17:52:51";
const STRENGTHS: [&str; 3] = ["primary", "secondary", "tertiary"];

/// The lines of a list without its comments.
fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

fn encode(row: &str) -> Vec<u8> {
    notation::encode(row).expect("the lists of a new instance are well-formed")
}

/// Rows of `rows.txt` in their order. Each new store reads them, so they are encoded once.
fn listed_rows() -> impl Iterator<Item = (SpaceId, &'static [u8])> {
    static LISTED: LazyLock<Vec<(SpaceId, Vec<u8>)>> = LazyLock::new(|| {
        let row = |line: &str| {
            let (space, row) = line.split_once(' ').expect("a listed row has a space and a tuple");
            (space.parse().expect("the space of a listed row is a number"), encode(row))
        };
        lines(ROWS).map(row).collect()
    });
    LISTED.iter().map(|(space, row)| (*space, row.as_slice()))
}

fn collation_rows() -> impl Iterator<Item = Vec<u8>> {
    let first = [
        r#"[0, "none", 1, "BINARY", "", {}]"#.to_owned(),
        r#"[1, "unicode", 1, "ICU", "", {"strength": "tertiary"}]"#.to_owned(),
        r#"[2, "unicode_ci", 1, "ICU", "", {"strength": "primary"}]"#.to_owned(),
        r#"[3, "binary", 1, "BINARY", "", {}]"#.to_owned(),
    ];
    let listed = lines(COLLATIONS).enumerate().flat_map(|(line_number, line)| {
        let (name, locale) = line.split_once(' ').unwrap_or((line, line));
        STRENGTHS.iter().zip(1..).map(move |(strength, level)| {
            let id = 3 + 3 * line_number + level;
            format!(
                r#"[{id}, "unicode_{name}_s{level}", 1, "ICU", "{locale}", {{"strength": "{strength}"}}]"#
            )
        })
    });
    first.into_iter().chain(listed).map(|row| encode(&row))
}

fn function_rows() -> impl Iterator<Item = Vec<u8>> {
    (1..).zip(lines(FUNCTIONS)).map(|(id, name)| {
        let (language, body, parameters, exports) = match name {
            "box.schema.user.info" => ("LUA", "", "[]", r#"["LUA"]"#),
            "LUA" => {
                let body = "function(code) return assert(loadstring(code))() end";
                ("LUA", body, r#"["string"]"#, r#"["LUA", "SQL"]"#)
            }
            _ => ("SQL_BUILTIN", "", "[]", "[]"),
        };
        encode(&format!(
            r#"[{id}, 1, "{name}", 1, "{language}", "{body}", "function", {parameters}, "any", "none", "none",
                false, false, true, {exports}, {{}}, "", "{MADE}", "{MADE}"]"#
        ))
    })
}

/// Every user may execute the functions.
fn function_grants() -> impl Iterator<Item = Vec<u8>> {
    (1..).zip(lines(FUNCTIONS)).map(|(id, _): (u32, _)| encode(&format!(r#"[1, 2, "function", {id}, 4]"#)))
}

fn named_uuid(name: &str, uuid: &str) -> Vec<u8> {
    let mut row = Vec::new();
    mp::write_array(&mut row, 2);
    mp::write_str(&mut row, name.as_bytes());
    mp::write_str(&mut row, uuid.as_bytes());
    row
}

fn first_instance(uuid: &str) -> Vec<u8> {
    let mut row = Vec::new();
    mp::write_array(&mut row, 2);
    mp::write_uint(&mut row, 1);
    mp::write_str(&mut row, uuid.as_bytes());
    row
}

impl Store {
    /// Makes the system spaces with their indexes, so that rows can be put into them: also the very rows that define
    /// them, which then find them there.
    pub(crate) fn define_system_spaces(&mut self) {
        for (space, row) in listed_rows().filter(|(space, _)| [system::SPACE, system::INDEX].contains(space))
        {
            self.define_from(space, row).expect("the definitions of the system spaces agree");
        }
        self.transaction = Default::default();
        self.schema.version = 0;
    }

    /// Lets the schema follow a row that no space holds.
    fn define_from(&mut self, space: SpaceId, row: &[u8]) -> Result<(), Error> {
        let row: Option<Handle> = self.arena.insert(row);
        let result = self.system_row_changed(space, None, row);
        if let Some(row) = row {
            self.arena.remove(row);
        }
        result
    }

    /// Fills a new store with the content of a new instance, as if it had been recovered from a first snapshot. The
    /// instance gets the number 1 in `_cluster`.
    ///
    /// # Errors
    /// [`Error::InvalidUuid`], or the store is not new.
    pub fn bootstrap(&mut self, cluster_uuid: &str, instance_uuid: &str) -> Result<(), Error> {
        let mut insert = |space, tuple: &[u8]| self.recover(&Statement::Insert { space, tuple });
        insert(system::SCHEMA, &named_uuid("cluster", cluster_uuid))?;
        for row in collation_rows() {
            insert(system::COLLATION, &row)?;
        }
        // Grants come last: what they are about must be there.
        let (grants, others): (Vec<_>, Vec<_>) = listed_rows().partition(|(space, _)| *space == system::PRIV);
        for (space, row) in others {
            insert(space, row)?;
        }
        for row in function_rows() {
            insert(system::FUNC, &row)?;
        }
        for (_, row) in grants {
            insert(system::PRIV, row)?;
        }
        for row in function_grants() {
            insert(system::PRIV, &row)?;
        }
        insert(system::CLUSTER, &first_instance(instance_uuid))?;
        self.set_replica_id(1);
        self.finish_recovery()
    }

    /// The cluster's UUID, as `_schema` has it.
    #[must_use]
    pub fn cluster_uuid(&self) -> Option<String> {
        let key = encode(r#"["cluster"]"#);
        let row = self.get(system::SCHEMA, 0, &key).ok().flatten()?;
        Row::new(row).text(1).ok()
    }
}
