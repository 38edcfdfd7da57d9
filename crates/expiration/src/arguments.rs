//! Arguments of `expiration.start` and of the module's `libcapped-expirationd.start`.

use lycosa_store::{IndexId, Space, SpaceId, SpaceIndex, Store};
use lycosa_tuple::value::Value;

use crate::deadline::Unit;
use crate::definition::{Archive, Budget, Definition, Field};
use crate::error::Error;

/// Options of a row of `_expiration`.
pub(crate) const STORED: &[&str] = &[
    "field",
    "unit",
    "index",
    "delete_by",
    "scan_size",
    "scan_time",
    "budget_rows",
    "budget_us",
    "share",
    "lag_limit",
    "archive_tube",
    "archive_space",
];

/// Options of `expiration.start` beside those of a row.
const CALLED: &[&str] = &["transient", "dry_run", "if_not_exists"];

/// Options by name, with no others than are known.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    pairs: &'a [(Value, Value)],
}

impl<'a> Options<'a> {
    pub(crate) fn new(value: Option<&'a Value>, known: &[&str]) -> Result<Self, Error> {
        let pairs = match value {
            None | Some(Value::Nil) => &[],
            Some(Value::Map(pairs)) => pairs.as_slice(),
            Some(Value::Array(items)) if items.is_empty() => &[],
            Some(other) => {
                return Err(Error::illegal(format!("options are a map, not {}", kind(other))));
            }
        };
        for (position, (key, _)) in pairs.iter().enumerate() {
            let Some(name) = key.as_str() else {
                return Err(Error::illegal(format!("the name of an option is a string, not {}", kind(key))));
            };
            if !known.contains(&name) && !CALLED.contains(&name) {
                return Err(Error::illegal(format!(
                    "there is no option '{name}'{}; the options are {}",
                    suggestion(name, known.iter().chain(CALLED).copied()),
                    known.iter().chain(CALLED).copied().collect::<Vec<_>>().join(", ")
                )));
            }
            if pairs[..position].iter().any(|(earlier, _)| earlier == key) {
                return Err(Error::illegal(format!("option '{name}' is given twice")));
            }
        }
        Ok(Self { pairs })
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.pairs.iter().find(|(key, _)| key.as_str() == Some(name));
        found.map(|(_, value)| value).filter(|value| !matches!(value, Value::Nil))
    }

    fn uint(&self, name: &str, most: u64) -> Result<Option<u64>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match whole(value) {
            Some(number) if number <= most => Ok(Some(number)),
            Some(number) => Err(Error::illegal(format!("{name} is at most {most}, not {number}"))),
            None => Err(Error::illegal(format!("{name} is a whole number, not {}", shown(value)))),
        }
    }

    fn u32(&self, name: &str) -> Result<Option<u32>, Error> {
        let number = self.uint(name, u64::from(u32::MAX))?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Error> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(Error::illegal(format!("{name} is true or false, not {}", shown(other)))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text)),
                None => Err(Error::illegal(format!("{name} is a string, not {}", shown(value)))),
            },
        }
    }
}

/// Which spaces the caller may know of. All further ones are refused before any text says anything about them, and no text suggests
/// their names.
pub type Admit<'a> = &'a dyn Fn(SpaceId) -> Result<(), lycosa_store::Error>;

/// What `expiration.start` is called with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The task.
    pub definition: Definition,
    /// A task with this name is no error.
    pub if_not_exists: bool,
}

impl Start {
    /// Reads `[name, space, options]`.
    ///
    /// # Errors
    /// [`Error::Illegal`] with the argument that is wrong; what the definition names does not exist, or `admit` refuses it.
    pub fn read(store: &Store, arguments: &[Value], admit: Admit<'_>) -> Result<Self, Error> {
        if !(2..=3).contains(&arguments.len()) {
            return Err(Error::illegal(format!(
                "expected expiration.start(name, space, {{field = …}}), got {} arguments",
                arguments.len()
            )));
        }
        let name = task_name(arguments.first())?;
        let space = space_of(store, arguments.get(1), "the space", admit)?;
        let options = Options::new(arguments.get(2), STORED)?;
        let mut definition = definition(store, name, space, &options, admit)?;
        definition.transient = options.flag("transient")?;
        definition.dry_run = options.flag("dry_run")?;
        definition.plan(store)?;
        Ok(Self { definition, if_not_exists: options.flag("if_not_exists")? })
    }

    /// Checks what can be checked of a task whose space does not exist yet: its name and its options.
    ///
    /// # Errors
    /// [`Error::Illegal`] with the argument that is wrong.
    pub fn check(name: &str, options: &Value) -> Result<(), Error> {
        let options = Options::new(Some(options), STORED)?;
        apart_from_store(name, 0, &options)?.check()
    }
}

/// The name of a task, first of the arguments.
///
/// # Errors
/// It is no string, or has the wrong length.
pub fn task_name(value: Option<&Value>) -> Result<&str, Error> {
    let Some(value) = value else { return Err(Error::illegal("the name of the expiration task is missing")) };
    let name = value.as_str();
    let name = name.ok_or_else(|| {
        Error::illegal(format!("the name of an expiration task is a string, not {}", shown(value)))
    })?;
    Definition::new(name, 0, Field::Number(1)).check().map(|()| name)
}

