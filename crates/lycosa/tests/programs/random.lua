-- A random program: `random.lua SEED STEPS`. Calls functions of all modules in any order, with values of any kind, from
-- places that are odd for it: comparators, callbacks of gsub, metamethods, iterators, coroutines, triggers, finalizers.
-- Whatever it does, the process has to end by itself: with 0 at the end, or with the code of os.exit.
local seed, steps = tonumber(arg[1]), tonumber(arg[2])
math.randomseed(seed)
local random = math.random
local exit, unpack_, pcall_, type_ = os.exit, unpack, pcall, type
local fiber = require('fiber')
local sleep, create_fiber = fiber.sleep, fiber.create

box.cfg({wal_mode = 'none', log = 'random.log'})
local space = box.schema.space.create('things', {if_not_exists = true})
space:create_index('primary', {if_not_exists = true})
space:create_index('second', {parts = {2, 'string'}, unique = false, if_not_exists = true})
for i = 1, 20 do space:replace({i, 'thing ' .. i % 5, {a = i}}) end
local queue = require('queue')
for number, kind in ipairs({'fifo', 'fifottl', 'utube', 'utubettl', 'limfifottl'}) do
    queue.create_tube('tube' .. number, kind, {if_not_exists = true, capacity = 100})
end

-- What ends, stops or reaches beyond the process or its folder, waits for a person, or is memory without a type: arrays
-- of C, and what `debug` shows of the functions that use them.
local skipped = {
    ['os.exit'] = true, ['os.execute'] = true, ['os.remove'] = true, ['os.rename'] = true, ['os.tmpname'] = true,
    ['debug'] = true, ['math.randomseed'] = true, ['io.popen'] = true, ['io.read'] = true, ['io.lines'] = true, ['io.input'] = true,
    ['io.output'] = true, ['io.close'] = true, ['io.stdout'] = true, ['io.stdin'] = true, ['io.stderr'] = true, ['io.open'] = true,
    ['coroutine.running'] = true, ['dofile'] = true, ['collectgarbage'] = true, ['string.rep'] = true, ['string.dump'] = true,
    ['setfenv'] = true, ['table.clear'] = true, ['log.init'] = true,
    ['box.cfg'] = true, ['package'] = true, ['jit'] = true, ['fiber.kill'] = true, ['fiber.cancel'] = true,
    ['string.ljust'] = true, ['string.rjust'] = true, ['string.center'] = true, ['_G'] = true,
    ['digest.pbkdf2'] = true, ['queue.stop'] = true, ['table.new'] = true, ['newproxy'] = false,
}
local modules = {
    'string', 'table', 'math', 'coroutine', 'debug', 'os', 'io', 'bit', 'box', 'fiber', 'json', 'yaml', 'msgpack', 'csv', 'uri',
    'uuid', 'digest', 'crypto', 'decimal', 'utf8', 'errno', 'clock', 'log', 'queue', 'tap', 'checks', 'pwd',
    'serializer', 'trigger', 'socket', 'net.box', 'title', 'fun', 'iconv', 'key_def', 'expirationd',
    'merger', 'pickle', 'tarantool', 'datetime',
}

local metatable = debug.getmetatable
local current = coroutine.running
local ffi = require('ffi')
for _, name in ipairs({'buffer', 'fio'}) do require(name) end
ffi.cdef('struct random_pair { int a; double b; int16_t c[4]; };')
local pair_t, int64_t, uint64_t, int_t, float_t = ffi.typeof('struct random_pair'), ffi.typeof('int64_t'), ffi.typeof('uint64_t'),
    ffi.typeof('int8_t'), ffi.typeof('float')
local gc = ffi.gc
local info = debug.getinfo
local sethook = debug.sethook
local function debug_hook(body)
    sethook(function() pcall(body) end, ({'c', 'r', 'l', ''})[math.random(4)], math.random(100))
    local x = 0
    for i = 1, 10 do x = x + i end
    sethook()
    return x
end
for _, name in ipairs(modules) do pcall_(require, name) end
-- A table of all modules, `_G` for example, may turn up as a value: what is skipped is not there either.
for _, name in ipairs({'debug', 'io', 'os', 'jit', 'ffi', 'package', 'fiber'}) do
    local module = package.loaded[name]
    for key in pairs(module) do
        local called = name .. '.' .. tostring(key)
        if skipped[called] or skipped[name] and name ~= 'package' and called ~= 'debug.traceback' then
            if name ~= 'ffi' then module[key] = nil end
        end
    end
end
package.loaded.ffi = nil
package.preload.ffi = nil

