//! MessagePack to Lua values and back, by Tarantool's rules.
//!
//! Integers up to 10^14 - 1 are numbers, larger ones 64-bit C data; `nil` inside of an array or map is `box.NULL`. Decoded
//! arrays and maps carry a metatable (`__serialize` = `seq` or `map`), so that an empty map stays a map. A table whose keys
//! are 1…n is an array; one with holes too, unless it is mostly holes.

use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::mp::{self, Kind as MpKind, Reader};

use crate::api::{Kind, Lua};
use crate::cdata::Cdata;
use crate::error::Error;
use crate::sys;
use crate::watchdog::check_time;

/// Deepest nesting of tables that is encoded unless an option asks for more.
pub const MAX_NESTING: usize = 128;
/// Deepest nesting of arrays and maps that is decoded: the most that an option may let a program encode.
const MAX_DECODED_NESTING: usize = 256;

/// MessagePack extension types.
pub(crate) const EXT_DECIMAL: i8 = 1;
pub(crate) const EXT_UUID: i8 = 2;
const EXT_ERROR: i8 = 3;

/// The largest array that a table of mostly holes becomes because its `__serialize` says so.
const MAX_HOLES: u32 = 1 << 20;

/// How the error of too deep a nesting begins.
pub(crate) const TOO_DEEP: &str = "Too high nest level";

/// Bytes reserved before anything is known of a value.
const USUAL_ROOM: usize = 32;

/// Bytes of `struct decimal`: a length and the extension's payload.
const DECIMAL_SIZE: usize = 32;

/// Bytes of a tuple's structure before its data: the length and the space.
pub(crate) const TUPLE_HEAD: usize = 8;

/// What encoding does with values that MessagePack has not.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A table with holes is a map if its largest key is more than this many times its count …
    pub sparse_ratio: u32,
    /// … and more than this.
    pub sparse_safe: u32,
    /// Whether a table of mostly holes becomes a map; else it is an error.
    pub sparse_convert: bool,
    /// Whether functions and the like become `nil`; else they are an error.
    pub invalid_as_nil: bool,
    /// Whether NaN and infinity are numbers; else they are as functions are.
    pub invalid_numbers: bool,
    /// Whether functions and the like are encoded as `tostring` shows them.
    pub use_tostring: bool,
    /// Deepest nesting.
    pub max_depth: usize,
    /// Whether what lies deeper becomes `nil`; else it is an error.
    pub deep_as_nil: bool,
    /// Whether `__serialize` of tables, userdata and C data is obeyed.
    pub load_metatables: bool,
}

impl Options {
    /// What Tarantool does with values of tuples and calls.
    pub const DEFAULT: Self = Self {
        sparse_ratio: 2,
        sparse_safe: 10,
        sparse_convert: true,
        invalid_as_nil: false,
        invalid_numbers: true,
        use_tostring: false,
        max_depth: MAX_NESTING,
        deep_as_nil: false,
        load_metatables: true,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a table is in MessagePack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Array(u32),
    Map(u32),
}

impl Lua {
    /// Appends the value at `index` as MessagePack. Calls `__serialize`.
    ///
    /// # Errors
    /// A value that MessagePack has not, too deep a nesting, or what `__serialize` raised.
    pub fn encode(self, index: i32, out: &mut Vec<u8>) -> Result<(), Error> {
        self.encode_with(index, out, &self.encoding())
    }

    /// How values of tuples and calls are encoded: as `msgpack.cfg` says.
    pub(crate) fn encoding(self) -> Options {
        self.shared().encoding.get()
    }

    /// [`Lua::encode`] with other rules.
    ///
    /// # Errors
    /// As [`Lua::encode`].
    pub fn encode_with(self, index: i32, out: &mut Vec<u8>, options: &Options) -> Result<(), Error> {
        let index = self.absolute(index);
        if options.invalid_numbers
            && options.sparse_convert
            && options.max_depth >= MAX_NESTING
            && self.encode_plain(index, out, options)
        {
            return Ok(());
        }
        self.encode_at(index, out, options, 0)
    }

