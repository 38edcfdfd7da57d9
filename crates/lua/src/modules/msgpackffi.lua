-- msgpackffi: MessagePack with the functions that modules of Tarantool call.
local msgpack = require('msgpack')

local ffi = require('ffi')
require('buffer')

local USAGE = 'msgpackffi.decode_unchecked(str, offset) -> res, new_offset | '
    .. 'msgpackffi.decode_unchecked([const] char *buf) -> res, new_buf'

--- A value and the offset behind it; of a pointer and a size, a value and the pointer behind it.
local function decode(bytes, offset)
    if type(bytes) == 'string' then return msgpack.decode(bytes, type(offset) == 'number' and offset or 1) end
    if type(bytes) ~= 'cdata' or bytes == nil or tonumber(bytes) then error(USAGE, 2) end
    if offset == nil then return msgpack.decode_unchecked(bytes) end
    return msgpack.decode(bytes, offset)
end

local function append(buf, bytes) ffi.copy(buf:alloc(#bytes), bytes, #bytes) end

local function encode_into(buf, value)
    if not ffi.istype('struct ibuf', buf) then error('msgpackffi.internal.encode_r: a buffer expected', 2) end
    append(buf, msgpack.encode(value))
end

local function array_head(count)
    if count < 16 then return string.char(0x90 + count) end
    if count < 65536 then return string.char(0xdc, math.floor(count / 256), count % 256) end
    return string.char(0xdd, bit.band(bit.rshift(count, 24), 255), bit.band(bit.rshift(count, 16), 255),
        bit.band(bit.rshift(count, 8), 255), bit.band(count, 255))
end

return {
    NULL = msgpack.NULL,
    array_mt = msgpack.array_mt,
    map_mt = msgpack.map_mt,
    --- The MessagePack of a value; further arguments mean nothing.
    encode = function(value) return msgpack.encode(value) end,
    decode = decode,
    decode_unchecked = decode,
    internal = {
        --- Adds the MessagePack of a value to a buffer of the module `buffer`, as modules of Tarantool do.
        encode_r = encode_into,
        --- Adds the head of an array of `count` items to a buffer; the items follow by `encode_r`.
        encode_array = function(buf, count) append(buf, array_head(count)) end,
    },
}
