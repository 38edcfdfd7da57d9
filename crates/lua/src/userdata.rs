//! Rust values that Lua owns.

use std::any::type_name;

use crate::api::{Kind, Lua, Native};
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

    /// Pushes a Rust value of a class that was declared with [`Lua::new_class`]. Its alignment is at most 8.
    pub fn push_userdata<T: 'static>(self, value: T) {
        const { assert!(align_of::<UserdataCell<T>>() <= 8, "Lua aligns userdata to 8 bytes") };
        // SAFETY: the block is of the size and alignment, and is written before anybody sees it.
        unsafe {
            let place =
                sys::lua_newuserdata(self.raw(), size_of::<UserdataCell<T>>()).cast::<UserdataCell<T>>();
            place.write(UserdataCell { value: Some(value) });
        }
        self.registry_table(type_name::<T>());
        self.set_metatable(-2);
    }

    /// The Rust value of type `T` at `index`. It is good while it is on the stack.
    pub fn userdata<T: 'static>(&self, index: i32) -> Option<&T> {
        if self.kind(index) != Kind::Userdata || !self.metatable(index) {
            return None;
        }
        self.registry_table(type_name::<T>());
        let same = self.raw_equal(-1, -2);
        self.pop(2);
        // SAFETY: only `push_userdata::<T>` gives this metatable to a userdata; Lua code cannot reach it.
        let slot =
            same.then(|| unsafe { &*sys::lua_touserdata(self.raw(), index).cast::<UserdataCell<T>>() })?;
        slot.value.as_ref()
    }
}

fn finalize<T: 'static>(lua: Lua) -> Result<i32, Error> {
    if lua.userdata::<T>(1).is_some() {
        // SAFETY: as in `userdata`; nobody else holds a reference while the collector finalizes.
        let slot = unsafe { &mut *sys::lua_touserdata(lua.raw(), 1).cast::<UserdataCell<T>>() };
        slot.value = None;
    }
    Ok(0)
}
