//! The Lua state as Rust functions see it.
//!
//! [`Lua`] is a handle of one coroutine's stack. Its methods do not raise Lua errors: they look at tables without
//! metamethods, or run protected and return the raised error. Indexes count as in Lua's own API: from 1 at the bottom of
//! the function's arguments, from -1 at the top.
//!
//! A [`Native`] function gets its arguments on the stack and returns how many values at the top are its results.

use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use crate::error::Error;
use crate::runtime::Shared;
use crate::sys::{self, lua_State};

/// A Rust function that Lua can call. It returns the number of its results, which are at the top of the stack.
pub type Native = fn(Lua) -> Result<i32, Error>;

/// What kind of value stands on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no value: the index lies above the top.
    None,
    /// `nil`
    Nil,
    /// `true` or `false`
    Boolean,
    /// A light userdata.
    Pointer,
    /// A number (a double).
    Number,
    /// A string.
    String,
    /// A table.
    Table,
    /// A function.
    Function,
    /// A userdata.
    Userdata,
    /// A coroutine.
    Thread,
    /// C data of the FFI.
    Cdata,
}

/// A value that Rust keeps alive in the registry.
#[derive(Debug)]
pub struct Ref {
    main: *mut lua_State,
    id: c_int,
}

impl Drop for Ref {
    fn drop(&mut self) {
        // SAFETY: the main coroutine lives as long as the state, and `Runtime` outlives all references by being dropped
        // last (its fibers' stacks are given up without running their destructors).
        unsafe { sys::luaL_unref(self.main, sys::LUA_REGISTRYINDEX, self.id) };
    }
}

/// One coroutine's stack.
#[derive(Debug, Clone, Copy)]
pub struct Lua {
    raw: *mut lua_State,
    shared: *const Shared,
}

/// Free stack slots that every `Native` function has.
const SLOTS: c_int = 20;

/// Numbers below this magnitude are compared with integers without a call.
const SMALL: f64 = (1u64 << 62) as f64;

/// Largest magnitude of an integer that is a number in Lua; others are 64-bit C data, as in Tarantool.
pub(crate) const MAX_EXACT: u64 = 99_999_999_999_999;

impl Lua {
    /// # Safety
    /// `raw` is a live coroutine of a state that [`Runtime`](crate::Runtime) made, and no other code runs it.
    pub(crate) unsafe fn new(raw: *mut lua_State) -> Lua {
        let mut data = ptr::null_mut();
        // SAFETY: the state is live; the allocator's argument is the runtime's `Shared`.
        unsafe { sys::lua_getallocf(raw, &raw mut data) };
        Lua { raw, shared: data.cast() }
    }

    pub(crate) fn raw(self) -> *mut lua_State {
        self.raw
    }

