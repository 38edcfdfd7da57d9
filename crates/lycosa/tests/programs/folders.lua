-- A data folder of random content, and what it shows: spaces with indexes of every kind, rows, sequences, users, functions.
-- `folders.lua write SEED` makes it in the working directory and prints it; `folders.lua read` prints what is there. A folder
-- that one server has written shows the same under the other.
local mode, seed = arg[1], tonumber(arg[2] or 0)
local decimal, uuid = require('decimal'), require('uuid')
io.stdout:setvbuf('full')

box.cfg({ log = 'server.log', wal_mode = 'write', checkpoint_interval = 0, memtx_memory = 64 * 1024 * 1024 })

-- Random numbers of the program's own: the same under both servers.
local state = seed * 2654435761 % 4294967296
local function random(most)
    state = (state * 1103515245 + 12345) % 4294967296
    return math.floor(state / 65536) % most + 1
end
local function chance(percent) return random(100) <= percent end
local function pick(list) return list[random(#list)] end

-- What is shown: keys in an order of their own, numbers with all their digits.

local function text_of(value)
    local kind = type(value)
    if value == nil then return 'nil' end
    if kind == 'number' then return ('%.17g'):format(value) end
    if kind == 'string' then return ('%q'):format(value) end
    if kind ~= 'table' then return tostring(value):gsub('U?LL$', '') .. '' end
    local parts, keys = {}, {}
    local is_list = #value > 0 or next(value) == nil
    if is_list then
        for i = 1, table.maxn(value) do parts[i] = text_of(value[i]) end
        return '[' .. table.concat(parts, ', ') .. ']'
    end
    for key in pairs(value) do keys[#keys + 1] = key end
    table.sort(keys, function(one, other) return tostring(one) < tostring(other) end)
    for i, key in ipairs(keys) do parts[i] = tostring(key) .. '=' .. text_of(value[key]) end
    return '{' .. table.concat(parts, ', ') .. '}'
end

local function rows_of(index, is_sorted)
    local rows = {}
    for _, tuple in index:pairs() do rows[#rows + 1] = text_of(tuple:totable()) end
    if not is_sorted then table.sort(rows) end
    return rows
end

local function show_system(name, columns)
    local rows = {}
    for _, tuple in box.space[name]:pairs() do
        local shown = {}
        for i, column in ipairs(columns) do shown[i] = text_of(tuple[column]) end
        rows[#rows + 1] = table.concat(shown, ' ')
    end
    table.sort(rows)
    for _, row in ipairs(rows) do print(name, row) end
end

local function show()
    for _, row in box.space._space:pairs() do
        local id, name, flags = row[1], row[3], row[6]
        if id >= 512 then
            local space = box.space[name]
            print('space', id, name, row[5], text_of(flags), text_of(row[7]))
            for _, index_row in box.space._index:pairs({ id }) do
                local number = index_row[2]
                local index = space.index[number]
                print('index', number, index_row[3], index_row[4], text_of(index_row[5]), text_of(index_row[6]), index:len())
                for _, shown in ipairs(rows_of(index, index_row[4] == 'tree')) do print('  ', shown) end
            end
        end
    end
    show_system('_sequence', { 'id', 'name', 'step', 'min', 'max', 'start', 'cycle' })
    show_system('_sequence_data', { 'id', 'value' })
    show_system('_space_sequence', { 1, 2, 3, 4, 5 })
    show_system('_user', { 1, 3, 4, 5 })
    show_system('_priv', { 1, 2, 3, 4, 5 })
    for _, row in box.space._func:pairs() do
        if row[1] > 1 and row[3]:match('^own_') then print('func', row[1], row[3], text_of(row[4]), row[5], text_of(row[6])) end
    end
    show_system('_truncate', { 1, 2 })
    show_system('_schema', { 1 })
end

if mode == 'read' then
    show()
    os.exit(0)
end

-- The rows: a layout for all spaces, from which indexes take what they need.

local NAMES = { 'Ada', 'ada', 'Émile', 'emile', 'Zoë', 'ß', 'ss', 'Ω', 'ω', 'x y', '', 'Long ' .. ('n'):rep(300) }
local function uuid_of(number) return uuid.fromstr(('00000000-0000-4000-8000-%012x'):format(number)) end
local function nullable(value, percent) if chance(percent or 20) then return box.NULL end return value end
local function list_of(most, make)
    local list = setmetatable({}, { __serialize = 'seq' })
    for i = 1, random(most) do list[i] = make() end
    return list
end

local KEYS = {
    unsigned = function() return random(60) end,
    integer = function() return random(60) - 30 end,
    string = function() return pick(NAMES):sub(1, 5) .. random(30) end,
    number = function() return (random(120) - 60) / 4 end,
    double = function() return require('ffi').cast('double', random(120) / 8) end,
    scalar = function() return pick({ random(40), 'k' .. random(40), random(2) == 1, random(99) / 8, decimal.new(random(50) .. '.125') }) end,
    boolean = function() return chance(50) end,
    decimal = function() return decimal.new(('%d.%d'):format(random(50) - 25, random(9))) end,
    uuid = function() return uuid_of(random(60)) end,
    varbinary = nil,
}
local KEY_TYPES = { 'unsigned', 'unsigned', 'integer', 'string', 'number', 'double', 'scalar', 'decimal', 'uuid', 'boolean' }

-- Fields 2 and further.
local function rest_of_row()
    return nullable(pick(NAMES)), nullable(random(20) - 10), nullable(random(1000) / 16),
        { a = random(30), b = { c = pick(NAMES), d = list_of(3, function() return random(9) end) } },
        list_of(4, function() return random(15) end),
        setmetatable(chance(70) and { random(50) / 2, random(50) } or { random(20), random(20), random(20) + 20, random(20) + 20 },
            { __serialize = 'seq' }),
        random(256) - 1, list_of(3, function() return { tag = 't' .. random(9), rank = random(5) } end), nullable(uuid_of(random(9)), 40)
end

local function row_of(key) return { KEYS[key](), rest_of_row() } end

local FORMAT = {
    { 'name', 'string', true }, { 'count', 'integer', true }, { 'weight', 'number', true }, { 'document', 'map' }, { 'tags', 'array' },
    { 'point', 'array' }, { 'bits', 'unsigned' }, { 'marks', 'array' }, { 'owner', 'uuid', true },
}

local function format_for(key)
    local format = { { name = 'id', type = key } }
    for _, field in ipairs(FORMAT) do
        format[#format + 1] = { name = field[1], type = field[2], is_nullable = field[3] }
        if chance(15) then format[#format].type = 'any' end
        if format[#format].type == 'any' then format[#format].is_nullable = nil end
    end
    return format
end

box.schema.func.create('own_words', {
    body = [[function(tuple)
        local words = {}
        for word in (tuple[2] or ''):gmatch('%a+') do words[#words + 1] = { word:lower() } end
        return words
    end]],
    is_deterministic = true, is_sandboxed = true, opts = { is_multikey = true }, if_not_exists = true,
})
box.schema.func.create('own_sum', {
    body = 'function(tuple) return { (tuple[8] or 0) % 7, tuple[5].a } end',
    is_deterministic = true, is_sandboxed = true, if_not_exists = true,
})

-- Secondary indexes of every kind.
local INDEXES = {
    function() return { type = 'TREE', unique = false, parts = { { 2, 'string', is_nullable = true } } } end,
    function() return { type = 'TREE', unique = false,
        parts = { { 2, 'string', is_nullable = true, collation = pick({ 'unicode', 'unicode_ci', 'unicode_ru_s1' }) } } } end,
    function() return { type = 'TREE', unique = false, parts = { { 3, 'integer', is_nullable = true }, { 8, 'unsigned' } } } end,
    function() return { type = 'TREE', unique = false, parts = { { 4, 'number', is_nullable = true } } } end,
    function() return { type = 'TREE', unique = false, parts = { { 5, 'unsigned', path = 'a' }, { 5, 'string', path = 'b.c' } } } end,
    function() return { type = 'TREE', unique = false, parts = { { 5, 'unsigned', path = 'b.d[1]' } } } end,
    function() return { type = 'TREE', unique = false, parts = { { 6, 'unsigned', path = '[*]' } } } end,
    function() return { type = 'TREE', unique = false,
        parts = { { 9, 'string', path = '[*].tag' }, { 9, 'unsigned', path = '[*].rank' } } } end,
    function() return { type = 'TREE', unique = false, func = 'own_words', parts = { { 1, 'string' } } } end,
    function() return { type = 'TREE', unique = false, func = 'own_sum', parts = { { 1, 'unsigned' }, { 2, 'unsigned' } } } end,
    function() return { type = 'RTREE', unique = false, parts = { { 7, 'array' } }, distance = pick({ 'euclid', 'manhattan' }) } end,
    function() return { type = 'BITSET', unique = false, parts = { { 8, 'unsigned' } } } end,
    function() return { type = 'TREE', unique = false, parts = { { 10, 'uuid', is_nullable = true } } } end,
}

-- A statement that is refused (a duplicate, a definition that the rows do not fit) leaves the folder as it was.
local function try(body, ...) return pcall(body, ...) end

local kinds = {}

local function make_space(number)
    local key = pick(KEY_TYPES)
    local options = { temporary = chance(8), is_local = chance(15) }
    if options.temporary then options.is_local = nil end
    if chance(60) then options.format = format_for(key) end
    local space = box.schema.space.create(pick({ 'space', 'Space ', 'пространство' }) .. number, options)
    local primary = { type = chance(25) and 'HASH' or 'TREE', parts = { { 1, key } } }
    if key == 'unsigned' and primary.type == 'TREE' and chance(40) then
        primary.sequence = chance(50) or box.schema.sequence.create('of_space' .. number, { start = 100, step = 3 }).name
    end
    space:create_index('primary', primary)
    kinds[space.id] = key
    for i = 1, random(4) - 1 do try(function() space:create_index('secondary' .. i, pick(INDEXES)()) end) end
    return space
end

local function spaces()
    local all = {}
    for id in pairs(kinds) do
        if box.space[id] then all[#all + 1] = id else kinds[id] = nil end
    end
    table.sort(all)
    return all
end

local function statement()
    local all = spaces()
    if #all == 0 then return end
    local id = pick(all)
    local space, key = box.space[id], kinds[id]
    local row = row_of(key)
    if space.index[0].sequence_id and chance(60) then row[1] = box.NULL end
    local action = random(100)
    if action <= 45 then try(space.insert, space, row)
    elseif action <= 65 then try(space.replace, space, row)
    elseif action <= 75 then try(space.delete, space, { KEYS[key]() })
    elseif action <= 88 then
        try(space.update, space, { KEYS[key]() }, { pick({ { '=', 2, pick(NAMES) }, { '+', 8, 1 }, { '!', 11, 'more' }, { '=', 3, box.NULL },
            { '=', 5, { a = random(30), b = { c = 'changed', d = { random(9) } } } } }) })
    elseif action <= 96 then try(space.upsert, space, row, { { '=', 2, pick(NAMES) } })
    elseif action <= 97 then try(space.truncate, space)
    else
        box.begin()
        for _ = 1, random(5) do try(space.replace, space, row_of(key)) end
        if chance(70) then box.commit() else box.rollback() end
    end
end

local function definition(number)
    local all = spaces()
    local space = #all > 0 and box.space[pick(all)] or nil
    local action = random(10)
    if action <= 2 or not space then make_space(number)
    elseif action == 3 then try(function() space:create_index('later' .. number, pick(INDEXES)()) end)
    elseif action == 4 then
        local index = space.index[random(3)]
        if index then try(index.drop, index) end
    elseif action == 5 then
        local index = space.index[random(3)]
        if index then try(index.rename, index, 'renamed' .. number) end
    elseif action == 6 then try(space.rename, space, 'renamed space ' .. number)
    elseif action == 7 then try(space.format, space, chance(50) and format_for(kinds[space.id]) or {})
    elseif action == 8 then
        local name = 'sequence' .. number
        box.schema.sequence.create(name, { start = random(100) - 50, min = -100, max = 100 + random(50), step = pick({ 1, 2, -1, 7 }),
            cycle = chance(50) })
        for _ = 1, random(40) - 1 do try(function() box.sequence[name]:next() end) end
        if chance(20) then box.sequence[name]:reset() elseif chance(20) then try(function() box.sequence[name]:set(random(50)) end) end
    elseif action == 9 then
        local name = pick({ 'user', 'Пользователь' }) .. number
        box.schema.user.create(name, chance(50) and { password = 'secret' .. number } or nil)
        try(box.schema.user.grant, name, pick({ 'read', 'write', 'read,write' }), 'space', space.name)
        if chance(50) then
            box.schema.role.create('role' .. number)
            try(box.schema.role.grant, 'role' .. number, 'execute', 'universe')
            try(box.schema.user.grant, name, 'role' .. number)
        end
    else
        box.schema.func.create('own_function' .. number, {
            body = ('function(...) return %d, ... end'):format(number), setuid = chance(30), is_deterministic = chance(50),
            is_sandboxed = chance(50), if_not_exists = true,
        })
        if chance(50) then space:drop() end
    end
end

for number = 1, random(3) do make_space(number) end
for number = 4, 4 + random(8) do
    for _ = 1, random(60) do statement() end
    definition(number)
    if chance(20) then box.snapshot() end
end
for _ = 1, random(60) do statement() end
if chance(40) then box.snapshot() end

-- Temporary spaces have no rows in a folder.
for _, id in ipairs(spaces()) do
    local flags = box.space._space:get(id)[6]
    if flags.temporary then box.space[id]:truncate() end
end
show()
os.exit(0)
