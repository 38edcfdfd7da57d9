//! C data of the FFI: 64-bit integers, `box.NULL`, and the structures that this crate's modules declare.

use crate::api::Lua;
use crate::sys::{self, RawCdata};

/// What a C data value is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cdata {
    /// A signed integer, or an unsigned one of at most 32 bits.
    Int(i64),
    /// A `uint64_t`.
    Uint(u64),
    /// A `double`.
    Number(f64),
    /// A `float`.
    Float(f32),
    /// A `bool`.
    Bool(bool),
    /// A null pointer: `box.NULL`.
    Null,
    /// Another pointer.
    Pointer(usize),
    /// A structure: the number of its type and its address, which is good while the value is on the stack.
    Struct(u32, *const u8),
    /// A type as a value, as `ffi.typeof` returns it.
    Type,
    /// Something else, of this type.
    Other(u32),
}

/// Kinds as `shim.c` numbers them.
mod kind {
    pub(super) const INT64: u32 = 1;
    pub(super) const UINT64: u32 = 2;
    pub(super) const POINTER: u32 = 3;
    pub(super) const NUMBER: u32 = 4;
    pub(super) const BOOL: u32 = 5;
    pub(super) const STRUCT: u32 = 6;
    pub(super) const FLOAT: u32 = 7;
    pub(super) const TYPE: u32 = 8;
}

impl Lua {
    /// The C data at `index`, if it is one.
    pub fn cdata(self, index: i32) -> Option<Cdata> {
        let mut raw = RawCdata::EMPTY;
        // Pseudo-indexes hold no C data that any caller asks for, except upvalues.
        let index = if index <= sys::LUA_REGISTRYINDEX {
            return None;
        } else {
            index
        };
        // SAFETY: the shim checks that the index names a value and what it is.
        if unsafe { sys::lycosa_cdata_get(self.raw(), index, &raw mut raw) } == 0 {
            return None;
        }
        Some(match raw.kind {
            kind::INT64 => Cdata::Int(raw.bits.cast_signed()),
            kind::UINT64 => Cdata::Uint(raw.bits),
            kind::POINTER if raw.bits == 0 => Cdata::Null,
            kind::POINTER => Cdata::Pointer(raw.bits as usize),
            kind::NUMBER => Cdata::Number(raw.number),
            kind::FLOAT => Cdata::Float(raw.number as f32),
            kind::BOOL => Cdata::Bool(raw.bits != 0),
            kind::TYPE => Cdata::Type,
            kind::STRUCT => Cdata::Struct(raw.type_id, raw.data.cast()),
            _ => Cdata::Other(raw.type_id),
        })
    }

    /// The bytes of a structure of type `type_id`, `size` of them.
    pub fn struct_bytes(&self, index: i32, type_id: u32, size: usize) -> Option<&[u8]> {
        match self.cdata(index)? {
            // SAFETY: the structure is of the type that has this size, and lives while it is on the stack.
            Cdata::Struct(id, data) if id == type_id => {
                Some(unsafe { std::slice::from_raw_parts(data, size) })
            }
            _ => None,
        }
    }

    /// Pushes a structure of a type that Lua has declared, with these bytes. `type_id` is
    /// `tonumber(ffi.typeof('struct …'))`, and the bytes are at least as many as its size.
    pub fn push_struct(self, type_id: u32, parts: &[&[u8]]) {
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        let size32 = u32::try_from(size).expect("a structure is shorter than a tuple may be");
        // SAFETY: the shim makes a value of `size` bytes, which are all written.
        unsafe {
            let mut to = sys::lycosa_push_struct(self.raw(), type_id, size32).cast::<u8>();
            for part in parts {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
    }
}
