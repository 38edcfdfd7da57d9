//! Native part of the serializers: the metatables of decoded arrays and maps.

use crate::api::Lua;
use crate::error::Error;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_table(0, 2);
    for (name, is_array) in [("array_mt", true), ("map_mt", false)] {
        lua.new_table(0, 0);
        lua.push_hint(is_array);
        if lua.metatable(-1) {
            lua.remove(-2);
        }
        lua.raw_set_field(-2, name);
    }
    Ok(1)
}
