//! Rust values that Lua owns.

use std::any::{TypeId, type_name};
use std::ffi::c_void;

use crate::api::{Lua, Native};
use crate::error::Error;
use crate::sys;

/// A value in a userdata: gone once the collector has finalized it.
struct UserdataCell<T> {
    value: Option<T>,
}

impl Lua {
    /// Declares the methods (`object:name()`) and metamethods of the userdata of type `T`; `name` is what
    /// `getmetatable` shows. The metatable stays at the top of the stack.
    pub fn new_class<T: 'static>(
        self,
        name: &str,
        methods: &[(&str, Native)],
        metamethods: &[(&str, Native)],
    ) {
        self.registry_table(type_name::<T>());
        self.new_library(methods);
        self.raw_set_field(-2, "__index");
        for (name, function) in metamethods {
            self.push_function(*function);
            self.raw_set_field(-2, name);
        }
        self.push_function(finalize::<T>);
        self.raw_set_field(-2, "__gc");
        self.push_str(name);
        self.raw_set_field(-2, "__metatable");
    }

    /// The address of the metatable of the userdata of type `T`. The registry keeps it, and LuaJIT moves nothing.
    fn class<T: 'static>(self) -> *mut c_void {
        let classes = &self.shared().classes;
        let wanted = TypeId::of::<T>();
        let known = classes.borrow().iter().find(|(id, _)| *id == wanted).map(|(_, address)| *address);
        if let Some(address) = known {
            return address;
        }
        self.registry_table(type_name::<T>());
        let address = self.pointer(-1) as *mut c_void;
        self.pop(1);
        classes.borrow_mut().push((wanted, address));
        address
    }

    /// Pushes a Rust value of a class that was declared with [`Lua::new_class`]. Its alignment is at most 8.
    pub fn push_userdata<T: 'static>(self, value: T) {
        const { assert!(align_of::<UserdataCell<T>>() <= 8, "Lua aligns userdata to 8 bytes") };
        let class = self.class::<T>();
        // SAFETY: the block is of the size and alignment, and is written before any reader sees it: no finalizer runs
        // between its making and the write. The class is a table that lives as long as the state.
        unsafe {
            let place = sys::lycosa_push_userdata(self.raw(), size_of::<UserdataCell<T>>(), class);
            place.cast::<UserdataCell<T>>().write(UserdataCell { value: Some(value) });
        }
    }

    /// The Rust value of type `T` at `index`, which is no pseudo-index. It is good while it is on the stack.
    pub fn userdata<T: 'static>(&self, index: i32) -> Option<&T> {
        let class = self.class::<T>();
        // SAFETY: only `push_userdata::<T>` gives this metatable to a userdata; Lua code cannot reach it.
        let slot = unsafe {
            let place = sys::lycosa_userdata(self.raw(), index, class).cast::<UserdataCell<T>>();
            place.as_ref()
        }?;
        slot.value.as_ref()
    }
}

fn finalize<T: 'static>(lua: Lua) -> Result<i32, Error> {
    if lua.userdata::<T>(1).is_some() {
        // SAFETY: as in `userdata`; no other code holds a reference while the collector finalizes.
        let slot = unsafe { &mut *sys::lua_touserdata(lua.raw(), 1).cast::<UserdataCell<T>>() };
        slot.value = None;
    }
    Ok(0)
}
