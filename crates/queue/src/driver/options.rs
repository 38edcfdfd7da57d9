//! Options of put and of tubes.
//!
//! A null counts as absent everywhere; so does `false` where the module says `opts.x or default`. A tube's options are
//! stored in its row of `_queue` as the client gave them, with the defaults of the type added; they are read back from
//! there at each start.

use std::collections::HashMap;

use lycosa_store::Error as StoreError;
use lycosa_tuple::mp::{self, Kind, Reader};

use crate::arguments::{Number, Table, is_nil, kind, string, unsigned};
use crate::error::{Error, Result};
use crate::lua_text;
use crate::task::Layout;
use crate::time::{MAX_TIMEOUT_SECONDS, Seconds};

/// The options of put, each as it came.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutOptions<'a> {
    /// Seconds to live.
    pub ttl: Option<&'a [u8]>,
    /// Seconds to be held.
    pub ttr: Option<&'a [u8]>,
    /// Priority.
    pub pri: Option<&'a [u8]>,
    /// Seconds until it may be taken.
    pub delay: Option<&'a [u8]>,
    /// Sub-queue.
    pub utube: Option<&'a [u8]>,
    /// Seconds to wait for free capacity.
    pub timeout: Option<&'a [u8]>,
    /// Names and texts that are kept with the task, see [`crate::headers`].
    pub headers: Option<&'a [u8]>,
    /// Replicas that the put asks for, which the instance counts.
    pub replicas: Option<&'a [u8]>,
    /// There is something beside these options.
    pub(crate) has_others: bool,
}

impl<'a> PutOptions<'a> {
    /// Reads the table; `first_member` is what the driver asks it for first.
    ///
    /// # Errors
    /// Null, a number, a boolean.
    pub(crate) fn parse(value: Option<&'a [u8]>, first_member: &'static str) -> Result<Self> {
        if value.is_some_and(is_nil) {
            return Err(Error::OptionsNull(first_member));
        }
        let is_array = value.is_some_and(|value| kind(value) == Kind::Array);
        let mut options = Self { has_others: is_array, ..Self::default() };
        for (key, value) in Table::parse(value)? {
            let place = match key {
                b"ttl" => &mut options.ttl,
                b"ttr" => &mut options.ttr,
                b"pri" => &mut options.pri,
                b"delay" => &mut options.delay,
                b"utube" => &mut options.utube,
                b"timeout" => &mut options.timeout,
                b"headers" => &mut options.headers,
                b"replicas" => &mut options.replicas,
                _ => {
                    options.has_others = true;
                    continue;
                }
            };
            *place = Some(value).filter(|value| !is_nil(value));
        }
        Ok(options)
    }

    /// Reads the table for a tube whose driver asks for `first_option` first. Without options of its own, the Lua module does not
    /// look at the table.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn of(first_option: Option<&'static str>, value: Option<&'a [u8]>) -> Result<Self> {
        if let Some(first) = first_option {
            Self::parse(value, first)
        } else {
            Ok(Self::of_every_tube(value))
        }
    }

    /// The options that every tube heeds; no other option is read.
    pub(crate) fn of_every_tube(value: Option<&'a [u8]>) -> Self {
        let Ok(given) = Table::parse(value) else { return Self { has_others: true, ..Self::default() } };
        let (headers, replicas) = (given.clone().get(b"headers"), given.get(b"replicas"));
        Self { headers, replicas, has_others: true, ..Self::default() }
    }

    /// Whether a tube of that layout heeds all options; `waits`: its puts wait for free space.
    pub(crate) fn are_heeded(&self, layout: &Layout, waits: bool) -> bool {
        let is_timed = self.ttl.is_some() || self.ttr.is_some() || self.pri.is_some() || self.delay.is_some();
        !self.has_others
            && (layout.timed || !is_timed)
            && (layout.utube.is_some() || self.utube.is_none())
            && (waits || self.timeout.is_none())
    }
}

fn is_false(value: &[u8]) -> bool {
    value == [0xc2]
}

/// An option that the module reads as `opts.x or default` and then takes for seconds.
#[inline]
pub(crate) fn seconds_or(value: Option<&[u8]>, default: Seconds) -> Result<Seconds> {
    match value.filter(|value| !is_false(value)) {
        None => Ok(default),
        Some(value) => Number::needed(value).map(Number::seconds),
    }
}

/// An option that the module compares with zero first: `opts.delay > 0`. None if it is absent or not positive.
pub(crate) fn positive_seconds(value: Option<&[u8]>) -> Result<Option<Seconds>> {
    let Some(value) = value else { return Ok(None) };
    let unfit = || Error::Compare { left: "number", right: lua_text::type_name(Some(value)) };
    let number = Number::parse(value).ok_or_else(unfit)?;
    Ok(Some(number.seconds()).filter(|seconds| seconds.is_positive()))
}

