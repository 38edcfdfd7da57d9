-- pickle: numbers and strings as bytes by a format, a letter for each: b, s, i, l are 1, 2, 4 and 8 bytes, little-endian, n, N, q
-- are 2, 4 and 8 bytes, big-endian, f and d are floats, a is a string.
local bit = require('bit')
local ffi = require('ffi')

local SIZES = { b = 1, B = 1, s = 2, S = 2, n = 2, i = 4, I = 4, N = 4, l = 8, L = 8, q = 8, Q = 8 }
local BIG_ENDIAN = { n = true, N = true, q = true, Q = true }
local FLOATS = { f = ffi.typeof('float[1]'), d = ffi.typeof('double[1]') }

local function whole(value)
    if type(value) == 'cdata' then return ffi.cast('uint64_t', value) end
    if type(value) ~= 'number' then error('pickle.pack: expected a number', 0) end
    return ffi.cast('uint64_t', ffi.cast('int64_t', value))
end

local function pack_number(value, size, is_big)
    local bytes, rest = {}, whole(value)
    for place = 1, size do
        bytes[is_big and size + 1 - place or place] = string.char(tonumber(bit.band(rest, 0xffULL)))
        rest = bit.rshift(rest, 8)
    end
    return table.concat(bytes)
end

local function pack(format, ...)
    if type(format) ~= 'string' then error('Usage: pack(format, ...)', 2) end
    local pieces, given = {}, 0
    for letter in format:gmatch('.') do
        given = given + 1
        if given > select('#', ...) then error('pickle.pack: argument count does not match the format', 2) end
        local value = (select(given, ...))
        if SIZES[letter] then
            pieces[given] = pack_number(value, SIZES[letter], BIG_ENDIAN[letter])
        elseif FLOATS[letter] then
            pieces[given] = ffi.string(FLOATS[letter](value), ffi.sizeof(FLOATS[letter]))
        elseif letter == 'a' or letter == 'A' then
            pieces[given] = tostring(value)
        else
            error(("pickle.pack: unsupported pack format specifier '%s'"):format(letter), 2)
        end
    end
    if given < select('#', ...) then error('pickle.pack: argument count does not match the format', 2) end
    return table.concat(pieces)
end

local function unpack_number(text, at, size, is_big)
    local value = 0ULL
    for place = 1, size do
        local byte = text:byte(is_big and at + place - 1 or at + size - place)
        value = bit.bor(bit.lshift(value, 8), byte)
    end
    if size == 8 and value > 99999999999999ULL then return value end
    return tonumber(value)
end

local function unpack(format, text)
    if type(format) ~= 'string' or type(text) ~= 'string' then error('Usage: unpack(format, data)', 2) end
    local values, at = {}, 1
    for letter in format:gmatch('.') do
        local size = SIZES[letter] or (FLOATS[letter] and ffi.sizeof(FLOATS[letter]))
        if size and at + size - 1 > #text then error(("pickle.unpack('%s'): got %d bytes (expected: %d+)"):format(letter,
            #text - at + 1, size), 2) end
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
            error(("pickle.unpack: unsupported pack format specifier '%s'"):format(letter), 2)
        end
        at = at + size
    end
    if at <= #text then
        error(("pickle.unpack('%s'): too many bytes: unpacked %d, total %d"):format(format, at - 1, #text), 2)
    end
    return _G.unpack(values)
end

return { pack = pack, unpack = unpack }