/// The definition that these options make.
pub(crate) fn definition(
    store: &Store,
    name: &str,
    space: SpaceId,
    options: &Options<'_>,
    admit: Admit<'_>,
) -> Result<Definition, Error> {
    let mut definition = apart_from_store(name, space, options)?;
    definition.index = match options.get("index") {
        Some(value) => index_of(store.space(space)?, value, "index")?,
        None => definition.best_index(store)?,
    };
    if let Some(value) = options.get("delete_by") {
        definition.delete_by = index_of(store.space(space)?, value, "delete_by")?;
    }
    if let Some(archive) = options.get("archive_space") {
        // The archive of a task that is kept may have been dropped: the task says so when it is planned, and goes on when there
        // is such a space again.
        let archive = match whole(archive).and_then(|id| SpaceId::try_from(id).ok()) {
            Some(id) => admit(id).map(|()| id)?,
            None => space_of(store, Some(archive), "archive_space", admit)?,
        };
        definition.archive = Some(Archive::Space(archive));
    }
    definition.check()?;
    Ok(definition)
}

/// The part of a definition that says nothing about the spaces and indexes that exist.
fn apart_from_store(name: &str, space: SpaceId, options: &Options<'_>) -> Result<Definition, Error> {
    let field = match options.get("field") {
        None => {
            return Err(Error::illegal(
                "field is missing: the number (from 1) or the name of the field with the deadline",
            ));
        }
        Some(value) => match (value.as_str(), whole(value).and_then(|number| u32::try_from(number).ok())) {
            (Some(name), _) => Field::Name(name.to_owned()),
            (None, Some(number)) => Field::Number(number),
            _ => {
                return Err(Error::illegal(format!(
                    "field is a number from 1 or a name, not {}",
                    shown(value)
                )));
            }
        },
    };
    let mut definition = Definition::new(name, space, field);
    if let Some(unit) = options.text("unit")? {
        definition.unit =
            Unit::parse(unit).ok_or_else(|| Error::illegal(format!("unit is s, ms or us, not '{unit}'")))?;
    }
    if let Some(size) = options.u32("scan_size")? {
        definition.scan_size = size;
    }
    if let Some(time) = options.uint("scan_time", u64::MAX)? {
        definition.scan_time = time;
    }
    let Budget { rows, microseconds, share } = &mut definition.budget;
    for (name, value) in [("budget_rows", rows), ("budget_us", microseconds), ("share", share)] {
        if let Some(number) = options.u32(name)? {
            *value = number;
        }
    }
    if let Some(value) = options.get("lag_limit") {
        definition.lag_limit = seconds(value).ok_or_else(|| {
            Error::illegal(format!("lag_limit is 0 to 1000000000000 seconds, not {}", shown(value)))
        })?;
    }
    if let Some(tube) = options.text("archive_tube")? {
        if options.get("archive_space").is_some() {
            return Err(Error::illegal("archive_tube and archive_space exclude each other"));
        }
        definition.archive = Some(Archive::Tube(tube.to_owned()));
    }
    Ok(definition)
}

fn index_of(space: &Space, value: &Value, what: &str) -> Result<IndexId, Error> {
    if let Some(name) = value.as_str() {
        let names = || space.indexes().iter().map(SpaceIndex::name);
        let found = space.index_by_name(name).map(SpaceIndex::id);
        return found.ok_or_else(|| {
            Error::illegal(format!(
                "space '{}' has no index '{name}'{}",
                space.name(),
                suggestion(name, names())
            ))
        });
    }
    let id = whole(value).and_then(|id| IndexId::try_from(id).ok());
    id.ok_or_else(|| {
        Error::illegal(format!("{what} is the number or the name of an index, not {}", shown(value)))
    })
}

/// The space that an argument names by its number or its name.
fn space_of(store: &Store, value: Option<&Value>, what: &str, admit: Admit<'_>) -> Result<SpaceId, Error> {
    let value = value.unwrap_or(&Value::Nil);
    if let Some(name) = value.as_str() {
        let Some(found) = store.space_by_name(name).map(Space::id) else {
            let known = store.spaces().filter(|space| !space.is_system() && admit(space.id()).is_ok());
            let suggestion = suggestion(name, known.map(Space::name));
            return Err(Error::illegal(format!("space '{name}' does not exist{suggestion}")));
        };
        return match admit(found) {
            Ok(()) => Ok(found),
            Err(error) => Err(by_name(error, name).into()),
        };
    }
    let id = whole(value).and_then(|id| SpaceId::try_from(id).ok());
    let id =
        id.ok_or_else(|| Error::illegal(format!("{what} is a number or a name, not {}", shown(value))))?;
    store.space(id)?;
    admit(id)?;
    Ok(id)
}

/// The refusal of a space that the caller has named by its name.
fn by_name(error: lycosa_store::Error, name: &str) -> lycosa_store::Error {
    use lycosa_store::Error::AccessDenied;
    match error {
        AccessDenied { access, object_type, user, .. } => {
            AccessDenied { access, object_type, object_name: name.to_owned(), user }
        }
        error => error,
    }
}