    /// Appends the value at `index` if nothing has to be called or looked up for it: scalars, and tables of them without
    /// metatables. Most keys, tuples and operations are such. Returns whether it is one; else nothing is appended.
    fn encode_plain(self, index: i32, out: &mut Vec<u8>, options: &Options) -> bool {
        /// `shim.c` has the same numbers.
        const NO_ROOM: isize = -2;
        let mut room = USUAL_ROOM;
        loop {
            out.reserve(room);
            let spare = out.spare_capacity_mut();
            let (to, length) = (spare.as_mut_ptr().cast(), spare.len());
            // SAFETY: writes at most `length` bytes, and changes nothing else.
            let written = unsafe {
                sys::lycosa_encode(self.raw(), index, to, length, options.sparse_ratio, options.sparse_safe)
            };
            if let Ok(written) = usize::try_from(written) {
                if self.check_size(out.len() + written).is_err() {
                    return false;
                }
                // SAFETY: this number of bytes behind the length was written, at most `length`.
                unsafe { out.set_len(out.len() + written) };
                return true;
            }
            if written != NO_ROOM || self.check_size(out.len() + length).is_err() {
                return false;
            }
            room = length * 4;
        }
    }

    /// Encoded bytes lie outside of Lua's memory, and a table that holds another one many times takes few bytes in Lua: they
    /// have the same limit.
    pub(crate) fn check_size(self, length: usize) -> Result<(), Error> {
        let limit = self.shared().limits.get().memory;
        if length <= limit {
            return Ok(());
        }
        let limit = limit >> 20;
        Err(Error::text(format!(
            "not enough memory: the value takes more than {limit} MiB when it is encoded"
        )))
    }

    fn encode_at(self, index: i32, out: &mut Vec<u8>, options: &Options, depth: usize) -> Result<(), Error> {
        match self.kind(index) {
            Kind::None | Kind::Nil => mp::write_nil(out),
            Kind::Boolean => mp::write_bool(out, self.truth(index)),
            Kind::Number => {
                let value = self.number(index).unwrap_or_default();
                if !options.invalid_numbers && !value.is_finite() {
                    return encode_invalid_number(out, options);
                }
                write_number(out, value);
            }
            Kind::String => mp::write_str(out, self.bytes(index).unwrap_or_default()),
            Kind::Table => return self.encode_table(index, out, options, depth),
            Kind::Cdata => return self.encode_cdata(index, out, options, depth),
            Kind::Pointer if self.pointer(index) == 0 => mp::write_nil(out),
            Kind::Userdata if options.load_metatables && self.metafield(index, "__serialize") => {
                return self.encode_serialized(index, out, options, depth);
            }
            Kind::Pointer | Kind::Userdata | Kind::Function | Kind::Thread => {
                return self.encode_invalid(index, out, options);
            }
        }
        Ok(())
    }

    fn encode_invalid(self, index: i32, out: &mut Vec<u8>, options: &Options) -> Result<(), Error> {
        if options.use_tostring {
            mp::write_str(out, self.display(index).as_bytes());
        } else if options.invalid_as_nil {
            mp::write_nil(out);
        } else {
            return Err(Error::text(format!("unsupported Lua type '{}'", self.type_name(index))));
        }
        Ok(())
    }

