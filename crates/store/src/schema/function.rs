//! Rows of `_func`: functions that clients may call by name.
//!
//! The store knows what a function is called, whose it is and what its source is; to run it is another crate's work.

use std::collections::{BTreeMap, HashMap};

use lycosa_tuple::field::FieldType;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::access::{Access, ObjectType};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::SchemaObject;
use crate::schema::row::{OptionType, Options, Row};
use crate::{Store, UserId, system};

/// Largest id of a function.
pub(crate) const ID_MAX: u64 = 32000;
/// Languages that a row may name, in any case.
const LANGUAGES: [&str; 4] = ["LUA", "C", "SQL", "SQL_BUILTIN"];
/// Fields of a row that has a body and all that goes with it; a shorter one is of an older version.
const FULL_ROW: u32 = 19;

/// A registered function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Number.
    pub id: u32,
    /// Who created it.
    pub owner: UserId,
    /// Name, unique.
    pub name: String,
    /// Runs with the rights of its owner, not with the caller's.
    pub setuid: bool,
    /// `LUA`, `C`, `SQL` or `SQL_BUILTIN`.
    pub language: String,
    /// Source text; empty if the name is to be looked up among the globals.
    pub body: String,
    /// Whether it returns the same for the same arguments, which only its author knows.
    pub is_deterministic: bool,
    /// Whether it makes an array of keys for a functional index.
    pub is_multikey: bool,
    /// Whether the source sees only a few harmless globals.
    pub is_sandboxed: bool,
    /// Whether clients (and Lua) may call it, or only SQL.
    pub exported_to_lua: bool,
}

impl Function {
    /// Whether it is the function `LUA` that each data folder begins with: it runs any text with the rights of `admin`, and
    /// `public` may execute it. Only who may EVAL may call it.
    #[must_use]
    pub fn runs_any_text(&self) -> bool {
        self.name == "LUA"
    }

    pub(crate) fn decode(row: Row<'_>) -> Result<Self, Error> {
        let wrong = |name: String, reason: &str| Error::CreateFunction { name, reason: reason.to_owned() };
        let name = row.name(2, |start| wrong(start, "function name is too long"))?;
        let wrong = |reason: &str| wrong(name.clone(), reason);
        let is_full = row.len() >= FULL_ROW;
        if is_full {
            if !row.text(6)?.eq_ignore_ascii_case("function") {
                return Err(wrong("unsupported routine_type value"));
            }
            if !row.text(10)?.eq_ignore_ascii_case("none") {
                return Err(wrong("unsupported sql_data_access value"));
            }
        }
        let id = row.uint(0)?;
        let id = u32::try_from(id).ok().filter(|&id| u64::from(id) <= ID_MAX);
        let id = id.ok_or_else(|| wrong("function id is too big"))?;
        let setuid = row.len() > 3 && row.uint(3)? != 0;
        let language = if row.len() > 4 { row.text(4)? } else { "LUA".to_owned() };
        let language = language.to_ascii_uppercase();
        if !LANGUAGES.contains(&language.as_str()) {
            return Err(Error::FunctionLanguage { language: row.text(4)?, function: name });
        }
        let mut function = Self {
            id,
            owner: row.id(1)?,
            name: name.clone(),
            setuid,
            language,
            body: String::new(),
            is_deterministic: false,
            is_multikey: false,
            is_sandboxed: false,
            exported_to_lua: true,
        };
        if !is_full {
            return Ok(function);
        }
        function.body = row.text(5)?;
        function.is_deterministic = row.bool(11)?;
        function.is_sandboxed = row.bool(12)?;
        if FieldType::parse(&row.text(8)?).is_none() {
            return Err(wrong("invalid returns value"));
        }
        let exports = texts(row, 14)?;
        if exports.iter().any(|export| !["LUA", "SQL"].iter().any(|known| known.eq_ignore_ascii_case(export)))
        {
            return Err(wrong("invalid exports value"));
        }
        function.exported_to_lua = exports.iter().any(|export| export.eq_ignore_ascii_case("LUA"));
        if texts(row, 7)?.iter().any(|ty| FieldType::parse(ty).is_none()) {
            return Err(wrong("invalid argument type"));
        }
        let wrong_options = |reason| Error::WrongSpaceOptions { field: 15, reason };
        let options =
            Options::read(row.raw(15)?, &[("is_multikey", OptionType::Boolean)], false, wrong_options)?;
        function.is_multikey = options.bool("is_multikey").unwrap_or(false);
        if function.language == "C" && (!function.body.is_empty() || function.is_sandboxed) {
            return Err(wrong("body and is_sandboxed options are not compatible with C language"));
        }
        Ok(function)
    }

    /// Checks that the function can make the keys of an index.
    pub(crate) fn check_makes_keys(&self) -> Result<(), Error> {
        if self.language == "LUA" && !self.body.is_empty() && self.is_deterministic && self.is_sandboxed {
            return Ok(());
        }
        let reason = "referenced function doesn't satisfy functional index function constraints".to_owned();
        Err(Error::WrongIndexOptions { field: 0, reason })
    }

