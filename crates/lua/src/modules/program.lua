-- What the server calls: functions by their names, expressions, triggers of sessions, scripts.
local internal = require('lycosa.box')

local program = {}

-- Who reads the output of a program through a pipe sees each line when it is printed.
io.stdout:setvbuf('line')

-- Functions of `_func` with a body, compiled, by name.
local compiled = {}

-- What names consist of: their parts before a colon, and the method behind it.
local MOST_NAMES = 1000
local paths, path_count = {}, 0

local function path_of(name)
    local known = paths[name]
    if known then return known end
    local object, method = name:match('^(.-):([^:]+)$')
    object = object or name
    known = { method = method, is_queue = object:match('^queue%f[.%z]') ~= nil }
    for part in (object .. '.'):gmatch('([^.]*)%.') do known[#known + 1] = part end
    if path_count >= MOST_NAMES then paths, path_count = {}, 0 end
    paths[name], path_count = known, path_count + 1
    return known
end

-- The function that a dotted name or a name with a colon stands for, and the object before the colon.
local function find(name)
    local has_rows = rawget(_G, 'box') and internal.configured()
    local row = has_rows and internal.is_stored(name) and internal.system_row(296, 2, name)
    if row and row[6] ~= nil and row[6] ~= '' then
        local known = compiled[name]
        if known and known.text == row[6] then return known.body end
        known = { text = row[6], body = internal.compile(name, row[6], row[13]) }
        compiled[name] = known
        return known.body
    end
    if row and row[5] == 'C' then internal.refuse_module(name) end
    local object, value = nil, _G
    local path = path_of(name)
    -- A call of a client never loads the native queue: the program may be about to load one of its own.
    if path.is_queue and rawget(_G, 'queue') == nil and not internal.has_own_queue and package.loaded['lycosa.queue'] then
        value = { queue = package.loaded['lycosa.queue'] }
    end
    for i = 1, #path do
        if type(value) ~= 'table' and type(value) ~= 'cdata' and type(value) ~= 'userdata' then
            value = nil
            break
        end
        if value == _G then value = rawget(_G, path[i]) else value = value[path[i]] end
    end
    if path.method and value ~= nil then
        object, value = value, value[path.method]
    end
    -- A table that cannot be called says so when it is.
    local callable = name ~= '' and (type(value) == 'function' or type(value) == 'table')
    if not callable and internal.is_native(name) then
        -- `net.box.self` calls what a connection could call, too.
        return function(...) return internal.native(name, ...) end
    end
    if not callable then
        internal.client_error('NO_SUCH_PROC', ("Procedure '%s' is not defined"):format(name))
    end
    return value, object
end

function program.call(name, ...)
    name = tostring(name)
    local body, object = find(name)
    if type(body) == 'table' and (getmetatable(body) or {}).__call == nil then
        error('attempt to call a table value', 0)
    end
    if object ~= nil then return body(object, ...) end
    return body(...)
end

function program.eval(text, ...)
    local chunk, message = loadstring(text, '=eval')
    if not chunk then error(message, 0) end
    return chunk(...)
end

-- A client's statement on a space with triggers.
function program.statement(kind, ...)
    internal.forget_request(kind)
    return internal.change(kind, ...)
end

-- A client's SELECT of its session's settings.
function program.settings(_, iterator, offset, limit, key)
    return internal.select_settings(iterator, key, offset, limit)
end

-- A client's EXECUTE or PREPARE: the body of its reply by the keys of the protocol.
local METADATA, BIND_METADATA, BIND_COUNT, SQL_INFO, STATEMENT_ID = 0x32, 0x33, 0x34, 0x42, 0x43

local function columns(list)
    local shown = setmetatable({}, { __serialize = 'seq' })
    for place, column in ipairs(list) do
        shown[place] = setmetatable({ [0] = column.name, [1] = column.type }, { __serialize = 'map' })
    end
    return shown
end

function program.sql(kind, statement, parameters)
    local result = internal.sql_request(kind, statement, parameters)
    -- The body of a SELECT's reply is made in Rust.
    if type(result) == 'userdata' then return result end
    local body = setmetatable({}, { __serialize = 'map' })
    if result.row_count then
        body[SQL_INFO] = setmetatable({ [0] = result.row_count, [1] = result.autoincrement_ids }, { __serialize = 'map' })
    elseif result.stmt_id then
        body[STATEMENT_ID], body[BIND_COUNT] = result.stmt_id, result.param_count
        body[BIND_METADATA] = columns(result.params)
        if result.metadata then body[METADATA] = columns(result.metadata) end
    end
    return body
end

function program.connected() internal.connected() end
function program.logged_in(name, is_right) internal.logged_in(name, is_right) end
function program.disconnected() internal.disconnected() end

-- `require 'queue'`: the native queue, unless the program has a queue of its own: a file of that name on the path. The
-- module of Tarantool itself is no such file, because the native queue stands in for it; with `--no-native-queue` it is. A
-- fork of the module with drivers that the module does not have is the program's own.
-- With a queue of its own, clients that call `queue.*` mean the program's.
local helpers

local STOCK_DRIVERS = { fifo = true, fifottl = true, limfifottl = true, utube = true, utubettl = true }

-- A driver of a fork beside its `queue.abstract`.
local function foreign_driver(abstract)
    local fio = require('fio')
    local folder = fio.dirname(abstract)
    for _, place in ipairs({ '/abstract/driver', '/driver' }) do
        for _, file in ipairs(fio.listdir(folder .. place) or {}) do
            local driver = file:match('^(.+)%.lua$')
            if driver and not STOCK_DRIVERS[driver] then return driver end
        end
    end
end

local function own_queue()
    local file = package.search('queue')
    if not file then return nil end
    if program.no_native_queue then return file end
    local abstract = package.search('queue.abstract')
    if not abstract then return file end
    local driver = foreign_driver(abstract)
    if driver then
        require('log').info('queue: %s is a fork of the module, with the driver %s: it runs as it is, without the native queue',
            file, driver)
        return file
    end
    require('log').info('queue: the native queue stands in for %s; `lycosa --no-native-queue` runs the module itself', file)
end

local function load_queue(name)
    if name ~= 'queue' and name:sub(1, 6) ~= 'queue.' then return end
    if name == 'queue' and own_queue() then
        internal.has_own_queue = true
        if internal.configured() then internal.set_native_queue(false) end
        return
    end
    if program.no_native_queue or internal.has_own_queue then return end
    if name == 'queue' then return function() return require('lycosa.queue') end end
    helpers = helpers or require('lycosa.queue.helpers')
    return helpers[name]
end

-- The loaders of folders keep the places in the list that they have in Tarantool: the queue comes with what is preloaded.
local load_preloaded = package.loaders[1]
package.loaders[1] = function(name)
    local loader = load_preloaded(name)
    if type(loader) == 'function' then return loader end
    return load_queue(name) or loader
end

-- `expirationd` is the native one, unless a file of that name is on the path.
table.insert(package.loaders, function(name)
    if name == 'expirationd' then return function() return require('lycosa.expirationd') end end
end)

-- Without a script there are only texts and modules, which see the arguments too.
function program.set_arguments(script, ...)
    local executable = require('fio').readlink('/proc/self/exe')
    _G.arg = { [-1] = executable, [0] = script or 'lycosa', ... }
end

-- `-l NAME`: the module becomes a global variable of its name.
function program.require(name)
    local done, module = pcall(require, name)
    if not done then error(module, 0) end
    rawset(_G, name, module)
end

-- Runs a script with its arguments; `-` is standard input, which a reload cannot read again. A first line that begins with
-- `#` is left out by loadfile.
function program.run(script, ...)
    program.script = script ~= '-' and script or nil
    local folder = script:match('^(.*)/[^/]*$')
    local places = folder and { folder, '.' } or { '.' }
    for i = #places, 1, -1 do
        package.path = places[i] .. '/?.lua;' .. places[i] .. '/?/init.lua;' .. package.path
    end
    require('fiber').name((script:match('([^/]+)$')):sub(1, 255))
    local chunk, message = loadfile(program.script)
    if not chunk then error(message, 0) end
    return chunk(...)
end

os.exit = function(code)
    if code == nil or code == true then code = 0 elseif code == false then code = 1 end
    io.flush()
    internal.run_list(internal.on_shutdown)
    internal.exit(code)
end

return program
