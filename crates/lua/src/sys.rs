//! The C functions: LuaJIT's API and the shim's (`shim.c`).

use std::ffi::c_int;
use std::os::raw::c_void;

pub(crate) use mlua_sys::*;

/// What a switch of stacks saves of LuaJIT's global state; `shim.c` knows its fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Switch {
    current: *mut lua_State,
    ffi: *mut lua_State,
}

impl Switch {
    pub(crate) const EMPTY: Switch = Switch { current: std::ptr::null_mut(), ffi: std::ptr::null_mut() };
}

/// A C data value, as `shim.c` describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawCdata {
    pub(crate) type_id: u32,
    pub(crate) kind: u32,
    pub(crate) bits: u64,
    pub(crate) number: f64,
    pub(crate) data: *mut c_void,
}

impl RawCdata {
    pub(crate) const EMPTY: RawCdata =
        RawCdata { type_id: 0, kind: 0, bits: 0, number: 0.0, data: std::ptr::null_mut() };
}

unsafe extern "C-unwind" {
    pub(crate) fn lycosa_switch_save(l: *mut lua_State, saved: *mut Switch) -> c_int;
    pub(crate) fn lycosa_switch_restore(l: *mut lua_State, saved: *const Switch);
    pub(crate) fn lycosa_set_floor(floor: usize, last: usize);
    pub(crate) fn lycosa_interrupt(l: *mut lua_State, hook: lua_Hook);
    pub(crate) fn lycosa_calm(l: *mut lua_State);
    pub(crate) fn lycosa_leave_hook(l: *mut lua_State);
    pub(crate) fn lycosa_in_finalizer(l: *mut lua_State) -> c_int;
    pub(crate) fn lycosa_watch_finalizers();
    pub(crate) fn lycosa_finalize(l: *mut lua_State) -> c_int;
    pub(crate) fn lycosa_close(l: *mut lua_State);
    pub(crate) fn lycosa_reserve_coroutine(l: *mut lua_State, reserved: c_int);
    pub(crate) fn lycosa_next(l: *mut lua_State, index: c_int) -> c_int;
    pub(crate) fn lycosa_userdata(l: *mut lua_State, index: c_int, metatable: *const c_void) -> *mut c_void;
    pub(crate) fn lycosa_push_userdata(l: *mut lua_State, size: usize, metatable: *mut c_void)
    -> *mut c_void;
    pub(crate) fn lycosa_table_keys(
        l: *mut lua_State,
        index: c_int,
        count: *mut u32,
        largest: *mut u32,
    ) -> c_int;
    pub(crate) fn lycosa_encode(
        l: *mut lua_State,
        index: c_int,
        to: *mut c_void,
        room: usize,
        ratio: u32,
        safe: u32,
    ) -> isize;
    pub(crate) fn lycosa_limit_coroutines(l: *mut lua_State);
    pub(crate) fn lycosa_open_c_api(l: *mut lua_State);
    pub(crate) fn lycosa_cdata_get(l: *mut lua_State, index: c_int, out: *mut RawCdata) -> c_int;
    pub(crate) fn lycosa_push_int64(l: *mut lua_State, value: i64);
    pub(crate) fn lycosa_push_uint64(l: *mut lua_State, value: u64);
    pub(crate) fn lycosa_push_null(l: *mut lua_State);
    pub(crate) fn lycosa_push_struct(l: *mut lua_State, type_id: u32, size: u32) -> *mut c_void;
}
