-- uuid: universally unique identifiers (RFC 4122).
local ffi = require('ffi')
local random_bytes = require('lycosa.system').random_bytes

local uuid_t = ffi.typeof('struct tt_uuid')
local SIZE = ffi.sizeof(uuid_t)

local uuid, methods = {}, {}

local function is_uuid(value)
    return ffi.istype(uuid_t, value)
end

-- Random bytes for the next identifiers: the operating system is asked for many at once.
local POOL = 64 * SIZE
local pool, used = '', 0

local function fresh_bytes()
    if used >= #pool then pool, used = random_bytes(POOL), 0 end
    used = used + SIZE
    return pool:sub(used - SIZE + 1, used)
end

--- A random identifier (version 4).
function uuid.new()
    local made = ffi.new(uuid_t)
    ffi.copy(made, fresh_bytes(), SIZE)
    made.time_hi_and_version = bit.bor(bit.band(made.time_hi_and_version, 0x0fff), 0x4000)
    made.clock_seq_hi_and_reserved = bit.bor(bit.band(made.clock_seq_hi_and_reserved, 0x3f), 0x80)
    return made
end

ffi.cdef('int sscanf(const char *text, const char *format, ...);')
local FORMAT = '%8x-%4hx-%4hx-%2hhx%2hhx-%2hhx%2hhx%2hhx%2hhx%2hhx%2hhx'
local LENGTH, PARTS = 36, 11

--- The identifier that a text shows; nil if it shows none. The C library reads the groups of digits, as in Tarantool, and the
--- variant is one of RFC 4122.
function uuid.fromstr(text)
    if type(text) ~= 'string' then error('fromstr(str)', 2) end
    if #text ~= LENGTH then return nil end
    local made = ffi.new(uuid_t)
    local start = ffi.cast('uint8_t *', made)
    local count = ffi.C.sscanf(text, FORMAT, start, start + 4, start + 6, start + 8, start + 9, start + 10, start + 11,
        start + 12, start + 13, start + 14, start + 15)
    if count ~= PARTS or bit.band(start[8], 0xe0) == 0xe0 then return nil end
    return made
end

local function is_swapped(order)
    if order == nil or order == 'l' or order == 'h' or order == 'host' then return false end
    if order == 'b' or order == 'n' or order == 'network' then return true end
    error('invalid byteorder, valid is l, b, h, n', 3)
end

local function swap(value)
    value.time_low = bit.tobit(bit.bswap(value.time_low))
    value.time_mid = bit.rshift(bit.bswap(value.time_mid), 16)
    value.time_hi_and_version = bit.rshift(bit.bswap(value.time_hi_and_version), 16)
end

--- The identifier of 16 bytes in the order of the host (`l`, `h`) or of the network (`b`, `n`).
function uuid.frombin(bytes, order)
    if type(bytes) ~= 'string' or #bytes ~= SIZE then error('frombin(bin, [byteorder])', 2) end
    local made = ffi.new(uuid_t)
    ffi.copy(made, bytes, SIZE)
    if is_swapped(order) then swap(made) end
    return made
end

--- Its 16 bytes.
function methods.bin(self, order)
    if not is_uuid(self) then error('Usage: uuid:bin([byteorder])', 2) end
    local copy = ffi.new(uuid_t, self)
    if is_swapped(order) then swap(copy) end
    return ffi.string(copy, SIZE)
end

--- Its text.
function methods.str(self)
    if not is_uuid(self) then error('Usage: uuid:str()', 2) end
    local hex = methods.bin(self, 'b'):hex()
    return ('%s-%s-%s-%s-%s'):format(hex:sub(1, 8), hex:sub(9, 12), hex:sub(13, 16), hex:sub(17, 20), hex:sub(21))
end

--- Whether all its bytes are zero.
function methods.isnil(self)
    if not is_uuid(self) then error('Usage: uuid:isnil()', 2) end
    return methods.bin(self) == ('\0'):rep(SIZE)
end

function uuid.str() return uuid.new():str() end
function uuid.bin(order) return uuid.new():bin(order) end

ffi.metatype(uuid_t, {
    __index = methods,
    __tostring = methods.str,
    __eq = function(one, other)
        return is_uuid(one) and is_uuid(other) and methods.bin(one) == methods.bin(other)
    end,
})

uuid.NULL = ffi.new(uuid_t)

return setmetatable(uuid, { __call = uuid.new })