-- LuaJIT shifts what stands between the place and the end one by one, be it two thousand million places: no crash, and
-- the program's own doing, but nobody waits for it.
local insert = table.insert
function table.insert(list, place, ...)
    local number = tonumber(place)
    if select('#', ...) > 0 and number and not (number > -1e5 and number < 2 ^ 31) then error('a place far away') end
    return insert(list, place, ...)
end

getfenv, setfenv = nil, nil

local functions, seen = {}, {}
local function collect(name, value, depth)
    if skipped[name] or seen[value] then return end
    if type_(value) == 'function' then
        seen[value] = true
        table.insert(functions, {name = name, call = value})
    elseif type_(value) == 'table' and depth > 0 then
        seen[value] = true
        for key, item in pairs(value) do
            if type_(key) == 'string' then collect(name .. '.' .. key, item, depth - 1) end
        end
    end
end
for _, name in ipairs(modules) do
    local found, module = pcall_(require, name)
    collect(name, found and module or rawget(_G, name), 3)
end
for _, name in ipairs({'print', 'pairs', 'ipairs', 'next', 'select', 'tostring', 'tonumber', 'tonumber64', 'unpack', 'type',
    'rawget', 'rawset', 'rawequal', 'setmetatable', 'getmetatable', 'error', 'assert', 'load', 'loadstring', 'pcall',
    'xpcall', 'require', 'newproxy', 'dostring'}) do
    collect(name, rawget(_G, name), 0)
end
table.sort(functions, function(a, b) return a.name < b.name end)
print = function(...) for i = 1, select('#', ...) do tostring((select(i, ...))) end end

local pool = {space, space.index.second, queue.tube.tube1, queue.tube.tube4, fiber.channel(1), fiber.cond(), space:get(1),
    require('uuid').new(), require('decimal').new('1.5'), require('csv').iterate('a,b'),
    create_fiber(function() while true do sleep(1) end end)}
local function keep(value)
    if value == nil or type_(value) == 'number' or type_(value) == 'string' and #value > 1e5 then return end
    pool[random(1, 200)] = value
end

local act, value

local numbers = {0, -1, 1, 2, 3, 255, 65536, 2 ^ 31, 2 ^ 53, -2 ^ 63, 1e308, 0 / 0, 1 / 0, -1 / 0, 0.5}
local strings = {'', 'a', 'things', 'tube1', 'primary', 'unsigned', 'string', '*', '%', '(', '[', '%b()', '\0', '\xff\xfe', '1', 'r', 'EQ',
    'return 1', 'function', '127.0.0.1:1', '{"a":[1', '- a\n- b: c', '\x93\x01\x02', 'guest', 'execute', 'universe'}
