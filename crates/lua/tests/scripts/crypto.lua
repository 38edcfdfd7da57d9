-- oracle
local crypto = require('crypto')
local function try(f, ...)
    local ok, result = pcall(f, ...)
    print(ok, type(result) == 'table' and 'table' or (tostring(result):gsub('^%S+:%d+: ', '')))
end
for _, name in ipairs({ 'md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512' }) do
    print(name, crypto.digest[name]('abc'):hex(), crypto.hmac[name]('key', 'abc'):hex())
    print(crypto.hmac[name .. '_hex'](('k'):rep(200), ''))
end
for _, list in ipairs({ 'digest', 'hmac', 'cipher' }) do try(function() return crypto[list].foo end) end
try(function() return crypto.cipher.aes128.foo end)
try(function() return crypto.digest.sha1_hex end)
local d = crypto.digest.sha256.new()
d:update('a') d:update('bc')
print(d:result():hex())
try(d.update, d, 'x') try(d.result, d) d:init() d:update('abc') print(d:result():hex())
d:free() try(d.update, d, 'x') try(d.result, d)
try(crypto.digest.sha1) try(crypto.digest.sha1, 1) try(crypto.hmac.sha1, 'k') try(crypto.hmac.sha1, 1, 1)
try(crypto.hmac.sha1_hex, 1, 1) try(crypto.hmac.sha1)
local h = crypto.hmac.sha256.new('key')
h:update('a') h:update('bc')
print(h:result():hex())
try(h.update, h, 'x') h:init('other') h:update('abc') print(h:result():hex())
h:free() try(h.init, h, 'k') try(h.init, h) try(h.update, h, 1) try(crypto.hmac.sha256.new)
for _, bits in ipairs({ 128, 192, 256 }) do
    for _, mode in ipairs({ 'cbc', 'ecb' }) do
        local f = crypto.cipher['aes' .. bits][mode]
        local key, iv = ('k'):rep(bits / 8), mode == 'cbc' and ('i'):rep(16) or ''
        for _, size in ipairs({ 0, 1, 15, 16, 17, 40, 64 }) do
            local text = ('x'):rep(size)
            local e = f.encrypt(text, key, iv)
            print(bits, mode, size, e:hex(), f.decrypt(e, key, iv) == text)
            local s, parts = f.encrypt.new(key, iv), {}
            for i = 1, #text, 7 do parts[#parts + 1] = s:update(text:sub(i, i + 6)):hex() end
            parts[#parts + 1] = s:result():hex()
            print(table.concat(parts, '|'))
            s, parts = f.decrypt.new(key, iv), {}
            for i = 1, #e, 9 do parts[#parts + 1] = s:update(e:sub(i, i + 8)) end
            parts[#parts + 1] = s:result()
            print(table.concat(parts, '|'))
            print(pcall(f.decrypt, e:sub(1, -2), key, iv) == false)
        end
        try(f.encrypt, 'a', 'k', iv) try(f.encrypt, 'a', key, 'i') try(f.encrypt) try(f.encrypt, 1, key, iv)
        try(f.encrypt, 'a', key) try(f.decrypt) try(f.encrypt.new, 'k') try(f.encrypt.new)
    end
end
local s = crypto.cipher.aes128.cbc.encrypt.new()
try(s.update, s, 'a') s:init(('k'):rep(16), ('i'):rep(16)) print(s:update(''):hex(), s:result():hex())
try(s.result, s) s:init() print(s:update(('a'):rep(16)):hex()) try(s.init, s, 'k') s:free() try(s.init, s, 'k')