/// An option read as `opts.pri or default`: a whole number of any form is written in its shortest one, anything else
/// as it came, for the space's format to refuse.
pub(crate) fn write_unsigned_or(value: Option<&[u8]>, default: u64, out: &mut Vec<u8>) {
    match value.filter(|value| !is_false(value)) {
        None => mp::write_uint(out, default),
        Some(value) => match Number::parse(value).and_then(Number::unsigned) {
            Some(number) => mp::write_uint(out, number),
            None => out.extend_from_slice(value),
        },
    }
}

/// Writes the name of a sub-queue: what Lua's `tostring` makes of the option.
pub(crate) fn write_sub_queue(value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<()> {
    if let Some(name) = value.and_then(string) {
        mp::write_str(out, name);
        return Ok(());
    }
    if let Some(number) = value.and_then(|value| u32::try_from(Reader::new(value).uint().ok()?).ok()) {
        write_digits(number, out);
        return Ok(());
    }
    if let Some(text) = value.and_then(lua_text::extension) {
        mp::write_str(out, text.as_bytes());
        return Ok(());
    }
    if matches!(value.map(kind), Some(Kind::Array | Kind::Map | Kind::Ext | Kind::Invalid)) {
        return Err(illegal_option("utube", "string"));
    }
    let mut name = Vec::new();
    lua_text::write(value, &mut name);
    mp::write_str(out, &name);
    Ok(())
}

/// Writes a number as the string of its digits. Many programs number their sub-queues.
fn write_digits(mut number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    mp::write_str(out, &digits[first..]);
}

/// Where a tube's tasks live. The store keeps both in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// `memtx`, or none given.
    Memtx,
    /// `vinyl`
    Vinyl,
}

/// `if_not_exists`, which may be anything in Lua.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfNotExists {
    /// Absent, null or false: an existing space is an error.
    Refuse,
    /// True: an existing tube is left as it is.
    Keep,
    /// Anything else: an existing space becomes the tube's.
    Adopt,
}

/// The options of a tube.
#[derive(Debug, Clone, PartialEq)]
pub struct TubeOptions {
    /// Tasks are lost with the process.
    pub temporary: bool,
    /// The action if the space exists.
    pub if_not_exists: IfNotExists,
    /// Where tasks live.
    pub engine: Engine,
    /// Name of the engine as given, if it was.
    pub engine_name: Option<String>,
    /// Default time to live.
    pub ttl: Seconds,
    /// Default time to run.
    pub ttr: Seconds,
    /// Default priority.
    pub pri: u64,
    /// Most tasks in the tube; None: any number.
    pub capacity: Option<u64>,
    /// Whether the candidates are shown in a space beside the tube's.
    pub ready_buffer: bool,
}

impl Default for TubeOptions {
    fn default() -> Self {
        Self {
            temporary: false,
            if_not_exists: IfNotExists::Refuse,
            engine: Engine::Memtx,
            engine_name: None,
            ttl: Seconds::MAX,
            ttr: Seconds::MAX,
            pri: 0,
            capacity: None,
            ready_buffer: false,
        }
    }
}

/// Sets an option that is given, or refuses a value of another type.
fn assign<T>(option: &mut T, given: Option<Option<T>>, refuse: impl FnOnce() -> Result<()>) -> Result<()> {
    match given {
        None => Ok(()),
        Some(Some(value)) => {
            *option = value;
            Ok(())
        }
        Some(None) => refuse(),
    }
}

fn illegal_option(name: &str, expected: &str) -> Error {
    StoreError::IllegalParams(format!("options parameter '{name}' should be of type {expected}")).into()
}

/// The options of `create_tube` that a built-in type may heed.
pub const OPTIONS: [&str; 8] =
    ["capacity", "engine", "if_not_exists", "pri", "storage_mode", "temporary", "ttl", "ttr"];

/// Whether tubes of a built-in type heed an option of `create_tube`. None if no type does.
#[must_use]
pub fn heeds(tube_type: &str, option: &str) -> Option<bool> {
    Some(match option {
        "engine" | "if_not_exists" | "temporary" | "on_task_change" => true,
        "ttl" | "ttr" | "pri" => matches!(tube_type, "fifottl" | "limfifottl" | "utubettl"),
        "capacity" => tube_type == "limfifottl",
        "storage_mode" => matches!(tube_type, "utube" | "utubettl"),
        _ => return None,
    })
}

