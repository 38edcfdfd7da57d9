-- tap: tests that print the Test Anything Protocol.
local ffi = require('ffi')

local tap, methods = {}, {}
local meta = { __index = methods }

local function indented(text, blanks)
    return blanks .. text:gsub('\n', '\n' .. blanks)
end

-- Prints a line at the depth of the test.
local function say(test, format, ...)
    local text = select('#', ...) > 0 and format:format(...) or format
    io.write((' '):rep(4 * test.level), text, '\n')
end

-- Where the test stands in the user's program, outermost file first, and how it was reached.
local function place(extra)
    local here = debug.getinfo(1, 'S').source
    local trace, level = {}, 2
    while true do
        local info = debug.getinfo(level, 'Sln')
        if info == nil then break end
        if info.what ~= 'C' and info.source ~= here then
            trace[#trace + 1] = {
                line = math.max(info.currentline or 0, 0),
                source = info.source,
                filename = info.source:sub(1, 1) == '@' and info.source:sub(2) or 'eval',
                what = info.what,
                namewhat = info.namewhat,
                name = info.name,
                src = info.short_src,
            }
        end
        level = level + 1
    end
    local outermost = trace[#trace]
    if outermost then extra.filename, extra.line = outermost.filename, trace[1].line end
    extra.trace = trace
    return extra
end

-- Explanations may hold any value of Lua: a value without a form in YAML is shown as its text.
local explanations = require('yaml').new()
explanations.cfg({ encode_use_tostring = true, encode_invalid_as_nil = true, encode_load_metatables = true })

local function text_of(value)
    local done, text = pcall(function() return explanations.encode(value) end)
    return done and text or tostring(value)
end

local function say_extra(test, extra)
    if next(extra) == nil then return end
    io.write(indented(text_of(extra):gsub('\n$', ''), (' '):rep(4 * test.level + 2)), '\n')
end

-- A message may be a format with its values.
local function formatted(message, ...)
    message = message == nil and 'nil' or tostring(message)
    return select('#', ...) > 0 and message:format(...) or message
end

local function result(test, holds, message, extra)
    test.total = test.total + 1
    if holds then
        say(test, '%s', 'ok - ' .. message)
        return true
    end
    test.failed = test.failed + 1
    say(test, '%s', 'not ok - ' .. message)
    extra = extra or {}
    say_extra(test, test.trace and place(extra) or extra)
    return false
end

local function with_strictness(test, options)
    if options.strict == nil then return test.strict end
    return options.strict
end

local function equal(one, other, strict)
    if one == nil and other == nil and strict then return type(one) == type(other) end
    return one == other
end

-- A boolean of the FFI as one of Lua.
local function plain(value)
    if ffi.istype('bool', value) then return value == 1 end
    return value
end

-- Where two values differ, as texts of what was got and what was expected; nil if they do not.
local function difference(got, expected, strict, path)
    got, expected = plain(got), plain(expected)
    if type(got) == 'number' and got ~= got and expected ~= expected then return nil end
    if type(got) ~= 'table' or type(expected) ~= 'table' then
        if equal(got, expected, strict) then return nil end
        return path, got == nil and 'nil' or got, expected == nil and 'nil' or expected
    end
    for key, value in pairs(got) do
        local at, one, other = difference(value, expected[key], strict, path .. '/' .. tostring(key))
        if at then return at, one, other end
    end
    for key, value in pairs(expected) do
        if rawequal(got[key], nil) and not (not strict and value == nil) then
            return path .. '/' .. tostring(key), 'nil', 'key ' .. tostring(key)
        end
    end
    return nil
end

--- Says how many tests will follow.
function methods.plan(self, count)
    self.planned = count
    say(self, '1..%d', count)
end

function methods.ok(self, holds, message, extra)
    return result(self, holds, formatted(message), type(extra) == 'table' and table.copy(extra) or nil)
end

function methods.fail(self, message, extra)
    return methods.ok(self, false, message, extra)
end

function methods.skip(self, message)
    methods.ok(self, true, formatted(message) .. ' # skip')
end

function methods.is(self, got, expected, message, extra)
    extra = type(extra) == 'table' and table.copy(extra) or {}
    extra.got, extra.expected = got, expected
    return result(self, equal(got, expected, self.strict), formatted(message), extra)
end

function methods.isnt(self, got, unexpected, message, extra)
    extra = type(extra) == 'table' and table.copy(extra) or {}
    extra.got, extra.unexpected = got, unexpected
    return result(self, not equal(got, unexpected, self.strict), formatted(message), extra)
end

function methods.is_deeply(self, got, expected, message, extra)
    local shown = type(extra) == 'table' and table.copy(extra) or {}
    local strict = with_strictness(self, shown)
    local path, one, other = difference(got, expected, strict, '/')
    shown.path, shown.got, shown.expected, shown.strict = path, one, other, strict
    return result(self, path == nil, formatted(message), shown)
end

function methods.like(self, got, pattern, message, extra)
    extra = type(extra) == 'table' and table.copy(extra) or {}
    extra.got, extra.expected = got, pattern
    return result(self, string.match(tostring(got), pattern) ~= nil, formatted(message), extra)
end

function methods.unlike(self, got, pattern, message, extra)
    extra = type(extra) == 'table' and table.copy(extra) or {}
    extra.got, extra.expected = got, pattern
    return result(self, string.match(tostring(got), pattern) == nil, formatted(message), extra)
end

for name, kind in pairs({
    isnil = 'nil',
    isstring = 'string',
    isnumber = 'number',
    istable = 'table',
    isboolean = 'boolean',
    isfunction = 'function',
}) do
    methods[name] = function(self, value, message, extra)
        extra = type(extra) == 'table' and table.copy(extra) or {}
        local holds = type(value) == kind or kind == 'nil' and not value
        extra.expected, extra.got = kind, type(value)
        return result(self, holds, formatted(message), extra)
    end
end

function methods.iscdata(self, value, ctype, message, extra)
    extra = type(extra) == 'table' and table.copy(extra) or {}
    local is_cdata = type(value) == 'cdata'
    extra.expected, extra.got = ffi.typeof(ctype), is_cdata and ffi.typeof(value) or type(value)
    return result(self, is_cdata and ffi.istype(ctype, value), formatted(message), extra)
end

function methods.isudata(self, value, kind, message, extra)
    extra = type(extra) == 'table' and table.copy(extra) or {}
    local name
    if type(value) == 'userdata' then
        local own = debug.getregistry()[kind]
        name = own ~= nil and debug.getmetatable(value) == own and kind or tostring(value)
    end
    extra.expected, extra.got = 'userdata<' .. tostring(kind) .. '>', name or type(value)
    return result(self, name ~= nil and name == kind, formatted(message), extra)
end

--- A comment.
function methods.diag(self, format, ...)
    say(self, '%s', '# ' .. formatted(format, ...))
end

local function begin(parent, name, body, ...)
    local test = setmetatable({
        name = name,
        level = parent and parent.level + 1 or 0,
        total = 0,
        failed = 0,
        planned = 0,
        trace = parent == nil and true or parent.trace,
        strict = false,
        parent = parent,
    }, meta)
    if body == nil then return test end
    say(test, '%s', '# ' .. tostring(name))
    body(test, ...)
    say(test, '%s', '# ' .. tostring(name) .. ': end')
    return test:check()
end

--- Begins a test that consists of several: runs a function with it and checks the plan, or returns it without a function.
function methods.test(self, name, body, ...)
    return begin(self, name, body, ...)
end

--- Whether all planned tests ran and none failed. A test inside of another one becomes a result of that one.
function methods.check(self)
    if self.checked then error('check called twice') end
    self.checked = true
    local parent = self.parent
    if self.planned ~= self.total then
        if parent then
            result(parent, false, 'bad plan', { planned = self.planned, run = self.total })
        else
            methods.diag(self, 'bad plan: planned %d run %d', self.planned, self.total)
        end
        return false
    elseif self.failed > 0 then
        if parent then
            result(parent, false, 'failed subtests', { planned = self.planned, failed = self.failed })
        else
            methods.diag(self, 'failed subtest: %d', self.failed)
        end
        return false
    end
    if parent then result(parent, true, tostring(self.name)) end
    return true
end

--- Begins the outermost test, at no depth of its own; with a function, runs it and checks the plan.
function tap.test(name, body, ...)
    io.write('TAP version 13\n')
    return begin(nil, name, body, ...)
end

return tap
