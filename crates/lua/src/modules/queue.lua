-- queue: the native queue, as the module `queue` of Tarantool shows one.
local internal = require('lycosa.box')
local native = internal.native
local fiber = require('fiber')
local log = require('log')

local queue = { _VERSION = '1.5.0' }

-- Callbacks of tubes, by name.
local callbacks = {}
local tubes = {}

local tube_methods = {}
local tube_mt

local METHODS = {
    'put', 'take', 'touch', 'ack', 'release', 'peek', 'bury', 'kick', 'delete', 'truncate', 'release_all', 'put_many',
    'take_many', 'ack_many', 'release_many', 'grant', 'grant_role',
}

-- A task is a tuple; counts and the like are what they are.
local function task_of(value, ...)
    if type(value) == 'table' and type(value[2]) == 'string' and #value >= 3 then return box.tuple.new(value), ... end
    return value, ...
end

local function results(count, ...)
    if count == 0 then return end
    return task_of(...)
end

local function packed(...) return results(select('#', ...), ...) end

for _, name in ipairs(METHODS) do
    tube_methods[name] = function(self, ...)
        return packed(native(('queue.tube.%s:%s'):format(self.name, name), ...))
    end
end

function tube_methods.drop(self)
    local dropped = native(('queue.tube.%s:drop'):format(self.name))
    tubes[self.name], callbacks[self.name] = nil, nil
    return dropped
end

function tube_methods.on_task_change(self, callback)
    local former = callbacks[self.name]
    if callback ~= nil and type(callback) ~= 'function' then error('on_task_change: a function is expected', 2) end
    callbacks[self.name] = callback
    internal.observe(self.name, callback ~= nil)
    return former or function() end
end

local function row_of(name)
    local space = box.space._queue
    return space and space:get(name) or nil
end

local function tube_of(name)
    if type(name) ~= 'string' then return nil end
    local row = row_of(name)
    if row == nil then
        tubes[name] = nil
        return nil
    end
    local tube = tubes[name]
    if not tube or tube.tube_id ~= row[2] then
        tube = setmetatable({ name = name, tube_id = row[2], type = row[4], opts = row[5] }, tube_mt)
        tubes[name] = tube
    end
    return tube
end

tube_mt = {
    __index = function(self, key)
        if key == 'raw' then return { space = box.space[row_of(self.name)[3]] } end
        return tube_methods[key]
    end,
    __serialize = function(self) return { name = self.name, type = self.type, tube_id = self.tube_id, opts = self.opts } end,
}

queue.tube = setmetatable({}, {
    __index = function(_, name) return tube_of(name) end,
    __call = function(_, name)
        if name == nil then
            local names = {}
            for _, row in box.space._queue:pairs() do names[#names + 1] = row[1] end
            return names
        end
        if type(name) ~= 'string' then error('argument #1 should be string or nil', 2) end
        return tube_of(name) ~= nil
    end,
    __pairs = function()
        local all = {}
        for _, row in box.space._queue:pairs() do all[row[1]] = tube_of(row[1]) end
        return pairs(all)
    end,
})

function queue.create_tube(name, kind, options)
    local callback
    if type(options) == 'table' and options.on_task_change ~= nil then
        callback = options.on_task_change
        local copy = {}
        for key, value in pairs(options) do if key ~= 'on_task_change' then copy[key] = value end end
        options = setmetatable(copy, { __serialize = 'map' })
    elseif type(options) == 'table' and next(options) == nil then
        options = setmetatable({}, { __serialize = 'map' })
    end
    if options == nil then native('queue.create_tube', name, kind) else native('queue.create_tube', name, kind, options) end
    local tube = tube_of(name)
    if callback then tube:on_task_change(callback) end
    return tube
end

for _, name in ipairs({ 'state', 'identify', 'statistics' }) do
    queue[name] = function(...) return native('queue.' .. name, ...) end
end
queue.stats = queue.statistics

-- The queue has started with the instance.
function queue.start() end

local settings = {}
queue.cfg = setmetatable({}, {
    __index = settings,
    __call = function(_, options)
        if options ~= nil then
            native('queue.cfg', options)
            for key, value in pairs(options) do settings[key] = value end
            return
        end
        native('queue.cfg')
    end,
})

local BUILT_IN = { fifo = {}, fifottl = {}, limfifottl = {}, utube = {}, utubettl = {} }
for _, name in ipairs({ 'utube', 'utubettl' }) do
    BUILT_IN[name].STORAGE_MODE_DEFAULT, BUILT_IN[name].STORAGE_MODE_READY_BUFFER = 'default', 'ready_buffer'
end
queue.driver = BUILT_IN

function queue.register_driver(name)
    if BUILT_IN[name] then error(('overriding registered driver "%s"'):format(name), 2) end
    error(('this server runs its own drivers only; "%s" cannot be registered. Start the program with the Lua module queue '
        .. 'beside it to use drivers in Lua'):format(tostring(name)), 2)
end

-- What has happened to tasks of observed tubes, for their callbacks: each in a fiber, so that none holds up another.
function internal.task_changed(tube, operation, tuple)
    local callback = callbacks[tube]
    if not callback then return end
    if operation == '' then operation = nil end
    local done, message = pcall(callback, tuple, operation)
    if not done then log.error('on_task_change of tube "%s": %s', tube, tostring(message)) end
end

return queue