impl TubeOptions {
    /// Reads the options of `create_tube`; those about deadlines only where tubes of the type have them (`timed`).
    ///
    /// # Errors
    /// An option of the wrong type, or no table at all.
    pub fn parse(value: Option<&[u8]>, timed: bool) -> Result<Self> {
        // The module writes defaults into the table, which a text is not.
        if value.and_then(string).is_some() {
            return Err(Error::OptionsType("string"));
        }
        Self::read(&Table::parse(value)?, timed, &mut |refused| Err(refused))
    }

    /// Reads the options in a row of `_queue`. Skips options that cannot be used, and tells `f` of them.
    pub fn stored(value: &[u8], timed: bool, f: &mut dyn FnMut(Error)) -> Self {
        let pass_over = &mut |refused| {
            f(refused);
            Ok(())
        };
        Table::parse(Some(value)).and_then(|table| Self::read(&table, timed, pass_over)).unwrap_or_default()
    }

    fn read(table: &Table<'_>, timed: bool, refuse: &mut dyn FnMut(Error) -> Result<()>) -> Result<Self> {
        let mut options = Self::default();
        let get = |name: &str| table.clone().get(name.as_bytes());
        let flag = |value: &[u8]| matches!(value, [0xc2 | 0xc3]).then_some(value == [0xc3]);
        let mut illegal = |name, expected| refuse(illegal_option(name, expected));
        assign(&mut options.temporary, get("temporary").map(flag), || illegal("temporary", "boolean"))?;
        options.if_not_exists = match get("if_not_exists") {
            None | Some([0xc2]) => IfNotExists::Refuse,
            Some([0xc3]) => IfNotExists::Keep,
            Some(_) => IfNotExists::Adopt,
        };
        match get("engine").map(string) {
            None => {}
            Some(Some(name)) => {
                options.engine = if name == b"vinyl" { Engine::Vinyl } else { Engine::Memtx };
                options.engine_name = Some(String::from_utf8_lossy(name).into_owned());
            }
            Some(None) => illegal("engine", "string")?,
        }
        options.ready_buffer = get("storage_mode").and_then(string) == Some(b"ready_buffer");
        if !timed {
            return Ok(options);
        }
        let given = |name: &str| get(name).filter(|value| !is_false(value));
        let seconds = |value| Number::parse(value).map(Number::seconds);
        assign(&mut options.ttl, given("ttl").map(seconds), || illegal("ttl", "number"))?;
        options.ttr = options.ttl;
        assign(&mut options.ttr, given("ttr").map(seconds), || illegal("ttr", "number"))?;
        assign(&mut options.pri, given("pri").map(unsigned), || illegal("pri", "unsigned"))?;
        match given("capacity").map(Number::parse) {
            None => {}
            Some(Some(number)) if number.is_negative() => options.capacity = Some(0),
            Some(Some(number)) => options.capacity = Some(number.ceiling()).filter(|limit| *limit > 0),
            Some(None) => illegal("capacity", "number")?,
        }
        Ok(options)
    }

