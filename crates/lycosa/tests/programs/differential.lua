-- Random statements: `differential.lua SEED COUNT`. Each is printed with what became of it; both servers have to print the same.
-- The numbers are the program's own, so that both make the same statements.
local seed, count = tonumber(arg[1]), tonumber(arg[2])
local ffi = require('ffi')
local decimal, uuid = require('decimal'), require('uuid')

box.cfg({log = 'differential.log', wal_mode = 'none'})
-- What was printed before a crash counts.
io.stdout:setvbuf('line')

local random, pick, maybe = dofile(arg[0]:match('^.*/') .. 'chance.lua')(seed)

-- Results as text: keys of tables in order, numbers as both print them, errors by type, code and text.
local function shown(value, depth)
    local kind = type(value)
    if kind == 'string' then return ('%q'):format(value):gsub('\n', 'n') end
    if kind == 'table' then
        if depth > 4 then return '{...}' end
        local names = {}
        for name in pairs(value) do names[#names + 1] = name end
        table.sort(names, function(a, b)
            if type(a) == type(b) and (type(a) == 'number' or type(a) == 'string') then return a < b end
            return tostring(a) < tostring(b)
        end)
        for place, name in ipairs(names) do
            names[place] = (name == place and '' or shown(name, depth + 1) .. '=') .. shown(value[name], depth + 1)
        end
        return '{' .. table.concat(names, ', ') .. '}'
    end
    if kind == 'cdata' then
        if box.tuple.is(value) then return 'tuple ' .. shown(value:totable(), depth) end
        if tostring(ffi.typeof(value)):match('struct error') then
            return ('%s %s %s'):format(value.type, tostring(value.code), value.message)
        end
        return tostring(value)
    end
    if kind == 'number' then return ('%.14g'):format(value) end
    return kind == 'function' and kind or tostring(value)
end
local function outcome(done, ...)
    local texts = {}
    for i = 1, select('#', ...) do texts[i] = shown((select(i, ...)), 0) end
    local text = table.concat(texts, ' | '):gsub('Tuple field [^ ]- required by space format is missing', 'a field is missing')
    -- `frommap` returns its error.
    if done and texts[1] ~= 'nil' then return text end
    -- Which one of several fields that are missing is told, and names of variables of a module, are each server's own.
    text = text:gsub('"[^ "]*:%d+: ', '"', 1)
    return 'error: ' .. text:gsub("on local '%w+' %(", 'on (')
end

-- Values as the text of a program.

local NAMES = {'a', 'b', 'c', 'name', 'data'}
local scalars = {
    unsigned = function() return tostring(pick({0, 1, 2, 3, 4, 5, 6, 7, 100, 2 ^ 31, '18446744073709551615ULL'})) end,
    integer = function() return pick({'-1', '-5', '0', '1', '2', '3', '-9223372036854775808LL', '7'}) end,
    number = function() return pick({'0.5', '-1.25', '1', '2', '3', '1e100', '-4', '0'}) end,
    double = function() return pick({'1.5', '-0.25', '2', "require('ffi').cast('double', 3)"}) end,
    string = function() return ("'%s'"):format(pick({'', 'a', 'A', 'b', 'ab', 'aB', 'straße', 'é', 'z', '\\0', '10'})) end,
    boolean = function() return pick({'true', 'false'}) end,
    decimal = function() return ("require('decimal').new('%s')"):format(pick({'1', '1.5', '-2.25', '0', '10'})) end,
    uuid = function() return ("require('uuid').fromstr('%08d-0000-4000-8000-000000000000')"):format(random(4)) end,
}
local TYPES = {'unsigned', 'integer', 'number', 'string', 'boolean', 'scalar', 'decimal', 'uuid', 'double'}
local function value(kind, depth)
    depth = depth or 0
    if kind == nil or kind == 'any' then
        if maybe(12) then return 'box.NULL' end
        if depth < 2 and maybe(15) then
            return ('{%s, %s}'):format(value(nil, depth + 1), value(nil, depth + 1))
        end
        if depth < 2 and maybe(15) then return ('{%s = %s}'):format(pick(NAMES), value(nil, depth + 1)) end
        kind = pick({'unsigned', 'integer', 'number', 'string', 'boolean', 'decimal', 'uuid'})
    elseif kind == 'scalar' then
        kind = pick({'unsigned', 'integer', 'number', 'string', 'boolean'})
    elseif kind == 'array' then
        local items = {}
        for i = 1, pick({0, 1, 2, 2, 2, 3, 4}) do items[i] = scalars.unsigned() end
        return ('setmetatable({%s}, {__serialize = "seq"})'):format(table.concat(items, ', '))
    elseif kind == 'map' then
        return maybe(80) and ('{%s = %s}'):format(pick({'a', 'b'}), pick({scalars.unsigned, scalars.string})())
            or 'setmetatable({}, {__serialize = "map"})'
    end
    return (scalars[kind] or scalars.unsigned)()
end
-- Mostly of the type.
local function like(kind) return value(maybe(93) and kind or nil) end

-- Spaces: what was asked for, which may not be what is there.

local spaces, space_count = {}, 0
local function field_type(space, number) return space.types[number] or 'any' end
local function tuple_text(space)
    local fields = {}
    for i = 1, #space.types + random(3) - (maybe(10) and 2 or 1) do fields[i] = like(field_type(space, i)) end
    return '{' .. table.concat(fields, ', ') .. '}'
end
-- A space that has a primary index: one of the last four if it has, and else one that is always there.
local base = {name = 'base', types = {'unsigned', 'any', 'string'}, nullable = {}, indexes = {}}
local function some_space()
    for _ = 1, 20 do
        local space = spaces[random(#spaces)]
        local known = box.space[space.name]
        if known and known.index[0] then return space end
    end
    return base
end
local function index_of(space) return space.indexes[random(#space.indexes)] end
local function key_text(space, index, is_whole)
    if index.kind == 'RTREE' then
        local numbers = {}
        for i = 1, pick({2, 2, 4, 4, 1, 3}) do numbers[i] = scalars.unsigned() end
        return '{' .. table.concat(numbers, ', ') .. '}'
    end
    local parts = {}
    local size = is_whole and #index.fields or random(#index.fields + 1) - 1
    -- Values of another type than the part's are no maps: those are names of parts there.
    for i = 1, size do parts[i] = value(maybe(93) and index.kinds[i] or 'scalar') end
    if #parts == 1 and maybe(40) then return parts[1] end
    return '{' .. table.concat(parts, ', ') .. '}'
end
local function reach(space, index)
    local whole = ('box.space.%s'):format(space.name)
    return index and index.number > 0 and ('%s.index.%s'):format(whole, index.name) or whole
end
local OPERATORS = {'=', '+', '-', '!', '#', '&', '|', '^', ':', '*'}
local function operations(space)
    local list = {}
    for i = 1, random(3) do
        local operator, field = pick(OPERATORS), random(#space.types + 1)
        if maybe(5) then field = -random(3) end
        local place = maybe(15) and ("'%s'"):format(pick({'f1', 'f2', 'f3', 'f3[1]', 'f4.a', '[2]', 'zz'})) or tostring(field)
        if operator == ':' then
            list[i] = ("{':', %s, %d, %d, 'x'}"):format(place, random(5) - 2, random(4) - 1)
        elseif operator == '#' then
            list[i] = ("{'#', %s, %d}"):format(place, random(2))
        else
            list[i] = ("{'%s', %s, %s}"):format(operator, place, like(field_type(space, math.abs(field))))
        end
        -- A path beside another operation on the same field ends a Tarantool.
        if place:match('^\'') then return '{' .. list[i] .. '}' end
    end
    return '{' .. table.concat(list, ', ') .. '}'
end
-- Operations of an upsert: Tarantool looks at the arguments of the others at another moment.
local function plain_operations(space)
    local list = {}
    for i = 1, random(3) do
        local field = random(#space.types)
        local kind = space.types[field]
        local is_number = kind == 'unsigned' or kind == 'integer' or kind == 'number'
        list[i] = ("{'%s', %d, %s}"):format(is_number and pick({'=', '+', '-'}) or pick({'=', '!'}), field, value(kind))
    end
    return '{' .. table.concat(list, ', ') .. '}'
end
local function select_options(is_tree)
    local options = {}
    if is_tree and maybe(60) then
        options[#options + 1] = ("iterator = '%s'"):format(pick({'EQ', 'REQ', 'GE', 'GT', 'LE', 'LT', 'ALL'}))
    end
    if maybe(20) then options[#options + 1] = 'limit = ' .. random(4) - 1 end
    if maybe(20) then options[#options + 1] = 'offset = ' .. random(3) - 1 end
    return #options > 0 and ', {' .. table.concat(options, ', ') .. '}' or ''
end

local function part_text(space, index)
    local parts = {}
    for place, number in ipairs(index.fields) do
        local kind = index.kinds[place]
        local extra = ''
        if index.paths[place] then extra = extra .. (", path = '%s'"):format(index.paths[place]) end
        if kind == 'string' and index.collation then extra = extra .. (", collation = '%s'"):format(index.collation) end
        if index.number > 0 and space.nullable[number] then extra = extra .. ', is_nullable = true' end
        parts[place] = ("{%d, '%s'%s}"):format(number, kind, extra)
    end
    return '{' .. table.concat(parts, ', ') .. '}'
end
-- Indexes of the special kinds: their tuples are compared in an order of the program's own.
local function special_index(space)
    local kinds = {}
    for number, kind in ipairs(space.types) do
        if kind == 'array' and not space.nullable[number] then kinds[#kinds + 1] = {number, 'RTREE'} end
        if (kind == 'unsigned' or kind == 'string') and not space.nullable[number] then kinds[#kinds + 1] = {number, 'BITSET'} end
        kinds[#kinds + 1] = {number, 'func'}
    end
    local number, kind = unpack(pick(kinds))
    local index = {number = #space.indexes, name = 'i' .. #space.indexes, fields = {number}, kinds = {space.types[number]}, paths = {},
        kind = kind}
    space.indexes[#space.indexes + 1] = index
    local place = ("box.space.%s:create_index('%s', "):format(space.name, index.name)
    if kind == 'func' then
        local result = pick({'unsigned', 'string', 'scalar'})
        index.kinds = {result}
        return place .. ("{func = '%s', unique = %s, parts = {{1, '%s'}}})"):format(pick({'first', 'last', 'length', 'many'}), tostring(maybe(20)),
            result)
    end
    return place .. ("{type = '%s', unique = false, parts = {{%d, '%s'}}%s})"):format(kind, number, space.types[number],
        kind == 'RTREE' and maybe(30) and ", distance = 'manhattan'" or '')
end
local function new_index(space)
    if space.indexes[1] and maybe(20) then return special_index(space) end
    local index = {number = #space.indexes, name = 'i' .. #space.indexes, fields = {}, kinds = {}, paths = {}}
    -- The order of a primary HASH index would show in checks of all tuples.
    local known = box.space[space.name]
    index.kind = (known == nil or known.index[0] == nil or maybe(80)) and 'TREE' or 'HASH'
    index.collation = maybe(30) and pick({'unicode', 'unicode_ci', 'binary'}) or nil
    for place = 1, maybe(60) and 1 or 2 do
        local number = random(#space.types)
        if index.number == 0 and place == 1 then number = 1 end
        -- A `before_replace` trigger ends a Tarantool whose tuple has nothing at the path of the primary key.
        local is_primary = index.number == 0 or known == nil or known.index[0] == nil
        if is_primary and (space.types[number] == 'map' or space.types[number] == 'array') then number = 1 end
        local kind = space.types[number]
        if kind == 'array' then
            if index.kind == 'TREE' and index.number > 0 then index.paths[place] = '[*]' end
            kind = 'unsigned'
        elseif kind == 'map' then
            index.paths[place], kind = pick({'a', 'b'}), pick({'unsigned', 'string', 'scalar'})
        elseif kind == 'any' then
            kind = pick(TYPES)
        end
        index.fields[place], index.kinds[place] = number, kind
    end
    -- A hash there takes equal numbers of two types for different ones.
    for _, kind in ipairs(index.kinds) do
        if kind == 'number' or kind == 'scalar' or kind == 'double' then index.kind = 'TREE' end
    end
    space.indexes[#space.indexes + 1] = index
    return ("box.space.%s:create_index('%s', {type = '%s', unique = %s, parts = %s})"):format(space.name, index.name, index.kind,
        tostring(index.number == 0 or index.kind == 'HASH' or maybe(40)), part_text(space, index))
end
local function new_space()
    space_count = space_count + 1
    local space = {name = 's' .. space_count, types = {}, nullable = {}, indexes = {}}
    local format = {}
    for i = 1, 2 + random(3) do
        local kind = i == 1 and pick(TYPES) or pick({'unsigned', 'integer', 'number', 'string', 'boolean', 'scalar', 'array', 'map', 'any',
            'decimal', 'uuid', 'double'})
        space.types[i], space.nullable[i] = kind, i > 1 and maybe(40)
        format[i] = ("{name = 'f%d', type = '%s'%s}"):format(i, kind, space.nullable[i] and ', is_nullable = true' or '')
    end
    if #spaces < 4 then spaces[#spaces + 1] = space else spaces[random(4)] = space end
    local text = ("if box.is_in_txn() then box.rollback() end box.schema.space.create('%s'%s)"):format(space.name,
        maybe(70) and ', {format = {' .. table.concat(format, ', ') .. '}}' or '')
    return text, new_index(space), maybe(70) and new_index(space) or nil
end

-- Statements of all kinds, by weight.

local kinds = {}
local function kind(weight, make) for _ = 1, weight do kinds[#kinds + 1] = make end end
local function on_space(weight, make) kind(weight, function() return make(some_space()) end) end
local function on_index(weight, make)
    kind(weight, function()
        local space = some_space()
        local index = index_of(space)
        return make(space, index, reach(space, index))
    end)
end

kind(1, new_space)
-- Definitions that look at the tuples are statements of their own.
local ALONE = 'if box.is_in_txn() then box.rollback() end '
on_space(1, function(space) return ALONE .. new_index(space) end)
on_space(14, function(space) return ('return box.space.%s:insert(%s)'):format(space.name, tuple_text(space)) end)
on_space(14, function(space) return ('return box.space.%s:replace(%s)'):format(space.name, tuple_text(space)) end)
on_index(9, function(space, index, place)
    return ('return %s:update(%s, %s)'):format(place, key_text(space, index, maybe(95)), operations(space))
end)
on_space(6, function(space)
    return ('return box.space.%s:upsert(%s, %s)'):format(space.name, tuple_text(space), plain_operations(space))
end)
on_index(5, function(space, index, place) return ('return %s:delete(%s)'):format(place, key_text(space, index, maybe(95))) end)
on_index(8, function(space, index, place) return ('return %s:get(%s)'):format(place, key_text(space, index, maybe(90))) end)
on_index(14, function(space, index, place)
    if index.kind == 'HASH' then return ('return %s:select(%s)'):format(place, key_text(space, index, true)) end
    if index.kind == 'RTREE' then
        return ("return sorted(%s:select(%s, {iterator = '%s'}))"):format(place, key_text(space, index),
            pick({'ALL', 'EQ', 'GT', 'GE', 'LT', 'LE', 'OVERLAPS', 'NEIGHBOR'}))
    elseif index.kind == 'BITSET' then
        return ("return sorted(%s:select(%s, {iterator = '%s'}))"):format(place, key_text(space, index, true),
            -- Tarantool finds longer texts that begin with the key, too.
            pick({'ALL', index.kinds[1] == 'string' and 'BITS_ALL_SET' or 'EQ', 'BITS_ALL_SET', 'BITS_ANY_SET', 'BITS_ALL_NOT_SET'}))
    end
    return ('return %s:select(%s%s)'):format(place, key_text(space, index), select_options(true))
end)
on_index(4, function(space, index, place)
    -- A Tarantool counts others in a BITSET index than it selects.
    if index.kind == 'BITSET' then return ('return box.space.%s:count()'):format(space.name) end
    return ('return %s:count(%s%s)'):format(place, key_text(space, index, index.kind ~= 'TREE'), select_options(index.kind == 'TREE'))
end)
on_index(3, function(space, index)
    if index.kind == 'RTREE' or index.kind == 'BITSET' then return ('return box.space.%s.index.%s:min()'):format(space.name, index.name) end
    local place = ('box.space.%s.index.%s'):format(space.name, index.name)
    return ('return %s:%s(%s)'):format(place, pick({'min', 'max'}), maybe(60) and '' or key_text(space, index))
end)
on_index(3, function(space, index, place)
    -- The length of an empty BITSET index ends a Tarantool.
    if index.kind ~= 'TREE' then return ('return %s:len()'):format(index.kind == 'BITSET' and reach(space) or place) end
    return ('local all = {} for _, tuple in %s:pairs(%s%s) do all[#all + 1] = tuple if #all == 5 then break end end return all'):format(place,
        key_text(space, index), select_options(true))
end)
on_space(1, function(space) return ('return box.space.%s:len()'):format(space.name) end)
on_space(1, function(space) return ('return box.space.%s:truncate()'):format(space.name) end)
on_space(1, function(space)
    local index = index_of(space)
    return (ALONE .. "return box.space.%s.index.%s:alter({unique = %s})"):format(space.name, index.name, tostring(maybe(50)))
end)
on_space(1, function(space)
    local names = {}
    for i = 1, #space.types do names[i] = ("{'f%d', '%s'}"):format(i, maybe(80) and space.types[i] or 'any') end
    return (ALONE .. 'return box.space.%s:format({%s})'):format(space.name, table.concat(names, ', '))
end)
on_space(2, function(space)
    return ("return box.space.%s:%s"):format(space.name, pick({"frommap({f1 = 1})", "frommap({zz = 2})",
        "frommap({f2 = 2}, {table = true})", 'get({})'}))
end)
kind(3, function() return pick({'return box.begin()', 'return box.commit()', 'return box.rollback()', 'return box.is_in_txn()',
    'sp = box.savepoint()', 'return box.rollback_to_savepoint(sp)'}) end)
-- A rolled back transaction takes the values of sequences back here, which docs/lua.md says.
kind(2, function() return ALONE .. pick({"return box.sequence.q:next()", "return box.sequence.q:set(%d)", "return box.sequence.q:reset()",
    "return box.sequence.q:current()", "return box.sequence.q:alter({step = %d})", "return box.sequence.q:alter({max = %d, cycle = true})"})
    :gsub('%%d', tostring(random(9) - 3)) end)
on_space(2, function(space)
    local trigger = pick({'before_replace', 'on_replace'})
    local body = pick({'function(old, new, name, kind) seen = {old, new, name, kind} end', 'function() return nil end',
        'function(old, new) return new end', 'function(old, new) return old end',
        'function(old, new) return new and new:update({{"=", #new, new[#new]}}) end', "function() error('refused') end"})
    if trigger == 'on_replace' then body = pick({'function(old, new) seen = {old, new} end', "function() error('refused') end"}) end
    return ('box.space.%s:%s(%s, box.space.%s:%s()[1])'):format(space.name, trigger, body, space.name, trigger)
end)
on_space(3, function(space)
    local trigger = pick({'before_replace', 'on_replace'})
    return ('local s = box.space.%s s:%s(nil, s:%s()[1]) return seen'):format(space.name, trigger, trigger)
end)

-- Users, rights, and statements of theirs.
on_space(1, function(space)
    local whom, verb = pick({'user', 'role'}), pick({'grant', 'revoke'})
    local name = whom == 'user' and 'u' or 'r'
    if maybe(10) then return (ALONE .. "return box.schema.user.%s('u', 'r')"):format(verb) end
    return (ALONE .. "return box.schema.%s.%s('%s', '%s', %s)"):format(whom, verb, name,
        pick({'read', 'write', 'read,write', 'execute', whom == 'role' and 'usage' or 'read', whom == 'role' and 'session' or 'write', 'create',
            'alter', 'drop'}), pick({("'space', '%s'"):format(space.name), ("'space', '%s'"):format(space.name), "'universe'", "'sequence', 'q'", "'function', 'called'", "'space'"}))
end)
on_space(5, function(space)
    local text = pick({('box.space.%s:insert(%s)'):format(space.name, tuple_text(space)), ('box.space.%s:replace(%s)'):format(space.name, tuple_text(space)),
        ('box.space.%s:get(%s)'):format(space.name, key_text(space, space.indexes[1], true)),
        ('box.space.%s:delete(%s)'):format(space.name, key_text(space, space.indexes[1], true)),
        ('box.space.%s:len()'):format(space.name), "box.sequence.q:next()", "box.func.called:call({{1, 2}})", "box.session.user()",
("box.space.%s:truncate()"):format(space.name),
        "box.schema.user.grant('guest', 'read', 'universe')", "box.space._user:select()", "box.space._vuser:count()", "box.space._vspace:count()",
        "box.schema.role.info('public')", "box.schema.user.passwd('x')"})
    return ((text:match('sequence') and ALONE or '') .. "return box.session.su('%s', function() return %s end)"):format(pick({'u', 'u', 'u', 'guest', 'admin', 'nobody', 'r'}), text)
end)

-- Transactions with triggers of their own, and fibers beside them.
on_space(2, function(space)
    local change = ('box.space.%s:replace(%s)'):format(space.name, tuple_text(space))
    return pick({
        ("seen = {} return pcall(box.atomic, function() box.on_commit(function() seen[#seen + 1] = 'committed' end) %s end), seen")
            :format(change),
        ("seen = {} return pcall(box.atomic, function() box.on_rollback(function() seen[#seen + 1] = 'rolled back' end) %s error('no') end), seen")
            :format(change),
        ("return pcall(box.atomic, function() local point = box.savepoint() %s box.rollback_to_savepoint(point) return %s end)"):format(change,
            ('box.space.%s:len()'):format(space.name)),
        -- A transaction that a yield has aborted refuses the next statement here, and there the commit.
        (ALONE .. "local f = require('fiber').new(function() return box.is_in_txn(), %s end) f:set_joinable(true) return f:join()"):format(change),
        ("box.begin() %s require('fiber').sleep(0) return pcall(box.commit), box.space.%s:len()"):format(change, space.name),
        ("local t = {} box.begin() for i = 1, 3 do t[i] = {pcall(box.space.base.insert, box.space.base, {1000 + i})} end box.rollback() return t, box.space.base:len()"),
    })
end)

-- Functions of modules.
kind(6, function()
    local text = scalars.string()
    return pick({
        ('return require("json").encode({%s, %s})'):format(value(), value()),
        ('return require("json").decode(%s)'):format(pick({"'[1, 2.5, null, \"x\"]'", "'{\"a\": [1, {\"b\": true}]}'", "'[1'", "'nan'", "'1e5'",
            "'-0'", "'\"\\\\u0041\\\\n\"'", "''", "'[18446744073709551615, -1]'", "'{\"a\" 1}'", "'tru'"})),
        ('return require("msgpack").encode({%s, %s}):hex()'):format(value(), value()),
        ('return require("msgpack").decode(%s)'):format(pick({"'\\x93\\x01\\x02\\xc0'", "'\\x81\\xa1a\\x01'", "'\\xcb\\x3f\\xf8\\0\\0\\0\\0\\0\\0'", "'\\x93'",
            "''", "'\\xd3\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff'"})),
        ('return require("yaml").encode({%s, %s})'):format(value(), value()),
        ('return require("yaml").decode(%s)'):format(pick({"'- 1\\n- a: b\\n'", "'{a: 1, b: [x, ~]}'", "'a: |\\n  x\\n  y\\n'", "'[1'", "'0x10'", "'1.50'",
            "'yes'", "'\"1\"'", "'- !!str 5'", "''"})),
        ('return require("uri").parse(%s)'):format(pick({"'http://u:p@h:80/p?q=1#f'", "'localhost:3301'", "'/tmp/x.sock'", "'[::1]:80'", "'a b'",
            "'3301'", "'u@h'", "'unix/:/tmp/x'", "''", "'1.2.3.4:0/x'"})),
        ('return (%s):split(%s, %s)'):format(text, pick({"','", "'a'", 'nil', "'B'"}), pick({'nil', '0', '1', '2'})),
        ('return (%s):%s(%s, "-")'):format(text, pick({'ljust', 'rjust', 'center'}), random(6) - 2),
        ('return (%s):%s(%s)'):format(text, pick({'startswith', 'endswith'}), scalars.string()),
        ('return (%s):hex(), (%s):strip(), utf8.upper(%s), utf8.len(%s)'):format(text, text, text, text),
        ('return utf8.cmp(%s, %s), utf8.casecmp(%s, %s)'):format(text, scalars.string(), text, scalars.string()),
        ('return table.concat({%s, %s}, "-")'):format(scalars.number(), scalars.string()),
        ('return require("fun").range(%d, %d):map(function(x) return x * %s end):totable()'):format(random(5) - 3, random(6), scalars.number()),
        ('return require("fun").iter({%s, %s, 3}):%s'):format(value(), scalars.number(), pick({'length()', 'take(2):totable()', 'enumerate():totable()',
            'drop_n(1):totable()', 'nth(2)', 'head()', 'zip({1, 2}):totable()', 'chain({9}):totable()', 'sum()', 'tail():totable()'})),
        ('return box.tuple.new({%s, %s}):%s'):format(value(), value(), pick({'totable()', 'unpack()', 'slice(-1)', 'find(1)', 'findall(1)', 'bsize()',
            'transform(1, 1, "x")', 'update({{"=", 1, 5}})', 'update({{"+", 2, 1}})', 'tomap()', 'next()', 'upsert({{"!", 1, 0}})'})),
        ('return require("decimal").new(%s) %s %s'):format(pick({"'1.50'", '2', "'-0.001'", "'100'"}), pick({'+', '-', '*', '/', '<', '==', '^'}),
            scalars.decimal()),
        ('return %s %s %s'):format(scalars.unsigned(), pick({'+', '-', '*', '/', '%'}), scalars.integer()),
        ('return tonumber64(%s), tostring(%s)'):format(text, scalars.decimal()),
        ('return require("digest").%s(%s)'):format(pick({'crc32', 'md5_hex', 'sha1_hex', 'base64_encode', 'base64_decode', 'murmur'}), text),
        ('return require("csv").load("%s,%s\\n1,\\"2\\n\\",3"), require("csv").dump({{%s, 1}})'):format(random(9), random(9),
            scalars.number()),
        ('return table.deepcopy({a = {%s}, %s})'):format(value(), scalars.number()),
        ('return require("pickle").unpack("%s", require("pickle").pack("%s", %s))'):format('w', pick({'b', 'w', 'i', 'q'}), random(9)),
        ('return box.error.new(%s):unpack().message'):format(pick({'1', '{code = 7, reason = "r"}', '"T", "r"', '{}', '999'})),
    })
end)

-- Tuples in an order of the program's own.
function _G.sorted(tuples)
    local texts = {}
    for i, tuple in ipairs(tuples) do texts[i] = shown(tuple, 0) end
    table.sort(texts)
    return texts
end
for name, body in pairs({
    called = 'function(tuple) return tuple[1] end', first = 'function(tuple) return {tuple[1]} end', last = 'function(tuple) return {tuple[#tuple]} end',
    length = 'function(tuple) return {#tuple} end', many = 'function(tuple) return {{#tuple}, {#tuple + 1}, {#tuple * 2}} end',
}) do
    box.schema.func.create(name, {body = body, is_deterministic = true, is_sandboxed = true, opts = {is_multikey = name == 'many'}})
end
box.schema.user.create('u')
-- A change needs the right to execute the function of an index there.
for _, name in ipairs({'first', 'last', 'length', 'many'}) do box.schema.role.grant('public', 'execute', 'function', name) end
box.schema.role.create('r')
box.schema.sequence.create('q')
box.schema.space.create('base'):create_index('i0')
base.indexes[1] = {number = 0, name = 'i0', kind = 'TREE', fields = {1}, kinds = {'unsigned'}, paths = {}}
for _ = 1, 3 do
    for _, text in ipairs({new_space()}) do pcall(loadstring(text)) end
end
local function print_outcome(number, text, done, failure, ...)
    -- The tuple that is told is the first one there, and here the first one of another type, if there is one.
    if not done and text:match(':create_index') and type(failure) == 'cdata' and (failure.code == 3 or failure.code == 23 or failure.code == 39 or failure.code == 101) then
        return print(number .. '\t' .. text .. '\tan index cannot be built')
    end
    -- A tuple that has no place in an RTREE is refused before its keys are compared here.
    local code = not done and type(failure) == 'cdata' and failure.code
    if (code == 3 or code == 23 or code == 101 or code == 199) and not text:match(':upsert') then
        local space = box.space[text:match('box%.space%.(%w+)')]
        for _, index in ipairs(space and space.index or {}) do
            if index.type == 'RTREE' then return print(number .. '\t' .. text:gsub('[%c]', '?') .. '\tis refused') end
        end
    end
    -- Of several things that are wrong with them, each server tells another one.
    if not done and (text:match(':upsert') or text:match("}, {'")) then return print(number .. '\t' .. text .. '\tfails') end
    print(('%d\t%s\t%s'):format(number, text:gsub('[%c]', '?'), outcome(done, failure, ...)))
end
local number = 0
while number < count do
    local made = {pick(kinds)()}
    for _, text in ipairs(made) do
        -- `gsub` returns a number, too.
        if type(text) == 'string' then
            number = number + 1
            local chunk = loadstring(text, '=statement')
            if chunk then
                local results = {pcall(chunk)}
                -- A comparison that failed in Tarantool makes the next conversion to a decimal fail, too.
                pcall(decimal.new, 1)
                -- Definitions return objects: the fact of their success is what counts.
                if text:match('box%.schema') or text:match(':create_index') or text:match(':alter') then results = {results[1], not results[1] and results[2]} end
                print_outcome(number, text, unpack(results, 1, table.maxn(results)))
            else
                print(number .. '\tno program\t' .. text)
            end
        end
    end
end
if box.is_in_txn() then box.rollback() end
print('contents')
for _, space in ipairs(spaces) do
    for _, index in ipairs(space.indexes) do
        if index.kind == 'TREE' then print(space.name, index.name, outcome(pcall(function() return box.space[space.name].index[index.name]:select() end))) end
    end
end
os.exit(0)
