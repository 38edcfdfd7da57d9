-- crypto: hashes, keyed hashes, AES and DES in pieces. Hashes keep their pieces until the result is asked for.
local native = require('lycosa.crypto')
local hash = require('lycosa.digest').hash

local HASHES = { 'md4', 'md5', 'ripemd160', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512' }

-- Bytes of a key and of a block.
local CIPHERS = { aes128 = { 16, 16 }, aes192 = { 24, 16 }, aes256 = { 32, 16 }, des = { 8, 8 } }

-- Raises an error object, or a text in a state without `box`.
local function fail(text)
    local new_error = require('lycosa.box').new_error
    error(new_error and new_error('CryptoError', nil, text) or text, 0)
end

-- Methods of a hash, whose object has a function `finish` that makes the result of a whole text.
local function pieces(name, methods)
    function methods:update(text)
        if not self.initialized then error(name .. ' not initialized', 0) end
        if type(text) ~= 'string' then error(('Usage: %s:update(string)'):format(name:lower())) end
        self.parts[#self.parts + 1] = text
    end

    function methods:result()
        if not self.initialized then error(name .. ' not initialized', 0) end
        self.initialized = false
        return self.finish(table.concat(self.parts))
    end

    function methods:free()
        self.parts, self.finish, self.initialized = nil, nil, false
    end
    return { __index = methods }
end

local digest_meta = pieces('Digest', {
    init = function(self)
        if self.finish == nil then error("Digest context isn't usable", 2) end
        self.parts, self.initialized = {}, true
    end,
})

local hmac_meta = pieces('HMAC', {
    init = function(self, key)
        if self.finish == nil then error("HMAC context isn't usable") end
        if key ~= nil then self.finish = self.keyed(key) end
        self.parts, self.initialized = {}, true
    end,
})

local digest, hmac = {}, {}
for _, name in ipairs(HASHES) do
    digest[name] = setmetatable({
        new = function()
            local function finish(text) return hash(name, text) end
            return setmetatable({ finish = finish, parts = {}, initialized = true }, digest_meta)
        end,
    }, {
        __call = function(_, text)
            if type(text) ~= 'string' then error(('Usage: digest.%s(string)'):format(name)) end
            return hash(name, text)
        end,
    })

    local function keyed(key)
        if type(key) ~= 'string' then error(('Usage: hmac.%s.new(key)'):format(name)) end
        return function(text) return native.hmac(name, key, text) end
    end
    hmac[name] = setmetatable({
        new = function(key)
            if key == nil then error('Key should be specified for HMAC operations') end
            return setmetatable({ finish = keyed(key), keyed = keyed, parts = {}, initialized = true }, hmac_meta)
        end,
    }, {
        __call = function(_, key, text)
            if key == nil and type(text) == 'string' then error('Key should be specified for HMAC operations') end
            if type(key) ~= 'string' or type(text) ~= 'string' then
                error(('Usage: hmac.%s(key, string)'):format(name))
            end
            return native.hmac(name, key, text)
        end,
    })
    hmac[name .. '_hex'] = function(key, text)
        if type(key) ~= 'string' or type(text) ~= 'string' then
            error(('Usage: hmac.%s_hex(key, string)'):format(name))
        end
        return native.hmac(name, key, text):hex()
    end
end

local cipher_methods = {}
local cipher_meta = { __index = cipher_methods }

local function initialize(self)
    if self.key == nil or self.vector == nil then return end
    local sizes = { key = CIPHERS[self.name][1], IV = self.mode == 'ecb' and 0 or self.block }
    for _, part in ipairs({ { 'key', self.key }, { 'IV', self.vector } }) do
        local size = type(part[2]) == 'string' and #part[2] or -1
        if size ~= sizes[part[1]] then
            fail(('%s size expected %d, got %d'):format(part[1], sizes[part[1]], size))
        end
    end
    self.last, self.rest, self.initialized = self.vector, '', true
    if self.mode == 'cfb' or self.mode == 'ofb' then
        self.stream = native.stream(self.name, self.mode, self.encrypts, self.key, self.vector)
    end
end

-- Passes the first `size` bytes of the rest on; all of it, with the padding, if `is_last`.
local function pass(self, size, is_last)
    local text = is_last and self.rest or self.rest:sub(1, size)
    local done = native.cipher(self.name, self.mode, self.encrypts, is_last, text, self.key, self.last)
    if done == nil then
        fail('the text was not encrypted with this key and IV, or its end is missing')
    end
    self.rest = self.rest:sub(#text + 1)
    if self.mode == 'cbc' and #text > 0 then self.last = (self.encrypts and done or text):sub(-self.block) end
    return done
end

--- Begins anew, with another key or initial vector if they are given.
function cipher_methods:init(key, vector)
    if self.freed then error("Cipher context isn't usable") end
    self.key, self.vector = key or self.key, vector or self.vector
    initialize(self)
end

--- Adds a piece; returns what is complete so far.
function cipher_methods:update(text)
    if not self.initialized then error('Cipher not initialized') end
    if type(text) ~= 'string' then error('Usage: cipher:update(string)') end
    if self.stream then return self.stream:pass(text) end
    self.rest = self.rest .. text
    -- A decryption keeps the last block back: it may be the padded one.
    local size = #self.rest - (self.encrypts and 0 or 1)
    size = math.max(size - size % self.block, 0)
    return size == 0 and '' or pass(self, size, false)
end

--- What is left, which ends the text.
function cipher_methods:result()
    if not self.initialized then error('Cipher not initialized') end
    self.initialized = false
    if self.stream then return '' end
    return pass(self, #self.rest, true)
end

function cipher_methods:free()
    self.key, self.vector, self.last, self.rest, self.stream = nil, nil, nil, nil, nil
    self.freed, self.initialized = true, false
end

local function direction(name, mode, encrypts)
    local function new(key, vector)
        local self = { name = name, mode = mode, block = CIPHERS[name][2], encrypts = encrypts, key = key,
            vector = vector, initialized = false }
        initialize(self)
        return setmetatable(self, cipher_meta)
    end
    return setmetatable({ new = new }, {
        __call = function(_, text, key, vector)
            local self = new(key, vector)
            return self:update(text) .. self:result()
        end,
    })
end

-- A list in which a missing name is an error.
local function only(known, what)
    return setmetatable(known, {
        __index = function(_, name) error(what:format(tostring(name)), 2) end,
    })
end

local cipher = {}
for name in pairs(CIPHERS) do
    local modes = {}
    for _, mode in ipairs({ 'cbc', 'cfb', 'ecb', 'ofb' }) do
        modes[mode] = { encrypt = direction(name, mode, true), decrypt = direction(name, mode, false) }
    end
    cipher[name] = only(modes, 'Cipher mode %s is not supported')
end

-- `pairs` shows numbers alone, as in Tarantool.
return setmetatable({
    cipher_algo = { none = 0, aes128 = 1, aes192 = 2, aes256 = 3, des = 4 },
    cipher_mode = { ecb = 0, cbc = 1, cfb = 2, ofb = 3 },
}, {
    __index = {
        digest = only(digest, 'Digest method "%s" is not supported'),
        hmac = only(hmac, 'HMAC method "%s" is not supported'),
        cipher = only(cipher, 'Cipher method "%s" is not supported'),
    },
})