local kinds = {
    function() return nil end,
    function() return random(2) == 1 end,
    function() return numbers[random(#numbers)] end,
    function() return random(1, 5) end,
    function() return strings[random(#strings)] end,
    function() return ('ab\0%'):rep(random(1, 5000)) end,
    function() return {} end,
    function() return {random(1, 20), 'a', {}} end,
    function() return {timeout = 0, parts = {1, 'unsigned'}, if_not_exists = true, delay = 1, ttl = 5, utube = 'u', pri = 1} end,
    function() local t = {1} t.t = t t[2] = t return t end,
    function() local t = {} for _ = 1, random(300) do t = {t} end return t end,
    function() local t = {} for i = 1, random(10) do t[i] = value(15) end return t end,
    function() return box.NULL end,
    function() return 18446744073709551615ULL end,
    function() return -1LL end,
    function() return int64_t(random(-5, 5)) * 4611686018427387904LL end,
    function() return uint64_t(random(1, 5)) / 3 end,
    function() return int_t(random(-128, 127)) end,
    function() return float_t(random()) end,
    function() return gc(pair_t(1, 2), function(pair) act(2) pair.a = 7 error(value(2)) end) end,
    function() return gc(pair_t(1, 2), function() sleep(0) end) end,
    function() return require('decimal').new(('%d.%d'):format(random(-999, 999), random(0, 999))) end,
    function()
        local bytes = require('msgpack').encode({ 1, { a = 'b' }, 5.5, -1LL, require('uuid').new() })
        local place = random(#bytes)
        return bytes:sub(1, place - 1) .. string.char(random(0, 255)) .. bytes:sub(place + 1, random(place, #bytes))
    end,
    function()
        local map = {}
        for i = 1, random(12) do
            map['k' .. i] = setmetatable({}, { __serialize = function() map['k' .. random(12)] = nil map[i] = 1 return value(2) end })
        end
        return map
    end,
    function() return (coroutine.wrap(function() return current() end)()) end,
    function() return function(...) act(2) return ... end end,
    function() return function() error(value(2)) end end,
    function() return function() sleep(0) return value(2) end end,
    function() return coroutine.create(function() act(2) coroutine.yield(value(2)) act(2) end) end,
    function()
        local meta = {}
        for _, name in ipairs({'__index', '__newindex', '__call', '__tostring', '__len', '__eq', '__lt', '__le', '__concat', '__unm',
            '__serialize', '__pairs', '__add', '__mode'}) do
            if random(3) == 1 then meta[name] = function() act(2) return value(2) end end
        end
        return setmetatable({}, meta)
    end,
    function()
        local object = newproxy(true)
        getmetatable(object).__gc = function() act(2) error(value(2)) end
        return object
    end,
    function() return functions[random(#functions)].call end,
    function() return pool[random(200)] end,
    function() return pool[random(200)] end,
    function() return pool[random(200)] end,
}
local depth = 0
value = function(weight)
    depth = depth + (weight or 1)
    if depth > 40 then depth = depth - (weight or 1) return random(5) end
    local made = kinds[random(#kinds)]()
    depth = depth - (weight or 1)
    return made
end

local function values()
    local list, count = {}, random(0, 4)
    for i = 1, count do list[i] = value() end
    return list, count
end

local function call()
    local list, count = values()
    local called
    if random(2) == 1 then
        called = functions[random(#functions)].call
    else
        local object = pool[random(200)]
        local methods = {}
        if type_(object) == 'table' or type_(object) == 'userdata' then
            local meta = metatable(object)
            local index = type_(object) == 'table' and object or type_(meta) == 'table' and meta.__index
            if type_(object) == 'table' and type_(meta) == 'table' and type_(rawget(meta, '__index')) == 'table' then
                index = rawget(meta, '__index')
            end
            if type_(index) == 'table' then
                for _, method in next, index do
                    if type_(method) == 'function' then table.insert(methods, method) end
                end
            end
        end
        called = methods[random(math.max(#methods, 1))] or functions[random(#functions)].call
        table.insert(list, 1, object)
        count = count + 1
    end
    if called == exit then return end
    local results = {called(unpack_(list, 1, count))}
    for i = 1, math.min(#results, 3) do keep(results[i]) end
    return results[1]
end

local places = {
    call, call, call, call, call, call,
    function() return pcall_(call) end,
    function() return xpcall(call, function(...) act(2) return ... end) end,
    function() table.sort({3, 1, 2, 5, 4}, function(a, b) act(2) if random(3) == 1 then sleep(0) end return a < b end) end,
    function() return (string.gsub('abcabc', '.', function() act(2) if random(3) == 1 then sleep(0) end return 'x' end)) end,
    function() for _ in function(_, at) act(2) return (at or 0) < 2 and (at or 0) + 1 or nil end do act(2) end end,
    function() return coroutine.wrap(function() act(2) coroutine.yield() end)() end,
    function() local co = coroutine.create(act) coroutine.resume(co) coroutine.resume(co, value()) end,
    function() return tostring(value()) .. tostring(value()) end,
    function() return value() == value(), value() < value() end,
    function() local t = value() return type_(t) ~= 'cdata' and t[value()] end,
    function() local t = value() t[value()] = value() end,
    function() return value()(value(), value()) end,
    function() return -value() + value() end,
    function() box.begin() act(2) if random(3) == 1 then sleep(0) end if random(2) == 1 then box.commit() elseif random(2) == 1 then box.rollback() end end,
    function() box.begin() act(2) end,
    function() box.atomic(act) end,
    function() local new = create_fiber(act) if random(3) == 1 then pcall_(fiber.cancel, new) end keep(new) end,
    function() local new = fiber.new(act) new:set_joinable(true) if random(2) == 1 then new:join() end end,
    function() sleep(0) end,
    function() collectgarbage(random(2) == 1 and 'step' or 'collect') end,
    function() local trigger = function() act(2) if random(4) == 1 then sleep(0) end end
        space:on_replace(trigger) space:replace({random(20), 'x'}) space:on_replace(nil, trigger) end,
    function() local trigger = function(_, new) act(2) return new end
        space:before_replace(trigger) space:replace({random(20), 'x'}) space:before_replace(nil, trigger) end,
    function() queue.tube.tube1:on_task_change(function() act(2) if random(3) == 1 then error('no') end end) end,
    function() local task = queue.tube['tube' .. random(5)]:put(value(), {utube = 'u'}) keep(task) end,
    function() local tube = queue.tube['tube' .. random(5)] local task = tube:take(0) if task then tube[({'ack', 'release', 'bury', 'delete', 'peek'})[random(5)]](tube, task[1]) end end,
    function() create_fiber(function() queue.tube['tube' .. random(5)]:take(random(2) == 1 and 0.01 or nil) end) end,
    function() space:replace({random(20), strings[random(#strings)], value()}) end,
    function() for _, tuple in space:pairs(value(), {iterator = value()}) do keep(tuple) act(2) end end,
    function() space:update(random(20), {{'=', 3, value()}}) end,
    function() box.on_commit(act) end,
    function() box.on_rollback(act) end,
    function() keep(box.savepoint()) end,
    function() box.rollback_to_savepoint(pool[random(200)]) end,
    function() local a, b = value(), value() keep(a + b) keep(a * b) keep(a % b) keep(a ^ b) return a < b, a == b end,
    function() return value() .. value(), #value() end,
    function() local t = {} for i = 1, random(5) do t[i] = value() end table.sort(t) end,
    function() return table.concat({ value(), value() }, value(), value(), value()) end,
    function() return table.deepcopy(value()) end,
    function() return table.insert(value(), value(), value()) end,
    function() return ('abc'):split(value(), value()) end,
    function() return string.format(strings[random(#strings)] .. '%s%d%5.3q', value(), value(), value()) end,
    function() return require('msgpack').decode(value(), value()) end,
    function() fiber.self():cancel() act(2) end,
    function() local new = create_fiber(function() act(2) sleep(0) act(2) end) act(2) pcall_(new.cancel, new) pcall_(new.wakeup, new) end,
    function() local new = fiber.new(coroutine.wrap(function() act(2) coroutine.yield(value()) act(2) end)) keep(new) end,
    function() keep(current()) return coroutine.resume(value(), value()) end,
    function() box.error(value(), value(), value()) end,
    function() return box.error.new({ code = value(), reason = value(), type = value() }) end,
    function() local e = box.error.last() if e then keep(e) return e:unpack(), e.message, e.trace, tostring(e) end end,
    function() return info(random(1, 5), 'nSluf') end,
    function() space:on_replace(function(...) act(2) if random(3) == 1 then error(value()) end return ... end) end,
    function() space:before_replace(function(...) act(2) if random(3) == 1 then return value() end return select(2, ...) end) end,
    function() for _, trigger in ipairs(space:on_replace()) do space:on_replace(nil, trigger) end end,
    function() for _, trigger in ipairs(space:before_replace()) do space:before_replace(nil, trigger) end end,
    function() box.begin() keep(box.savepoint()) act(2) box.rollback_to_savepoint(pool[random(200)]) act(2) box.commit() end,
    function() queue.register_driver('driver' .. random(3), value()) end,
    function() queue.create_tube('made' .. random(3), 'driver' .. random(3), value()) end,
    function() local index = space.index.second index:alter({ parts = { random(3), 'string' } }) end,
    function() space.index.second:drop() end,
    function() space:create_index('second', { parts = { 2, random(2) == 1 and 'string' or 'scalar' }, unique = false, if_not_exists = true }) end,
    function() space:truncate() end,
    function() box.snapshot() end,
    function()
        local socket = require('socket')
        local server = socket.tcp_server('127.0.0.1', 0, function(peer) act(2) peer:write('line\n') act(2) end)
        local peer = socket.tcp_connect('127.0.0.1', server:name().port, 0.1)
        keep(peer)
        act(2)
        if peer then peer:read(value(), 0.01) peer:write(value()) if random(2) == 1 then peer:close() end end
        server:close()
    end,
    function()
        local fio = require('fio')
        local file = fio.open('scratch' .. random(3), { 'O_CREAT', 'O_RDWR' }, 420)
        local count = random(4)
        if count == 1 then file:write(value()) elseif count == 2 then file:read(random(100)) elseif count == 3 then file:pread(random(9), random(9))
        else file:seek(random(9)) end
        act(2)
        file:close()
        fio.unlink('scratch' .. random(3))
    end,
    function()
        local buffer = require('buffer').ibuf(random(64))
        local place = buffer:alloc(random(100))
        act(2)
        require('msgpack').encode(value(), buffer)
        buffer:reset()
        buffer:recycle()
    end,
    function() return require('crypto').cipher.aes128.cbc.encrypt(value(), value(), value()) end,
    function() return require('crypto').digest.sha256(value()), require('digest').crc32(value()) end,
    function() local function fall() return act(0), fall() and 1 end fall() end,
    function() local function fall() string.gsub('a', 'a', fall) end fall() end,
    function() local function fall() return coroutine.wrap(fall)() end fall() end,
    function() return load(strings[random(#strings)] .. ' ' .. strings[random(#strings)]) end,
    -- Finalizers that pause, collect, open transactions, make fibers and finalizers, match, sort.
    function()
        local object = newproxy(true)
        local ways = {
            function() sleep(0) end,
            function() box.begin() space:replace({random(20), 'gc'}) error(value(2)) end,
            function() create_fiber(act) end,
            function() local other = newproxy(true) getmetatable(other).__gc = function() act(2) end end,
            function() return ('a'):rep(20):find(('a*'):rep(8) .. 'b') end,
            function() table.sort({3, 1, 2}, function(a, b) act(2) return a < b end) end,
            function() collectgarbage() end,
            function() return coroutine.wrap(function() coroutine.yield() act(2) end)() end,
            function() queue.tube.tube1:put('from a finalizer') queue.tube.tube1:take(0.001) end,
            function() pcall_(error, value(2)) act(2) end,
        }
        getmetatable(object).__gc = ways[random(#ways)]
        object = nil
        act(2)
        collectgarbage(random(2) == 1 and 'step' or 'collect')
    end,
    -- Pauses in metamethods that C functions call.
    function()
        local function pause() act(2) if random(2) == 1 then sleep(0) end end
        local odd = setmetatable({}, {
            __index = function(_, key) pause() return key end, __tostring = function() pause() return 'odd' end,
            __lt = function() pause() return random(2) == 1 end, __eq = function() pause() return true end,
            __concat = function() pause() return 'x' end, __len = function() pause() return 1 end,
            __call = function() pause() return 'x' end, __newindex = pause,
        })
        local other = setmetatable({}, getmetatable(odd))
        local ways = {
            function() return ('abc'):gsub('.', odd) end,
            function() table.sort({odd, other, odd, other}) end,
            function() return ('%s %s'):format(tostring(odd), odd) end,
            function() print(odd, other) end,
            function() return odd < other, odd == other, odd .. other end,
            function() table.insert(odd, 1, other) end,
            function() table.concat({odd, other}) end,
            function() for key in pairs(odd) do keep(key) end end,
            function() xpcall(error, odd, other) end,
            function() return unpack_(odd, 1, 3) end,
            function() coroutine.wrap(odd)() end,
            function() space:replace({random(20), 'odd', odd}) end,
            function() require('json').encode({odd}) end,
            function() load(odd) end,
            function() fiber.create(odd) end,
        }
        return ways[random(#ways)]()
    end,
    -- Transactions over tasks and rows, and walks that change what they walk over.
    function()
        local tube = queue.tube['tube' .. random(5)]
        box.atomic(function()
            local task = tube:put(value(), {utube = 'u'})
            space:replace({random(20), 'task', task})
            act(2)
            local taken = tube:take(0)
            if taken then tube[({'ack', 'release', 'bury', 'delete'})[random(4)]](tube, taken[1]) end
            if random(3) == 1 then error(value(2)) end
        end)
    end,
    function()
        box.begin()
        local point = box.savepoint()
        queue.tube['tube' .. random(5)]:put(1)
        act(2)
        if random(2) == 1 then box.rollback_to_savepoint(point) end
        box.on_commit(function() queue.tube.tube1:put(2) act(2) end)
        box.commit()
    end,
    function() for _, row in space:pairs() do space:delete(row[1]) if random(3) == 1 then sleep(0) end act(2) end end,
    function() for _, row in box.space['tube' .. random(5)]:pairs() do queue.tube.tube1:put(row) act(2) if random(9) == 1 then break end end end,
    function() return debug_hook(function() act(2) end) end,
}

local nesting, acts = 0, 0
act = function()
    acts = acts + 1
    if nesting > 6 or acts > steps * 50 then return end
    nesting = nesting + 1
    local ok, result = pcall_(places[random(#places)])
    nesting = nesting - 1
    if not ok and random(3) == 1 then error(result, 0) end
    return result
end

-- A call may wait without end. The program does not wait for it.
local done = 0
for _ = 1, steps do
    local step = fiber.new(function() nesting = 0 act() done = done + 1 end)
    sleep(0)
    if random(50) == 1 then
        box.rollback()
        pcall_(step.cancel, step)
    end
end
for _ = 1, 20 do sleep(0.001) collectgarbage() end
exit(0)