    pub(crate) fn shared(self) -> &'static Shared {
        // SAFETY: the runtime's `Shared` lives until the state is closed.
        unsafe { &*self.shared }
    }

    // ---- the stack

    /// Number of values on the stack (the arguments, when a function begins).
    pub fn top(self) -> i32 {
        // SAFETY: reads the state.
        unsafe { sys::lua_gettop(self.raw) }
    }

    /// Cuts the stack to `top` values, or fills it up with `nil`.
    pub fn set_top(self, top: i32) {
        // SAFETY: `top` is within the slots that `reserve` or the call gave.
        unsafe { sys::lua_settop(self.raw, top) };
    }

    /// Removes the top `count` values.
    pub fn pop(self, count: i32) {
        self.set_top(-count - 1);
    }

    /// Reserves stack slots for `count` more values; the 20 that every call has need no reservation. Recursive Rust code calls this
    /// on every level.
    ///
    /// # Errors
    /// The stack would grow beyond LuaJIT's limit, or the fiber's own stack is nearly used up.
    pub fn reserve(self, count: i32) -> Result<(), Error> {
        // SAFETY: grows the stack, protected.
        if self.shared().is_stack_ending() || unsafe { sys::lua_checkstack(self.raw, count + SLOTS) } == 0 {
            return Err(Error::text("stack overflow"));
        }
        Ok(())
    }

    /// The index counted from the bottom.
    pub fn absolute(self, index: i32) -> i32 {
        if index > 0 || index <= sys::LUA_REGISTRYINDEX { index } else { self.top() + index + 1 }
    }

    /// Pushes a copy of a value.
    pub fn push_value(self, index: i32) {
        // SAFETY: the index names a value.
        unsafe { sys::lua_pushvalue(self.raw, index) };
    }

    /// Moves the top value to `index`, shifting those above.
    pub fn insert(self, index: i32) {
        // SAFETY: the index names a value.
        unsafe { sys::lua_insert(self.raw, index) };
    }

    /// Removes the value at `index`.
    pub fn remove(self, index: i32) {
        // SAFETY: the index names a value.
        unsafe { sys::lua_remove(self.raw, index) };
    }

    /// Moves the top value over that at `index`.
    pub fn replace(self, index: i32) {
        // SAFETY: the index names a value.
        unsafe { sys::lua_replace(self.raw, index) };
    }

    /// Moves the top `count` values to another coroutine of the same state.
    pub(crate) fn move_to(self, to: Lua, count: i32) {
        // SAFETY: both are coroutines of one state; the receiver has the slots.
        unsafe { sys::lua_xmove(self.raw, to.raw, count) };
    }

    // ---- looking at values

    /// The kind of a value.
    pub fn kind(self, index: i32) -> Kind {
        // SAFETY: reads the state.
        match unsafe { sys::lua_type(self.raw, index) } {
            sys::LUA_TNIL => Kind::Nil,
            sys::LUA_TBOOLEAN => Kind::Boolean,
            sys::LUA_TLIGHTUSERDATA => Kind::Pointer,
            sys::LUA_TNUMBER => Kind::Number,
            sys::LUA_TSTRING => Kind::String,
            sys::LUA_TTABLE => Kind::Table,
            sys::LUA_TFUNCTION => Kind::Function,
            sys::LUA_TUSERDATA => Kind::Userdata,
            sys::LUA_TTHREAD => Kind::Thread,
            sys::LUA_TCDATA => Kind::Cdata,
            _ => Kind::None,
        }
    }

    /// Whether the value is absent, `nil` or `box.NULL`.
    pub fn is_null(self, index: i32) -> bool {
        match self.kind(index) {
            Kind::None | Kind::Nil => true,
            Kind::Cdata => matches!(self.cdata(index), Some(crate::Cdata::Null)),
            _ => false,
        }
    }

    /// What `type()` calls the value.
    pub fn type_name(self, index: i32) -> &'static str {
        match self.kind(index) {
            Kind::None => "no value",
            Kind::Nil => "nil",
            Kind::Boolean => "boolean",
            Kind::Pointer | Kind::Userdata => "userdata",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Table => "table",
            Kind::Function => "function",
            Kind::Thread => "thread",
            Kind::Cdata => "cdata",
        }
    }

    /// Whether the value counts as true.
    pub fn truth(self, index: i32) -> bool {
        // SAFETY: reads the state.
        unsafe { sys::lua_toboolean(self.raw, index) != 0 }
    }

    /// A number, or a 64-bit integer as one (rounded). Strings are not converted.
    pub fn number(self, index: i32) -> Option<f64> {
        match self.kind(index) {
            // SAFETY: the value is a number.
            Kind::Number => Some(unsafe { sys::lua_tonumber(self.raw, index) }),
            Kind::Cdata => match self.cdata(index)? {
                crate::Cdata::Int(value) => Some(value as f64),
                crate::Cdata::Uint(value) => Some(value as f64),
                crate::Cdata::Number(value) => Some(value),
                crate::Cdata::Float(value) => Some(f64::from(value)),
                _ => None,
            },
            _ => None,
        }
    }

    /// An integer: a number without a fraction, or a 64-bit integer.
    pub fn integer(self, index: i32) -> Option<i128> {
        match self.kind(index) {
            Kind::Number => {
                // SAFETY: the value is a number.
                let number = unsafe { sys::lua_tonumber(self.raw, index) };
                if number.abs() < SMALL {
                    let whole = number as i64;
                    return (whole as f64 == number).then_some(whole.into());
                }
                (number.fract() == 0.0 && number.abs() < 1e30).then_some(number as i128)
            }
            Kind::Cdata => match self.cdata(index)? {
                crate::Cdata::Int(value) => Some(i128::from(value)),
                crate::Cdata::Uint(value) => Some(i128::from(value)),
                crate::Cdata::Number(value) if value.fract() == 0.0 => Some(value as i128),
                crate::Cdata::Float(value) if value.fract() == 0.0 => Some(value as i128),
                _ => None,
            },
            _ => None,
        }
    }

    /// The bytes of a string. Numbers are not converted. The slice is good while the value is on the stack.
    pub fn bytes(&self, index: i32) -> Option<&[u8]> {
        if self.kind(index) != Kind::String {
            return None;
        }
        let mut length = 0;
        // SAFETY: the value is a string; Lua does not move strings.
        unsafe {
            let start = sys::lua_tolstring(self.raw, index, &raw mut length);
            Some(slice::from_raw_parts(start.cast(), length))
        }
    }

    /// A string as text, invalid UTF-8 replaced.
    pub fn text(self, index: i32) -> Option<String> {
        self.bytes(index).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The length of a string or table (without `__len`), the size of a userdata.
    pub fn raw_len(self, index: i32) -> usize {
        // SAFETY: reads the state.
        unsafe { sys::lua_objlen(self.raw, index) }
    }

    /// The address of a table, function, userdata or coroutine; identifies it while it lives.
    pub fn pointer(self, index: i32) -> usize {
        // SAFETY: reads the state.
        unsafe { sys::lua_topointer(self.raw, index) as usize }
    }

    /// Whether two values are the same, without metamethods.
    pub fn raw_equal(self, left: i32, right: i32) -> bool {
        // SAFETY: reads the state.
        unsafe { sys::lua_rawequal(self.raw, left, right) != 0 }
    }

    /// The value as `tostring` shows it; calls `__tostring`.
    pub fn display(self, index: i32) -> String {
        let index = self.absolute(index);
        if let Some(text) = self.text(index) {
            return text;
        }
        if self.reserve(4).is_err() {
            return self.type_name(index).to_owned();
        }
        self.push_global("tostring");
        self.push_value(index);
        match self.call(1, 1) {
            Ok(()) => {
                let text = self.text(-1);
                self.pop(1);
                text.unwrap_or_else(|| self.type_name(index).to_owned())
            }
            Err(_) => self.type_name(index).to_owned(),
        }
    }

    // ---- pushing

    /// Pushes `nil`.
    pub fn push_nil(self) {
        // SAFETY: a slot is free.
        unsafe { sys::lua_pushnil(self.raw) };
    }

    /// Pushes `box.NULL`.
    pub fn push_null(self) {
        // SAFETY: a slot is free; allocations do not fail while native code runs.
        unsafe { sys::lycosa_push_null(self.raw) };
    }

    /// Pushes a boolean.
    pub fn push_bool(self, value: bool) {
        // SAFETY: a slot is free.
        unsafe { sys::lua_pushboolean(self.raw, c_int::from(value)) };
    }

    /// Pushes a number.
    pub fn push_number(self, value: f64) {
        // SAFETY: a slot is free.
        unsafe { sys::lua_pushnumber(self.raw, value) };
    }

    /// Pushes an integer: a number up to 10^14 - 1, else a 64-bit C data (`LL`), as Tarantool does.
    pub fn push_int(self, value: i64) {
        if value.unsigned_abs() <= MAX_EXACT {
            self.push_number(value as f64);
        } else {
            self.push_int64(value);
        }
    }

    /// Pushes an integer: a number up to 10^14 - 1, else a 64-bit C data (`ULL`), as Tarantool does.
    pub fn push_uint(self, value: u64) {
        if value <= MAX_EXACT {
            self.push_number(value as f64);
        } else {
            self.push_uint64(value);
        }
    }

    /// Pushes an `int64_t`.
    pub fn push_int64(self, value: i64) {
        // SAFETY: a slot is free; the FFI is loaded.
        unsafe { sys::lycosa_push_int64(self.raw, value) };
    }

    /// Pushes a `uint64_t`.
    pub fn push_uint64(self, value: u64) {
        // SAFETY: a slot is free; the FFI is loaded.
        unsafe { sys::lycosa_push_uint64(self.raw, value) };
    }

    /// Pushes a string.
    pub fn push_str(self, text: impl AsRef<[u8]>) {
        let bytes = text.as_ref();
        // SAFETY: a slot is free; the bytes are copied.
        unsafe { sys::lua_pushlstring_(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Pushes a Rust function.
    pub fn push_function(self, function: Native) {
        // SAFETY: two slots are free; `thunk` reads the upvalue as what it is.
        unsafe {
            sys::lua_pushlightuserdata(self.raw, function as *mut std::ffi::c_void);
            sys::lua_pushcclosure(self.raw, THUNK, 1);
        }
    }

    /// Pushes a Rust function that has the top `count` values with it; it reads them with [`Lua::upvalue`].
    pub fn push_closure(self, function: Native, count: i32) {
        // SAFETY: a slot is free; the upvalues stand on the stack.
        unsafe {
            sys::lua_pushlightuserdata(self.raw, function as *mut std::ffi::c_void);
            sys::lua_insert(self.raw, -1 - count);
            sys::lua_pushcclosure(self.raw, THUNK, 1 + count);
        }
    }

    /// The index of a value that [`Lua::push_closure`] put into the running function, from 1.
    pub fn upvalue(self, number: i32) -> i32 {
        sys::lua_upvalueindex(number + 1)
    }

    /// Pushes a new table with space for items and fields.
    pub fn new_table(self, items: usize, fields: usize) {
        let bounded = |count: usize| c_int::try_from(count.min(1 << 16)).unwrap_or(0);
        // SAFETY: a slot is free.
        unsafe { sys::lua_createtable(self.raw, bounded(items), bounded(fields)) };
    }

    /// Pushes a global variable, without metamethods.
    pub fn push_global(self, name: &str) {
        self.raw_field(sys::LUA_GLOBALSINDEX, name);
    }

    // ---- tables, without metamethods

    /// Pushes `table[name]`; `nil` if the value is no table.
    pub fn raw_field(self, table: i32, name: &str) {
        let table = self.absolute(table);
        self.push_str(name);
        self.raw_get(table);
    }

    /// Whether the value is a table. A program may have put anything in the place of a table that native code knows by its
    /// name, and LuaJIT would take it for one.
    fn is_table(self, index: i32) -> bool {
        self.kind(index) == Kind::Table
    }

    /// Pops a value and sets `table[name]`; only pops it if there is no table.
    pub fn raw_set_field(self, table: i32, name: &str) {
        let table = self.absolute(table);
        self.push_str(name);
        self.insert(-2);
        self.raw_set(table);
    }

    /// Pushes `table[number]`; `nil` if the value is no table.
    pub fn raw_item(self, table: i32, number: i32) {
        if !self.is_table(table) {
            self.push_nil();
            return;
        }
        // SAFETY: the index names a table.
        unsafe { sys::lua_rawgeti_(self.raw, table, number) };
    }

    /// Pops a value and sets `table[number]`; only pops it if there is no table.
    pub fn raw_set_item(self, table: i32, number: i32) {
        if !self.is_table(table) {
            self.pop(1);
            return;
        }
        // SAFETY: the index names a table.
        unsafe { sys::lua_rawseti_(self.raw, table, number) };
    }

    /// Pops a key and pushes `table[key]`; `nil` if the value is no table.
    pub fn raw_get(self, table: i32) {
        if !self.is_table(table) {
            self.pop(1);
            self.push_nil();
            return;
        }
        // SAFETY: the index names a table.
        unsafe { sys::lua_rawget_(self.raw, table) };
    }

    /// Pops a value and a key (neither `nil` nor NaN) and sets `table[key]`; only pops them if there is no table.
    pub fn raw_set(self, table: i32) {
        if !self.is_table(table) {
            self.pop(2);
            return;
        }
        // SAFETY: the index names a table; the caller has looked at the key.
        unsafe { sys::lua_rawset(self.raw, table) };
    }

    /// Pops a key and pushes the next key and its value; nothing at the end. The key is `nil` or came from here.
    ///
    /// # Errors
    /// The key is not in the table any more: Lua code that ran meanwhile has changed it. A finalizer may run wherever a
    /// value is pushed.
    pub fn next(self, table: i32) -> Result<bool, Error> {
        if !self.is_table(table) {
            self.pop(1);
            return Ok(false);
        }
        // SAFETY: the index names a table, and a key stands at the top. `lua_next` would raise an error, which would cross
        // the frames of this function's callers.
        match unsafe { sys::lycosa_next(self.raw, table) } {
            0 => Ok(false),
            1 => Ok(true),
            _ => {
                self.pop(1);
                Err(Error::text("invalid key to 'next': the table was changed while it was read"))
            }
        }
    }

    /// Pushes the metatable of a value, if it has one.
    pub fn metatable(self, index: i32) -> bool {
        // SAFETY: reads the state.
        unsafe { sys::lua_getmetatable(self.raw, index) != 0 }
    }

    /// Pops a table (or `nil`) and makes it the metatable of a table or userdata.
    pub fn set_metatable(self, index: i32) {
        // SAFETY: the index names a table or userdata.
        unsafe { sys::lua_setmetatable(self.raw, index) };
    }

    /// Pushes a field of the value's metatable, if there is one.
    pub fn metafield(self, index: i32, name: &str) -> bool {
        if !self.metatable(index) {
            return false;
        }
        self.raw_field(-1, name);
        self.remove(-2);
        if self.kind(-1) == Kind::Nil {
            self.pop(1);
            return false;
        }
        true
    }

    /// Pushes a table of the registry that exists once under this name.
    pub fn registry_table(self, name: &str) {
        self.raw_field(sys::LUA_REGISTRYINDEX, name);
        if self.kind(-1) == Kind::Table {
            return;
        }
        self.pop(1);
        self.new_table(0, 0);
        self.push_value(-1);
        self.raw_set_field(sys::LUA_REGISTRYINDEX, name);
    }

    // ---- what may raise, protected

    /// Calls a function with the top `args` values; it stands below them. Leaves `results` values (-1: all).
    ///
    /// # Errors
    /// What the function raised.
    pub fn call(self, args: i32, results: i32) -> Result<(), Error> {
        let shared = self.shared();
        let native = shared.in_native.replace(false);
        // SAFETY: function and arguments stand on the stack; errors are caught here.
        let status = unsafe { sys::lua_pcall(self.raw, args, results, 0) };
        shared.in_native.set(native);
        if status == 0 { Ok(()) } else { Err(self.pop_error()) }
    }

    /// Calls `require(module)[function]` with the top `args` values. Leaves `results` values (-1: all).
    ///
    /// # Errors
    /// What it raised. A program may have put anything in the place of a module.
    pub(crate) fn call_module(
        self,
        module: &str,
        function: &str,
        args: i32,
        results: i32,
    ) -> Result<(), Error> {
        self.reserve(4)?;
        self.push_global("require");
        self.push_str(module);
        self.call(1, 1)?;
        self.raw_field(-1, function);
        self.remove(-2);
        self.insert(-1 - args);
        self.call(args, results)
    }

    pub(crate) fn pop_error(self) -> Error {
        Error::Raised(self.pop_ref())
    }

    /// Pushes `value[name]`, with metamethods.
    ///
    /// # Errors
    /// The value cannot be indexed, or its metamethod raised.
    pub fn field(self, index: i32, name: &str) -> Result<(), Error> {
        if self.kind(index) == Kind::Table {
            self.raw_field(index, name);
            if self.kind(-1) != Kind::Nil || !self.metatable(index) {
                return Ok(());
            }
            self.pop(2);
        }
        let index = self.absolute(index);
        self.push_str(name);
        self.get(index)
    }

    /// Pops a key and pushes `value[key]`, with metamethods.
    ///
    /// # Errors
    /// The value cannot be indexed, or its metamethod raised.
    pub fn get(self, index: i32) -> Result<(), Error> {
        let index = self.absolute(index);
        // SAFETY: a slot is free.
        unsafe { sys::lua_pushcclosure(self.raw, get_with_metamethods, 0) };
        self.insert(-2);
        self.push_value(index);
        self.insert(-2);
        self.call(2, 1)
    }

    /// Pops a value and a key and sets `value[key]`, with metamethods.
    ///
    /// # Errors
    /// The value cannot be indexed, or its metamethod raised.
    pub fn set(self, index: i32) -> Result<(), Error> {
        let index = self.absolute(index);
        // SAFETY: a slot is free.
        unsafe { sys::lua_pushcclosure(self.raw, set_with_metamethods, 0) };
        self.insert(-3);
        self.push_value(index);
        self.insert(-3);
        self.call(3, 0)
    }

    /// Compiles a chunk and pushes it as a function. `name` as Lua wants it: `@file` or `=text`.
    ///
    /// # Errors
    /// The text is no Lua, with the place; or it is compiled code.
    pub fn load(self, source: &[u8], name: &str) -> Result<(), Error> {
        let name = CString::new(name.replace('\0', "?")).expect("zeros are replaced");
        // SAFETY: the parser is protected; the source is read before the call returns. Mode "t" refuses bytecode, which
        // LuaJIT does not verify.
        let status = unsafe {
            let source = (source.as_ptr().cast(), source.len());
            sys::luaL_loadbufferx(self.raw, source.0, source.1, name.as_ptr(), c"t".as_ptr())
        };
        if status == 0 { Ok(()) } else { Err(self.pop_error()) }
    }

    /// Where the function at a level of the call stack is: `file:line: `, or nothing. Level 1 called the native function.
    pub fn place(self, level: i32) -> String {
        // SAFETY: pushes a string; two slots are free.
        unsafe { sys::luaL_where(self.raw, level) };
        let place = self.text(-1).unwrap_or_default();
        self.pop(1);
        place
    }

    // ---- references

    /// Pops a value into the registry.
    pub fn pop_ref(self) -> Ref {
        // SAFETY: the value is at the top.
        let id = unsafe { sys::luaL_ref(self.raw, sys::LUA_REGISTRYINDEX) };
        Ref { main: self.shared().main(), id }
    }

    /// Pushes a value of the registry.
    pub fn push_ref(self, value: &Ref) {
        self.raw_item(sys::LUA_REGISTRYINDEX, value.id);
    }

    // ---- arguments

    /// An argument that has to be a string.
    ///
    /// # Errors
    /// It is something else: `usage` is the text.
    pub fn arg_bytes(&self, index: i32, usage: &str) -> Result<&[u8], Error> {
        self.bytes(index).ok_or_else(|| Error::here(usage))
    }

    /// An argument that has to be a number.
    ///
    /// # Errors
    /// It is something else: `usage` is the text.
    pub fn arg_number(self, index: i32, usage: &str) -> Result<f64, Error> {
        self.number(index).ok_or_else(|| Error::here(usage))
    }

    /// Collects all garbage.
    ///
    /// # Errors
    /// A finalizer raised an error.
    pub(crate) fn collect_garbage(self) -> Result<(), Error> {
        // SAFETY: a slot is free.
        unsafe { sys::lua_pushcclosure(self.raw, collect, 0) };
        self.call(0, 0)
    }

    /// Pushes a new table with functions by their names.
    pub fn new_library(self, functions: &[(&str, Native)]) {
        self.new_table(0, functions.len());
        for (name, function) in functions {
            self.push_function(*function);
            self.raw_set_field(-2, name);
        }
    }
}

/// `value[key]` with metamethods; a bare C function, so that what metamethods raise crosses nothing of Rust.
unsafe extern "C-unwind" fn get_with_metamethods(l: *mut lua_State) -> c_int {
    // SAFETY: called with a value and a key.
    unsafe { sys::lua_gettable_(l, 1) };
    1
}

/// `value[key] = item` with metamethods.
unsafe extern "C-unwind" fn set_with_metamethods(l: *mut lua_State) -> c_int {
    // SAFETY: called with a value, a key and an item.
    unsafe { sys::lua_settable(l, 1) };
    0
}

/// What Lua calls instead of a [`Native`] function: runs it and raises its error when nothing is left to drop.
///
/// The result is as wide as a register: LuaJIT reads all of it, and the upper half of a `c_int`'s register is anything.
unsafe extern "C-unwind" fn thunk(l: *mut lua_State) -> isize {
    let outcome = run(l);
    if outcome < 0 {
        // SAFETY: the error is at the top, and this frame owns nothing.
        unsafe { sys::lua_error(l) }
    }
    outcome as isize
}

type WideFunction = unsafe extern "C-unwind" fn(*mut lua_State) -> isize;

/// [`thunk`] as Lua wants it.
// SAFETY: a `c_int` is returned in the lower half of the register that an `isize` is returned in.
const THUNK: sys::lua_CFunction = unsafe { std::mem::transmute::<WideFunction, sys::lua_CFunction>(thunk) };

/// A whole collection; a bare C function, so that what finalizers raise crosses nothing of Rust.
unsafe extern "C-unwind" fn collect(l: *mut lua_State) -> c_int {
    // SAFETY: the state is live.
    unsafe { sys::lua_gc(l, sys::LUA_GCCOLLECT, 0) };
    0
}

/// The number of results, or -1 with an error at the top.
fn run(l: *mut lua_State) -> c_int {
    // SAFETY: Lua calls with a live state, whose first upvalue `push_function` made from a `Native`.
    let (lua, function) = unsafe {
        let function = sys::lua_touserdata(l, sys::lua_upvalueindex(1));
        (Lua::new(l), std::mem::transmute::<*mut std::ffi::c_void, Native>(function))
    };
    let shared = lua.shared();
    let native = shared.in_native.replace(true);
    if shared.is_stack_short() {
        lua.set_top(0);
        lua.push_str("stack overflow");
        shared.in_native.set(native);
        return -1;
    }
    let result = catch_unwind(AssertUnwindSafe(|| function(lua)));
    let outcome = match result {
        Ok(Ok(count)) => count,
        Ok(Err(error)) => {
            if lua.reserve(SLOTS).is_err() {
                lua.set_top(0);
            }
            error.push(lua);
            -1
        }
        Err(panic) => {
            let text = panic_text(&*panic);
            tracing::error!("a module's function panicked: {text}");
            lua.set_top(0);
            lua.push_str(format!("internal error: {text}"));
            -1
        }
    };
    shared.in_native.set(native);
    outcome
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
