-- msgpackffi: MessagePack with the functions that modules of Tarantool call.
local msgpack = require('msgpack')

local USAGE = 'msgpackffi.decode_unchecked(str, offset) -> res, new_offset | '
    .. 'msgpackffi.decode_unchecked([const] char *buf) -> res, new_buf'

--- A value and the offset behind it; of a pointer and a size, a value and the pointer behind it.
local function decode(bytes, offset)
    if type(bytes) == 'string' then return msgpack.decode(bytes, type(offset) == 'number' and offset or 1) end
    if type(bytes) ~= 'cdata' or bytes == nil or tonumber(bytes) then error(USAGE, 2) end
    return msgpack.decode(bytes, offset)
end

return {
    NULL = msgpack.NULL,
    array_mt = msgpack.array_mt,
    map_mt = msgpack.map_mt,
    --- The MessagePack of a value; further arguments mean nothing.
    encode = function(value) return msgpack.encode(value) end,
    decode = decode,
    decode_unchecked = decode,
}
