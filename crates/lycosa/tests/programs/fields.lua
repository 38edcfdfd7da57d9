-- Lists what `pairs` shows of the modules and of `box`, but for functions: `fields.lua FILE` writes a line for each field, sorted:
-- its name and its type, with the value of a constant (a name in capitals). `compatibility.rs` compares two servers.
box.cfg({ wal_mode = 'none', log = 'log' })
local found = {}

local function described(key, value)
    local kind = type(value)
    if kind == 'cdata' then return value == nil and 'box.NULL' or 'cdata' end
    local is_constant = key:match('^[A-Z][A-Z0-9_]+$') and (kind == 'number' or kind == 'string' or kind == 'boolean')
    return is_constant and ('%s %s'):format(kind, tostring(value)) or kind
end

local function walk(name, module, depth)
    for key, value in pairs(module) do
        local is_own = type(key) == 'string' and not key:match('^_') and not key:match('_mt$') and key ~= 'internal'
        local is_function = type(value) == 'function' or (type(value) == 'cdata' and tostring(value):match('cdata<%S+ %('))
        if is_own and not is_function then
            found[#found + 1] = ('%s.%s %s'):format(name, key, described(key, value))
            if type(value) == 'table' and depth < 2 then walk(name .. '.' .. key, value, depth + 1) end
        end
    end
end

local MODULES = {
    'buffer', 'clock', 'console', 'crypto', 'csv', 'decimal', 'digest', 'errno', 'fiber', 'fio', 'fun', 'http.client', 'iconv',
    'json', 'key_def', 'log', 'merger', 'msgpack', 'msgpackffi', 'net.box', 'pickle', 'popen', 'pwd', 'socket', 'strict',
    'tap', 'tarantool', 'title', 'uri', 'utf8', 'uuid', 'yaml',
}
for _, name in ipairs(MODULES) do
    local module = require(name)
    if type(module) == 'table' then walk(name, module, 1) end
end
require('strict').off()
-- The numbers of errors are constants of the object that `errno` is.
for _, name in ipairs({ 'EAGAIN', 'EINTR', 'EINVAL', 'ENOENT', 'EPIPE', 'ETIMEDOUT', 'ECONNREFUSED', 'EADDRINUSE' }) do
    found[#found + 1] = ('errno.%s number %s'):format(name, tostring(require('errno')[name]))
end
for _, name in ipairs({ 'ctl', 'error', 'schema', 'session', 'tuple', 'runtime', 'info', 'stat', 'slab', 'index', 'cfg' }) do
    walk('box.' .. name, box[name], 1)
end
for name, part in pairs({
    ['info'] = box.info(), ['stat'] = box.stat(), ['slab.info'] = box.slab.info(), ['runtime.info'] = box.runtime.info(),
    ['stat.net'] = box.stat.net(), ['info.memory'] = box.info.memory(),
}) do
    walk(('box.%s()'):format(name), part, 2)
end
table.sort(found)
local file = io.open(arg[1], 'w')
file:write(table.concat(found, '\n'), '\n')
file:close()
os.exit(0)
