-- msgpack: values as MessagePack and back.
local ffi = require('ffi')
local native = require('lycosa.msgpack')
require('buffer')
local serializer = require('serializer')

local POINTERS = { ffi.typeof('char *'), ffi.typeof('const char *') }

local function is_buffer(value) return type(value) == 'cdata' and ffi.istype('struct ibuf', value) end

-- Anything else that is cast to a pointer would be read as an address.
local function is_text(value)
    for _, pointer in ipairs(POINTERS) do
        if ffi.istype(pointer, value) then return value ~= nil end
    end
    return false
end

-- How many bytes follow the first byte of a value of one size.
local FOLLOWING = {
    [0xca] = 4, [0xcb] = 8, [0xcc] = 1, [0xcd] = 2, [0xce] = 4, [0xcf] = 8, [0xd0] = 1, [0xd1] = 2, [0xd2] = 4, [0xd3] = 8,
    [0xd4] = 2, [0xd5] = 3, [0xd6] = 5, [0xd7] = 9, [0xd8] = 17,
}
-- How many bytes hold the length, and what else follows it.
local LENGTHS = {
    [0xc4] = { 1, 0 }, [0xc5] = { 2, 0 }, [0xc6] = { 4, 0 }, [0xc7] = { 1, 1 }, [0xc8] = { 2, 1 }, [0xc9] = { 4, 1 },
    [0xd9] = { 1, 0 }, [0xda] = { 2, 0 }, [0xdb] = { 4, 0 },
}
-- How many bytes hold the number of items, and how many values an item is.
local COUNTS = { [0xdc] = { 2, 1 }, [0xdd] = { 4, 1 }, [0xde] = { 2, 2 }, [0xdf] = { 4, 2 } }

-- The length of the value that begins at a pointer, whose end the caller vouches for.
local function span(start)
    local at, left = 0, 1
    local function number(bytes)
        local value = 0
        for place = at, at + bytes - 1 do value = value * 256 + start[place] end
        at = at + bytes
        return value
    end
    while left > 0 do
        local first = start[at]
        at, left = at + 1, left - 1
        if first >= 0x80 and first <= 0x8f then
            left = left + bit.band(first, 0x0f) * 2
        elseif first >= 0x90 and first <= 0x9f then
            left = left + bit.band(first, 0x0f)
        elseif first >= 0xa0 and first <= 0xbf then
            at = at + bit.band(first, 0x1f)
        elseif LENGTHS[first] then
            local bytes, more = unpack(LENGTHS[first])
            local length = number(bytes)
            at = at + length + more
        elseif COUNTS[first] then
            local bytes, values = unpack(COUNTS[first])
            left = left + number(bytes) * values
        else
            at = at + (FOLLOWING[first] or 0)
        end
    end
    return at
end

return serializer.new(function(msgpack, cfg)
    --- The MessagePack of a value. With a buffer of the module `buffer` the bytes are added there.
    function msgpack.encode(...)
        if select('#', ...) < 1 then error('msgpack.encode: a Lua object expected', 2) end
        local value, buffer = ...
        if select('#', ...) == 1 then return native.encode(value, cfg) end
        if not is_buffer(buffer) then error("msgpack.encode: argument 2 must be of type 'struct ibuf'", 2) end
        local bytes = native.encode(value, cfg)
        ffi.copy(buffer:alloc(#bytes), bytes, #bytes)
        return #bytes
    end

    --- A value and the offset behind it; of a pointer and a size, a value and the pointer behind it.
    function msgpack.decode(bytes, ...)
        local offset = ...
        if type(bytes) ~= 'cdata' then
            if type(bytes) == 'string' and select('#', ...) > 0 and type(offset) ~= 'number' then
                error(("bad argument #2 to '?' (number expected, got %s)"):format(type(offset)), 2)
            end
            return native.decode(bytes, offset, cfg)
        end
        local is_pointer = ffi.istype(POINTERS[1], bytes) or ffi.istype(POINTERS[2], bytes)
        if is_pointer and type(offset) ~= 'number' then
            local kind = select('#', ...) == 0 and 'no value' or type(offset)
            error(("bad argument #2 to '?' (number expected, got %s)"):format(kind), 2)
        end
        if is_pointer and offset < 0 then error("msgpack.decode: size can't be negative", 2) end
        if not is_text(bytes) then error("msgpack.decode: a Lua string or 'char *' expected", 2) end
        local start = ffi.cast('const char *', bytes)
        local value, after = native.decode(ffi.string(start, offset), 1, cfg)
        return value, ffi.cast(ffi.typeof(bytes), start + (after - 1))
    end

    --- As `decode`; a pointer needs no size.
    function msgpack.decode_unchecked(bytes, ...)
        if select('#', ...) == 0 and is_text(bytes) then
            return msgpack.decode(bytes, span(ffi.cast('const uint8_t *', bytes)))
        end
        return msgpack.decode(bytes, ...)
    end

    --- The pointer behind the value that begins at a pointer, and the value.
    function msgpack.ibuf_decode(bytes)
        if type(bytes) ~= 'cdata' then error('expected cdata as 1 argument', 0) end
        if bytes == nil then error('msgpack.ibuf_decode: rpos is null', 0) end
        local value, after = msgpack.decode_unchecked(bytes)
        return after, value
    end

    local function header(name, short, from16)
        return function(...)
            local bytes, size = ...
            if select('#', ...) ~= 2 then error(('Usage: %s(ptr, size)'):format(name), 2) end
            if type(bytes) == 'string' then
                size = math.min(tonumber(size) or #bytes, #bytes)
            elseif not is_text(bytes) then
                error(name .. ": 'char *' expected", 2)
            end
            local start = ffi.cast('const uint8_t *', bytes)
            if not tonumber(size) then
                error(("bad argument #2 to '?' (number expected, got %s)"):format(type(size)), 2)
            end
            size = tonumber(size)
            if size < 1 then error(name .. ': non-positive size', 2) end
            local first, count, length = start[0], nil, 1
            if bit.band(first, 0xf0) == short then
                count = bit.band(first, 0x0f)
            elseif (first == from16 and size < 3) or (first == from16 + 1 and size < 5) then
                error(name .. ': unexpected end of buffer', 2)
            elseif first == from16 then
                count, length = start[1] * 256 + start[2], 3
            elseif first == from16 + 1 then
                count, length = ((start[1] * 256 + start[2]) * 256 + start[3]) * 256 + start[4], 5
            else
                error(name .. ': unexpected msgpack type', 2)
            end
            if type(bytes) == 'string' then return count, length + 1 end
            return count, ffi.cast(ffi.typeof(bytes), start + length)
        end
    end

    --- The number of items of the array, or of pairs of the map, that begins there, and where its first item begins.
    msgpack.decode_array_header = header('msgpack.decode_array_header', 0x90, 0xdc)
    msgpack.decode_map_header = header('msgpack.decode_map_header', 0x80, 0xde)
end, native.configure)
