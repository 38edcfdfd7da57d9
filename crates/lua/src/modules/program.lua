-- What the server calls: functions by their names, expressions, triggers of sessions, scripts.
local internal = require('lycosa.box')

local program = {}

-- The function that a dotted name or a name with a colon stands for, and the object before the colon.
local function find(name)
    local body = rawget(_G, 'box') and internal.configured() and internal.select(296, 2, 0, { name }, 0, 1)[1]
    if body and body[7] ~= nil and body[7] ~= '' then
        local chunk, message = loadstring('return ' .. body[7], '=' .. name)
        if not chunk then error(message, 0) end
        return chunk()
    end
    local object, value = nil, _G
    local path, method = name:match('^(.-):([^:]+)$')
    for part in (path or name):gmatch('[^.]+') do
        if type(value) ~= 'table' and type(value) ~= 'cdata' and type(value) ~= 'userdata' then
            value = nil
            break
        end
        if value == _G then value = rawget(_G, part) else value = value[part] end
    end
    if method and value ~= nil then
        object, value = value, value[method]
    end
    local callable = type(value) == 'function' or (getmetatable(value) or {}).__call ~= nil
    if not callable then
        internal.client_error('NO_SUCH_PROC', ("Procedure '%s' is not defined"):format(name))
    end
    return value, object
end

function program.call(name, ...)
    local body, object = find(name)
    if object ~= nil then return body(object, ...) end
    return body(...)
end

function program.eval(text, ...)
    local chunk, message = loadstring(text, '=eval')
    if not chunk then error(message, 0) end
    return chunk(...)
end

function program.connected() internal.connected() end
function program.disconnected() internal.disconnected() end

-- A file `queue.lua` on the path comes first; without one, `queue` is the native queue.
-- With such a file, clients that call `queue.*` mean the program's queue.
table.insert(package.loaders, 2, function(name)
    if name == 'queue' and package.searchpath(name, package.path) then
        internal.has_own_queue = true
        if internal.configured() then internal.set_native_queue(false) end
    end
end)
table.insert(package.loaders, function(name)
    if name == 'queue' then return function() return require('lycosa.queue') end end
end)

-- Runs a script with its arguments. A first line that begins with `#` is left out by loadfile.
function program.run(script, ...)
    program.script = script
    _G.arg = { [0] = script, ... }
    local folder = script:match('^(.*)/[^/]*$')
    local places = folder and { folder, '.' } or { '.' }
    for i = #places, 1, -1 do
        package.path = places[i] .. '/?.lua;' .. places[i] .. '/?/init.lua;' .. package.path
    end
    require('fiber').name((script:match('([^/]+)$')):sub(1, 255))
    local chunk, message = loadfile(script)
    if not chunk then error(message, 0) end
    return chunk(...)
end

os.exit = function(code)
    if code == nil or code == true then code = 0 elseif code == false then code = 1 end
    io.flush()
    for i = #internal.on_shutdown, 1, -1 do pcall(internal.on_shutdown[i]) end
    internal.exit(code)
end

return program
