//! Lua's memory and its limit.
//!
//! Beyond the limit an allocation of Lua code fails, which is a Lua error ("not enough memory"). An allocation that native
//! code asks for never fails, because the error would cross its frames; the next one of Lua code does.
//!
//! LuaJIT does not collect garbage before it gives up, and what failed has left garbage. Therefore a fiber of its own
//! collects it all before any other fiber goes on (`Runtime::resume_ready`); otherwise all further code would fail.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::os::raw::c_void;

use crate::runtime::Shared;

/// LuaJIT asks for no stricter alignment.
const ALIGNMENT: usize = 16;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT).ok()
}

/// The allocator that the Lua state is made with; `data` is the runtime's [`Shared`].
pub(crate) unsafe extern "C" fn allocate(
    data: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the state is made with a pointer to `Shared`, which outlives it; blocks come from here with their sizes.
    unsafe {
        let shared = &*data.cast::<Shared>();
        if new == 0 {
            if let (false, Some(old_layout)) = (block.is_null(), layout(old)) {
                dealloc(block.cast(), old_layout);
                shared.used.set(shared.used.get().saturating_sub(old));
            }
            return std::ptr::null_mut();
        }
        let old = if block.is_null() { 0 } else { old };
        let used = shared.used.get().saturating_sub(old) + new;
        if new > old && used > shared.limits.get().memory && !shared.in_native.get() {
            shared.is_exhausted.set(true);
            return std::ptr::null_mut();
        }
        let Some(new_layout) = layout(new) else { return std::ptr::null_mut() };
        let result = match layout(old) {
            Some(old_layout) if !block.is_null() => realloc(block.cast(), old_layout, new),
            _ => alloc(new_layout),
        };
        if !result.is_null() {
            shared.used.set(used);
        }
        result.cast()
    }
}