    fn encode_cdata(
        self,
        index: i32,
        out: &mut Vec<u8>,
        options: &Options,
        depth: usize,
    ) -> Result<(), Error> {
        let types = self.shared().types.get();
        match self.cdata(index) {
            Some(Cdata::Int(value)) => mp::write_int(out, value),
            Some(Cdata::Uint(value)) => mp::write_uint(out, value),
            Some(Cdata::Number(value)) => mp::write_double(out, value),
            Some(Cdata::Float(value)) => mp::write_float(out, value),
            Some(Cdata::Bool(value)) => mp::write_bool(out, value),
            Some(Cdata::Null) => mp::write_nil(out),
            Some(Cdata::Struct(id, _)) if id == types.tuple && id != 0 => {
                out.extend_from_slice(self.tuple(index).unwrap_or(&[0x90]));
            }
            Some(Cdata::Struct(id, _)) if id == types.uuid && id != 0 => {
                let bytes = self.uuid(index).unwrap_or_default();
                mp::write_ext(out, EXT_UUID, bytes.as_bytes());
            }
            Some(Cdata::Struct(id, _)) if id == types.decimal && id != 0 => {
                let bytes = self.struct_bytes(index, id, DECIMAL_SIZE).unwrap_or(&[0; DECIMAL_SIZE]);
                let length = usize::from(bytes[0]).min(DECIMAL_SIZE - 1);
                mp::write_ext(out, EXT_DECIMAL, &bytes[1..=length]);
            }
            Some(Cdata::Struct(id, _)) if id == types.error && id != 0 && self.marshals_errors() => {
                let mut bytes = Vec::new();
                if let Some(error) = self.error_object(index) {
                    error.encode(&mut bytes);
                }
                mp::write_ext(out, EXT_ERROR, &bytes);
            }
            // What a type's values have is not the type's own.
            Some(Cdata::Type) => return self.encode_invalid(index, out, options),
            _ => {
                if options.load_metatables && self.cdata_metafield(index, "__serialize")? {
                    return self.encode_serialized(index, out, options, depth);
                }
                return self.encode_invalid(index, out, options);
            }
        }
        Ok(())
    }

    /// Pushes a field of C data's metatype as `value[name]` finds it; C data hides its metatable.
    fn cdata_metafield(self, index: i32, name: &str) -> Result<bool, Error> {
        self.reserve(4)?;
        if self.field(index, name).is_err() {
            return Ok(false);
        }
        if self.kind(-1) == Kind::Nil {
            self.pop(1);
            return Ok(false);
        }
        Ok(true)
    }

    /// The value of `__serialize` is at the top: calls it and encodes what it returns.
    fn encode_serialized(
        self,
        index: i32,
        out: &mut Vec<u8>,
        options: &Options,
        depth: usize,
    ) -> Result<(), Error> {
        self.reserve(4)?;
        self.push_value(index);
        self.call(1, 1)?;
        let done = if depth >= options.max_depth {
            too_deep(out, options)
        } else {
            self.encode_at(self.top(), out, options, depth + 1)
        };
        self.pop(1);
        done
    }

    /// Pushes `__serialize` of a value, wherever its kind keeps it.
    pub(crate) fn serialize_of(self, index: i32) -> Result<bool, Error> {
        match self.kind(index) {
            // A C type has none of the methods of its values.
            Kind::Cdata if matches!(self.cdata(index), Some(Cdata::Type)) => Ok(false),
            Kind::Cdata => self.cdata_metafield(index, "__serialize"),
            _ => Ok(self.metafield(index, "__serialize")),
        }
    }

    fn is_callable(self, index: i32) -> bool {
        let callable = self.kind(index) == Kind::Function || self.metafield(index, "__call");
        if self.kind(index) != Kind::Function && callable {
            self.pop(1);
        }
        callable
    }

