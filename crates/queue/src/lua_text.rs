//! Values as Lua prints and names them.
//!
//! The module's error texts quote values with `tostring`, and the name of a sub-queue is `tostring(opts.utube)`. Both
//! must come out as LuaJIT and Tarantool's decoder make them: integers of fifteen digits and more are `cdata` and
//! carry `ULL` or `LL`, doubles are printed with fourteen digits.
//!
//! Absent: the addresses that Lua prints for tables and functions.

use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::mp::{EXT_DECIMAL, EXT_UUID, Kind, Reader};
use uuid::Uuid;

/// Integers beyond this magnitude are 64-bit `cdata` in Lua, not numbers.
const LARGEST_LUA_INTEGER: i128 = 99_999_999_999_999;

/// `type(value)` of a MessagePack value; `None` is an absent one.
pub(crate) fn type_name(value: Option<&[u8]>) -> &'static str {
    match value.and_then(<[u8]>::first).map(|first| Kind::of(*first)) {
        None => "nil",
        Some(Kind::Bool) => "boolean",
        Some(Kind::Uint | Kind::Int | Kind::Float | Kind::Double) => "number",
        Some(Kind::Str | Kind::Bin) => "string",
        Some(Kind::Array | Kind::Map) => "table",
        Some(Kind::Nil | Kind::Ext | Kind::Invalid) => "cdata",
    }
}

/// `tostring(value)` of a MessagePack value; `None` is an absent one. Strings come out byte for byte.
pub(crate) fn write(value: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(bytes) = value else {
        out.extend_from_slice(b"nil");
        return;
    };
    let mut reader = Reader::new(bytes);
    match reader.kind() {
        Ok(Kind::Nil) => out.extend_from_slice(b"cdata<void *>: NULL"),
        Ok(Kind::Bool) => out.extend_from_slice(if bytes == [0xc3] { b"true" } else { b"false" }),
        Ok(Kind::Uint | Kind::Int) => out.extend_from_slice(integer(reader.int().unwrap_or(0)).as_bytes()),
        Ok(Kind::Float) => out.extend_from_slice(double(f64::from(reader.float().unwrap_or(0.0))).as_bytes()),
        Ok(Kind::Double) => out.extend_from_slice(double(reader.double().unwrap_or(0.0)).as_bytes()),
        Ok(Kind::Str | Kind::Bin) => out.extend_from_slice(reader.str_or_bin().unwrap_or(b"")),
        Ok(Kind::Array | Kind::Map) => out.extend_from_slice(b"table"),
        Ok(Kind::Ext | Kind::Invalid) | Err(_) => {
            out.extend_from_slice(extension(bytes).as_deref().unwrap_or("cdata").as_bytes());
        }
    }
}

/// `tostring(value)` of a decimal or a UUID; `None` for everything else.
pub(crate) fn extension(value: &[u8]) -> Option<String> {
    match Reader::new(value).ext().ok()? {
        (EXT_DECIMAL, bytes) => Decimal::from_ext(bytes).map(|decimal| decimal.to_string()),
        (EXT_UUID, bytes) => Some(Uuid::from_slice(bytes).ok()?.to_string()),
        _ => None,
    }
}

/// [`write`] as text for messages.
pub(crate) fn text(value: Option<&[u8]>) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// An integer: `5`, `-7`, `100000000000000ULL`.
pub(crate) fn integer(value: i128) -> String {
    if value > LARGEST_LUA_INTEGER {
        format!("{value}ULL")
    } else if value < -LARGEST_LUA_INTEGER {
        format!("{value}LL")
    } else {
        value.to_string()
    }
}

/// A double with `%.14g`, as Lua 5.1 prints numbers.
pub(crate) fn double(value: f64) -> String {
    const DIGITS: i32 = 14;
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:.13e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        without_trailing_zeros(&format!("{value:.decimals$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
    }
}

fn without_trailing_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lycosa_tuple::value::Value;

    fn print(value: impl Into<Value>) -> String {
        text(Some(&value.into().encode()))
    }

    #[test]
    fn numbers_are_printed_as_lua_does() {
        assert_eq!(print(1_u64), "1");
        assert_eq!(print(-7_i64), "-7");
        assert_eq!(print(99_999_999_999_999_u64), "99999999999999");
        assert_eq!(print(100_000_000_000_000_u64), "100000000000000ULL");
        assert_eq!(print(-100_000_000_000_000_i64), "-100000000000000LL");
        assert_eq!(print(1.5), "1.5");
        assert_eq!(print(1.0), "1");
        assert_eq!(print(0.1), "0.1");
        assert_eq!(print(1.0 / 3.0), "0.33333333333333");
        assert_eq!(print(1e100), "1e+100");
        assert_eq!(print(1e14), "1e+14");
        assert_eq!(print(12_345_678_901_234.0), "12345678901234");
        assert_eq!(print(0.0001), "0.0001");
        assert_eq!(print(0.000_01), "1e-05");
        assert_eq!(print(-1e-7), "-1e-07");
        assert_eq!(print(f64::INFINITY), "inf");
    }

    #[test]
    fn other_values() {
        assert_eq!(text(None), "nil");
        assert_eq!(text(Some(&[0xc0])), "cdata<void *>: NULL");
        assert_eq!(text(Some(&[0xc3])), "true");
        assert_eq!(text(Some(&[0xc4, 1, b'x'])), "x");
        assert_eq!(type_name(Some(&[0xc0])), "cdata");
        assert_eq!(type_name(Some(&[0x80])), "table");
        assert_eq!(type_name(None), "nil");
    }
}
