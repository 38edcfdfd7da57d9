-- Fibers: which runs first, what is left of a fiber that has ended, and the last error of each. Prints what happens.
local fiber = require('fiber')
local json = require('json')

local function show(...) print(json.encode({...})) end
local function failure(f, ...)
    local done, message = pcall(f, ...)
    return done, (tostring(message):gsub('^.-:%d+: ', ''))
end

-- New and woken fibers run before one that has yielded, and what a fiber begins before the next one whose time has come.
local function order(body)
    local seen = {}
    body(function(what) seen[#seen + 1] = what end)
    fiber.sleep(0.05)
    print(table.concat(seen, ' '))
end
order(function(note)
    fiber.create(function() fiber.yield() note('yielded') end)
    fiber.new(note, 'new')
    local cond = fiber.cond()
    fiber.create(function() cond:wait() note('woken') end)
    cond:signal()
end)
order(function(note)
    for i = 1, 3 do
        fiber.create(function() fiber.yield() note('y' .. i) fiber.new(note, 'n' .. i) end)
    end
end)
order(function(note)
    local channel = fiber.channel(1)
    fiber.create(function() fiber.sleep(0) note('slept') end)
    fiber.create(function() note(channel:get()) note(channel:get()) end)
    fiber.create(function() channel:put('first') channel:put('second') note('put') end)
end)
order(function(note)
    local sleeper = fiber.create(function() fiber.sleep(100) note('awake') end)
    fiber.create(function() fiber.yield() note('yielded') end)
    sleeper:wakeup()
    fiber.new(note, 'new')
end)

-- A fiber that has ended.
local dead = fiber.new(function() end)
local id = dead:id()
fiber.sleep(0.01)
show(dead:id() == id, dead:status(), fiber.find(id) == nil)
for _, method in ipairs({'cancel', 'wakeup', 'join', 'set_joinable', 'name'}) do
    show(method, failure(function() dead[method](dead, true) end))
end
show(failure(function() return dead.storage end))
show(failure(tostring, dead))
show(json.encode(dead))

-- One that waits to be joined.
local ended = fiber.new(function() fiber.self().storage.left = true return 'result' end)
ended:set_joinable(true)
ended:name('ended')
fiber.sleep(0.01)
show(ended:status(), ended:name(), ended.storage.left == nil, fiber.find(ended:id()) ~= nil)
show(ended:join())
show(ended:status(), failure(ended.join, ended))

-- What stood in the storage is collected, though it names its fiber.
local weak = setmetatable({}, {__mode = 'k'})
do
    local kept = fiber.create(function()
        local own = fiber.self()
        own.storage.own, own.storage.value = own, {}
        weak[own.storage.value] = true
    end)
    kept = nil
end
fiber.sleep(0.01)
collectgarbage() collectgarbage()
show(next(weak) == nil)

-- Each fiber has its own last error; an error of Lua has no code.
box.error.clear()
local other = fiber.new(function() pcall(box.error, {code = 7, reason = 'of the other'}) return box.error.last().message end)
other:set_joinable(true)
show(other:join())
show(box.error.last() == nil)
local raising = fiber.new(error, 'x', 0)
raising:set_joinable(true)
local _, raised = raising:join()
show(raised.type, raised.code == nil, raised:unpack().code == nil, raised.message)

-- What `info` shows.
show(fiber.info({backtrace = false})[fiber.id()].backtrace == nil, fiber.info()[fiber.id()].backtrace ~= nil)
local function inner() fiber.sleep(100) end
local function outer() inner() end
local sleeper, shown = fiber.create(outer), ''
for _, frame in ipairs(fiber.info()[sleeper:id()].backtrace) do shown = shown .. (frame.L or '') end
show(shown:match('inner in @.*fiber_order.lua at line') ~= nil, shown:find('outer') ~= nil)
show(failure(fiber.channel(1).put, fiber.channel(1)))
show(failure(fiber.cond().wait), failure(fiber.cond().wait, '1'), failure(fiber.cond().wait, fiber.cond(), 'x'))
fiber.top_enable()
while fiber.top().cpu['1/sched'].instant == 0 do fiber.sleep(0.001) end
local share = 0
for _, entry in pairs(fiber.top().cpu) do share = share + entry.average end
show(share <= 100.1)
fiber.top_disable()
local done = {}
local function task(number)
    done[#done + 1] = number
    if number < 3 then fiber._internal.schedule_task(task, number + 1) else error('a task that fails') end
end
for number = 1, 3 do fiber._internal.schedule_task(task, number) end
while #done < 6 do fiber.yield() end
show(table.concat(done, ' '))
local timed = select(2, pcall(box.ctl.wait_rw, 0.01))
show(timed.type, timed:unpack().errno)

-- `wait_rw` before `box.cfg` waits for it.
local waiting = fiber.new(function() box.ctl.wait_rw() return box.info.ro end)
waiting:set_joinable(true)
fiber.yield()
box.cfg({log = 'fibers.log'})
show(waiting:join())
os.exit(0)
