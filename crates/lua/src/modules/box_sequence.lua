-- box.sequence and box.schema.sequence: sequences as objects, by name and by number.
local internal = require('lycosa.box')
local client_error, change, guarded = internal.client_error, internal.change, internal.guarded
local check_options, schema_statement = internal.check_options, internal.schema_statement
local schema = guarded.schema

local SEQUENCE, SEQUENCE_DATA, PRIVILEGE, OWN_PRIVILEGE = 284, 285, 312, 313
-- The index of `_priv` and its view by the kind and the number of the object.
local BY_OBJECT = 2
local EQ, LE = 0, 4

local int64_t = require('ffi').typeof('int64_t')
local sequence_methods = {}
local sequence_mt = { __index = sequence_methods }

local function signed(value) return type(value) == 'cdata' and int64_t(value) or value end

-- Objects by number: each sequence has one, which shows the row as it was last read.
local objects = setmetatable({}, { __mode = 'v' })

local function sequence_of(row)
    local id, uid, name, step, min, max, start, cache, cycle = row:unpack()
    local sequence = objects[id]
    if not sequence then
        sequence = setmetatable({}, sequence_mt)
        objects[id] = sequence
    end
    sequence.id, sequence.uid, sequence.name, sequence.step = id, uid, name, signed(step)
    sequence.min, sequence.max, sequence.start = signed(min), signed(max), signed(start)
    sequence.cache, sequence.cycle = signed(cache), cycle
    return sequence
end

local function find_sequence(name)
    if type(name) ~= 'string' and type(name) ~= 'number' then return nil end
    local row = internal.system_row(SEQUENCE, type(name) == 'number' and 0 or 2, { name })
    return row and sequence_of(row)
end

local function all_sequences()
    local found = {}
    for _, row in ipairs(internal.system_rows(SEQUENCE)) do
        local sequence = sequence_of(row)
        found[sequence.id], found[sequence.name] = sequence, sequence
    end
    return found
end

guarded.sequence = setmetatable({}, {
    __index = function(_, name) return find_sequence(name) end,
    __pairs = function() return pairs(all_sequences()) end,
    __serialize = all_sequences,
})

local SEQUENCE_OPTIONS = {
    step = 'number', min = 'number', max = 'number', start = 'number', cache = 'number', cycle = 'boolean',
    if_not_exists = 'boolean',
}

local ALTER_OPTIONS = { name = 'string' }
for name, kind in pairs(SEQUENCE_OPTIONS) do if name ~= 'if_not_exists' then ALTER_OPTIONS[name] = kind end end

-- Numbers of 64 bits are numbers here too.
local function check_sequence(options, is_altered)
    local checked = {}
    for name, value in pairs(type(options) == 'table' and options or {}) do
        checked[name] = type(value) == 'cdata' and tonumber(value) or value
    end
    check_options(type(options) == 'table' and checked or options, is_altered and ALTER_OPTIONS or SEQUENCE_OPTIONS)
    return options or {}
end

function schema.sequence.create(name, options)
    if type(name) ~= 'string' then
        client_error('ILLEGAL_PARAMS', 'Illegal parameters, name should be a string')
    end
    options = check_sequence(options)
    local known = find_sequence(name)
    if known then
        if options.if_not_exists then return known, 'not created' end
        client_error('SEQUENCE_EXISTS', ("Sequence '%s' already exists"):format(name))
    end
    local last = internal.select(SEQUENCE, 0, LE, {}, 0, 1)[1]
    local id = last and last[1] + 1 or 1
    local step = options.step or 1
    local descending = step < 0
    local min = options.min or (descending and -9223372036854775808LL or 1)
    local max = options.max or (descending and -1 or 9223372036854775807LL)
    local start = options.start or (descending and max or min)
    schema_statement(nil, 'insert', SEQUENCE,
        { id, box.session.euid(), name, step, min, max, start, options.cache or 0, options.cycle or false })
    return find_sequence(name)
end

