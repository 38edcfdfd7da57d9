//! Native part of `yaml`: the emitter and the parser are libyaml's, as in Tarantool, so that documents look the same.
//!
//! Tables that occur more than once become anchors and aliases. White space, quotes and line breaks are the emitter's
//! choice, but for what would be read back as something else.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libyaml_safer::{
    Emitter, Encoding, Event, EventData, MappingStyle, Mark, Parser, ScalarStyle, SequenceStyle,
};
use lycosa_tuple::mp::Reader;

use super::json::extension_text;
use super::options::{self, Settings};
use crate::api::{Kind, Lua, Ref};
use crate::convert::{Shape, TOO_DEEP};
use crate::error::Error;
use crate::watchdog::check_time;

const BINARY: &str = "tag:yaml.org,2002:binary";
/// The tags of integers and truths.
const INTEGER: &str = "tag:yaml.org,2002:int";
const BOOLEAN: &str = "tag:yaml.org,2002:bool";
const STRING: &str = "tag:yaml.org,2002:str";

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("encode", encode), ("decode", decode)]);
    Ok(1)
}

fn failed(error: &libyaml_safer::Error) -> Error {
    Error::text(error.to_string())
}

/// `encode(value, options, tag handle, tag prefix)`
fn encode(lua: Lua) -> Result<i32, Error> {
    let settings = Settings::read(lua, 2)?.without_depths();
    let mut text = Vec::new();
    let mut head = Vec::new();
    if let (Some(handle), Some(prefix)) = (lua.text(3), lua.text(4)) {
        head = format!("%TAG {handle} {prefix}\n").into_bytes();
    }
    let mut writer =
        Writer { lua, settings, events: Vec::new(), seen: HashMap::new(), anchors: 0, pending: None };
    lua.push_value(1);
    writer.count(lua.top(), 0)?;
    writer.value(lua.top(), 0, false).map_err(Error::located)?;
    lua.pop(1);
    let Writer { events, .. } = writer;
    let mut late = Ok(());
    let emitted = (|| {
        let mut emitter = Emitter::new();
        emitter.set_output_string(&mut text);
        emitter.set_unicode(true);
        emitter.emit(Event::stream_start(Encoding::Utf8))?;
        emitter.emit(Event::document_start(None, &[], false))?;
        for event in events {
            late = check_time(lua);
            if late.is_err() {
                return Ok(());
            }
            emitter.emit(event)?;
        }
        emitter.emit(Event::document_end(false))?;
        emitter.emit(Event::stream_end())?;
        emitter.flush()
    })();
    late?;
    emitted.map_err(|error| failed(&error))?;
    head.append(&mut text);
    lua.push_str(head);
    Ok(1)
}

/// The state of a table that occurs in a document.
#[derive(Debug, Clone, Copy, Default)]
struct Occurrence {
    count: u32,
    anchor: Option<u32>,
}

/// Turns a Lua value into events.
struct Writer {
    lua: Lua,
    settings: Settings,
    events: Vec<Event>,
    /// Tables by their addresses.
    seen: HashMap<usize, Occurrence>,
    anchors: u32,
    /// The anchor of the value that follows, whose object has it.
    pending: Option<String>,
}

/// What `__serialize` of a value says.
enum Hint {
    Nothing,
    /// An array or a map; on one line or not.
    Layout {
        is_array: bool,
        in_flow: bool,
    },
    /// The value that it returned stands at the top.
    Replaced,
}

impl Writer {
    fn hint(&self, index: i32) -> Result<Hint, Error> {
        let lua = self.lua;
        if !self.settings.encoding.load_metatables || !lua.serialize_of(index)? {
            return Ok(Hint::Nothing);
        }
        let layout = match lua.bytes(-1) {
            Some(b"seq") => Some((true, true)),
            Some(b"sequence" | b"array") => Some((true, false)),
            Some(b"map") => Some((false, true)),
            Some(b"mapping") => Some((false, false)),
            Some(_) => {
                lua.pop(1);
                return Err(Error::luajit("invalid __serialize value"));
            }
            None => None,
        };
        match layout {
            Some((is_array, in_flow)) => {
                lua.pop(1);
                Ok(Hint::Layout { is_array, in_flow })
            }
            None => {
                lua.push_value(index);
                lua.call(1, 1)?;
                Ok(Hint::Replaced)
            }
        }
    }

