//! Native part of `decimal`: functions and metamethods of decimal numbers.

use std::cmp::Ordering;

use lycosa_tuple::decimal::{DIGITS, Decimal};

use crate::api::{Kind, Lua, Native};
use crate::cdata::Cdata;
use crate::error::Error;

const FAILED: &str = "decimal operation failed";

/// A function of one decimal.
type Unary = fn(Decimal) -> Option<Decimal>;
/// A function of two.
type Binary = fn(Decimal, Decimal) -> Option<Decimal>;

/// Pushes the module and the metamethods.
pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[
        ("abs", |lua| unary(lua, "abs", |number| Some(number.absolute()))),
        ("exp", |lua| unary(lua, "exp", Decimal::checked_exp)),
        ("is_decimal", is_decimal),
        ("ln", |lua| unary(lua, "ln", Decimal::checked_ln)),
        ("log10", |lua| unary(lua, "log10", Decimal::checked_log10)),
        ("new", new),
        ("precision", |lua| {
            lua.push_number(f64::from(own(lua, "usage: decimal.precision(decimal)")?.precision()));
            Ok(1)
        }),
        ("rescale", |lua| scaled(lua, "rescale", Decimal::rescaled)),
        ("round", |lua| scaled(lua, "round", Decimal::rounded_to)),
        ("scale", |lua| {
            lua.push_number(f64::from(own(lua, "usage: decimal.scale(decimal)")?.scale().max(0)));
            Ok(1)
        }),
        ("sqrt", |lua| unary(lua, "sqrt", Decimal::checked_sqrt)),
        ("trim", |lua| {
            lua.push_decimal(own(lua, "usage: decimal.trim(decimal)")?.trimmed());
            Ok(1)
        }),
    ]);
    let metamethods: &[(&str, Native)] = &[
        ("__add", |lua| binary(lua, Decimal::checked_add)),
        ("__sub", |lua| binary(lua, Decimal::checked_sub)),
        ("__mul", |lua| binary(lua, Decimal::checked_mul)),
        ("__div", |lua| binary(lua, Decimal::checked_div)),
        ("__mod", |lua| binary(lua, Decimal::checked_rem)),
        ("__pow", |lua| binary(lua, Decimal::checked_pow)),
        ("__unm", |lua| {
            lua.push_decimal(argument(lua, 1)?.negated());
            Ok(1)
        }),
        ("__eq", equal),
        ("__lt", |lua| compare(lua, Ordering::is_lt)),
        ("__le", |lua| compare(lua, Ordering::is_le)),
        ("__tostring", |lua| {
            lua.push_str(argument(lua, 1)?.to_string());
            Ok(1)
        }),
    ];
    lua.new_library(metamethods);
    lua.raw_set_field(-2, "metamethods");
    Ok(1)
}

/// A decimal, a number, or a text that is one.
fn argument(lua: Lua, index: i32) -> Result<Decimal, Error> {
    let number = match lua.kind(index) {
        Kind::Number => lua.number(index).and_then(Decimal::from_double),
        Kind::String => lua.text(index).and_then(|text| Decimal::parse_rounded(&text).ok()),
        _ => match (lua.decimal(index), lua.cdata(index)) {
            (Some(number), _) => Some(number),
            (_, Some(Cdata::Int(number))) => Decimal::from_integer(number.into()),
            (_, Some(Cdata::Uint(number))) => Decimal::from_integer(number.into()),
            (_, Some(Cdata::Number(number))) => Decimal::from_double(number),
            (_, Some(Cdata::Float(number))) => Decimal::from_double(f64::from(number)),
            _ => return Err(Error::here(format!("expected decimal, number or string as {index} argument"))),
        },
    };
    number.ok_or_else(|| Error::here(format!("incorrect value to convert to decimal as {index} argument")))
}

/// The decimal of a function that takes nothing else.
fn own(lua: Lua, usage: &str) -> Result<Decimal, Error> {
    match lua.kind(1) {
        Kind::None => Err(Error::here(usage)),
        _ => lua.decimal(1).ok_or_else(|| {
            Error::here(if lua.kind(1) == Kind::Cdata {
                "expected decimal as 1 argument"
            } else {
                "expected cdata as 1 argument"
            })
        }),
    }
}

fn new(lua: Lua) -> Result<i32, Error> {
    if lua.top() == 0 {
        return Err(Error::here("usage: decimal.new(value)"));
    }
    lua.push_decimal(argument(lua, 1)?);
    Ok(1)
}

fn is_decimal(lua: Lua) -> Result<i32, Error> {
    if lua.top() == 0 {
        return Err(Error::here("usage: decimal.is_decimal(value)"));
    }
    lua.push_bool(lua.decimal(1).is_some());
    Ok(1)
}

fn unary(lua: Lua, name: &str, function: Unary) -> Result<i32, Error> {
    if lua.top() == 0 {
        return Err(Error::here(format!("usage: decimal.{name}(decimal)")));
    }
    let number = argument(lua, 1)?;
    lua.push_decimal(function(number).ok_or_else(|| Error::here(FAILED))?);
    Ok(1)
}

/// `round` and `rescale`. A number of places that no decimal has changes nothing.
fn scaled(lua: Lua, name: &str, function: fn(Decimal, u32) -> Decimal) -> Result<i32, Error> {
    let usage = format!("usage: decimal.{name}(decimal, scale)");
    if lua.top() < 2 {
        return Err(Error::here(usage));
    }
    let number = own(lua, &usage)?;
    let places = match lua.kind(2) {
        Kind::String => lua.text(2).and_then(|text| text.trim().parse().ok()),
        _ => lua.number(2),
    };
    let places = places.ok_or_else(|| {
        Error::here(format!("bad argument #2 to '?' (number expected, got {})", lua.type_name(2)))
    })?;
    let fits = (0.0..=f64::from(DIGITS)).contains(&places);
    lua.push_decimal(if fits { function(number, places as u32) } else { number });
    Ok(1)
}

fn binary(lua: Lua, function: Binary) -> Result<i32, Error> {
    let (left, right) = (argument(lua, 1)?, argument(lua, 2)?);
    lua.push_decimal(function(left, right).ok_or_else(|| Error::here(FAILED))?);
    Ok(1)
}

fn equal(lua: Lua) -> Result<i32, Error> {
    let is_nothing = |index| {
        lua.kind(index) == Kind::Nil || matches!(lua.cdata(index), Some(Cdata::Null | Cdata::Pointer(_)))
    };
    let same = !is_nothing(1) && !is_nothing(2) && argument(lua, 1)? == argument(lua, 2)?;
    lua.push_bool(same);
    Ok(1)
}

fn compare(lua: Lua, wanted: fn(Ordering) -> bool) -> Result<i32, Error> {
    if (1..=2).any(|index| lua.kind(index) == Kind::Nil) {
        return Err(Error::here("attempt to compare decimal with nil"));
    }
    lua.push_bool(wanted(argument(lua, 1)?.cmp(&argument(lua, 2)?)));
    Ok(1)
}
