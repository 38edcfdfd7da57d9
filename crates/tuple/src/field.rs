//! Field types: what a field of a tuple or a part of a key may hold.
//!
//! The set, the names and the rule which type contains which are Tarantool 2.6's.

use std::fmt;

use crate::decimal::Decimal;
use crate::mp::{self, Kind, Reader};

/// The type of a field or of a key part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FieldType {
    /// Any value, nil too, but for extensions of a type ≤ 0 or one that 32 divides, and the byte `c1`. Not allowed in keys.
    #[default]
    Any,
    /// Integers ≥ 0 in an unsigned form of MessagePack; 5 sent as `d0 05` is refused.
    Unsigned,
    /// Strings; any bytes.
    String,
    /// Integers, both kinds of floats, decimals.
    Number,
    /// 64-bit floats only.
    Double,
    /// Integers in any form.
    Integer,
    /// Booleans.
    Boolean,
    /// Binary values.
    Varbinary,
    /// Booleans, numbers, strings and binary values; not UUIDs.
    Scalar,
    /// Decimals (extension 1).
    Decimal,
    /// UUIDs (extension 2).
    Uuid,
    /// Arrays. Not allowed in keys.
    Array,
    /// Maps. Not allowed in keys.
    Map,
}

/// Some fields of a tuple. Those from the 64th on are one: two sets of which each has such fields are never disjoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSet(u64);

impl FieldSet {
    /// Adds a field, counted from 0.
    #[inline]
    pub fn insert(&mut self, field: u32) {
        self.0 |= 1 << field.min(u64::BITS - 1);
    }

    /// Whether no field is in both.
    #[inline]
    #[must_use]
    pub const fn is_disjoint(self, other: Self) -> bool {
        self.0 & other.0 == 0
    }
}

impl FromIterator<u32> for FieldSet {
    fn from_iter<T: IntoIterator<Item = u32>>(fields: T) -> Self {
        let mut set = Self::default();
        fields.into_iter().for_each(|field| set.insert(field));
        set
    }
}

const NAMES: [(&str, FieldType); 16] = [
    ("any", FieldType::Any),
    ("unsigned", FieldType::Unsigned),
    ("string", FieldType::String),
    ("number", FieldType::Number),
    ("double", FieldType::Double),
    ("integer", FieldType::Integer),
    ("boolean", FieldType::Boolean),
    ("varbinary", FieldType::Varbinary),
    ("scalar", FieldType::Scalar),
    ("decimal", FieldType::Decimal),
    ("uuid", FieldType::Uuid),
    ("array", FieldType::Array),
    ("map", FieldType::Map),
    ("num", FieldType::Unsigned),
    ("str", FieldType::String),
    ("*", FieldType::Any),
];

/// The bit of a kind in a set of kinds.
#[inline]
pub(crate) const fn bit(kind: Kind) -> u16 {
    1 << kind as u16
}

const INTEGERS: u16 = bit(Kind::Uint) | bit(Kind::Int);
const NUMBERS: u16 = INTEGERS | bit(Kind::Float) | bit(Kind::Double);

