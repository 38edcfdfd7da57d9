-- extend: the functions that Tarantool adds to the standard libraries `string` and `table`.
local ffi = require('ffi')

local function refuse(level, number, name, expected, got)
    error(("bad argument #%d to '%s' (%s expected, got %s)"):format(number, name, expected, got), level + 1)
end

local function want_string(value, number, name)
    if type(value) ~= 'string' then refuse(3, number, name, 'string', type(value)) end
end

local function is_count(value)
    return type(value) == 'number' and value >= 0 and value == math.floor(value)
end

--- Splits a text at each `separator`, at most `max` times; without one at white space, where empty parts are left out.
function string.split(text, separator, max)
    want_string(text, 1, 'string.split')
    if separator ~= nil then
        want_string(separator, 2, 'string.split')
        if separator == '' then
            refuse(2, 2, 'string.split', 'non-empty string', 'empty string')
        end
    end
    if max ~= nil and not (type(max) == 'number' and max >= 0) then
        refuse(2, 3, 'string.split', 'positive integer', type(max))
    end
    max = max or math.huge
    local parts, from = {}, 1
    if separator == nil then
        from = text:find('%S') or #text + 1
        while from <= #text do
            local first, last = text:find('%s+', from)
            if not first or #parts >= max then
                parts[#parts + 1] = text:sub(from)
                break
            end
            parts[#parts + 1] = text:sub(from, first - 1)
            from = last + 1
        end
        return parts
    end
    while #parts < max do
        local first, last = text:find(separator, from, true)
        if not first then break end
        parts[#parts + 1] = text:sub(from, first - 1)
        from = last + 1
    end
    parts[#parts + 1] = text:sub(from)
    return parts
end

local function filler(text, width, char, name)
    want_string(text, 1, name)
    if type(width) == 'number' and width >= 0 then width = math.floor(width) end
    if not is_count(width) then refuse(3, 2, name, 'positive integer', type(width)) end
    if char ~= nil then
        if type(char) ~= 'string' then refuse(3, 3, name, 'char', type(char)) end
        if #char ~= 1 then refuse(3, 3, name, 'char', 'string') end
    end
    return math.max(width - #text, 0), char or ' '
end

--- Fills a text up to `width` bytes at its right.
function string.ljust(text, width, char)
    local missing, with = filler(text, width, char, 'string.ljust')
    return text .. with:rep(missing)
end

--- Fills a text up to `width` bytes at its left.
function string.rjust(text, width, char)
    local missing, with = filler(text, width, char, 'string.rjust')
    return with:rep(missing) .. text
end

--- Fills a text up to `width` bytes at both sides.
function string.center(text, width, char)
    local missing, with = filler(text, width, char, 'string.center')
    local left = math.floor(missing / 2)
    return with:rep(left) .. text .. with:rep(missing - left)
end

local function bounds(text, from, to, name)
    if from ~= nil and type(from) ~= 'number' then refuse(3, 3, name, 'integer', type(from)) end
    if to ~= nil and type(to) ~= 'number' then refuse(3, 4, name, 'integer', type(to)) end
    from, to = from or 1, to or #text
    if from < 0 then from = math.max(#text + from + 1, 1) end
    if from == 0 then from = 1 end
    if to < 0 then to = #text + to + 1 end
    return from, math.min(to, #text)
end

--- Whether `text`, or the part between two positions, begins with `head`.
function string.startswith(text, head, from, to)
    want_string(text, 1, 'string.startswith')
    want_string(head, 2, 'string.startswith')
    from, to = bounds(text, from, to, 'string.startswith')
    return #head == 0 or to - from + 1 >= #head and text:sub(from, from + #head - 1) == head
end

--- Whether `text`, or the part between two positions, ends with `tail`.
function string.endswith(text, tail, from, to)
    if type(tail) ~= 'string' then error(('attempt to get length of a %s value'):format(type(tail)), 2) end
    want_string(text, 1, 'string.endswith')
    from, to = bounds(text, from, to, 'string.endswith')
    return #tail == 0 or to - from + 1 >= #tail and text:sub(to - #tail + 1, to) == tail
end

--- The bytes of a text as lower-case hexadecimal digits.
function string.hex(text)
    want_string(text, 1, 'string.hex')
    return (text:gsub('.', function(char) return ('%02x'):format(char:byte()) end))
end

--- The text whose bytes the hexadecimal digits are.
function string.fromhex(digits)
    want_string(digits, 1, 'string.fromhex')
    if #digits % 2 ~= 0 then
        refuse(2, 1, 'string.fromhex', 'even amount of chars', 'odd amount')
    end
    if digits:find('%X') then
        refuse(2, 1, 'string.fromhex', 'hex string', 'non hex chars')
    end
    return (digits:gsub('..', function(pair) return string.char(tonumber(pair, 16)) end))
end

local function is_stripped(chars, name)
    if chars == nil then chars = ' \t\n\v\f\r' end
    if type(chars) ~= 'string' then refuse(3, 2, name, 'string', type(chars)) end
    local set = {}
    for at = 1, #chars do set[chars:byte(at)] = true end
    return set
end

local function edges(text, set, left, right)
    local from, to = 1, #text
    while left and from <= to and set[text:byte(from)] do from = from + 1 end
    while right and to >= from and set[text:byte(to)] do to = to - 1 end
    return text:sub(from, to)
end

for name, sides in pairs({ strip = { true, true }, lstrip = { true, false }, rstrip = { false, true } }) do
    local full = 'string.' .. name
    string[name] = function(text, chars)
        want_string(text, 1, full)
        return edges(text, is_stripped(chars, full), sides[1], sides[2])
    end
end

local function copier(value)
    local meta = getmetatable(value)
    return type(meta) == 'table' and meta.__copy or nil
end

--- A new table with the same keys, values and metatable; `__copy` of the metatable decides instead.
function table.copy(original)
    if type(original) ~= 'table' then return original end
    local copy = copier(original)
    if copy then return copy(original) end
    local made = {}
    for key, value in pairs(original) do made[key] = value end
    return setmetatable(made, getmetatable(original))
end

local function deep(original, known)
    if type(original) ~= 'table' then return original end
    local copy = copier(original)
    if copy then return copy(original) end
    if known[original] then return known[original] end
    local made = {}
    known[original] = made
    for key, value in pairs(original) do made[deep(key, known)] = deep(value, known) end
    return setmetatable(made, getmetatable(original))
end

--- The same for tables inside tables, each once.
function table.deepcopy(original)
    return deep(original, {})
end

require('table.new')
require('table.clear')

local C = ffi.C
ffi.cdef([[
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
extern char **environ;
]])

--- Sets a variable of the environment, or removes it.
function os.setenv(name, value)
    if type(name) ~= 'string' or (value ~= nil and type(value) ~= 'string') then
        error('Usage: os.setenv(name[, value])', 2)
    end
    local done = value == nil and C.unsetenv(name) or value ~= nil and C.setenv(name, value, 1)
    if done ~= 0 then
        error(('os.setenv: cannot set %q (errno %d)'):format(name, ffi.errno()), 2)
    end
end

--- All variables of the environment.
function os.environ()
    local all, list, at = {}, C.environ, 0
    if list == nil then return all end
    while list[at] ~= nil do
        local name, value = ffi.string(list[at]):match('^([^=]*)=(.*)$')
        if name then all[name] = value end
        at = at + 1
    end
    return all
end

--- File of the function at `level` of the stack, as it was named when it was loaded.
function debug.sourcefile(level)
    local info = debug.getinfo((level or 0) + 2, 'S')
    local source = info and info.source or '-'
    return source:sub(1, 1) == '@' and source:sub(2) or nil
end

--- Folder of that file.
function debug.sourcedir(level)
    local info = debug.getinfo((level or 0) + 2, 'S')
    local source = info and info.source or '-'
    if source:sub(1, 1) ~= '@' then return '.' end
    return source:sub(2):match('^(.*)/') or '.'
end

setmetatable(debug, {
    __index = function(_, key)
        if key ~= '__file__' and key ~= '__dir__' then return nil end
        local source = debug.getinfo(2, 'S').source
        local file = source:sub(1, 1) == '@' and source:sub(2) or nil
        if key == '__file__' then return file end
        return file and file:match('^(.*)/') or '.'
    end,
})

_G.utf8 = require('utf8')
-- A tuple may hold decimals though nobody asks for the module.
require('decimal')
