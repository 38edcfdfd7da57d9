//! Options of json, yaml and msgpack as `cfg` holds them, and numbers as they print them.

use lycosa_tuple::mp::{Kind, MpError, Reader};

use crate::api::Lua;
use crate::convert::Options;
use crate::error::Error;

/// Most significant digits that a double is printed with.
const MAX_PRECISION: usize = 17;
/// Deepest nesting that an option may ask for: a fiber's stack holds it.
const MAX_DEPTH: usize = 256;

/// The options of one call.
#[derive(Debug)]
pub(super) struct Settings {
    /// Rules of encoding.
    pub(super) encoding: Options,
    /// Significant digits of doubles.
    pub(super) precision: usize,
    /// Deepest nesting that is decoded.
    pub(super) decode_depth: usize,
    /// Whether `nan` and `inf` are numbers.
    pub(super) decode_invalid_numbers: bool,
    /// Whether decoded arrays and maps get the metatables that tell them apart.
    pub(super) decode_save_metatables: bool,
}

impl Settings {
    /// The same without the limits of nesting, which YAML does not obey in a Tarantool.
    pub(super) fn without_depths(self) -> Settings {
        let encoding = Options { max_depth: MAX_DEPTH, deep_as_nil: false, ..self.encoding };
        Settings { encoding, decode_depth: MAX_DEPTH, ..self }
    }

    /// Reads the table at `index`.
    ///
    /// # Errors
    /// There is no table.
    pub(super) fn read(lua: Lua, index: i32) -> Result<Settings, Error> {
        if lua.kind(index) != crate::api::Kind::Table {
            return Err(Error::text("the options are a table"));
        }
        let number = |name: &str, default: usize| {
            lua.raw_field(index, name);
            let value = lua.number(-1).map_or(default, |value| value.clamp(0.0, 1e9) as usize);
            lua.pop(1);
            value
        };
        let flag = |name: &str| {
            lua.raw_field(index, name);
            let value = lua.truth(-1);
            lua.pop(1);
            value
        };
        Ok(Settings {
            encoding: Options {
                sparse_ratio: number("encode_sparse_ratio", 2) as u32,
                sparse_safe: number("encode_sparse_safe", 10) as u32,
                sparse_convert: flag("encode_sparse_convert"),
                invalid_as_nil: flag("encode_invalid_as_nil"),
                invalid_numbers: flag("encode_invalid_numbers"),
                use_tostring: flag("encode_use_tostring"),
                max_depth: number("encode_max_depth", MAX_DEPTH).min(MAX_DEPTH),
                deep_as_nil: flag("encode_deep_as_nil"),
                load_metatables: flag("encode_load_metatables"),
            },
            precision: number("encode_number_precision", 14).clamp(1, MAX_PRECISION),
            decode_depth: number("decode_max_depth", MAX_DEPTH).min(MAX_DEPTH),
            decode_invalid_numbers: flag("decode_invalid_numbers"),
            decode_save_metatables: flag("decode_save_metatables"),
        })
    }
}

/// An argument that is a text, or a number as one.
///
/// # Errors
/// It is something else.
pub(super) fn text_argument(lua: Lua, index: i32) -> Result<Vec<u8>, Error> {
    if let Some(bytes) = lua.bytes(index) {
        return Ok(bytes.to_vec());
    }
    if lua.kind(index) == crate::api::Kind::Number {
        return Ok(lua.display(index).into_bytes());
    }
    let found = lua.type_name(index);
    Err(Error::text(format!("bad argument #{index} to '?' (string expected, got {found})")))
}

/// The text of a number, a boolean or `null`.
///
/// # Errors
/// The value is none of these, or no MessagePack.
pub(super) fn scalar_text(reader: &mut Reader<'_>, precision: usize) -> Result<String, Error> {
    let invalid = |error: MpError| Error::text(format!("invalid MessagePack: {error}"));
    Ok(match reader.kind().map_err(invalid)? {
        Kind::Nil => {
            reader.nil().map_err(invalid)?;
            "null".to_owned()
        }
        Kind::Bool => reader.bool().map_err(invalid)?.to_string(),
        Kind::Uint => reader.uint().map_err(invalid)?.to_string(),
        Kind::Int => reader.int().map_err(invalid)?.to_string(),
        Kind::Float => number_text(f64::from(reader.float().map_err(invalid)?), precision),
        Kind::Double => number_text(reader.double().map_err(invalid)?, precision),
        kind => return Err(Error::text(format!("{kind:?} is no scalar"))),
    })
}

/// A double as C's `%.*g` prints it.
pub(super) fn number_text(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{:.*e}", precision - 1, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(precision as i32 - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_as_c_does() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (1e100, "1e+100"),
            (1.0 / 3.0, "0.33333333333333"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012_345.0, "1.2345678901234e+14"),
            (99_999_999_999_999.9, "1e+14"),
            (-2.5e-7, "-2.5e-07"),
        ] {
            assert_eq!(number_text(value, 14), text);
        }
        assert_eq!(number_text(1.5, 1), "2");
        assert_eq!(number_text(f64::INFINITY, 14), "inf");
    }
}
