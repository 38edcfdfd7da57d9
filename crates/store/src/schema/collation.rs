//! Rows of `_collation`: orders of strings that key parts refer to by number.

use std::collections::BTreeMap;

use lycosa_tuple::collation::{Collation, CollationError};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::access::{Access, ObjectType};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::SchemaObject;
use crate::schema::row::{OptionType, Options, Row};
use crate::{SpaceId, Store, system};

/// Options of a row and what they may be, in the order in which a Tarantool looks at them.
const OPTIONS: [(&str, &[&str]); 7] = [
    ("french_collation", ON_OFF),
    ("alternate_handling", &["NON_IGNORABLE", "SHIFTED"]),
    ("case_first", &["OFF", "UPPER_FIRST", "LOWER_FIRST"]),
    ("case_level", ON_OFF),
    ("normalization_mode", ON_OFF),
    ("strength", &["PRIMARY", "SECONDARY", "TERTIARY", "QUATERNARY", "IDENTICAL"]),
    ("numeric_collation", ON_OFF),
];
const ON_OFF: &[&str] = &["ON", "OFF"];

/// All collations. They are made when an index asks for one: their tables cost time, and most are never used.
#[derive(Debug, Default)]
pub(crate) struct Collations {
    by_id: BTreeMap<u64, CollationDef>,
}

/// A row of `_collation`, decoded.
#[derive(Debug)]
struct CollationDef {
    name: String,
    kind: String,
    locale: String,
    options: Vec<(&'static str, String)>,
}

impl CollationDef {
    fn decode(row: Row<'_>, lenient: bool) -> Result<Self, Error> {
        let cannot = |reason: &str| Error::CantCreateCollation(reason.to_owned());
        let name = row.name(1, |_| cannot("collation name is too long"))?;
        let kind = row.text(3)?;
        if !["BINARY", "ICU"].iter().any(|known| known.eq_ignore_ascii_case(&kind)) {
            return Err(cannot("unknown collation type"));
        }
        let locale = match row.bytes(4)? {
            [] => String::new(),
            _ => row.name(4, |_| cannot("collation locale is too long"))?,
        };
        let known = OPTIONS.map(|(name, _)| (name, OptionType::Enum));
        let wrong = |reason| Error::WrongCollationOptions { field: 5, reason };
        let given = Options::read(row.raw(5)?, &known, false, wrong)?;
        let mut options = Vec::new();
        for (name, values) in OPTIONS {
            let Some(value) = given.text(name) else { continue };
            // A Tarantool asks this of collations of type BINARY, too.
            if !lenient && !values.iter().any(|known| known.eq_ignore_ascii_case(&value)) {
                let values = values.join(" | ");
                return Err(cannot(&format!("ICU wrong {name} option setting, expected {values}")));
            }
            options.push((name, value));
        }
        Ok(Self { name, kind, locale, options })
    }

    fn make(&self) -> Result<Collation, CollationError> {
        let options = self.options.iter().map(|(name, value)| (*name, value.as_str()));
        Collation::new(&self.kind, &self.locale, options)
    }
}

impl Collations {
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The collation with that id, or why this build cannot order by it.
    pub(crate) fn make(&self, id: u64) -> Option<Result<Collation, CollationError>> {
        self.by_id.get(&id).map(CollationDef::make)
    }

    pub(crate) fn id_of(&self, name: &str) -> Option<u64> {
        self.by_id.iter().find(|(_, def)| def.name == name).map(|(&id, _)| id)
    }

    pub(crate) fn apply(&mut self, old: Option<Row<'_>>, new: Option<Row<'_>>) {
        if let Some(id) = old.and_then(|row| row.uint(0).ok()) {
            self.by_id.remove(&id);
        }
        if let Some(row) = new
            && let (Ok(id), Ok(def)) = (row.uint(0), CollationDef::decode(row, true))
        {
            self.by_id.insert(id, def);
        }
    }
}

/// The collation in the map of a field or of an index part.
pub(super) fn collation_in(map: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(map);
    (0..reader.map().ok()?).find_map(|_| {
        let (key, value) = (reader.raw().ok()?, reader.raw().ok()?);
        (Reader::new(key).str() == Ok(b"collation")).then(|| Reader::new(value).uint().ok()).flatten()
    })
}

impl Store {
    /// The collation with that id, or why this build cannot order by it; `None` if there is no such row of `_collation`.
    pub fn collation(&self, id: u64) -> Option<Result<Collation, CollationError>> {
        self.schema.collations.make(id)
    }

    /// The id of a collation.
    pub fn collation_id(&self, name: &str) -> Option<u64> {
        self.schema.collations.id_of(name)
    }

    /// The first space whose format or index asks for a collation. Without it a start would not find the space in order.
    fn user_of_collation(&self, id: u32) -> Option<String> {
        let users = |system: SpaceId, field: u32| {
            let rows = self.catalog.get(system).into_iter().flat_map(|space| space.handles(&self.arena));
            let rows = rows.map(|handle| Row::new(self.arena.get(handle)));
            let names = move |map: &[u8]| collation_in(map) == Some(u64::from(id));
            rows.filter(move |row| {
                row.raw(field).is_ok_and(|maps| TupleRef::trusted(maps).fields().any(names))
            })
        };
        let row = users(system::SPACE, 6).chain(users(system::INDEX, 5)).next()?;
        let space = row.id(0).ok()?;
        Some(self.catalog.get(space).map_or_else(|| space.to_string(), |space| space.name().to_owned()))
    }

    /// A row of `_collation` was replaced, added or removed.
    pub(crate) fn collation_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let access = match (old, new) {
            (Some(_), Some(_)) => {
                return Err(Error::Unsupported {
                    object: "collation".to_owned(),
                    feature: "alter".to_owned(),
                });
            }
            (None, _) => Access::CREATE,
            (Some(_), None) => Access::DROP,
        };
        if let Some(new) = new {
            let def = CollationDef::decode(Row::new(self.arena.get(new)), self.is_history())?;
            if !self.is_history() {
                def.make().map_err(|problem| Error::CantCreateCollation(problem.to_string()))?;
            }
        }
        if let Some(row) = new.or(old) {
            let row = Row::new(self.arena.get(row));
            let (id, owner, name) = (row.id(0)?, row.id(2)?, row.text(1)?);
            if access == Access::DROP && id == 0 {
                return Err(Error::DropCollation { name, reason: "system collation".to_owned() });
            }
            let user =
                (access == Access::DROP && !self.is_history()).then(|| self.user_of_collation(id)).flatten();
            if let Some(space) = user {
                return Err(Error::DropCollation { name, reason: format!("space '{space}' uses it") });
            }
            let object = SchemaObject { kind: ObjectType::Collation, id, owner, name: &name };
            self.check_schema_access(object, access)?;
        }
        self.apply_system_row(system::COLLATION, old, new);
        Ok(())
    }
}
