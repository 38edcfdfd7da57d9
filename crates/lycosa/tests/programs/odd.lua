-- Calls every function that a program can call with odd arguments: `odd.lua NAMES RESULTS [all]`. NAMES is the list
-- of `api.tarantool`; RESULTS gets a line for each call: the call, a tab, and what became of it. `odd.rs` compares the lines of
-- two servers. A result is described by its type, and by its value where the module returns the same value each time.
local names_path, results_path = arg[1], arg[2]
local ffi, fiber, fio, json = require('ffi'), require('fiber'), require('fio'), require('json')
local write_tables = json.new()
write_tables.cfg({ encode_use_tostring = true, encode_invalid_as_nil = true, encode_sparse_safe = 1000 })
box.cfg({ wal_mode = 'none', log = 'log' })
local pcall, type, tostring, table_concat, original_unpack = pcall, type, tostring, table.concat, unpack

-- A temporary folder does not outlive the call that makes it.
local make_folder, remove_folder = fio.tempdir, fio.rmdir
local function without_folder(folder, ...)
    if folder then remove_folder(folder) end
    return folder, ...
end
function fio.tempdir(...) return without_folder(make_folder(...)) end

-- The arguments, by the text that names them.
local NIL = {}
local VALUES = {
    { 'nil', NIL }, { 'true', true }, { '-1', -1 }, { '1', 1 }, { '1.5', 1.5 }, { '2^63', 2 ^ 63 }, { "'x'", 'x' }, { '7LL', 7LL },
    { 'NULL', box.NULL }, { '{}', function() return {} end }, { '{1}', function() return { 1 } end },
    { 'f', function() return function() end end },
}

-- The second arguments that are tried behind each first one, if not all are.
local USUAL_SECOND = { ['nil'] = true, ['true'] = true, ["'x'"] = true, ['{}'] = true }
local all_pairs = arg[3] == 'all'