    /// Counts how often tables occur. Does not call `__serialize`: what it returns is new each time.
    fn count(&mut self, index: i32, depth: usize) -> Result<(), Error> {
        let lua = self.lua;
        if lua.kind(index) != Kind::Table || depth >= self.settings.encoding.max_depth {
            return Ok(());
        }
        let seen = self.seen.entry(lua.pointer(index)).or_default();
        seen.count += 1;
        if seen.count > 1 {
            return Ok(());
        }
        lua.reserve(6)?;
        lua.push_nil();
        while lua.next(index)? {
            check_time(lua)?;
            let top = lua.top();
            self.count(top - 1, depth + 1)?;
            self.count(top, depth + 1)?;
            lua.set_top(top - 1);
        }
        Ok(())
    }

    /// An alias if the table was written before, else its anchor, if it occurs again.
    fn anchor(&mut self, index: i32) -> Result<Option<String>, Box<Event>> {
        let Some(seen) = self.seen.get_mut(&self.lua.pointer(index)) else { return Ok(None) };
        if let Some(anchor) = seen.anchor {
            return Err(Box::new(Event::alias(&anchor.to_string())));
        }
        if seen.count < 2 {
            return Ok(None);
        }
        let anchor = self.anchors;
        self.anchors += 1;
        seen.anchor = Some(anchor);
        Ok(Some(anchor.to_string()))
    }

    fn value(&mut self, index: i32, depth: usize, in_flow: bool) -> Result<(), Error> {
        let lua = self.lua;
        check_time(lua)?;
        lua.check_size(self.events.len() * size_of::<Event>())?;
        if lua.kind(index) == Kind::Table {
            return self.table(index, depth, in_flow);
        }
        if let Some(bytes) = lua.bytes(index) {
            let event = text_event(bytes, in_flow);
            self.events.push(event);
            return Ok(());
        }
        if depth < self.settings.encoding.max_depth && matches!(lua.kind(index), Kind::Cdata | Kind::Userdata)
        {
            lua.reserve(6)?;
            if let Some(array) = lua.tuple(index) {
                let array = array.to_vec();
                lua.decode(&mut Reader::new(&array))?;
                let done = self.value(lua.top(), depth, in_flow);
                lua.pop(1);
                return done;
            }
            if let Hint::Replaced = self.hint(index)? {
                let done = self.value(lua.top(), depth + 1, in_flow);
                lua.pop(1);
                return done;
            }
        }
        let mut packed = Vec::new();
        lua.encode_with(index, &mut packed, &self.settings.encoding)?;
        let mut reader = Reader::new(&packed);
        if let Ok((kind, payload)) = reader.ext() {
            self.events.push(plain(&extension_text(kind, payload)));
            return Ok(());
        }
        let mut reader = Reader::new(&packed);
        match reader.str() {
            Ok(bytes) => self.events.push(text_event(bytes, in_flow)),
            Err(_) => {
                let text = options::scalar_text(&mut Reader::new(&packed), self.settings.precision)?;
                self.events.push(plain(&text));
            }
        }
        Ok(())
    }

    fn table(&mut self, index: i32, depth: usize, in_flow: bool) -> Result<(), Error> {
        let lua = self.lua;
        if depth >= self.settings.encoding.max_depth {
            if self.settings.encoding.deep_as_nil {
                self.events.push(plain("null"));
                return Ok(());
            }
            return Err(Error::text(TOO_DEEP));
        }
        lua.reserve(6)?;
        let (is_array, starts_flow) = match self.hint(index)? {
            Hint::Nothing => (None, false),
            Hint::Layout { is_array, in_flow } => (Some(is_array), in_flow),
            Hint::Replaced => {
                if lua.metafield(index, "__is_aliased") {
                    lua.pop(1);
                    match self.anchor(index) {
                        Ok(anchor) => self.pending = anchor,
                        Err(alias) => {
                            lua.pop(1);
                            self.events.push(*alias);
                            return Ok(());
                        }
                    }
                }
                let done = self.value(lua.top(), depth + 1, in_flow);
                lua.pop(1);
                return done;
            }
        };
        let anchor = match self.anchor(index) {
            Ok(anchor) => anchor.or_else(|| self.pending.take()),
            Err(alias) => {
                self.events.push(*alias);
                return Ok(());
            }
        };
        let flow = in_flow || starts_flow;
        match lua.shape(index, is_array, &self.settings.encoding)? {
            Shape::Array(count) => {
                let style = if flow { SequenceStyle::Flow } else { SequenceStyle::Any };
                self.events.push(Event::sequence_start(anchor.as_deref(), None, true, style));
                for number in 1..=count {
                    lua.raw_item(index, i32::try_from(number).unwrap_or(i32::MAX));
                    self.value(lua.top(), depth + 1, flow)?;
                    lua.pop(1);
                }
                self.events.push(Event::sequence_end());
            }
            Shape::Map(_) => {
                let style = if flow { MappingStyle::Flow } else { MappingStyle::Any };
                self.events.push(Event::mapping_start(anchor.as_deref(), None, true, style));
                lua.push_nil();
                while lua.next(index)? {
                    let top = lua.top();
                    self.value(top - 1, depth + 1, flow)?;
                    self.value(top, depth + 1, flow)?;
                    lua.set_top(top - 1);
                }
                self.events.push(Event::mapping_end());
            }
        }
        Ok(())
    }
}

