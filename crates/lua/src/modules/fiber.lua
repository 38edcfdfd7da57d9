-- fiber: the native part, channels and condition variables.
local internal = require('lycosa.fiber')
local ticket, park, wake = internal.ticket, internal.park, internal.wake
local testcancel = internal.testcancel
local ffi = require('ffi')

-- Code that reads here which fiber runs is compiled. A number is 0 where native code has to be asked.
ffi.cdef('struct lycosa_running { double fiber, session; };')
local running = ffi.cast('const struct lycosa_running *', internal.running())
internal.place = running

local fiber = {}
for _, name in ipairs({
    'create', 'new', 'self', 'find', 'sleep', 'yield', 'testcancel', 'id', 'status', 'cancel', 'wakeup', 'join',
    'set_joinable', 'name', 'info', 'time', 'time64', 'clock', 'clock64',
}) do
    fiber[name] = internal[name]
end
fiber.kill = internal.cancel

-- Returns the call stack of a fiber, innermost function first; an empty list before the fiber's first run.
local getinfo, MAX_FRAMES = debug.getinfo, 100
local function backtrace_of(id, is_running)
    local coroutine = not is_running and internal.coroutine_of(id)
    local frames = {}
    if not coroutine and not is_running then return frames end
    for level = 0, MAX_FRAMES do
        -- Levels 1 and 2 of the running fiber are this function and `fiber.info`.
        local frame
        if coroutine then frame = getinfo(coroutine, level, 'Sln') else frame = getinfo(level + 3, 'Sln') end
        if not frame then break end
        if frame.what ~= 'C' or frame.name then
            local text = ('%s in %s at line %d'):format(frame.name or '(unnamed)', frame.source, frame.currentline)
            frames[#frames + 1] = { L = text }
        end
    end
    return frames
end

function fiber.info(...)
    local all, own = internal.info(...), internal.id()
    for id, info in pairs(all) do
        if info.backtrace then info.backtrace = backtrace_of(id, id == own) end
    end
    return setmetatable(all, { __serialize = 'mapping' })
end
function fiber.id(...)
    local id = running.fiber
    if id ~= 0 and select('#', ...) == 0 then return id end
    return internal.id(...)
end

-- A list of waiting fibers, served in order of arrival. An entry whose fiber has gone on is skipped.
local function new_list() return { first = 1, last = 0 } end

-- All fields are there from the begin, so that the table never grows.
local function enter(list, value)
    local fiber, wait = ticket()
    local place = list.last + 1
    local entry = { fiber = fiber, wait = wait, place = place, done = false, closed = false, value = value }
    list.last = place
    list[place] = entry
    return entry
end

local function leave(list, entry)
    if list[entry.place] ~= entry then return end
    list[entry.place] = false
    while list.first <= list.last and not list[list.first] do
        list[list.first] = nil
        list.first = list.first + 1
    end
    while list.last >= list.first and not list[list.last] do
        list[list.last] = nil
        list.last = list.last - 1
    end
    -- Places that are used again stay in the table's array.
    if list.first > list.last then list.first, list.last = 1, 0 end
end

local function front(list)
    return list[list.first]
end

-- A fiber that was woken by hand waits again, at the place that it had: before all others.
local function enter_again(list, entry)
    local place = list.first - 1
    entry.fiber, entry.wait = ticket()
    entry.place, list.first = place, place
    list[place] = entry
end

-- Whether the entry's fiber was still waiting: one that is cancelled, or woken by hand, no longer is.
local function finish(list, entry)
    leave(list, entry)
    entry.done = wake(entry.fiber, entry.wait)
    return entry.done
end

-- The first entry whose fiber waits, finished; nil if there is none.
local function finish_first(list)
    local entry = front(list)
    while entry do
        if finish(list, entry) then return entry end
        entry = front(list)
    end
end

-- Whether a fiber waits in the list.
local function has_waiting(list)
    local entry = front(list)
    while entry do
        if internal.waits(entry.fiber, entry.wait) then return true end
        leave(list, entry)
        entry = front(list)
    end
    return false
end

-- Waits in the list of a channel until another fiber finishes the entry. Returns the entry, and what is left of the time;
-- after a wake-up by hand, or by `cancel`, the channel is to be looked at again before the next wait.
local function wait_in(list, entry, value, left)
    if not entry then
        entry = enter(list, value)
    else
        if entry.is_cancelled then testcancel() end
        enter_again(list, entry)
    end
    local deadline = left and internal.time() + left
    local woken = park(left)
    if entry.done then return entry, left end
    leave(list, entry)
    if woken == nil then entry.is_cancelled = true end
    if woken == false then return entry, 0 end
    return entry, deadline and math.max(0, deadline - internal.time())
end

-- Condition variables.

local cond_methods = {}
local cond_mt = {
    __index = cond_methods,
    __tostring = function() return 'cond' end,
    __serialize = function() return 'cond' end,
}

local function check_cond(cond, usage)
    if type(cond) == 'table' and getmetatable(cond) == cond_mt then return end
    if usage and cond == nil then error('usage: cond:' .. usage, 3) end
    error(("bad argument #1 to '?' (fiber.cond expected, got %s)"):format(type(cond)), 3)
end

function fiber.cond()
    return setmetatable({ waiters = new_list() }, cond_mt)
end

function cond_methods:wait(timeout)
    check_cond(self, 'wait([timeout])')
    if timeout ~= nil then
        -- As Lua does with numbers, a text of one is taken.
        timeout = tonumber(timeout)
        if not timeout or timeout < 0 then error('usage: cond:wait([timeout])', 2) end
    end
    local entry = enter(self.waiters)
    -- A wake-up by hand ends the wait too, as in Tarantool.
    local woken = park(timeout)
    if not entry.done then leave(self.waiters, entry) end
    if woken == nil and not entry.done then testcancel() end
    return woken ~= false or entry.done == true
end

function cond_methods:signal()
    check_cond(self)
    finish_first(self.waiters)
end

function cond_methods:broadcast()
    check_cond(self)
    while finish_first(self.waiters) do end
end

-- Channels.

local channel_methods = {}
local channel_mt = {
    __index = channel_methods,
    __tostring = function(self) return self.closed and 'channel: closed' or ('channel: %d'):format(self.length) end,
    __serialize = function(self) return self.closed and 'channel: closed' or ('channel: %d'):format(self.length) end,
}

local function check_channel(channel, usage)
    if type(channel) == 'table' and getmetatable(channel) == channel_mt then return end
    if usage then error('usage: channel:' .. usage, 3) end
    error(("bad argument #1 to '?' (fiber.channel expected, got %s)"):format(type(channel)), 3)
end

function fiber.channel(capacity)
    if capacity == nil then capacity = 0 end
    capacity = tonumber(capacity)
    if not capacity then error('fiber.channel(size): bad arguments', 2) end
    if capacity < 0 then error('fiber.channel(size): negative size', 2) end
    capacity = math.floor(capacity)
    return setmetatable({
        capacity = capacity,
        length = 0,
        head = 1,
        items = {},
        readers = new_list(),
        writers = new_list(),
        closed = false,
    }, channel_mt)
end

local function check_timeout(timeout, usage)
    if timeout == nil then return nil end
    if type(timeout) ~= 'number' or timeout ~= timeout or timeout < 0 then error('usage: channel:' .. usage, 3) end
    return timeout
end

function channel_methods:put(...)
    check_channel(self, 'put(var [, timeout])')
    if select('#', ...) == 0 then error('usage: channel:put(var [, timeout])', 2) end
    local value, timeout = ...
    timeout = check_timeout(timeout, 'put(var [, timeout])')
    local entry
    while true do
        if self.closed then return false end
        local reader = finish_first(self.readers)
        if reader then
            reader.value = value
            return true
        end
        if self.length < self.capacity then
            self.items[self.head + self.length] = value
            self.length = self.length + 1
            return true
        end
        if timeout == 0 then return false end
        entry, timeout = wait_in(self.writers, entry, value, timeout)
        if entry.done then return not entry.closed end
    end
end

function channel_methods:get(timeout)
    check_channel(self, 'get([timeout])')
    timeout = check_timeout(timeout, 'get([timeout])')
    local entry
    while true do
        if self.length > 0 then
            local value = self.items[self.head]
            self.items[self.head] = nil
            self.length = self.length - 1
            self.head = self.length > 0 and self.head + 1 or 1
            local writer = finish_first(self.writers)
            if writer then
                self.items[self.head + self.length] = writer.value
                self.length = self.length + 1
            end
            return value
        end
        local writer = finish_first(self.writers)
        if writer then return writer.value end
        if self.closed or timeout == 0 then return nil end
        entry, timeout = wait_in(self.readers, entry, nil, timeout)
        if entry.done then return entry.value end
    end
end

function channel_methods:has_readers()
    check_channel(self)
    return has_waiting(self.readers)
end

function channel_methods:has_writers()
    check_channel(self)
    return has_waiting(self.writers)
end

function channel_methods:size()
    check_channel(self)
    return self.capacity
end

function channel_methods:count()
    check_channel(self)
    return self.length
end

function channel_methods:is_empty()
    check_channel(self)
    return self.length == 0
end

function channel_methods:is_full()
    check_channel(self)
    return self.length >= self.capacity
end

function channel_methods:is_closed()
    check_channel(self)
    return self.closed
end


function channel_methods:close()
    check_channel(self)
    self.closed = true
    self.items, self.length = {}, 0
    for _, list in ipairs({ self.readers, self.writers }) do
        local entry = front(list)
        while entry do
            entry.closed, entry.value = true, nil
            finish(list, entry)
            entry = front(list)
        end
    end
end

-- Who runs how long.

local top_since

function fiber.top_enable()
    top_since = { clock = internal.clock(), busy = {} }
    for id, info in pairs(internal.info()) do top_since.busy[id] = info.time end
end

function fiber.top_disable() top_since = nil end

function fiber.top()
    if not top_since then
        error('fiber.top() is disabled. Enable it with fiber.top_enable() first', 2)
    end
    local total, cpu = 0, {}
    for id, info in pairs(internal.info()) do
        local busy = info.time - (top_since.busy[id] or 0)
        total = total + busy
        cpu[('%d/%s'):format(id, info.name)] = { time = busy }
    end
    -- The time of the loop between fibers, including its waits for sockets.
    local loop = math.max(internal.clock() - top_since.clock - total, 0)
    cpu['1/sched'], total = { time = loop }, total + loop
    for _, entry in pairs(cpu) do
        local share = total > 0 and entry.time / total * 100 or 0
        entry.instant, entry.average = share, share
    end
    return { cpu = cpu, cpu_misses = 0 }
end

-- Tarantool's own modules call `schedule_task`. Each task runs in a new fiber, with the rights of the code that schedules it.
fiber._internal = { schedule_task = function(body, argument) internal.new(body, argument) end }

return setmetatable(fiber, {
    __index = function(_, name)
        if name == 'storage' then return internal.self().storage end
    end,
    __serialize = function(own)
        local shown = {}
        for name, value in next, own do
            if name ~= '_internal' then shown[name] = value end
        end
        return shown
    end,
})