-- Functions that are not called: they end or stop the process or its input, wait for a time or a network, reach below
-- Lua, or start processes. `true` is all calls; a list is the first arguments that are not tried.
local SKIPPED = {
    ['box.backup.start'] = true, ['box.ctl.wait_ro'] = true, ['box.ctl.wait_rw'] = true, ['box.snapshot'] = true,
    ['box.ctl.on_shutdown'] = true, ['box.schema.upgrade'] = true, ['box.cfg'] = true, ['box.ctl.clear_synchro_queue'] = true,
    ['cond:wait'] = true, ['channel:get'] = true, ['channel:put'] = true, ['console.connect'] = true, ['console.start'] = true,
    ['console.listen'] = true, ['console.ac'] = true, ['coroutine.yield'] = true, ['debug.debug'] = true, ['math.randomseed'] = { 'nil' }, ['io.read'] = true, ['math.max'] = { 'nil' }, ['math.min'] = { 'nil' }, ['math.ceil'] = { 'nil' }, ['math.floor'] = { 'nil' }, ['box.tuple.next'] = true,  ['tuple:slice'] = true, ['tuple:find'] = { '1', '1.5', '2^63' }, ['tuple:findall'] = { '1', '1.5', '2^63' }, ['msgpack.ibuf_decode'] = true, ['msgpackffi.on_encode'] = true, ['msgpackffi.decode_unchecked'] = true, ['file:pread'] = true, ['file:read'] = true, ['pwd.getgrall'] = true, ['pwd.getpwall'] = true, ['console.completion_handler'] = true, ['fio.sync'] = true,
    ['debug.setfenv'] = true, ['debug.sethook'] = true, ['debug.setmetatable'] = true, ['debug.getregistry'] = true,
    ['debug.setlocal'] = true, ['debug.setupvalue'] = true, ['debug.upvaluejoin'] = true, ['debug.getlocal'] = true,
    ['fiber.sleep'] = { '1', '1.5', '2^63', '7LL' }, ['fiber.yield'] = true, ['fiber object:join'] = true, ['fiber.join'] = { '1', '7LL' },
    ['fiber.cancel'] = { '1', '7LL', 'nil' }, ['fiber.kill'] = { '1', '7LL', 'nil' }, ['fiber.wakeup'] = { '1', '7LL' },
    ['fiber.set_joinable'] = { '1', '7LL' }, ['io.close'] = true, ['io.output'] = true, ['io.input'] = true, ['io.popen'] = true,
    ['io.lines'] = { 'nil' }, ['os.execute'] = true, ['os.exit'] = true, ['os.setlocale'] = true, ['os.tmpname'] = true,
    ['package.loadlib'] = true, ['package.seeall'] = true, ['popen.shell'] = true, ['popen object:wait'] = true,
    ['popen object:read'] = true, ['socket.iowait'] = true, ['socket.getaddrinfo'] = true, ['socket.tcp_connect'] = true,
    ['socket.tcp_server'] = true, ['string.rep'] = { "'x'" }, ['table.new'] = true, ['title.update'] = true,
    ['strict.on'] = true, ['log.rotate'] = true, ['log.box_api.cfg_set'] = true, ['log.cfg'] = true, ['fiber.top'] = true,
    ['swim.new'] = true, ['net.box.connect'] = true, ['net.box.new'] = true, ['net.box.establish_connection'] = true,
    ['net.box.create_transport'] = true, ['net.box.wrap'] = true, ['buffer.static_alloc'] = true, ['ibuf:read'] = true,
    ['ibuf:reserve'] = true, ['ibuf:alloc'] = true, ['ibuf:checksize'] = true, ['digest.urandom'] = true,
    ['string.ljust'] = true, ['string.rjust'] = true, ['string.center'] = true, ['log.box_api.cfg_get'] = true,
    ['log.box_api.cfg_set_log_level'] = true, ['log.box_api.cfg_set_log_format'] = true, ['fiber.channel'] = { '2^63' }, ['buffer.ibuf'] = true,
}
-- Modules of which nothing is called: requests of theirs go out to a network.
local SKIPPED_MODULES = {
    ['http.client'] = true, ['http client'] = true, ['socket object'] = true, ['connection'] = true, ['connection space'] = true,
    ['connection index'] = true, ['future'] = true, ['box.error.injection'] = true, ['popen object'] = true,
}
-- Modules whose results are compared by value.
local PURE = {}
for name in ([[bit csv decimal digest fun.op fun.operator iconv json math msgpack msgpackffi pickle string table uri utf8 yaml
    tuple box.tuple space index sequence key_def]]):gmatch('%S+') do PURE[name] = true end
local VARYING = {
    ['math.random'] = true, ['digest.urandom'] = true, ['index:random'] = true, ['string.dump'] = true, ['space:bsize'] = true,
    ['index:bsize'] = true, ['index:stat'] = true, ['index:compact'] = true,
}

local is_tuple, is_decimal = box.tuple.is, require('decimal').is_decimal

local function kind_of(value)
    if is_tuple(value) then return 'tuple' end
    if is_decimal(value) then return 'decimal' end
    local name = tostring(ffi.typeof(value))
    for pattern, kind in pairs({ ['tt_uuid'] = 'uuid', ['struct error'] = 'error', ['ibuf'] = 'ibuf' }) do
        if name:find(pattern) then return kind end
    end
    if value == nil then return 'NULL' end
    if ffi.istype('int64_t', value) or ffi.istype('uint64_t', value) then return tostring(ffi.typeof(value)) end
    return 'cdata'
end

