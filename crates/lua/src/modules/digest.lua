-- digest: hashes, checksums, base64, and keys from passwords.
local native = require('lycosa.digest')
local random_bytes = require('lycosa.system').random_bytes

local digest = {}

for _, name in ipairs({ 'md4', 'md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512' }) do
    local function usage(suffix)
        return ('Usage: digest.%s%s(string)'):format(name, suffix)
    end
    --- The bytes of the hash.
    digest[name] = function(text)
        if type(text) ~= 'string' then error(usage(''), 2) end
        return native.hash(name, text)
    end
    --- The hash as hexadecimal digits.
    digest[name .. '_hex'] = function(text)
        if type(text) ~= 'string' then error(usage('_hex'), 2) end
        return native.hash(name, text):hex()
    end
end

--- Base64; options: `nopad`, `nowrap`, `urlsafe` (which means both of the others too).
function digest.base64_encode(text, options)
    if type(text) ~= 'string' or (options ~= nil and type(options) ~= 'table') then
        error('Usage: digest.base64_encode(string[, table])', 2)
    end
    options = options or {}
    local urlsafe = options.urlsafe and true or false
    local plain = native.base64_encode(text, urlsafe, not (urlsafe or options.nopad))
    if urlsafe or options.nowrap then return plain end
    -- Lines of 72 characters, as Tarantool breaks them.
    local lines = {}
    for at = 1, #plain, 72 do lines[#lines + 1] = plain:sub(at, at + 71) end
    -- A line end follows each line of 54 bytes, the last one as well.
    if #text > 0 and #text % 54 == 0 then lines[#lines + 1] = '' end
    return table.concat(lines, '\n')
end

--- The bytes of base64 in either alphabet; characters of none are passed over.
function digest.base64_decode(text)
    if type(text) ~= 'string' then error('Usage: digest.base64_decode(string)', 2) end
    return native.base64_decode(text)
end

local CRC_BEGIN = 4294967295

local crc_methods = {}
function crc_methods.update(self, text)
    if type(text) ~= 'string' then error("Usage crc32:update(string)", 2) end
    self.value = native.crc32c(self.value, text)
end
function crc_methods.result(self) return self.value end
function crc_methods.clear(self) self.value = self.crc_begin end
function crc_methods.copy(self) return setmetatable({ crc_begin = self.crc_begin, value = self.value }, getmetatable(self)) end

--- CRC-32C without the final inversion.
digest.crc32 = setmetatable({
    crc_begin = CRC_BEGIN,
    new = function()
        return setmetatable({ crc_begin = CRC_BEGIN, value = CRC_BEGIN }, { __index = crc_methods })
    end,
}, {
    __call = function(self, text)
        if type(text) ~= 'string' then error('Usage digest.crc32(string)', 2) end
        return native.crc32c(CRC_BEGIN, text)
    end,
})

function digest.crc32_update(value, text)
    if type(text) ~= 'string' then error('Usage: digest.crc32_update(string)', 2) end
    return native.crc32c(tonumber(value), text)
end

local DEFAULT_SEED = 13

local murmur_methods = {}
function murmur_methods.update(self, text)
    if type(text) ~= 'string' then error('Usage murmur:update(string)', 2) end
    self.parts[#self.parts + 1] = text
end
function murmur_methods.result(self) return native.murmur(table.concat(self.parts), self.seed) end
function murmur_methods.clear(self) self.parts = {} end
function murmur_methods.copy(self)
    return setmetatable({ seed = self.seed, parts = { table.concat(self.parts) } }, getmetatable(self))
end

--- MurmurHash3, 32 bits.
digest.murmur = setmetatable({
    default_seed = DEFAULT_SEED,
    new = function(options)
        local seed = options and options.seed or DEFAULT_SEED
        return setmetatable({ seed = seed, parts = {} }, { __index = murmur_methods })
    end,
}, {
    __call = function(_, text)
        if type(text) ~= 'string' then error('Usage: digest.murhash(string)', 2) end
        return native.murmur(text, DEFAULT_SEED)
    end,
})

--- Jump consistent hash: the bucket, below `buckets`, of a state.
function digest.guava(state, buckets)
    if type(state) == 'string' then error("bad argument #1 to '?' (cannot convert 'string' to 'uint64_t')", 2) end
    if type(buckets) == 'string' then error("bad argument #2 to '?' (cannot convert 'string' to 'int')", 2) end
    if type(buckets) == 'number' and buckets < 1 then return 0 end
    return native.guava(state, buckets)
end

function digest.urandom(count)
    if count == nil then error('Usage: digest.urandom(len)', 2) end
    return random_bytes(count)
end

--- A key from a password (PBKDF2 with HMAC-SHA256).
function digest.pbkdf2(password, salt, iterations, length)
    if type(password) ~= 'string' or type(salt) ~= 'string' then
        error('Usage: digest.pbkdf2(pass, salt[,iters][,digest_len])', 2)
    end
    iterations, length = iterations or 100000, length or 128
    if type(iterations) ~= 'number' then error('iters must be a number', 2) end
    if type(length) ~= 'number' then error('digest_len must be a number', 2) end
    return native.pbkdf2(password, salt, iterations, length)
end

function digest.pbkdf2_hex(password, salt, ...)
    if type(password) ~= 'string' or type(salt) ~= 'string' then error('Usage: digest.pbkdf2_hex(pass, salt)', 2) end
    return digest.pbkdf2(password, salt, ...):hex()
end

local function cipher(name)
    return function(text, key, vector)
        if type(text) ~= 'string' or type(key) ~= 'string' or type(vector) ~= 'string' then
            error(('Usage: digest.aes256cbc.%s(string, key, iv)'):format(name), 2)
        end
        return native.aes256cbc(name, text, key, vector)
    end
end
digest.aes256cbc = { encrypt = cipher('encrypt'), decrypt = cipher('decrypt') }

return digest