fn plain(text: &str) -> Event {
    Event::scalar(None, None, text, true, false, ScalarStyle::Plain)
}

/// A string: quoted where it would be read as something else, a block where it has empty lines, base64 where it is no
/// UTF-8 or has characters without a printed form.
fn text_event(bytes: &[u8], in_flow: bool) -> Event {
    let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(is_unprintable)) else {
        return Event::scalar(None, Some(BINARY), &STANDARD.encode(bytes), false, false, ScalarStyle::Any);
    };
    let style = if !in_flow && text.contains("\n\n") {
        ScalarStyle::Literal
    } else if in_flow || is_special(text) {
        ScalarStyle::SingleQuoted
    } else {
        ScalarStyle::Any
    };
    Event::scalar(None, None, text, true, true, style)
}

/// Characters that libyaml does not print: a string with one of them is base64.
pub(super) fn is_unprintable(character: char) -> bool {
    matches!(character, '\u{80}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a plain scalar with this text is not a string.
fn is_special(text: &str) -> bool {
    matches!(text, "null" | "~" | "true" | "false" | "yes" | "no")
        || number_of(text).is_some()
        || is_binary_number(text)
}

/// Whether other readers of YAML may take a plain scalar for a binary number. `decode` reads a string.
fn is_binary_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.strip_prefix("0b").or_else(|| unsigned.strip_prefix("0B"));
    digits
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| matches!(digit, b'0' | b'1')))
}

/// A plain scalar that is a number.
enum Number {
    Unsigned(u64),
    Signed(i64),
    Double(f64),
}

