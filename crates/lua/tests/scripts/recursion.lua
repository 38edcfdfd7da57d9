-- A recursion without end through anything that nests on the C stack ends with an error, and the fiber goes on.
-- memory: 1024

local fiber = require('fiber')
local json, yaml, msgpack = require('json'), require('yaml'), require('msgpack')

local function tells(name, ...)
    local ok, message = pcall(...)
    assert(not ok, name .. ' has an end')
    assert(tostring(message):find('stack overflow') or tostring(message):find('error in error handling'), name .. ': ' .. tostring(message))
end

local function proxy(metamethods)
    return setmetatable({}, metamethods)
end

local required = 0
local recursions = {
    gsub = function(again) string.gsub('a', 'a', again) end,
    sort = function(again) table.sort({3, 2, 1}, function(a, b) again() return a < b end) end,
    foreach = function(again) table.foreach({1}, again) end,
    wrap = function(again) coroutine.wrap(again)() end,
    resume = function(again)
        local ok, message = coroutine.resume(coroutine.create(again))
        if not ok then error(message, 0) end
    end,
    yielding = function(again)
        local step = coroutine.wrap(function() coroutine.yield() again() end)
        step()
        step()
    end,
    print = function(again) print(proxy({__tostring = again})) end,
    format = function(again) return string.format('%s', proxy({__tostring = again})), 1 end,
    load = function(again) assert(load(function() again() end)) end,
    fun = function(again) require('fun').iter({1}):map(again):totable() end,
    yaml = function(again) return yaml.encode(proxy({__serialize = again})), 1 end,
    json = function(again) return json.encode(proxy({__serialize = again})), 1 end,
    less = function(again)
        local mt = {__lt = function() again() return false end}
        table.sort({proxy(mt), proxy(mt)})
    end,
    require = function(again)
        required = required + 1
        local name = 'recursion.' .. required
        package.preload[name] = function() again() return true end
        require(name)
    end,
    xpcall = function(again)
        local ok, message = xpcall(again, tostring)
        if not ok then error(message, 0) end
    end,
}

local names = {}
for name in pairs(recursions) do table.insert(names, name) end
table.sort(names)

local function forever(name)
    local function again() return recursions[name](again), 1 end
    return again
end

for _, name in ipairs(names) do
    -- Each coroutine puts its place before the text of an error, so the texts are long.
    collectgarbage('collect')
    -- Twice: the stack that overflowed once is as good as new.
    tells(name, forever(name))
    tells(name, forever(name))
    -- From the beginning of another fiber.
    local other = fiber.new(forever(name))
    other:set_joinable(true)
    local ok, message = other:join()
    assert(not ok and tostring(message):find('stack overflow'), tostring(message))
end

-- What calls no Lua works at the greatest depth that a call of Lua still began at: there is a reserve for it.
local function nested(open, close, count) return open:rep(count) .. '1' .. close:rep(count) end
local deep = {}
for _ = 1, 100 do deep = {deep} end
local works = {
    function() assert(load('return ' .. nested('{', '}', 180))) end,
    function() assert(load('return ' .. nested('(', ')', 180))) end,
    function() assert(load(('while x do '):rep(180) .. ('end '):rep(180))) end,
    function() assert(not load('return ' .. nested('(', ')', 100000))) end,
    function() assert(load('return ' .. ('not '):rep(180) .. 'x')) end,
    function() return ('a'):rep(150):find(('a?'):rep(150) .. 'a') end,
    function() return json.decode(json.encode(deep)) end,
    function() return yaml.decode(yaml.encode(deep)) end,
    function() return msgpack.decode(msgpack.encode(deep)) end,
    function() return pcall(error, 'x') end,
    function() return string.format('%99.99f', 1e300) end,
    function() return ('x'):rep(1000):hex() end,
    function() return require('uuid').new():str() end,
    function() return require('digest').pbkdf2('a', 'b', 10, 16) end,
    function() for i = 1, 300 do local _ = i * 2 end end,
    function() fiber.yield() end,
    function() return debug.traceback() end,
    function() collectgarbage('step') end,
}

local function descend(level, work)
    if level == 0 then return work() end
    string.gsub('a', 'a', function() descend(level - 1, work) end)
end

local depth = 1
while pcall(descend, depth, function() end) do depth = depth + 1 end
assert(depth > 50, depth)
for number, work in ipairs(works) do
    local worked
    for level = depth - 2, depth - 1 do
        pcall(descend, level, function() worked = {pcall(work)} end)
        local message = tostring(worked and worked[2])
        assert(worked and (worked[1] or message:find('stack overflow')), number .. ': ' .. message)
    end
end

-- No setting of an encoder changes that.
local chain = {}
for _ = 1, 100000 do chain = {chain} end
for _, encoder in ipairs({json.new(), yaml.new(), msgpack.new()}) do
    encoder.cfg({encode_max_depth = 1000000, encode_deep_as_nil = false})
    local ok, message = pcall(encoder.encode, chain)
    assert(not ok and (message:find('stack overflow') or message:find('Too high nest level')), message)
end
tells('a chain of tables', table.deepcopy, chain)

-- Handlers of errors and finalizers may run a little deeper.
local handled
local function fall() string.gsub('a', 'a', fall) end
xpcall(fall, function(message) handled = debug.traceback(message) end)
assert(handled and handled:find('stack overflow'), handled)

-- A finalizer that collects, makes another and falls itself.
local finalized = 0
local function litter(level)
    local object = newproxy(true)
    getmetatable(object).__gc = function()
        finalized = finalized + 1
        if level > 0 then litter(level - 1) end
        collectgarbage()
        fall()
    end
end
for _ = 1, 3 do litter(50) end
for _ = 1, 10 do collectgarbage() end
assert(finalized > 3, finalized)

-- Coroutines behave as before.
local co = coroutine.create(function(...)
    local got = {...}
    for i = 1, 3 do got = {coroutine.yield(i, unpack(got))} end
    return 'end', unpack(got)
end)
local function list(...) return table.concat({tostring((...)), select(2, ...)}, ' ') end
assert(list(coroutine.resume(co, 'a', 'b')) == 'true 1 a b')
assert(list(coroutine.resume(co)) == 'true 2')
assert(list(coroutine.resume(co, 'c')) == 'true 3 c')
assert(list(coroutine.resume(co, 'd')) == 'true end d' and coroutine.status(co) == 'dead')
assert(list(coroutine.resume(co)) == 'false cannot resume dead coroutine')
local _, message = pcall(coroutine.wrap(function() error('text', 0) end))
assert(message == 'text', message)
_, message = pcall(coroutine.wrap(function() error({7}) end))
assert(message[1] == 7)
_, message = pcall(coroutine.resume, 1)
assert(message:find('coroutine expected'), message)
_, message = pcall(coroutine.wrap, 1)
assert(message:find("bad argument #1 to '.-' %(function expected, got number%)"), message)
local own = coroutine.wrap(function() return coroutine.resume(coroutine.running()) end)
assert(select(2, own()) == 'cannot resume running coroutine')
assert(coroutine.wrap(function(...) return select('#', ...) end)(nil, nil, nil) == 3)
-- A fiber may pause inside a coroutine.
assert(coroutine.wrap(function() fiber.sleep(0) coroutine.yield() return 1 end)() == nil)