local function described(value, with_value)
    local kind = type(value)
    if kind == 'cdata' then
        kind = kind_of(value)
        if with_value and (kind:find('int64') or kind == 'decimal' or kind == 'tuple') then return tostring(value) end
        return kind
    end
    if not with_value then return kind end
    if kind == 'string' then return ('%q'):format(#value > 80 and value:sub(1, 80) or value):gsub('\n', 'n') .. '' end
    -- The sign of a zero is not compared.
    if kind == 'number' then return ('%.14g'):format(value == 0 and 0 or value) end
    if kind == 'boolean' then return tostring(value) end
    if kind == 'table' then
        if getmetatable(value) ~= nil then return 'table' end
        local parts = {}
        for key, item in pairs(value) do
            local shown = (type(item) == 'string' or type(item) == 'number' or type(item) == 'boolean') and tostring(item)
                or type(item) == 'cdata' and kind_of(item) or type(item)
            parts[#parts + 1] = tostring(key):gsub('0x%x+', '') .. '=' .. shown:gsub('0x%x+', '')
        end
        table.sort(parts)
        return '{' .. table_concat(parts, ' ', 1, math.min(#parts, 12)) .. '}'
    end
    return kind
end

local function raised(value)
    if type(value) == 'cdata' and kind_of(value) == 'error' then
        return ('error %s %s: %s'):format(value.type, tostring(value.code), value.message:gsub('0x%x+', '0x'))
    end
    if type(value) == 'string' then
        -- Without the place, and without the names of the module's own variables and functions.
        local text = value:gsub('^%S*%.lua:%d+: ', ''):gsub('^%[string "[^"]*"%]:%d+: ', ''):gsub('0x%x+', '0x'):gsub('\n', ' ')
        text = text:gsub("(attempt to [%a ]-) %a+ '[^']*' %(a (%a+) value%)", '%1 a %2 value')
        text = text:gsub("^(bad argument #%d+ to) '[^']*'", "%1 '?'")
        return 'raises ' .. text
    end
    return 'raises a ' .. type(value)
end

local function outcome(with_value, done, ...)
    if not done then return raised((...)) end
    local shown = {}
    for place = 1, select('#', ...) do
        local described_well, text = pcall(described, (select(place, ...)), with_value)
        shown[place] = described_well and text or type((select(place, ...)))
    end
    return '-> ' .. table_concat(shown, ', ')
end

local results = fio.open(results_path, { 'O_CREAT', 'O_WRONLY', 'O_TRUNC' }, 420)
local written = {}
local function record(line)
    written[#written + 1] = line:gsub('\n', ' ') .. '\n'
    if #written > 500 or line:find('^begin') then
        results:write(table_concat(written))
        written = {}
    end
end

-- Objects, made anew where a call has changed them.
local made = {}
local function space_of(name)
    local space = box.space[name]
    if space == nil then
        space = box.schema.space.create(name, { id = 700, format = { { 'id', 'unsigned' }, { 'name', 'string' } } })
        space:create_index('pk')
        space:create_index('name', { parts = { 2, 'string' }, unique = false })
    end
    if space:len() ~= 2 or space:get(1) == nil then
        space:truncate()
        space:insert({ 1, 'a' })
        space:insert({ 2, 'x' })
    end
    return space
end
local function listed()
    local space = box.space.odd
    if space ~= nil and (space.index.pk == nil or space.index.name == nil or #space.index ~= 1 or #space:format() ~= 2
        or #space:on_replace() + #space:before_replace() > 0) then
        space:drop()
    end
    return space_of('odd')
end
local OBJECTS = {
    space = listed,
    index = function() return listed().index.pk end,
    sequence = function()
        pcall(box.schema.sequence.drop, 'odd')
        return box.schema.sequence.create('odd')
    end,
    tuple = function() return box.tuple.new({ 1, 'a', { 2 } }) end,
    error = function() return box.error.new({ code = 1, reason = 'reason' }) end,
    func = function()
        pcall(box.schema.func.drop, 'odd')
        box.schema.func.create('odd', { body = 'function() return 1 end' })
        return box.func.odd
    end,
    ['fiber object'] = function()
        local object = fiber.new(function() end)
        object:set_joinable(true)
        return object
    end,
    channel = function() return fiber.channel(1) end,
    cond = function() return fiber.cond() end,
    file = function() return fio.open('file', { 'O_CREAT', 'O_RDWR' }, 420) end,
    ibuf = function() return require('buffer').ibuf() end,
    iterator = function() return require('fun').iter({ 1, 2 }) end,
    ['net.box.self'] = function() return require('net.box').self end,
}

local function resolve(name)
    if name:find(':') then return nil end
    local module, value
    for _, head in ipairs({ 'http.client', 'net.box', 'box', 'log.box_api' }) do
        if name:sub(1, #head + 1) == head .. '.' then module = head end
    end
    module = module or name:match('^[^.]+')
    value = module == 'box' and box or require(module)
    for key in name:sub(#module + 2):gmatch('[^.]+') do
        if type(value) ~= 'table' and type(value) ~= 'cdata' then return nil end
        value = value[key]
    end
    return value
end

-- What a call leaves behind is removed, so that each call finds the same.
local function tidy(module)
    if box.is_in_txn() then box.rollback() end
    if box.session.effective_user() ~= 'admin' then box.session.su('admin') end
    if module:match('^box') or module == 'space' or module == 'index' then
        for _, space in box.space._space:pairs() do
            if space[1] >= 512 and space[3] ~= 'odd' then pcall(function() box.space[space[1]]:drop() end) end
        end
        for _, kind in ipairs({ 'user', 'role', 'sequence', 'func' }) do
            for _, name in ipairs({ 'x', '1', '-1' }) do pcall(box.schema[kind].drop, name) end
        end
    end
    if module == 'fio' or module == 'io' or module == 'os' or module:match('^file') then
        for _, name in ipairs({ 'x', '1', '-1', '1.5' }) do
            if fio.path.lexists(name) then
                fio.rmdir(name)
                fio.unlink(name)
            end
        end
    end
    if module == 'package' then package.setsearchroot(box.NULL) end
    if module == 'log' then require('log').level(5) end
end

local function value_of(entry)
    local value = entry[2]
    if value == NIL then return nil end
    if type(value) == 'function' then return value() end
    return value
end

local function is_skipped(name, first)
    local skipped = SKIPPED[name]
    if type(skipped) ~= 'table' then return skipped == true end
    for _, text in ipairs(skipped) do
        if text == first then return true end
    end
    return false
end

-- Calls the function with these entries of VALUES, after `own` if the function is a method.
local function call(name, module, find, entries)
    local texts, own = {}, name:find(':') ~= nil
    for place, entry in ipairs(entries) do texts[place] = entry[1] end
    if is_skipped(name, texts[1] or 'nil') then return end
    local with_value = PURE[module] and not VARYING[name]
    local line
    local body = fiber.new(function()
        local object = own and OBJECTS[module]() or nil
        local body = find(object)
        local arguments, count = {}, #entries
        for place, entry in ipairs(entries) do arguments[place] = value_of(entry) end
        if own then line = outcome(with_value, pcall(body, object, original_unpack(arguments, 1, count)))
        else line = outcome(with_value, pcall(body, original_unpack(arguments, 1, count))) end
        if module == 'file' then pcall(object.close, object) end
    end)
    body:set_joinable(true)
    local joined, problem = body:join()
    if not joined then line = 'ends the fiber: ' .. tostring(problem) end
    record(('%s(%s)\t%s'):format(name, table_concat(texts, ', '), line))
    tidy(module)
end

for name in io.lines(names_path) do
    local module, own = name:match('^(.*)[.:]([^.:]+)$')
    local find
    if name:find(':') then
        find = OBJECTS[module] and function(object) return object[own] end
        if find and OBJECTS[module]()[own] == nil then find = nil end
    else
        local resolved, value = pcall(resolve, name)
        if not resolved then value = nil end
        find = value ~= nil and function() return value end
    end
    if find and not SKIPPED_MODULES[module] and SKIPPED[name] ~= true then
        call(name, module, find, {})
        for _, first in ipairs(VALUES) do
            call(name, module, find, { first })
            for _, second in ipairs(VALUES) do
                if all_pairs or USUAL_SECOND[second[1]] then call(name, module, find, { first, second }) end
            end
        end
        local many = {}
        for place = 1, 9 do many[place] = VALUES[place % 2 == 0 and 4 or 7] end
        call(name, module, find, many)
        if name:find(':') then
            for _, first in ipairs(VALUES) do
                local text = name:gsub(':', '.', 1) .. '(' .. first[1] .. ')'
                local line = outcome(false, pcall(find(OBJECTS[module]()), value_of(first)))
                record(text .. '\t' .. line)
                tidy(module)
            end
        end
    end
end
results:write(table_concat(written))
results:close()
os.exit(0)
