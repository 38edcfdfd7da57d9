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
        if not is_text(bytes) then error("msgpack.decode: a Lua string or 'char *' expected", 2) end
        local start = ffi.cast('const char *', bytes)
        if type(offset) ~= 'number' or offset < 0 then
            error('msgpack.decode: the size of the memory is expected behind a pointer', 2)
        end
        local value, after = native.decode(ffi.string(start, offset), 1, cfg)
        return value, ffi.cast(ffi.typeof(bytes), start + (after - 1))
    end

    -- Everything is checked here; its errors name `decode` in Tarantool too.
    msgpack.decode_unchecked = msgpack.decode

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
            if type(size) ~= 'number' or size < 1 then error(name .. ': the size is expected', 2) end
            local first, count, length = start[0], nil, 1
            if bit.band(first, 0xf0) == short then
                count = bit.band(first, 0x0f)
            elseif first == from16 and size >= 3 then
                count, length = start[1] * 256 + start[2], 3
            elseif first == from16 + 1 and size >= 5 then
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
end)
