-- merger: sorted sources of tuples as one sorted source.
local ffi = require('ffi')
require('buffer')
local fun = require('fun')
local internal = require('lycosa.box')
local key_def = require('key_def')
local msgpack = require('msgpack')

local USAGE = 'Bad params, use: merger.new(key_def, {source, source, ...}[, {reverse = <boolean> or <nil>}])'
local SELECT_OPTIONS = 'use: merge_source:select([{buffer = <cdata<struct ibuf>> or <nil>, limit = <number> or <nil>}])'

local methods = {}
local source_mt = { __index = methods }

local function illegal(message) error(internal.new_error('IllegalParams', nil, message), 0) end

-- A wrong call raises a text with its place, as in Tarantool.
local function usage(message) error(message, 3) end

-- What a program's generator raises leaves a merger as an error object.
local function guarded(done, ...)
    if done then return ... end
    local reason = ...
    if type(reason) == 'string' then error(internal.new_error('LuajitError', nil, reason), 0) end
    error(reason, 0)
end

local function is_source(object) return type(object) == 'table' and getmetatable(object) == source_mt end

-- A source is a function that gives the next tuple, nil at the end.
local function new_source(step) return setmetatable({ _step = step }, source_mt) end

local function as_tuple(value)
    if box.tuple.is(value) then return value end
    if type(value) ~= 'table' then
        illegal(('A tuple or a table expected, got %s'):format(type(value)))
    end
    return box.tuple.new(value)
end

-- Pieces of tuples, one after the other: `next_piece` gives a function over the tuples of a piece.
local function in_pieces(next_piece)
    local step
    return new_source(function()
        while true do
            if not step then
                step = next_piece()
                if not step then return nil end
            end
            local tuple = step()
            if tuple ~= nil then return tuple end
            step = nil
        end
    end)
end

local function generated(gen, param, state, over)
    return in_pieces(function()
        local value
        state, value = guarded(pcall(gen, param, state))
        -- `box.NULL` is a state like others.
        if type(state) == 'nil' then return nil end
        return over(value)
    end)
end

local function over_table(list)
    if type(list) ~= 'table' then illegal('Expected <state>, <table>') end
    local place = 0
    return function()
        place = place + 1
        local value = list[place]
        if value ~= nil then return as_tuple(value) end
    end
end

local function is_buffer(value) return type(value) == 'cdata' and ffi.istype('struct ibuf', value) end

-- A buffer holds an array of tuples; what is read is taken out of it.
local function over_buffer(buf)
    if not is_buffer(buf) then illegal('Expected <state>, <buffer>') end
    local done, list, position = pcall(msgpack.decode, buf.rpos, buf:size())
    if not done or type(list) ~= 'table' then illegal(done and 'Invalid merge source' or 'Unexpected msgpack buffer end') end
    buf.rpos = position
    return over_table(list)
end

local function is_callable(value) return type(value) == 'function' or type((getmetatable(value) or {}).__call) == 'function' end

local function check_generator(name, gen)
    if not is_callable(gen) then error(('Usage: merger.%s(gen, param, state)'):format(name), 3) end
end

local module = {}

function module.new_table_source(gen, param, state)
    check_generator('new_table_source', gen)
    return generated(gen, param, state, over_table)
end

function module.new_buffer_source(gen, param, state)
    check_generator('new_buffer_source', gen)
    return generated(gen, param, state, over_buffer)
end

function module.new_tuple_source(gen, param, state)
    -- An iterator of `pairs` stands for its three values.
    if type(gen) == 'table' and param == nil and rawget(gen, 'gen') then gen, param, state = gen.gen, gen.param, gen.state end
    check_generator('new_tuple_source', gen)
    return new_source(function()
        local value
        state, value = guarded(pcall(gen, param, state))
        if type(state) ~= 'nil' then return as_tuple(value) end
    end)
end

function module.new_source_fromtable(list)
    if type(list) ~= 'table' then error('Usage: merger.new_source_fromtable(<table>)', 0) end
    return new_source(over_table(list))
end

