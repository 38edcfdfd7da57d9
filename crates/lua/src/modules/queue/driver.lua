-- queue.driver: the types of tubes as Lua classes, for programs that build drivers of their own on them.
--
-- Native tubes do not run this code. A class makes a space (`create_space`) and drivers over one (`new`), as the module
-- of Tarantool does; a driver reports each change of a task to `on_task_change(task, operation)`.
local fiber = require('fiber')
local sampled = require('lycosa.log').sampled

local MAX_TIMEOUT = 100 * 365 * 86400
local READY, TAKEN, DONE, BURIED, DELAYED = 'r', 't', '-', '!', '~'

local function micros(seconds) return 0ULL + (seconds > 0 and seconds * 1000000 or 0) end
local function now() return 0ULL + fiber.time64() end
local function moment(seconds)
    if seconds > MAX_TIMEOUT then return 18446744073709551615ULL end
    return now() + micros(seconds)
end

-- The fields and indexes of a type.
local function layout_of(kind)
    local timed, divided = kind:find('ttl') ~= nil, kind:find('utube') ~= nil
    local layout = { timed = timed, divided = divided, fields = {} }
    local function add(name, type)
        layout.fields[#layout.fields + 1] = { name = name, type = type }
        layout[name] = #layout.fields
    end
    add('task_id', 'unsigned')
    add('status', 'string')
    if timed then
        for _, name in ipairs({ 'next_event', 'ttl', 'ttr', 'pri', 'created' }) do add(name, 'unsigned') end
    end
    if divided then add('utube', 'string') end
    add('data', '*')
    local status, pri, utube = 'status', layout.pri, layout.utube
    layout.indexes = {
        { 'task_id', { 1, 'unsigned' } },
        { 'status', timed and { 2, 'string', pri, 'unsigned', 1, 'unsigned' } or { 2, 'string', 1, 'unsigned' } },
    }
    local indexes = layout.indexes
    if timed then indexes[#indexes + 1] = { 'watch', { 2, 'string', layout.next_event, 'unsigned' }, false } end
    if divided then indexes[#indexes + 1] = { 'utube', { 2, 'string', utube, 'string', 1, 'unsigned' } } end
    if timed and divided then
        indexes[#indexes + 1] = { 'utube_pri', { 2, 'string', utube, 'string', pri, 'unsigned', 1, 'unsigned' } }
    end
    return layout
end

local function validate(space, layout)
    for _, index in ipairs(layout.indexes) do
        if space.index[index[1]] == nil then
            error(('space "%s" does not have "%s" index'):format(space.name, index[1]), 0)
        end
    end
end

-- Drivers without deadlines.

local plain = {}

function plain:normalize_task(task)
    return task and task:transform(3, self.layout.data - 3)
end

function plain:next_id()
    local last = self.space.index.task_id:max()
    local id = last and last[1] + 1 or 0
    if self.last_id and id <= self.last_id then id = self.last_id + 1 end
    self.last_id = id
    return id
end

function plain:put(data, options)
    local task = { self:next_id(), READY }
    if self.layout.divided then task[3] = tostring(options.utube) end
    task[self.layout.data] = data == nil and box.NULL or data
    task = self.space:insert(task)
    self:changed(task, 'put')
    return task
end

function plain:set_status(id, status, operation, more)
    local task = self.space:update(id, { { '=', 2, status }, more })
    self:changed(task, operation)
    return task
end

-- Whether no other task of the same sub-queue is taken.
function plain:is_free(task)
    local utube = self.layout.utube
    return not utube or self.space.index.utube:count({ TAKEN, task[utube] }) == 0
end

function plain:take()
    for _, task in self.space.index.status:pairs({ READY }) do
        if self:is_free(task) then return self:set_status(task[1], TAKEN, 'take') end
    end
end

-- The sub-queue of a task may have another ready one now.
function plain:tell_neighbour(task)
    local utube = self.layout.utube
    if not utube or task == nil then return end
    local neighbour = self.space.index.utube:min({ READY, task[utube] })
    if neighbour then self:changed(neighbour) end
end

function plain:delete(id)
    local task = self.space:delete(id)
    if task ~= nil then task = task:transform(2, 1, DONE) end
    self:changed(task, 'delete')
    self:tell_neighbour(task)
    return task
end

function plain:release(id) return self:set_status(id, READY, 'release') end

function plain:bury(id)
    local task = self:set_status(id, BURIED, 'bury')
    self:tell_neighbour(task)
    return task
end

function plain:kick(count)
    for i = 1, count do
        local task = self.space.index.status:min({ BURIED })
        if task == nil then return i - 1 end
        self:set_status(task[1], READY, 'kick')
    end
    return count
end

function plain:peek(id) return self.space:get(id) end
function plain:touch() error(self.kind .. ' queue does not support touch', 0) end
function plain:tasks_by_state(status) return self.space.index.status:pairs(status) end
function plain:len() return self.space:len() end

function plain:truncate()
    self.space:truncate()
    self.last_id = nil
end

function plain:drop() self.space:drop() end
function plain:start() end
function plain:stop() end

-- Drivers with deadlines: a fiber looks after them.

local timed = setmetatable({}, { __index = plain })

function timed:put(data, options)
    local layout, defaults = self.layout, self.opts
    local ttl = options.ttl or defaults.ttl or MAX_TIMEOUT
    local ttr = options.ttr or defaults.ttr or ttl
    local status, event = READY, moment(ttl)
    if options.delay ~= nil and options.delay > 0 then
        status, ttl, event = DELAYED, ttl + options.delay, moment(options.delay)
    end
    local task = {
        self:next_id(), status, event, micros(ttl), micros(ttr), options.pri or defaults.pri or 0, now(),
    }
    if layout.divided then task[layout.utube] = tostring(options.utube) end
    task[layout.data] = data == nil and box.NULL or data
    task = self.space:insert(task)
    self:changed(task, 'put')
    return task
end

local function death(task, layout) return task[layout.created] + task[layout.ttl] end

function timed:take()
    local layout, present = self.layout, now()
    for _, task in self.space.index.status:pairs({ READY }) do
        local dead = death(task, layout)
        if dead > present and self:is_free(task) then
            local event = present + task[layout.ttr]
            if event > dead or event < present then event = dead end
            return self:set_status(task[1], TAKEN, 'take', { '=', layout.next_event, event })
        end
    end
end

function timed:back(id, status, operation)
    local task = self.space:get(id)
    if task == nil then return end
    return self:set_status(id, status, operation, { '=', self.layout.next_event, death(task, self.layout) })
end

function timed:release(id, options)
    local delay = options and options.delay
    if delay == nil or delay <= 0 then return self:back(id, READY, 'release') end
    local layout = self.layout
    local task = self.space:update(id, {
        { '=', 2, DELAYED }, { '=', layout.next_event, moment(delay) }, { '+', layout.ttl, micros(delay) },
    })
    self:changed(task, 'release')
    self:tell_neighbour(task)
    return task
end

function timed:bury(id)
    local task = self:back(id, BURIED, 'bury')
    self:tell_neighbour(task)
    return task
end

-- `delta` is in microseconds.
function timed:touch(id, delta)
    local layout, task = self.layout, self.space:get(id)
    if task == nil then return end
    local operations = {}
    for i, name in ipairs({ 'next_event', 'ttl', 'ttr' }) do
        local former = 0ULL + task[layout[name]]
        local later = former + delta
        if later < former then later = 18446744073709551615ULL end
        operations[i] = { '=', layout[name], later }
    end
    task = self.space:update(id, operations)
    self:changed(task, 'touch')
    return task
end

-- Does what is due; returns the seconds until something else is.
function timed:look_after()
    local layout, watch, present = self.layout, self.space.index.watch, now()
    local rest = MAX_TIMEOUT
    for _, rule in ipairs({ { DELAYED, 'delay' }, { READY }, { BURIED }, { TAKEN, 'ttr' } }) do
        local status, operation = rule[1], rule[2]
        for _ = 1, 1000 do
            local task = watch:min({ status })
            if task == nil then break end
            local event = task[layout.next_event]
            if event > present then
                rest = math.min(rest, tonumber(event - present) / 1000000)
                break
            end
            if operation then
                self:back(task[1], READY, operation)
            else
                task = self:delete(task[1])
                if task ~= nil then self:changed(task, 'ttl') end
            end
            rest = 0
        end
    end
    return rest
end

local function watch(self)
    fiber.name(self.kind == 'limfifottl' and 'fifottl' or self.kind)
    local own = self.fiber
    while self.fiber == own or own == nil do
        own = own or self.fiber
        local rest = 0.1
        if not box.info.ro then
            local done, result = pcall(self.look_after, self)
            if done then
                rest = result
            elseif self.fiber == own then
                sampled('driver', ('a deadline of tube "%s" was not looked after: %s'):format(self.space.name, tostring(result)))
                rest = 1
            end
        end
        if self.fiber ~= own and own ~= nil then break end
        self.cond:wait(math.min(rest, 3600))
    end
end

function timed:start()
    if self.fiber then return end
    self.cond = fiber.cond()
    local fresh = fiber.new(watch, self)
    self.fiber = fresh
end

function timed:stop()
    local former = self.fiber
    if not former then return end
    self.fiber = nil
    self.cond:broadcast()
    if former:status() ~= 'dead' and former:id() ~= fiber.id() then
        pcall(former.cancel, former)
        while former:status() ~= 'dead' do fiber.sleep(0) end
    end
end

function timed:drop()
    self:stop()
    self.space:drop()
end

-- A tube with a capacity: a put waits for free places.

local limited = setmetatable({}, { __index = timed })

function limited:put(data, options)
    local capacity = self.opts.capacity or 0
    local until_when = fiber.clock() + (options.timeout or 0)
    while capacity ~= 0 and self.space:len() >= capacity do
        if fiber.clock() >= until_when then return nil end
        fiber.sleep(0.01)
    end
    return timed.put(self, data, options)
end

-- Classes.

local function class(kind)
    local layout = layout_of(kind)
    local methods = kind == 'limfifottl' and limited or layout.timed and timed or plain
    local control = {}

    function control.create_space(name, options)
        options = options or {}
        if kind == 'limfifottl' and options.engine == 'vinyl' then
            error('limfifottl queue does not support vinyl engine', 0)
        end
        if layout.timed then
            options.ttl = options.ttl or MAX_TIMEOUT
            options.ttr = options.ttr or options.ttl
            options.pri = options.pri or 0
        end
        if kind == 'limfifottl' then options.capacity = options.capacity or 0 end
        local known = box.space[name]
        if known and options.if_not_exists then
            validate(known, layout)
            return known
        end
        local space = box.schema.create_space(name, {
            temporary = options.temporary or false, engine = options.engine or 'memtx', format = layout.fields,
        })
        for _, index in ipairs(layout.indexes) do
            space:create_index(index[1], { type = 'tree', parts = index[2], unique = index[3] ~= false })
        end
        return space
    end

    function control.new(space, on_task_change, options)
        validate(space, layout)
        local driver
        driver = setmetatable({
            kind = kind, layout = layout, space = space, opts = options or {},
            on_task_change = on_task_change or function() end,
        }, { __index = methods })
        function driver:changed(task, operation)
            if self.cond and task ~= nil then self.cond:broadcast() end
            self.on_task_change(task, operation)
        end
        driver:start()
        return driver
    end

    if layout.divided then
        control.STORAGE_MODE_DEFAULT, control.STORAGE_MODE_READY_BUFFER = 'default', 'ready_buffer'
    end
    return control
end

local classes = {}
for _, kind in ipairs({ 'fifo', 'fifottl', 'limfifottl', 'utube', 'utubettl' }) do classes[kind] = class(kind) end
return classes