    fn encode_table(
        self,
        index: i32,
        out: &mut Vec<u8>,
        options: &Options,
        depth: usize,
    ) -> Result<(), Error> {
        if depth >= options.max_depth {
            return too_deep(out, options);
        }
        self.reserve(6)?;
        let mut hint = None;
        if options.load_metatables && self.metafield(index, "__serialize") {
            match self.bytes(-1) {
                Some(b"map" | b"mapping") => hint = Some(false),
                Some(b"seq" | b"sequence" | b"array") => hint = Some(true),
                Some(_) => {
                    self.pop(1);
                    return Err(Error::luajit("invalid __serialize value"));
                }
                None if self.is_callable(-1) => return self.encode_serialized(index, out, options, depth),
                None => {
                    self.pop(1);
                    return Err(Error::luajit("invalid __serialize value"));
                }
            }
            self.pop(1);
        }
        match self.shape(index, hint, options)? {
            Shape::Array(count) => {
                mp::write_array(out, count);
                for number in 1..=count {
                    self.raw_item(index, i32::try_from(number).unwrap_or(i32::MAX));
                    let done = self.encode_at(self.top(), out, options, depth + 1);
                    self.pop(1);
                    done?;
                    self.check_size(out.len())?;
                    check_time(self)?;
                }
            }
            Shape::Map(count) => {
                mp::write_map(out, count);
                self.push_nil();
                let mut left = count;
                while self.next(index)? {
                    let top = self.top();
                    left = left.checked_sub(1).ok_or_else(changed_meanwhile)?;
                    self.encode_at(top - 1, out, options, depth + 1)?;
                    self.encode_at(top, out, options, depth + 1)?;
                    self.check_size(out.len())?;
                    check_time(self)?;
                    self.set_top(top - 1);
                }
                if left > 0 {
                    return Err(changed_meanwhile());
                }
            }
        }
        Ok(())
    }

    /// Whether the table is an array or a map, and of how many items. `hint` is what `__serialize` says.
    pub(crate) fn shape(self, index: i32, hint: Option<bool>, options: &Options) -> Result<Shape, Error> {
        let (mut count, mut largest) = (0, 0);
        // SAFETY: the index names a table, of which nothing is changed.
        let is_array =
            unsafe { sys::lycosa_table_keys(self.raw(), index, &raw mut count, &raw mut largest) != 0 };
        match hint {
            Some(false) => return Ok(Shape::Map(count)),
            Some(true) => {
                let length = if is_array { largest } else { self.raw_len(index) as u32 };
                return check_holes(count, length);
            }
            None => {}
        }
        if !is_array {
            return Ok(Shape::Map(count));
        }
        let is_sparse = options.sparse_ratio > 0
            && largest > options.sparse_safe
            && u64::from(largest) > u64::from(count) * u64::from(options.sparse_ratio);
        if !is_sparse {
            return check_holes(count, largest);
        }
        if options.sparse_convert {
            Ok(Shape::Map(count))
        } else {
            Err(Error::luajit("excessively sparse array"))
        }
    }

    /// Decodes one value and pushes it.
    ///
    /// # Errors
    /// Bytes that are no MessagePack, an unknown extension, too deep a nesting.
    pub fn decode(self, reader: &mut Reader<'_>) -> Result<(), Error> {
        self.decode_at(reader, true, 0)
    }

    /// [`Lua::decode`]; `marks` says whether arrays and maps get the metatables that tell them apart.
    ///
    /// # Errors
    /// As [`Lua::decode`].
    pub(crate) fn decode_as(self, reader: &mut Reader<'_>, marks: bool) -> Result<(), Error> {
        self.decode_at(reader, marks, 0)
    }

