-- tap: tests that print the Test Anything Protocol.
local ffi = require('ffi')

local tap, methods = {}, {}
local meta = { __index = methods }

local function text_of(value)
    local done, text = pcall(function() return require('yaml').encode(value) end)
    return done and text or tostring(value)
end

local function indented(text, blanks)
    return blanks .. text:gsub('\n', '\n' .. blanks)
end

-- Prints a line at the depth of the test.
local function say(test, format, ...)
    local text = select('#', ...) > 0 and format:format(...) or format
    io.write((' '):rep(4 * test.level), text, '\n')
end

-- Where the test stands in the user's file, and how it was reached.
local function place(extra)
    local here = debug.getinfo(1, 'S').source
    local trace, first, level = {}, nil, 2
    while true do
        local info = debug.getinfo(level, 'Sln')
        if info == nil then break end
        if info.what ~= 'C' and (first or info.source ~= here) then
            local frame = {
                line = math.max(info.currentline or 0, 0),
                source = info.source,
                filename = info.source:sub(2),
                what = info.what,
                namewhat = info.namewhat,
                name = info.name,
                src = info.short_src,
            }
            first = first or frame
            trace[#trace + 1] = frame
        end
        level = level + 1
    end
    extra = extra or {}
    if first then extra.filename, extra.line = first.filename, first.line end
    extra.trace = trace
    return extra
end

local function say_extra(test, extra)
    local shown = {}
    for key, value in pairs(extra) do
        if key ~= 'trace' or test.trace then shown[key] = value end
    end
    io.write(indented(text_of(shown):gsub('\n$', ''), (' '):rep(4 * test.level + 2)), '\n')
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
    say_extra(test, place(extra))
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

-- Where two values differ, as texts of what was got and what was expected; nil if they do not.
local function difference(got, expected, strict, path)
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
    return methods.ok(self, true, formatted(message) .. ' # skip')
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
        local holds = type(value) == kind or kind == 'nil' and value == nil and not self.strict
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

local function new(parent, name)
    return setmetatable({
        name = name,
        level = parent and parent.level + 1 or 0,
        total = 0,
        failed = 0,
        planned = 0,
        trace = parent == nil and true or parent.trace,
        strict = parent ~= nil and parent.strict or false,
        parent = parent,
    }, meta)
end

--- Runs a function as one test that consists of several.
function methods.test(self, name, body, ...)
    local inner = new(self, name)
    say(inner, '%s', '# ' .. tostring(name))
    body(inner, ...)
    say(inner, '%s', '# ' .. tostring(name) .. ': end')
    if inner.failed > 0 then
        return result(self, false, 'failed subtests', { planned = inner.planned, failed = inner.failed })
    elseif inner.planned ~= inner.total then
        return result(self, false, 'bad plan', { planned = inner.planned, run = inner.total })
    end
    return result(self, true, tostring(name))
end

--- Whether all planned tests ran and none failed; says what is wrong.
function methods.check(self)
    if self.checked then error('check called twice', 2) end
    self.checked = true
    if self.planned ~= self.total then
        if self.parent == nil then
            methods.diag(self, 'bad plan: planned %d run %d', self.planned, self.total)
        end
        return false
    elseif self.failed > 0 then
        methods.diag(self, 'failed subtest: %d', self.failed)
        return false
    end
    return true
end

--- Begins a test of its own; with a function, runs it and checks the plan.
function tap.test(name, body, ...)
    io.write('TAP version 13\n')
    local test = new(nil, name)
    if body == nil then return test end
    methods.test(test, name, body, ...)
    test.planned = 1
    return methods.check(test)
end

return tap