function module.new_source_frombuffer(buf)
    if not is_buffer(buf) then error('Usage: merger.new_source_frombuffer(<cdata<struct ibuf>>)', 0) end
    local step
    return new_source(function()
        step = step or over_buffer(buf)
        return step()
    end)
end

-- A heap of sources by their first tuples. Equal tuples come in the order that Tarantool's heap gives them.
local function sift_up(heap, place, before)
    while place > 1 do
        local parent = math.floor(place / 2)
        if not before(heap[place], heap[parent]) then return end
        heap[place], heap[parent] = heap[parent], heap[place]
        place = parent
    end
end

local function sift_down(heap, before)
    local place, count = 1, #heap
    while true do
        local child = place * 2
        if child < count and before(heap[child + 1], heap[child]) then child = child + 1 end
        if child > count or before(heap[place], heap[child]) then return place end
        heap[place], heap[child] = heap[child], heap[place]
        place = child
    end
end

--- One source of several that are sorted by the key.
function module.new(key, sources, options)
    if not key_def.is_key_def(key) or type(sources) ~= 'table' then usage(USAGE) end
    if options ~= nil and type(options) ~= 'table' then usage(USAGE) end
    local reverse = options and options.reverse
    if reverse ~= nil and type(reverse) ~= 'boolean' then usage('Bad param "reverse", ' .. USAGE:match('use: .*')) end
    for _, source in ipairs(sources) do if not is_source(source) then usage(USAGE) end end
    -- In reverse order an equal tuple comes before, as in Tarantool.
    local function before(left, right)
        local order = key:compare(left.tuple, right.tuple)
        if reverse then return order >= 0 end
        return order < 0
    end
    local function next_of(source)
        local tuple = source._step()
        if tuple ~= nil then key_def.check_tuple(key, tuple) end
        return tuple
    end
    local heap
    local function fill()
        heap = {}
        for _, source in ipairs(sources) do
            local tuple = next_of(source)
            if tuple ~= nil then
                heap[#heap + 1] = { tuple = tuple, source = source }
                sift_up(heap, #heap, before)
            end
        end
    end
    return new_source(function()
        if not heap then fill() end
        local first = heap[1]
        if not first then return nil end
        local tuple = first.tuple
        first.tuple = next_of(first.source)
        if first.tuple == nil then
            local last = table.remove(heap)
            if last ~= first then heap[1] = last end
        end
        if heap[1] then sift_up(heap, sift_down(heap, before), before) end
        return tuple
    end)
end

-- The result in a buffer has an array's header of five bytes, as in Tarantool: the count is known last there.
local function write_list(list, buf)
    local header, count = buf:alloc(5), #list
    header[0] = 0xdd
    for place = 1, 4 do header[place] = math.floor(count / 256 ^ (4 - place)) % 256 end
    for _, tuple in ipairs(list) do msgpack.encode(tuple, buf) end
end

function methods.select(source, options)
    if not is_source(source) then usage('Usage: merge_source:select([opts])') end
    if options ~= nil and type(options) ~= 'table' then usage('Bad params, ' .. SELECT_OPTIONS) end
    options = options or {}
    if options.limit ~= nil and type(options.limit) ~= 'number' then usage('Bad param "limit", ' .. SELECT_OPTIONS) end
    if type(options.buffer) ~= 'nil' and not is_buffer(options.buffer) then usage('Bad param "buffer", ' .. SELECT_OPTIONS) end
    local list, limit = {}, options.limit or math.huge
    -- A negative limit is none, as in Tarantool.
    if limit < 0 then limit = math.huge end
    while #list < limit do
        local tuple = source._step()
        if tuple == nil then break end
        list[#list + 1] = tuple
    end
    if not options.buffer then return list end
    write_list(list, options.buffer)
end

function methods.pairs(source)
    if not is_source(source) then usage('Usage: merge_source:pairs()') end
    return fun.wrap(function(param)
        local tuple = param._step()
        if tuple ~= nil then return 0, tuple end
    end, source, 0)
end
methods.ipairs = methods.pairs
source_mt.__serialize = function() return 'cdata<struct merge_source &>' end
source_mt.__tostring = function() return 'cdata<struct merge_source &>' end

return module