impl FieldType {
    /// The type called `name`, in any case. The names of Tarantool 1.6 still count: `num` is unsigned, `str` is
    /// string, `*` is any.
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|&(_, ty)| ty)
    }

    /// The type's name, as error messages and system spaces show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Unsigned => "unsigned",
            Self::String => "string",
            Self::Number => "number",
            Self::Double => "double",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Varbinary => "varbinary",
            Self::Scalar => "scalar",
            Self::Decimal => "decimal",
            Self::Uuid => "uuid",
            Self::Array => "array",
            Self::Map => "map",
        }
    }

    /// Kinds that the type accepts without a look at more than the first byte, a bit for each.
    pub(crate) const fn kinds(self) -> u16 {
        match self {
            Self::Any => !(bit(Kind::Ext) | bit(Kind::Invalid)),
            Self::Unsigned => bit(Kind::Uint),
            Self::String => bit(Kind::Str),
            Self::Number => NUMBERS,
            Self::Double => bit(Kind::Double),
            Self::Integer => INTEGERS,
            Self::Boolean => bit(Kind::Bool),
            Self::Varbinary => bit(Kind::Bin),
            Self::Scalar => NUMBERS | bit(Kind::Bool) | bit(Kind::Str) | bit(Kind::Bin),
            Self::Decimal | Self::Uuid => 0,
            Self::Array => bit(Kind::Array),
            Self::Map => bit(Kind::Map),
        }
    }

    /// Whether a field of this type may hold `value` (the bytes of one value). Nil is accepted by [`Self::Any`] alone:
    /// whether a field is nullable is the caller's knowledge. Decimals and UUIDs must be well-formed where the type
    /// asks for them.
    #[inline]
    pub fn accepts(self, value: &[u8]) -> bool {
        let Some(&first) = value.first() else {
            return false;
        };
        self.kinds() & bit(Kind::of(first)) != 0 || self.accepts_extension(value)
    }

    fn accepts_extension(self, value: &[u8]) -> bool {
        match Reader::new(value).ext() {
            Ok((mp::EXT_DECIMAL, bytes)) if self != Self::Any => {
                matches!(self, Self::Number | Self::Scalar | Self::Decimal)
                    && Decimal::from_ext(bytes).is_some()
            }
            Ok((mp::EXT_UUID, bytes)) if self == Self::Uuid => bytes.len() == 16,
            // A Tarantool 2.6 looks up the type's lowest five bits in a table; 0 is not in it.
            Ok((ty, _)) if self == Self::Any => ty > 0 && ty % 32 != 0,
            Ok(_) | Err(_) => false,
        }
    }

    /// Whether every value of type `other` is also one of this type, by Tarantool's table: any contains all,
    /// unsigned ⊂ integer ⊂ number ⊂ scalar, double and decimal ⊂ number, and string, boolean, varbinary ⊂ scalar.
    pub const fn contains(self, other: Self) -> bool {
        match self {
            Self::Any => true,
            Self::Integer => matches!(other, Self::Integer | Self::Unsigned),
            Self::Number => other.is_number(),
            Self::Scalar => {
                other.is_number()
                    || matches!(other, Self::Scalar | Self::String | Self::Boolean | Self::Varbinary)
            }
            _ => self as u8 == other as u8,
        }
    }

    /// The narrower of two types of one field — one from the space's format or an index, the other from an index part
    /// — or `None` if neither contains the other: codes 24 and 27.
    pub const fn narrower(self, other: Self) -> Option<Self> {
        if self.contains(other) {
            Some(other)
        } else if other.contains(self) {
            Some(self)
        } else {
            None
        }
    }

    /// Whether values of the type have an order, so that a TREE or HASH key part may have the type.
    pub const fn is_indexable(self) -> bool {
        !matches!(self, Self::Any | Self::Array | Self::Map)
    }

    const fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::Integer | Self::Unsigned | Self::Double | Self::Decimal)
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    const ALL: [FieldType; 13] = [
        FieldType::Any,
        FieldType::Unsigned,
        FieldType::String,
        FieldType::Number,
        FieldType::Double,
        FieldType::Integer,
        FieldType::Boolean,
        FieldType::Varbinary,
        FieldType::Scalar,
        FieldType::Decimal,
        FieldType::Uuid,
        FieldType::Array,
        FieldType::Map,
    ];

    #[test]
    fn names_are_read_in_any_case_and_old_ones_too() {
        for ty in ALL {
            assert_eq!(FieldType::parse(ty.name()), Some(ty));
            assert_eq!(FieldType::parse(&ty.name().to_uppercase()), Some(ty));
        }
        assert_eq!(FieldType::parse("NUM"), Some(FieldType::Unsigned));
        assert_eq!(FieldType::parse("Str"), Some(FieldType::String));
        assert_eq!(FieldType::parse("*"), Some(FieldType::Any));
        for unknown in ["", "int", "uint", "nu", "unsigned ", "datetime"] {
            assert_eq!(FieldType::parse(unknown), None, "{unknown}");
        }
    }

    /// Samples of every kind of value, and the types that accept each, from the protocol's table.
    #[test]
    fn acceptance_table() {
        use FieldType::*;
        let decimal = [0xd5, 0x01, 0x01, 0x5d];
        let broken_decimal = [0xd5, 0x01, 0x01, 0x5e, 0x00];
        let mut uuid = vec![0xd8, 0x02];
        uuid.extend([7; 16]);
        let samples: Vec<(Vec<u8>, &[FieldType])> = vec![
            (vec![0x05], &[Unsigned, Integer, Number, Scalar]),
            (vec![0xd0, 0x05], &[Integer, Number, Scalar]),
            (vec![0xff], &[Integer, Number, Scalar]),
            (vec![0xcf, 0, 0, 0, 0, 0, 0, 0, 1], &[Unsigned, Integer, Number, Scalar]),
            (Value::Double(8.0).encode(), &[Number, Double, Scalar]),
            (Value::Float(8.0).encode(), &[Number, Scalar]),
            (Value::str("a").encode(), &[String, Scalar]),
            (Value::bin("a").encode(), &[Varbinary, Scalar]),
            (vec![0xc2], &[Boolean, Scalar]),
            (decimal.to_vec(), &[Number, Decimal, Scalar]),
            (uuid, &[Uuid]),
            (vec![0xd4, 0x02, 0x00], &[]),
            (broken_decimal[..3].to_vec(), &[]),
            (vec![0xd4, 0x63, 0x00], &[]),
            (vec![0x90], &[Array]),
            (vec![0x80], &[Map]),
            (vec![0xc0], &[]),
            (vec![0xc1], &[]),
            (vec![0xd4, 0x00, 0x00], &[]),
            (vec![0xd4, 0xff, 0x00], &[]),
            (vec![0xd4, 0x20, 0x00], &[]),
            (vec![0xd4, 0x60, 0x00], &[]),
        ];
        for (value, accepting) in samples {
            let is_odd = matches!(value[..], [0xc1] | [0xd4, 0x00 | 0xff | 0x20 | 0x60, _] | [0xd5, _, _]);
            for ty in ALL {
                let expected = ty == Any && !is_odd || accepting.contains(&ty);
                assert_eq!(ty.accepts(&value), expected, "{ty} {value:02x?}");
            }
        }
        assert!(!Any.accepts(&[]));
    }

    #[test]
    fn containment_is_an_order() {
        for a in ALL {
            assert!(a.contains(a));
            assert!(FieldType::Any.contains(a));
            for b in ALL {
                assert!(a == b || !(a.contains(b) && b.contains(a)));
                assert_eq!(a.narrower(b), b.narrower(a));
                for c in ALL {
                    assert!(!(a.contains(b) && b.contains(c)) || a.contains(c), "{a} {b} {c}");
                }
            }
        }
        assert_eq!(FieldType::Number.narrower(FieldType::Unsigned), Some(FieldType::Unsigned));
        assert_eq!(FieldType::Scalar.narrower(FieldType::Decimal), Some(FieldType::Decimal));
        assert_eq!(FieldType::Integer.narrower(FieldType::Double), None);
        assert_eq!(FieldType::Scalar.narrower(FieldType::Uuid), None);
        assert_eq!(FieldType::Scalar.narrower(FieldType::Map), None);
    }
}