    /// Checks what a new row must be besides, but rows of a folder need not.
    pub(crate) fn check_new(&self, row: Row<'_>) -> Result<(), Error> {
        let wrong =
            |reason: &str| Err(Error::CreateFunction { name: self.name.clone(), reason: reason.to_owned() });
        if self.language == "SQL" {
            return Err(Error::FunctionLanguage { language: row.text(4)?, function: self.name.clone() });
        }
        if row.len() < FULL_ROW {
            return Ok(());
        }
        if !row.bool(13)? {
            return wrong("unsupported is_null_call value");
        }
        let aggregate = row.text(9)?;
        if !["none", "group"].iter().any(|known| known.eq_ignore_ascii_case(&aggregate)) {
            return wrong("invalid aggregate value");
        }
        if self.language == "LUA" && self.is_sandboxed && self.body.is_empty() {
            return wrong(
                "is_sandboxed option may be set only for a persistent Lua function (one with a non-empty body)",
            );
        }
        Ok(())
    }
}

/// What a row says besides of how a function is called: types of the result and the arguments, the rest as it stands.
fn signature(row: Row<'_>) -> Result<Vec<String>, Error> {
    if row.len() < FULL_ROW {
        return Ok(["any", "none", "", "false", "80", "", "false"].map(str::to_owned).to_vec());
    }
    let options = row.raw(15)?.iter().map(|byte| format!("{byte:x}")).collect();
    let types = texts(row, 7)?.join(" ");
    let exports = texts(row, 14)?.iter().any(|export| export.eq_ignore_ascii_case("SQL"));
    let lower = [row.text(8)?, row.text(9)?, types].map(|text| text.to_ascii_lowercase());
    let rest = [row.bool(11)?.to_string(), options, row.text(16)?, exports.to_string()];
    Ok(lower.into_iter().chain(rest).collect())
}

/// The strings of an array in a field.
fn texts(row: Row<'_>, field: u32) -> Result<Vec<String>, Error> {
    let text = |value| match Reader::new(value).str() {
        Ok(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        Err(_) => Err(Row::mismatch(field, FieldType::String)),
    };
    TupleRef::trusted(row.raw(field)?).fields().map(text).collect()
}

/// All functions.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    by_id: BTreeMap<u32, Function>,
    ids: HashMap<String, u32>,
}

impl Functions {
    pub(crate) fn get(&self, id: u32) -> Option<&Function> {
        self.by_id.get(&id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Function> {
        self.by_id.get(self.ids.get(name)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Function> {
        self.by_id.values()
    }

    pub(crate) fn apply(&mut self, old: Option<Row<'_>>, new: Option<Row<'_>>) {
        let old = old.and_then(|row| row.id(0).ok()).and_then(|id| self.by_id.remove(&id));
        if let Some(old) = old {
            self.ids.remove(&old.name);
        }
        if let Some(new) = new.and_then(|row| Function::decode(row).ok()) {
            self.ids.insert(new.name.clone(), new.id);
            self.by_id.insert(new.id, new);
        }
    }
}

impl Store {
    /// The function with that name.
    #[must_use]
    pub fn function_by_name(&self, name: &str) -> Option<&Function> {
        self.schema.functions.by_name(name)
    }

    /// All functions in id order.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.schema.functions.iter()
    }

    /// A row of `_func` was replaced, added or removed.
    pub(crate) fn function_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let check = |function: &Function, access| {
            let Function { id, owner, name, .. } = function;
            let object = SchemaObject { kind: ObjectType::Function, id: *id, owner: *owner, name };
            self.check_schema_access(object, access)
        };
        match (old, new) {
            (None, Some(new)) => {
                let row = Row::new(self.arena.get(new));
                let function = Function::decode(row)?;
                if !self.is_history() {
                    function.check_new(row)?;
                }
                check(&function, Access::CREATE)?;
                if let Some(check) = self.check_body
                    && function.language == "LUA"
                    && !function.body.is_empty()
                    && !self.is_history()
                {
                    check(&function.body)
                        .map_err(|reason| Error::LoadFunction { function: function.name.clone(), reason })?;
                }
                let is_builtin = function.language == "SQL_BUILTIN";
                if is_builtin && !self.is_history() {
                    let reason = "given built-in is not predefined".to_owned();
                    return Err(Error::CreateFunction { name: function.name, reason });
                }
            }
            (Some(old), Some(new)) => {
                // A function of any kind stays: only its times are no part of it.
                let (old, new) = (Row::new(self.arena.get(old)), Row::new(self.arena.get(new)));
                let (was, is) = (Function::decode(old)?, Function::decode(new)?);
                check(&was, Access::ALTER)?;
                if !self.is_history() {
                    is.check_new(new)?;
                }
                if was != is || signature(old)? != signature(new)? {
                    return Err(Error::Unsupported {
                        object: "function".to_owned(),
                        feature: "alter".to_owned(),
                    });
                }
            }
            (Some(old), None) => {
                let id = Row::new(self.arena.get(old)).id(0)?;
                if let Some(function) = self.schema.functions.get(id) {
                    check(function, Access::DROP)?;
                }
                let reason = if self.schema.users.has_grants(ObjectType::Function, id) {
                    "function has grants"
                } else if self.schema.functions.get(id).is_some_and(|f| f.language == "SQL_BUILTIN") {
                    "function is SQL built-in"
                } else if self.has_rows(system::FUNC_INDEX, 1, &[id]) {
                    "function has references"
                } else {
                    ""
                };
                if !reason.is_empty() {
                    // A Tarantool names the owner here.
                    let owner = self.schema.functions.get(id).map_or(id, |function| function.owner);
                    let id = if reason == "function has references" { owner } else { id };
                    return Err(Error::DropFunction { id, reason: reason.to_owned() });
                }
            }
            (None, None) => {}
        }
        self.apply_system_row(system::FUNC, old, new);
        Ok(())
    }
}