    fn decode_at(self, reader: &mut Reader<'_>, marks: bool, depth: usize) -> Result<(), Error> {
        let invalid = |error: mp::MpError| Error::text(format!("Invalid MsgPack - {error}"));
        match reader.kind().map_err(invalid)? {
            MpKind::Nil => {
                reader.nil().map_err(invalid)?;
                self.push_null();
            }
            MpKind::Bool => self.push_bool(reader.bool().map_err(invalid)?),
            MpKind::Uint => self.push_uint(reader.uint().map_err(invalid)?),
            MpKind::Int => {
                let value = reader.int().map_err(invalid)?;
                self.push_int(i64::try_from(value).unwrap_or(i64::MIN));
            }
            MpKind::Float => self.push_number(f64::from(reader.float().map_err(invalid)?)),
            MpKind::Double => self.push_number(reader.double().map_err(invalid)?),
            MpKind::Str => self.push_str(reader.str().map_err(invalid)?),
            MpKind::Bin => self.push_str(reader.bin().map_err(invalid)?),
            MpKind::Array => {
                self.check_depth(depth)?;
                let count = reader.array().map_err(invalid)?;
                self.new_table(reserve_for(count), 0);
                for number in 1..=count {
                    self.decode_at(reader, marks, depth + 1)?;
                    check_time(self)?;
                    self.raw_set_item(-2, i32::try_from(number).unwrap_or(i32::MAX));
                }
                if marks {
                    self.push_hint(true);
                }
            }
            MpKind::Map => {
                self.check_depth(depth)?;
                let count = reader.map().map_err(invalid)?;
                self.new_table(0, reserve_for(count));
                for _ in 0..count {
                    self.decode_at(reader, marks, depth + 1)?;
                    if self.number(-1).is_some_and(f64::is_nan) {
                        return Err(Error::text("a map has a key that is not a number (NaN)"));
                    }
                    self.decode_at(reader, marks, depth + 1)?;
                    check_time(self)?;
                    self.raw_set(-3);
                }
                if marks {
                    self.push_hint(false);
                }
            }
            MpKind::Ext => self.decode_ext(reader)?,
            MpKind::Invalid => return Err(Error::text("Invalid MsgPack - the byte c1")),
        }
        Ok(())
    }

    fn decode_ext(self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let types = self.shared().types.get();
        let (kind, payload) =
            reader.ext().map_err(|error| Error::text(format!("Invalid MsgPack - {error}")))?;
        match (kind, payload.len()) {
            (EXT_UUID, 16) if types.uuid != 0 => {
                let bytes: [u8; 16] = payload.try_into().expect("the length was matched");
                self.push_uuid(uuid::Uuid::from_bytes(bytes));
            }
            (EXT_DECIMAL, length @ 2..DECIMAL_SIZE) if types.decimal != 0 => {
                let mut bytes = [0; DECIMAL_SIZE];
                bytes[0] = length as u8;
                bytes[1..=length].copy_from_slice(payload);
                self.push_struct(types.decimal, &[&bytes]);
            }
            (EXT_ERROR, _) if types.error != 0 => {
                let invalid = |error: mp::MpError| Error::text(format!("Invalid MsgPack - {error}"));
                let error = ErrorObject::decode(&mut Reader::new(payload)).map_err(invalid)?;
                self.push_error_object(&error);
            }
            // Tarantool's own spelling.
            _ => return Err(Error::text(format!("Unsuported MsgPack extension type: {kind}"))),
        }
        Ok(())
    }

    fn check_depth(self, depth: usize) -> Result<(), Error> {
        if depth >= MAX_DECODED_NESTING {
            return Err(Error::text(format!("more than {MAX_DECODED_NESTING} levels of arrays and maps")));
        }
        self.reserve(4)
    }

    /// Gives the table at the top the metatable of decoded arrays or maps.
    pub fn push_hint(self, is_array: bool) {
        let hints = self.shared().hints.borrow();
        if let Some((array, map)) = hints.as_ref() {
            self.push_ref(if is_array { array } else { map });
            self.set_metatable(-2);
        }
    }

    // ---- structures that modules declare

    /// The MessagePack array of a `box.tuple`.
    pub fn tuple(&self, index: i32) -> Option<&[u8]> {
        let types = self.shared().types.get();
        match self.cdata(index)? {
            Cdata::Struct(id, data) if id == types.tuple && id != 0 => {
                // SAFETY: a tuple's head is its length, which was written with the bytes that follow it.
                unsafe {
                    let length = data.cast::<u32>().read_unaligned() as usize;
                    Some(std::slice::from_raw_parts(data.add(TUPLE_HEAD), length))
                }
            }
            _ => None,
        }
    }

    /// Pushes a `box.tuple` of a MessagePack array; without `box`, a table.
    ///
    /// # Errors
    /// Bytes that are no MessagePack.
    pub fn push_tuple(self, array: &[u8]) -> Result<(), Error> {
        self.push_tuple_of(0, array)
    }

