-- The application of `tests/guards.rs`: what a program should not do, to be called by clients.
local fiber = require('fiber')
local queue = require('queue')

local leaked = {}
local leaky = {}
function leaky.create_space(name, options)
    local space = box.schema.create_space(name, { if_not_exists = true, temporary = options.temporary })
    space:create_index('id', { parts = { 1, 'unsigned' }, sequence = true, if_not_exists = true })
    return space
end
function leaky.new(space, on_task_change)
    local self = {}
    function self.normalize_task(_, row) return row end
    function self.put(_, data)
        -- A copy each time, which nobody gives back.
        leaked[#leaked + 1] = data .. #leaked
        local row = space:insert({ box.NULL, 'r', data })
        on_task_change(row, 'put')
        return row
    end
    function self.take() return nil end
    function self.release() end
    function self.bury() end
    function self.kick() return 0 end
    function self.peek(_, id) return space:get(id) end
    function self.touch() end
    function self.delete(_, id) return space:delete(id) end
    function self.truncate() space:truncate() end
    function self.tasks_by_state() return space:pairs() end
    return self
end
queue.register_driver('leaky', leaky)

box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })
for _, name in ipairs({ 'mail', 'other', 'waited', 'hooked' }) do
    queue.create_tube(name, 'fifo', { if_not_exists = true })
end
queue.create_tube('leaky', 'leaky', { if_not_exists = true })
local own = box.schema.create_space('own', { if_not_exists = true })
own:create_index('pk', { sequence = true, if_not_exists = true })

local made = {}

-- Fibers that wait for tasks; returns when all of them do.
local waiting, taken, seen, doubled = 0, 0, {}, 0
function made.take(count)
    for i = 1, count do
        fiber.create(function()
            waiting = waiting + 1
            local task = queue.tube.waited:take()
            if seen[task[3]] then doubled = doubled + 1 end
            seen[task[3]] = true
            queue.tube.waited:ack(task[1])
            waiting = waiting - 1
            taken = taken + 1
        end)
        -- However many they are, and however slow the build is, the call stays within its time.
        if i % 100 == 0 then fiber.yield() end
    end
    fiber.yield()
end
function made.waiting() return waiting end
function made.taken() assert(doubled == 0, 'a task was taken twice') return taken end
function made.put_all(count)
    for i = 1, count do
        queue.tube.waited:put(i)
        if i % 100 == 0 then fiber.yield() end
    end
    return count
end
function made.left() return box.space.waited:len() end

local sleepers = {}
function made.sleep(count)
    local asleep = 0
    for i = 1, count do
        sleepers[i] = fiber.create(function()
            asleep = asleep + 1
            fiber.sleep(1e6)
        end)
        if i % 1000 == 0 then fiber.yield() end
    end
    return asleep
end
function made.wake()
    for i, sleeper in ipairs(sleepers) do
        sleeper:cancel()
        sleepers[i] = nil
    end
end

-- Counts to a number that never comes.
function made.spin(last)
    local i = 0
    while i ~= last do i = i + 1 end
    return i
end
function made.is_compiled()
    return require('jit.util').traceinfo(1) ~= nil
end
function made.catching(last) while true do pcall(made.spin, last) end end
function made.matching() return ('a'):rep(60):find(('a*'):rep(30) .. 'b') end
function made.finalizing(last)
    local object = newproxy(true)
    getmetatable(object).__gc = function() made.spin(last) end
    object = nil
    collectgarbage()
    collectgarbage()
    return made.spin(last)
end

-- Fibers that are started, and triggers, do not lengthen the time of who starts them.
function made.starting(last)
    while true do
        pcall(made.spin, last)
        fiber.create(function() end)
    end
end
function made.nesting(last)
    pcall(made.spin, last)
    fiber.create(made.nesting, last)
    return made.spin(last)
end
function made.triggering(last)
    box.begin()
    while true do
        pcall(made.spin, last)
        pcall(own.insert, own, { box.NULL, 'x' })
    end
end
function made.pausing(last)
    while true do
        pcall(made.spin, last)
        fiber.create(function() queue.tube.other:on_task_change(fiber.yield) queue.tube.other:put(1) end)
    end
end
-- A value that takes little memory in Lua, and very long to encode.
local function great()
    local value = setmetatable({ 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { __serialize = 'seq' })
    for _ = 1, 12 do value = { value, value, value, value, value, value, value, value, value } end
    return value
end
function made.replying() return great() end
function made.encoding() return require('json').encode(great()) end

function made.eat()
    local eaten = {}
    for i = 1, math.huge do eaten[i] = ('x'):rep(1000) .. i end
end

-- Hooks of every kind that do one thing.
local acts = {
    raise = function() error('no') end,
    yield = function() fiber.yield() end,
    sleep = function() fiber.sleep(0.01) end,
    spin = function() while true do end end,
    -- An error whose text cannot be made.
    mute = function()
        error(setmetatable({}, { __tostring = function() error('no text') end }))
    end,
    none = function() end,
}
local act = acts.none
queue.tube.hooked:on_task_change(function() act() end)
own:on_replace(function() act() end)
box.session.on_connect(function() act() end)
box.session.on_disconnect(function() act() end)
function made.hook(name) act = acts[name] end
function made.insert(name)
    -- One that yields has taken the transaction back; nothing of it is left.
    local done, message = pcall(own.insert, own, { box.NULL, name })
    if not done then error(message, 0) end
end
function made.inserted() return own:len() end
function made.hook_errors() return box.runtime.info().hook_errors end

function made.ready() end

rawset(_G, 'guards', made)
