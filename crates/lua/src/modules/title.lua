-- title: what the list of processes shows.
local ffi = require('ffi')

local FIELDS = { 'interpretor_name', 'script_name', 'status', 'custom_title' }

local current = { interpretor_name = 'lycosa', script_name = rawget(_G, 'arg') and arg[0] or nil }

local function format()
    local words = {}
    for i = 1, 2 do words[#words + 1] = current[FIELDS[i]] end
    if current.status ~= nil then words[#words + 1] = '<' .. current.status .. '>' end
    local text = table.concat(words, ' ')
    if current.custom_title ~= nil then
        text = text .. (text == '' and '' or ': ') .. current.custom_title
    end
    return text
end

-- Where the system keeps the command line; nil if it does not say.
local function command_line()
    local file = io.open('/proc/self/stat')
    if file == nil then return nil end
    local fields = file:read('*a'):gsub('^.*%) ', ''):split(' ')
    file:close()
    -- Fields 48 and 49; the first two are gone.
    local first, last = tonumber64(fields[46]), tonumber64(fields[47])
    if first == nil or last == nil or first == 0 or last <= first then return nil end
    return ffi.cast('char *', ffi.cast('uintptr_t', first)), tonumber(last - first)
end

local function show(text)
    local place, size = command_line()
    if place == nil then return end
    -- The last byte stays zero: it ends the last argument.
    ffi.fill(place, size)
    ffi.copy(place, text, math.min(#text, size - 1))
end

local title = {}

--- The title, and its parts by their names.
function title.get()
    local parts = {}
    for _, name in ipairs(FIELDS) do parts[name] = current[name] end
    return format(), parts
end

--- Changes parts of the title, or the custom part if it is given a text. A title longer than the command line was is cut.
function title.update(parts)
    if type(parts) == 'string' then parts = { custom_title = parts } end
    if type(parts) ~= 'table' then return end
    for _, name in ipairs(FIELDS) do
        if parts[name] ~= nil then current[name] = tostring(parts[name]) end
    end
    show(format())
end

return title