fn number_of(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => {
            return Some(Number::Double(if is_negative { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        "nan" => return Some(Number::Double(f64::NAN)),
        _ => {}
    }
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        return match is_negative {
            true => i64::try_from(number).ok().map(|number| Number::Signed(-number)),
            false => Some(natural(number)),
        };
    }
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        || unsigned.bytes().any(|byte| !(byte.is_ascii_digit() || b".eE+-".contains(&byte)))
    {
        return None;
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(match is_negative {
            true => Number::Signed(text.parse().unwrap_or(i64::MIN)),
            false => natural(unsigned.parse().unwrap_or(u64::MAX)),
        });
    }
    text.parse().ok().map(Number::Double)
}

/// A number without a sign: signed where that holds it, as in Tarantool. Larger ones than an integer of 64 bits holds are
/// its largest.
fn natural(number: u64) -> Number {
    i64::try_from(number).map_or(Number::Unsigned(number), Number::Signed)
}

/// `decode(text, options)`: the values of all documents.
fn decode(lua: Lua) -> Result<i32, Error> {
    let settings = Settings::read(lua, 2)?.without_depths();
    let text = options::text_argument(lua, 1)?;
    let mut input = text.as_slice();
    let mut parser = Parser::new();
    parser.set_input_string(&mut input);
    let mut reader = Documents { lua, settings: &settings, parser, anchors: HashMap::new(), documents: 0 };
    let base = lua.top();
    loop {
        match reader.next()? {
            EventData::StreamStart { .. } | EventData::DocumentEnd { .. } => {}
            EventData::DocumentStart { .. } => {
                reader.documents += 1;
                reader.anchors.clear();
                lua.reserve(2)?;
                let event = reader.next()?;
                reader.push(event, 0)?;
            }
            EventData::StreamEnd => break,
            _ => return Err(Error::text("a document does not begin where it should")),
        }
    }
    Ok(lua.top() - base)
}

struct Documents<'a, 'b> {
    lua: Lua,
    settings: &'a Settings,
    parser: Parser<&'a mut &'b [u8]>,
    anchors: HashMap<String, Ref>,
    documents: usize,
}

impl Documents<'_, '_> {
    /// Tells the array or map at the top from the other kind, unless an option says not to.
    fn mark(&self, is_array: bool) {
        if self.settings.decode_save_metatables {
            self.lua.push_hint(is_array);
        }
    }

    fn next(&mut self) -> Result<EventData, Error> {
        check_time(self.lua)?;
        let documents = self.documents.max(1);
        self.parser.parse().map(|event| event.data).map_err(|error| {
            let mark = error.problem_mark().or(error.context_mark()).unwrap_or_default();
            let mut text = at(error.problem(), documents, mark);
            if let (Some(context), Some(mark)) = (error.context(), error.context_mark()) {
                let (line, column) = (mark.line + 1, mark.column + 1);
                text += &format!("\n{context} at line: {line}, column: {column}\n");
            }
            Error::text(text)
        })
    }

    /// Pushes the value that begins with `event`.
    fn push(&mut self, event: EventData, depth: usize) -> Result<(), Error> {
        let lua = self.lua;
        let limit = self.settings.decode_depth;
        if depth > limit {
            return Err(Error::here(format!("more than {limit} levels of nesting")));
        }
        lua.reserve(6)?;
        match event {
            EventData::Scalar { anchor, tag, value, style, .. } => {
                push_scalar(lua, tag.as_deref(), &value, style, self.settings.decode_invalid_numbers)?;
                self.keep(anchor);
            }
            EventData::Alias { anchor } => match self.anchors.get(&anchor) {
                Some(value) => lua.push_ref(value),
                None => return Err(Error::text(format!("invalid reference: {anchor}"))),
            },
            EventData::SequenceStart { anchor, .. } => {
                lua.new_table(0, 0);
                self.mark(true);
                self.keep(anchor);
                let table = lua.top();
                for number in 1.. {
                    let event = self.next()?;
                    if event == EventData::SequenceEnd {
                        break;
                    }
                    self.push(event, depth + 1)?;
                    lua.raw_set_item(table, number);
                }
            }
            EventData::MappingStart { anchor, .. } => {
                lua.new_table(0, 0);
                self.mark(false);
                self.keep(anchor);
                let table = lua.top();
                loop {
                    let event = self.next()?;
                    if event == EventData::MappingEnd {
                        break;
                    }
                    self.push(event, depth + 1)?;
                    let event = self.next()?;
                    self.push(event, depth + 1)?;
                    if lua.is_null(-2) || lua.number(-2).is_some_and(f64::is_nan) {
                        lua.pop(2);
                    } else {
                        lua.raw_set(table);
                    }
                }
            }
            _ => return Err(Error::here("a value was expected")),
        }
        Ok(())
    }

    /// Remembers the value at the top under its anchor.
    fn keep(&mut self, anchor: Option<String>) {
        if let Some(anchor) = anchor {
            self.lua.push_value(-1);
            self.anchors.insert(anchor, self.lua.pop_ref());
        }
    }
}

fn at(problem: &str, document: usize, mark: Mark) -> String {
    format!("{problem} at document: {document}, line: {}, column: {}", mark.line + 1, mark.column + 1)
}

fn push_scalar(
    lua: Lua,
    tag: Option<&str>,
    value: &str,
    style: ScalarStyle,
    invalid_numbers: bool,
) -> Result<(), Error> {
    match tag {
        Some(BINARY) => {
            let digits: String = value.chars().filter(|char| !char.is_ascii_whitespace()).collect();
            let bytes = STANDARD.decode(&digits);
            lua.push_str(bytes.map_err(|error| Error::here(format!("!!binary is not base64: {error}")))?);
            return Ok(());
        }
        Some(STRING | "!") => {
            lua.push_str(value);
            return Ok(());
        }
        // Numbers as the C library reads the beginning of a text: 0 if it has none.
        Some(INTEGER) => {
            let digits = value.trim_start();
            let end = digits
                .char_indices()
                .position(|(place, one)| !(one.is_ascii_digit() || place == 0 && "+-".contains(one)));
            let number = digits[..end.unwrap_or(digits.len())].parse::<i64>();
            lua.push_number(number.unwrap_or_default() as f64);
            return Ok(());
        }
        Some(BOOLEAN) => {
            lua.push_bool(matches!(value, "true" | "yes"));
            return Ok(());
        }
        _ => {}
    }
    if style != ScalarStyle::Plain {
        lua.push_str(value);
        return Ok(());
    }
    match value {
        "null" | "~" => lua.push_null(),
        "true" | "yes" => lua.push_bool(true),
        "false" | "no" => lua.push_bool(false),
        _ => match number_of(value) {
            Some(Number::Unsigned(number)) => lua.push_uint(number),
            Some(Number::Signed(number)) => lua.push_int(number),
            Some(Number::Double(number)) if !number.is_finite() && !invalid_numbers => {
                return Err(Error::here("number must not be NaN or Inf"));
            }
            Some(Number::Double(number)) => lua.push_number(number),
            None => lua.push_str(value),
        },
    }
    Ok(())
}