/// Reads the seven arguments of the module's `start`: name, space id, index to delete by, index to walk, number of the
/// field, scan size, scan time. The indexes are maps as `net.box` makes them of `box.space.S.index.I`.
///
/// # Errors
/// [`Error::Illegal`] with the argument that is wrong; what the definition names does not exist, or `admit` refuses it.
pub fn capped_start(store: &Store, arguments: &[Value], admit: Admit<'_>) -> Result<Definition, Error> {
    let [name, space, delete_by, index, field, scan_size, scan_time] = arguments else {
        return Err(Error::illegal(format!(
            "expected 7 arguments (name, space id, index to delete by, index to walk, field number, scan size, \
             scan time), got {}",
            arguments.len()
        )));
    };
    let number = |value: &Value, what: &str| {
        let number = whole(value).and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| Error::illegal(format!("{what} is a whole number, not {}", shown(value))))
    };
    let name = task_name(Some(name))?;
    let space = number(space, "the space id")?;
    store.space(space)?;
    admit(space)?;
    let mut definition = Definition::new(name, space, Field::Number(number(field, "the field number")?));
    let removing = CappedIndex::read(delete_by, space, "the index to delete by")?;
    if removing.unique == Some(false) {
        return Err(Error::illegal("the index to delete by is not unique"));
    }
    definition.delete_by = removing.id;
    definition.index = CappedIndex::read(index, space, "the index to walk")?.id;
    definition.scan_size = number(scan_size, "the scan size")?;
    definition.scan_time = u64::from(number(scan_time, "the scan time")?);
    definition.plan(store)?;
    Ok(definition)
}

/// Reads the one argument of the module's `kill`.
///
/// # Errors
/// [`Error::Illegal`].
pub fn capped_kill(arguments: &[Value]) -> Result<&str, Error> {
    match arguments {
        [name] => task_name(Some(name)),
        _ => Err(Error::illegal(format!("expected 1 argument (name), got {}", arguments.len()))),
    }
}

/// An index as `net.box` shows it.
struct CappedIndex {
    id: IndexId,
    unique: Option<bool>,
}

impl CappedIndex {
    fn read(value: &Value, space: SpaceId, what: &str) -> Result<Self, Error> {
        let Value::Map(pairs) = value else {
            return Err(Error::illegal(format!(
                "{what} is a map such as box.space.S.index.I, not {}",
                shown(value)
            )));
        };
        if let Some((key, _)) = pairs.iter().find(|(key, _)| key.as_str().is_none()) {
            return Err(Error::illegal(format!("{what} has the key {}, which is no string", shown(key))));
        }
        let id = match value.get("id") {
            None => 0,
            Some(id) => whole(id).and_then(|id| IndexId::try_from(id).ok()).ok_or_else(|| {
                Error::illegal(format!("the id of {what} is a whole number, not {}", shown(id)))
            })?,
        };
        let unique = match value.get("unique") {
            None => None,
            Some(Value::Bool(unique)) => Some(*unique),
            Some(other) => {
                return Err(Error::illegal(format!(
                    "unique of {what} is true or false, not {}",
                    shown(other)
                )));
            }
        };
        if let Some(other) = value.get("space_id").and_then(whole).filter(|&id| id != u64::from(space)) {
            return Err(Error::illegal(format!("{what} belongs to space {other}, not to space {space}")));
        }
        Ok(Self { id, unique })
    }
}

/// A number of any type without a fraction that is not negative.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Double(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => {
            Some(*number as u64)
        }
        other => other.as_u64(),
    }
}

/// Seconds as microseconds.
fn seconds(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Double(seconds) => *seconds,
        Value::Float(seconds) => f64::from(*seconds),
        other => other.as_u64()? as f64,
    };
    (0.0..=1e12).contains(&seconds).then_some((seconds * 1e6) as u64)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Bool(_) => "a boolean",
        Value::Uint(_) | Value::Int(_) => "an integer",
        Value::Float(_) | Value::Double(_) => "a fraction",
        Value::Str(_) => "a string",
        Value::Bin(_) => "a binary string",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        _ => "an extension",
    }
}

/// A value for an error text: numbers and short strings as they are, of others their kind.
fn shown(value: &Value) -> String {
    match value {
        Value::Uint(number) => number.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Double(number) if number.is_finite() && number.abs() >= 1e18 => format!("{number:e}"),
        Value::Double(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Str(bytes) if bytes.len() > 64 => "a long string".to_owned(),
        Value::Str(bytes) => value.as_str().map_or_else(
            || format!("the bytes '{}', which are no UTF-8", bytes.escape_ascii()),
            |text| format!("'{text}'"),
        ),
        other => kind(other).to_owned(),
    }
}

/// ` (did you mean 'x'?)`, if one of the candidates is near.
pub(crate) fn suggestion<'a>(wanted: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    let near = candidates
        .map(|candidate| (strsim::osa_distance(wanted, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1));
    near.map_or_else(String::new, |(_, candidate)| format!(" (did you mean '{candidate}'?)"))
}
