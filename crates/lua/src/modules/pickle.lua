-- pickle: numbers and strings as bytes by a format, a letter for each: b, s, i, l are 1, 2, 4 and 8 bytes, little-endian, n, N, q
-- are 2, 4 and 8 bytes, big-endian, f and d are floats, a is a string.
local bit = require('bit')
local ffi = require('ffi')

local SIZES = { b = 1, B = 1, s = 2, S = 2, n = 2, i = 4, I = 4, N = 4, l = 8, L = 8, q = 8, Q = 8 }
local BIG_ENDIAN = { n = true, N = true, q = true, Q = true }
local FLOATS = { f = ffi.typeof('float[1]'), d = ffi.typeof('double[1]') }

local function is_wide(value) return ffi.istype('int64_t', value) or ffi.istype('uint64_t', value) end

local function whole(value, size)
    if type(value) == 'cdata' and is_wide(value) then return ffi.cast('uint64_t', value) end
    if type(value) ~= 'number' then error(('pickle.pack: expected %d-bit int'):format(size * 8), 0) end
    return ffi.cast('uint64_t', ffi.cast('int64_t', value))
end

-- What is no number of Lua, nor a text of one, is 0.
local function real(value)
    local kind = type(value)
    return (kind == 'number' or kind == 'string') and tonumber(value) or 0
end

local function pack_number(value, size, is_big)
    local bytes, rest = {}, whole(value, size)
    for place = 1, size do
        bytes[is_big and size + 1 - place or place] = string.char(tonumber(bit.band(rest, 0xffULL)))
        rest = bit.rshift(rest, 8)
    end
    return table.concat(bytes)
end

local function check_string(place, value, given)
    if type(value) == 'string' or type(value) == 'number' then return tostring(value) end
    local kind = given < place and 'no value' or type(value)
    error(("bad argument #%d to '?' (string expected, got %s)"):format(place, kind), 3)
end

local function packed(format, ...)
    local pieces, given = {}, 0
    for letter in format:gmatch('.') do
        given = given + 1
        if given > select('#', ...) then error('pickle.pack: argument count does not match the format', 2) end
        local value = (select(given, ...))
        if SIZES[letter] then
            pieces[given] = pack_number(value, SIZES[letter], BIG_ENDIAN[letter])
        elseif FLOATS[letter] then
            pieces[given] = ffi.string(FLOATS[letter](real(value)), ffi.sizeof(FLOATS[letter]))
        elseif letter == 'a' or letter == 'A' then
            pieces[given] = tostring(value)
        else
            error(("pickle.pack: unsupported pack format specifier '%s'"):format(letter), 2)
        end
    end
    return table.concat(pieces)
end

local function pack(...) return packed(check_string(1, (...), select('#', ...)), select(2, ...)) end

local function unpack_number(text, at, size, is_big)
    local value = 0ULL
    for place = 1, size do
        local byte = text:byte(is_big and at + place - 1 or at + size - place)
        value = bit.bor(bit.lshift(value, 8), byte)
    end
    if size == 8 and value > 99999999999999ULL then return value end
    return tonumber(value)
end

local function unpack(...)
    local format, text = ...
    format, text = check_string(1, format, select('#', ...)), check_string(2, text, select('#', ...))
    local values, at = {}, 1
    for letter in format:gmatch('.') do
        local size = SIZES[letter] or (FLOATS[letter] and ffi.sizeof(FLOATS[letter]))
        if size and at + size - 1 > #text then error(("pickle.unpack('%s'): got %d bytes (expected: %d+)"):format(letter,
            #text, at + size - 1), 2) end
        if SIZES[letter] then
            values[#values + 1] = unpack_number(text, at, size, BIG_ENDIAN[letter])
        elseif size then
            local number = FLOATS[letter]()
            ffi.copy(number, text:sub(at, at + size - 1), size)
            values[#values + 1] = number[0]
        elseif letter == 'a' or letter == 'A' then
            values[#values + 1] = text:sub(at)
            size = #text - at + 1
        else
            error(("pickle.unpack: unsupported format specifier '%s'"):format(letter), 2)
        end
        at = at + size
    end
    if at <= #text then
        error(("pickle.unpack('%s'): too many bytes: unpacked %d, total %d"):format(format, at - 1, #text), 2)
    end
    return _G.unpack(values)
end

return { pack = pack, unpack = unpack }
