-- console: reads Lua from standard input and prints what it returns as YAML.
local internal = require('lycosa.box')
local fiber = require('fiber')

local console = {}

local function show(...)
    local count = select('#', ...)
    if count == 0 then return '---\n...\n' end
    local yaml = require('yaml')
    local text = '---\n'
    for i = 1, count do
        local value = select(i, ...)
        if value == nil then value = box.NULL end
        local done, shown = pcall(yaml.encode, { value })
        if not done then
            text = text .. '- ' .. tostring(value) .. '\n'
        else
            text = text .. shown:gsub('^%-%-%-\n', ''):gsub('%.%.%.\n$', '')
        end
    end
    return text .. '...\n'
end

local function finish(done, ...)
    if done then return show(...) end
    local message = ...
    return show({ error = tostring(message) })
end

local function compile(text)
    local chunk, message = loadstring('return ' .. text, '=console')
    if chunk then return chunk end
    return loadstring(text, '=console')
end

-- Evaluates a text and returns what a console prints.
function console.eval(text)
    local chunk, message = compile(text)
    if not chunk then return show({ error = message }) end
    return finish(pcall(chunk))
end

local function is_incomplete(message) return message and message:match("near '<eof>'$") ~= nil end

function console.start()
    local storage = fiber.self().storage
    if storage.console then error('console is already started', 2) end
    storage.console = console
    local delimiter = ''
    while true do
        local text
        while true do
            io.write(text and '         > ' or 'lycosa> ')
            io.flush()
            local line = internal.read_line()
            if line == nil then
                io.write('\n')
                storage.console = nil
                return
            end
            text = text and text .. '\n' .. line or line
            local chunk, message = compile(text)
            if chunk or not is_incomplete(message) then break end
        end
        if text:match('^%s*\\q') or text:match('^%s*\\quit') then
            storage.console = nil
            return
        end
        if text:match('%S') then
            io.write(console.eval(text), delimiter)
            io.flush()
        end
    end
end

function console.ac() end
function console.on_start() end

return console