    /// [`Lua::push_tuple`] of a space, which gives its fields their names; 0 for none.
    ///
    /// # Errors
    /// Bytes that are no MessagePack.
    pub fn push_tuple_of(self, space: u32, array: &[u8]) -> Result<(), Error> {
        let types = self.shared().types.get();
        if types.tuple == 0 {
            return self.decode(&mut Reader::new(array));
        }
        let length = u32::try_from(array.len()).map_err(|_| Error::text("the tuple is too large"))?;
        self.push_struct(types.tuple, &[&length.to_ne_bytes(), &space.to_ne_bytes(), array]);
        Ok(())
    }

    /// The UUID of a `uuid` object.
    pub fn uuid(self, index: i32) -> Option<uuid::Uuid> {
        let types = self.shared().types.get();
        let bytes = self.struct_bytes(index, types.uuid, 16)?;
        let (low, mid, high) = (&bytes[0..4], &bytes[4..6], &bytes[6..8]);
        let low = u32::from_ne_bytes(low.try_into().ok()?);
        let mid = u16::from_ne_bytes(mid.try_into().ok()?);
        let high = u16::from_ne_bytes(high.try_into().ok()?);
        Some(uuid::Uuid::from_fields(low, mid, high, bytes[8..16].try_into().ok()?))
    }

    /// The number of a decimal.
    pub fn decimal(self, index: i32) -> Option<Decimal> {
        let bytes = self.struct_bytes(index, self.shared().types.get().decimal, DECIMAL_SIZE)?;
        Decimal::from_ext(bytes.get(1..=usize::from(bytes[0]))?)
    }

    /// Pushes a decimal.
    pub fn push_decimal(self, value: Decimal) {
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        let (_, payload) = Reader::new(&encoded).ext().expect("a decimal is an extension");
        let mut bytes = [0; DECIMAL_SIZE];
        bytes[0] = payload.len() as u8;
        bytes[1..=payload.len()].copy_from_slice(payload);
        self.push_struct(self.shared().types.get().decimal, &[&bytes]);
    }

    /// Pushes a `uuid` object.
    pub fn push_uuid(self, value: uuid::Uuid) {
        let types = self.shared().types.get();
        let (low, mid, high, rest) = value.as_fields();
        self.push_struct(types.uuid, &[&low.to_ne_bytes(), &mid.to_ne_bytes(), &high.to_ne_bytes(), rest]);
    }
}

/// An array of `length` of which `count` items exist, unless it is mostly holes.
fn check_holes(count: u32, length: u32) -> Result<Shape, Error> {
    if length > MAX_HOLES && length / 2 > count {
        return Err(Error::text(format!(
            "excessively sparse array: {count} items, the last of them is number {length}"
        )));
    }
    Ok(Shape::Array(length))
}

/// `__serialize` of an item, or a finalizer, has added or removed items after their number was written.
fn changed_meanwhile() -> Error {
    Error::text("the table was changed while it was encoded")
}

fn too_deep(out: &mut Vec<u8>, options: &Options) -> Result<(), Error> {
    if options.deep_as_nil {
        mp::write_nil(out);
        return Ok(());
    }
    Err(Error::text(format!("{TOO_DEEP} - {}", options.max_depth + 1)))
}

/// Items to reserve: a count alone is not believed without limit.
fn reserve_for(count: u32) -> usize {
    count.min(1024) as usize
}

fn encode_invalid_number(out: &mut Vec<u8>, options: &Options) -> Result<(), Error> {
    if !options.invalid_as_nil {
        return Err(Error::luajit("number must not be NaN or Inf"));
    }
    mp::write_nil(out);
    Ok(())
}

/// A Lua number: an integer if it is one.
fn write_number(out: &mut Vec<u8>, value: f64) {
    if value.fract() == 0.0 && (-9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(&value) {
        if value >= 0.0 {
            mp::write_uint(out, value as u64);
        } else {
            mp::write_int(out, value as i64);
        }
    } else {
        mp::write_double(out, value);
    }
}