-- The sequence as it is now.
local function existing(sequence)
    local row = internal.system_row(SEQUENCE, 0, { sequence.id })
    if not row then client_error('NO_SUCH_SEQUENCE', ("Sequence '%s' does not exist"):format(tostring(sequence.id))) end
    return sequence_of(row)
end

local function as_number(value) return value > -1e14 and value < 1e14 and tonumber(value) or value end

function sequence_methods.next(sequence)
    if type(sequence) ~= 'table' then error(("attempt to index local 'self' (a %s value)"):format(type(sequence)), 2) end
    local known = existing(sequence)
    local last = internal.check_sequence(known.id)
    local step, min, max = int64_t(known.step), int64_t(known.min), int64_t(known.max)
    local value
    if last == nil then
        value = int64_t(known.start)
    else
        value = last
        -- Before the sum, which could run over.
        local is_over
        if step > 0 then
            is_over = value > max - step and max - step < max
            if value < min then value, is_over = min, false else value = value + step end
        else
            is_over = value < min - step and min - step > min
            if value > max then value, is_over = max, false else value = value + step end
        end
        if is_over then
            if not known.cycle then
                client_error('SEQUENCE_OVERFLOW', ("Sequence '%s' has overflowed"):format(known.name))
            end
            value = step > 0 and min or max
        end
    end
    internal.set_sequence(known.id, value)
    return as_number(value)
end

function sequence_methods.current(sequence)
    local known = existing(sequence)
    local last = internal.check_sequence(known.id)
    if last == nil then client_error('SEQUENCE_NOT_STARTED', ("Sequence '%s' is not started"):format(known.name)) end
    return last
end

function sequence_methods.set(sequence, value)
    internal.check_sequence(existing(sequence).id)
    if type(value) ~= 'number' and (type(value) ~= 'cdata' or not tonumber(value)) then
        error('expected int64_t as 2 argument', 0)
    end
    if type(value) == 'number' then value = value - value % 1 end
    internal.set_sequence(sequence.id, value)
end

function sequence_methods.reset(sequence)
    internal.check_sequence(existing(sequence).id)
    internal.set_sequence(sequence.id)
end

function sequence_methods.drop(sequence)
    for _, grant in ipairs(internal.select(OWN_PRIVILEGE, BY_OBJECT, EQ, { 'sequence', sequence.id }, 0, 4294967295)) do
        schema_statement(nil, 'delete', PRIVILEGE, { grant[2], grant[3], grant[4] })
    end
    -- As in `detach_sequence`, also without a row.
    change('delete', SEQUENCE_DATA, 0, { sequence.id })
    schema_statement(nil, 'delete', SEQUENCE, { sequence.id })
    objects[sequence.id] = nil
end

function sequence_methods.alter(sequence, options)
    local _ = sequence.id
    options = check_sequence(options, true)
    local operations = {}
    if options.name ~= nil then operations[1] = { '=', 3, options.name } end
    for place, name in ipairs({ 'step', 'min', 'max', 'start', 'cache', 'cycle' }) do
        if options[name] ~= nil then operations[#operations + 1] = { '=', place + 3, options[name] } end
    end
    if #operations == 0 then return end
    schema_statement(nil, 'update', SEQUENCE, { sequence.id }, operations)
    for name in pairs(options) do sequence[name] = options[name] end
    if box.is_in_txn() then box.on_rollback(function() find_sequence(sequence.id) end) end
end

local function sequence_called(name, options)
    options = options ~= nil and check_options(options, { if_exists = 'boolean' }) or nil
    internal.check_key(name, 'unsigned')
    local sequence = find_sequence(name)
    if sequence == nil and not (options and options.if_exists) then
        client_error('NO_SUCH_SEQUENCE', ("Sequence '%s' does not exist"):format(tostring(name)))
    end
    return sequence
end

function schema.sequence.alter(name, options)
    check_sequence(options, true)
    sequence_called(name):alter(options)
end
function schema.sequence.drop(name, options)
    local sequence = sequence_called(name, options)
    if sequence then sequence:drop() end
end