    /// Appends the map that `_queue` keeps: the options as given, without nulls and callbacks, and the defaults.
    pub fn write_stored(value: Option<&[u8]>, timed: bool, out: &mut Vec<u8>) {
        const DEFAULTED: [&[u8]; 4] = [b"if_not_exists", b"ttl", b"ttr", b"pri"];
        let mut given: Vec<(&[u8], &[u8])> = Vec::new();
        let mut reader = Reader::new(value.unwrap_or(&[0x80]));
        for _ in 0..reader.map().unwrap_or(0) {
            let (Ok(key), Ok(value)) = (reader.raw(), reader.raw()) else { break };
            given.push((key, value));
        }
        // The client chooses the number of options, so no option is compared with all others.
        let last: HashMap<&[u8], usize> =
            given.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
        let is_kept = |&(place, (key, value)): &(usize, (&[u8], &[u8]))| {
            let name = string(key).unwrap_or(b"");
            let unset = is_nil(value) || (is_false(value) && DEFAULTED.contains(&name));
            last.get(key) == Some(&place) && !unset && name != b"on_task_change"
        };
        let pairs: Vec<_> = given.iter().copied().enumerate().filter(is_kept).map(|(_, pair)| pair).collect();
        let (mut defaults, mut added) = (Vec::new(), 0);
        let has =
            |name: &[u8]| pairs.iter().find(|(key, _)| string(key) == Some(name)).map(|(_, value)| *value);
        if has(b"if_not_exists").is_none() {
            mp::write_str(&mut defaults, b"if_not_exists");
            mp::write_bool(&mut defaults, false);
            added += 1;
        }
        if timed {
            let mut longest = Vec::new();
            mp::write_uint(&mut longest, MAX_TIMEOUT_SECONDS);
            let ttl = has(b"ttl").unwrap_or(&longest);
            for (name, default) in [("ttl", longest.as_slice()), ("ttr", ttl), ("pri", &[0])] {
                if has(name.as_bytes()).is_none() {
                    mp::write_str(&mut defaults, name.as_bytes());
                    defaults.extend_from_slice(default);
                    added += 1;
                }
            }
        }
        mp::write_map(out, pairs.len() as u32 + added);
        for (key, value) in pairs {
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out.extend_from_slice(&defaults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lycosa_tuple::value::Value;

    fn stored(options: &Value, timed: bool) -> Value {
        let mut out = Vec::new();
        TubeOptions::write_stored(Some(&options.encode()), timed, &mut out);
        Value::decode(&out).expect("one value")
    }

    #[test]
    fn stored_options_have_the_defaults_of_the_type() {
        let given = Value::map([("temporary", Value::from(true)), ("ttl", Value::from(60_u64))]);
        let fifottl = stored(&given, true);
        assert_eq!(fifottl.get("ttl"), Some(&Value::from(60_u64)));
        assert_eq!(fifottl.get("ttr"), Some(&Value::from(60_u64)));
        assert_eq!(fifottl.get("pri"), Some(&Value::from(0_u64)));
        assert_eq!(fifottl.get("if_not_exists"), Some(&Value::from(false)));
        assert_eq!(stored(&given, false).get("ttr"), None);
        let nothing = Value::map([("ttl", Value::Nil), ("pri", Value::from(false))]);
        assert_eq!(stored(&nothing, true).get("ttl"), Some(&Value::from(MAX_TIMEOUT_SECONDS)));
    }

    #[test]
    fn an_option_given_twice_is_stored_once_as_given_last() {
        let mut given = Vec::new();
        mp::write_map(&mut given, 5);
        for (name, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 0)] {
            mp::write_str(&mut given, name.as_bytes());
            if value == 0 { mp::write_nil(&mut given) } else { mp::write_uint(&mut given, value) }
        }
        let mut out = Vec::new();
        TubeOptions::write_stored(Some(&given), false, &mut out);
        let mut expected = Vec::new();
        mp::write_map(&mut expected, 3);
        for (name, value) in [("a", 3), ("c", 4)] {
            mp::write_str(&mut expected, name.as_bytes());
            mp::write_uint(&mut expected, value);
        }
        mp::write_str(&mut expected, b"if_not_exists");
        mp::write_bool(&mut expected, false);
        assert_eq!(out, expected);
    }

    #[test]
    fn capacity_is_rounded_up_and_negative_means_full() {
        let capacity = |value: Value| {
            let options = Value::map([("capacity", value)]).encode();
            TubeOptions::parse(Some(&options), true).expect("a number").capacity
        };
        assert_eq!(capacity(Value::from(0_u64)), None);
        assert_eq!(capacity(Value::from(-1_i64)), Some(0));
        assert_eq!(capacity(Value::from(1.5)), Some(2));
        assert_eq!(capacity(Value::Nil), None);
    }

    #[test]
    fn sub_queues_are_named_as_lua_prints() {
        let name = |value: Option<&[u8]>| {
            let mut out = Vec::new();
            write_sub_queue(value, &mut out).map(|()| out[1..].to_vec())
        };
        assert_eq!(name(None), Ok(b"nil".to_vec()));
        assert_eq!(name(Some(&[1])), Ok(b"1".to_vec()));
        assert_eq!(name(Some(&[0])), Ok(b"0".to_vec()));
        assert_eq!(name(Some(&[0xcd, 0x27, 0x0a])), Ok(b"9994".to_vec()));
        assert_eq!(name(Some(&[0xce, 0xff, 0xff, 0xff, 0xff])), Ok(b"4294967295".to_vec()));
        assert_eq!(name(Some(&[0xc3])), Ok(b"true".to_vec()));
        assert!(name(Some(&[0x80])).is_err());
    }

    #[test]
    fn options_of_the_wrong_type_are_named() {
        let options = Value::map([("temporary", Value::str("yes"))]).encode();
        let refused = TubeOptions::parse(Some(&options), false).expect_err("no boolean");
        assert_eq!(
            refused.to_string(),
            "Illegal parameters, options parameter 'temporary' should be of type boolean"
        );
        let mut passed_over = 0;
        let kept = TubeOptions::stored(&options, false, &mut |_| passed_over += 1);
        assert_eq!((kept, passed_over), (TubeOptions::default(), 1));
    }
}
