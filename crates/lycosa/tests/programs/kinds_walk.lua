-- Indexes of every kind against a plain walk over all tuples: `kinds_walk.lua MODE SEED COUNT [PORT]`.
--   work    opens the folder, checks what is there, executes COUNT random statements, checks, and ends by a kill
--   full    fills the memory to its limit, with statements that are refused, and goes on at the limit; ends by a kill
--   lead    is a master whose replica joins in the middle of the statements, and is started again behind them
--   follow  is that replica: it checks its own indexes once it has the last row
-- Prints a line for what it found at its start and a line for what it left at its end; an index that finds something else than the
-- walk is an error.
local mode, seed, count, port = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4]
local digest, ffi, fiber, fio, json = require('digest'), require('ffi'), require('fiber'), require('fio'), require('json')
pcall(ffi.cdef, 'int kill(pid_t pid, int signo); pid_t getpid(void);')
io.stdout:setvbuf('no')

local random, pick, maybe = dofile(arg[0]:match('^.*/') .. 'chance.lua')(seed)

if mode == 'follow' then fio.mkdir('replica') end
box.cfg{
    log = 'log', work_dir = mode == 'follow' and 'replica' or nil, listen = mode == 'lead' and '127.0.0.1:' .. port or nil,
    replication = mode == 'follow' and 'guest@127.0.0.1:' .. port or nil, replication_timeout = 0.5, read_only = mode == 'follow',
    memtx_memory = mode == 'full' and 16 * 1024 * 1024 or 128 * 1024 * 1024, checkpoint_interval = 0,
}

-- Definitions: how each index is made, the keys that it has for a tuple, and the iterators that it knows.

local WORDS = { 'ada', 'Bo', 'cy', 'd', '', 'dé', 'straße' }
local FUNCTIONS = {
    each_word = { is_multikey = true, body = [[function(tuple)
        local keys = {}
        for word in tuple[2]:gmatch('%S+') do keys[#keys + 1] = { word, #word } end
        return keys
    end]] },
    remainder = { is_multikey = false, body = 'function(tuple) return { tuple[1] % 7, #tuple[2] } end' },
}
-- The least and the greatest coordinates of a box, which is a point or two opposite corners.
local function boxes_of(field, dimension)
    return function(tuple)
        local sides, low, high = tuple[field], {}, {}
        for axis = 1, dimension do
            local one = sides[axis]
            local other = #sides == dimension and one or sides[dimension + axis]
            low[axis], high[axis] = math.min(one, other), math.max(one, other)
        end
        return low, high
    end
end
local INDEXES = {
    tags = {
        each = { parts = { { 2, 'unsigned', path = '[*]' } }, unique = false, keys = function(tuple)
            local keys = {}
            for place, tag in ipairs(tuple[2]) do keys[place] = { tag } end
            return keys
        end },
        pairs = { parts = { { 3, 'string', path = '[*].name' }, { 3, 'unsigned', path = '[*].at' } }, unique = true, keys = function(tuple)
            local keys = {}
            for place, entry in ipairs(tuple[3]) do keys[place] = { entry.name, entry.at } end
            return keys
        end },
    },
    words = {
        each = { func = 'each_word', parts = { { 1, 'string' }, { 2, 'unsigned' } }, unique = false, keys = function(tuple)
            local keys = {}
            for word in tuple[2]:gmatch('%S+') do keys[#keys + 1] = { word, #word } end
            return keys
        end },
        remainder = { func = 'remainder', parts = { { 1, 'unsigned' }, { 2, 'unsigned' } }, unique = false,
            keys = function(tuple) return { { tuple[1] % 7, #tuple[2] } } end },
    },
    places = {
        flat = { type = 'rtree', unique = false, parts = { { 2, 'array' } }, dimension = 2, sides = boxes_of(2, 2) },
        deep = { type = 'rtree', unique = false, parts = { { 3, 'array' } }, dimension = 3, distance = 'manhattan', sides = boxes_of(3, 3) },
    },
    bits = {
        number = { type = 'bitset', unique = false, parts = { { 2, 'unsigned' } }, field = 2 },
        other = { type = 'bitset', unique = false, parts = { { 3, 'unsigned' } }, field = 3 },
    },
}
local function sorted_names(map)
    local names = {}
    for name in pairs(map) do names[#names + 1] = name end
    table.sort(names)
    return names
end
local SPACES = sorted_names(INDEXES)
local function make_index(space, name)
    local options = {}
    for key, value in pairs(INDEXES[space][name]) do
        if key ~= 'keys' and key ~= 'sides' and key ~= 'field' then options[key] = value end
    end
    box.space[space]:create_index(name, options)
end
local function define()
    for name, body in pairs(FUNCTIONS) do
        box.schema.func.create(name, { body = body.body, is_deterministic = true, is_sandboxed = true, opts = { is_multikey = body.is_multikey } })
    end
    for _, name in ipairs(SPACES) do
        box.schema.space.create(name):create_index('pk')
        for _, index in ipairs(sorted_names(INDEXES[name])) do make_index(name, index) end
    end
    box.schema.space.create('ended'):create_index('pk')
    box.schema.user.grant('guest', 'replication', nil, nil, { if_not_exists = true })
end

-- The plain walk.

local function compare(one, other, size)
    for place = 1, size do
        if one[place] ~= other[place] then return one[place] < other[place] and -1 or 1 end
    end
    return 0
end
-- The entries of a TREE index: each key of a tuple once, in the order of the keys and then of the tuples.
local function entries_of(rows, keys)
    local entries = {}
    for _, row in ipairs(rows) do
        local seen = {}
        for _, key in ipairs(keys(row)) do
            local text = json.encode(key)
            if not seen[text] then
                seen[text] = true
                entries[#entries + 1] = { key = key, id = row[1] }
            end
        end
    end
    table.sort(entries, function(one, other)
        local order = compare(one.key, other.key, #one.key)
        return order < 0 or order == 0 and one.id < other.id
    end)
    return entries
end
local FITS = {
    EQ = function(order) return order == 0 end, REQ = function(order) return order == 0 end, ALL = function() return true end,
    GE = function(order) return order >= 0 end, GT = function(order) return order > 0 end, LE = function(order) return order <= 0 end,
    LT = function(order) return order < 0 end,
}
local IS_DOWN = { REQ = true, LE = true, LT = true }
local function expect_tree(entries, iterator, key)
    local ids = {}
    for _, entry in ipairs(entries) do
        if #key == 0 or FITS[iterator](compare(entry.key, key, #key)) then
            if IS_DOWN[iterator] then table.insert(ids, 1, entry.id) else ids[#ids + 1] = entry.id end
        end
    end
    return ids
end
local function within(low, high, outer_low, outer_high, is_strict)
    for axis = 1, #low do
        local gap, other = low[axis] - outer_low[axis], outer_high[axis] - high[axis]
        if is_strict and (gap <= 0 or other <= 0) or gap < 0 or other < 0 then return false end
    end
    return true
end
local BOXES = {
    ALL = function() return true end,
    EQ = function(low, high, l, h) return within(low, high, l, h) and within(l, h, low, high) end,
    LE = function(low, high, l, h) return within(low, high, l, h) end,
    LT = function(low, high, l, h) return within(low, high, l, h, true) end,
    GE = function(low, high, l, h) return within(l, h, low, high) end,
    GT = function(low, high, l, h) return within(l, h, low, high, true) end,
    OVERLAPS = function(low, high, l, h)
        for axis = 1, #low do if low[axis] > h[axis] or high[axis] < l[axis] then return false end end
        return true
    end,
}
local BITS = {
    ALL = function() return true end, EQ = function(number, key) return number == key end,
    BITS_ALL_SET = function(number, key) return key ~= 0 and bit.band(number, key) == key end,
    BITS_ANY_SET = function(number, key) return bit.band(number, key) ~= 0 end,
    BITS_ALL_NOT_SET = function(number, key) return bit.band(number, key) == 0 end,
}

local function ids_of(tuples, is_sorted)
    local ids = {}
    for place, tuple in ipairs(tuples) do ids[place] = tuple[1] end
    if is_sorted then table.sort(ids) end
    return ids
end
local function same(space, index, iterator, key, found, expected)
    local ours, theirs = table.concat(found, ' '), table.concat(expected, ' ')
    if ours ~= theirs then
        error(('%s.%s %s %s finds %s; the walk finds %s'):format(space, index, iterator, json.encode(key), ours, theirs), 0)
    end
end

local function word() return pick(WORDS) .. random(9) end
local function tree_key(definition, entries)
    local key
    if #entries > 0 and maybe(70) then key = { unpack(pick(entries).key) }
    elseif definition.parts[1][2] == 'string' then key = { word(), random(9) }
    else key = { random(40), random(40) } end
    for place = #key, random(#definition.parts + 1), -1 do key[place] = nil end
    if #key > #definition.parts then key[2] = nil end
    return key
end
local CHECKS = {}
function CHECKS.TREE(space, name, index, definition, rows)
    local entries = entries_of(rows, definition.keys)
    same(space, name, 'len', {}, { index:len() }, { #entries })
    for _ = 1, 6 do
        local key = tree_key(definition, entries)
        for _, iterator in ipairs({ 'EQ', 'REQ', 'GE', 'GT', 'LE', 'LT', 'ALL' }) do
            local expected = expect_tree(entries, iterator, iterator == 'ALL' and {} or key)
            local asked = iterator == 'ALL' and {} or key
            same(space, name, iterator, key, ids_of(index:select(asked, { iterator = iterator, limit = 1e6 })), expected)
            same(space, name, iterator, key, { index:count(asked, { iterator = iterator }) }, { #expected })
        end
    end
end
function CHECKS.RTREE(space, name, index, definition, rows)
    local dimension = definition.dimension
    same(space, name, 'len', {}, { index:len() }, { #rows })
    for _ = 1, 5 do
        local key = {}
        for place = 1, maybe(40) and dimension or 2 * dimension do key[place] = random(30) end
        if #key == 2 * dimension then
            for axis = 1, dimension do key[dimension + axis] = key[axis] + random(15) - 1 end
        end
        local l, h = definition.sides({ 0, key, key })
        for iterator, fits in pairs(BOXES) do
            local expected = {}
            for _, row in ipairs(rows) do
                local low, high = definition.sides(row)
                if fits(low, high, l, h) then expected[#expected + 1] = row[1] end
            end
            table.sort(expected)
            same(space, name, iterator, key, ids_of(index:select(key, { iterator = iterator, limit = 1e6 }), true), expected)
        end
        local far, last = {}, -1
        for _, row in ipairs(rows) do
            local low, high = definition.sides(row)
            local sum = 0
            for axis = 1, dimension do
                local gap = math.max(low[axis] - l[axis], l[axis] - high[axis], 0)
                sum = sum + (definition.distance and gap or gap * gap)
            end
            far[row[1]] = sum
        end
        local near = index:select(key, { iterator = 'NEIGHBOR', limit = 1e6 })
        same(space, name, 'NEIGHBOR', key, { #near }, { #rows })
        for _, tuple in ipairs(near) do
            if far[tuple[1]] < last then error(('%s.%s: NEIGHBOR of %s is out of order'):format(space, name, json.encode(key)), 0) end
            last = far[tuple[1]]
        end
    end
end
function CHECKS.BITSET(space, name, index, definition, rows)
    for _ = 1, 6 do
        local key = maybe(20) and 0 or random(64) - 1
        for iterator, fits in pairs(BITS) do
            local expected = {}
            for _, row in ipairs(rows) do
                if fits(row[definition.field], key) then expected[#expected + 1] = row[1] end
            end
            table.sort(expected)
            same(space, name, iterator, { key }, ids_of(index:select({ key }, { iterator = iterator, limit = 1e6 }), true), expected)
        end
    end
end
local function check()
    for _, space in ipairs(SPACES) do
        local rows = {}
        for place, tuple in box.space[space].index.pk:pairs() do rows[#rows + 1] = tuple:totable() end
        for _, name in ipairs(sorted_names(INDEXES[space])) do
            local index = box.space[space].index[name]
            if index then CHECKS[index.type](space, name, index, INDEXES[space][name], rows) end
        end
    end
end
local function summary()
    local sum, number = digest.crc32.new(), 0
    for _, space in ipairs(SPACES) do
        for _, tuple in box.space[space].index.pk:pairs() do
            number = number + 1
            sum:update(space .. json.encode({ tuple[1], tuple[2], type(tuple[3]) == 'number' and tuple[3] or nil }))
        end
    end
    return number .. ' tuples, ' .. sum:result()
end

-- Random statements.

local function list(most, make)
    local made = setmetatable({}, { __serialize = 'seq' })
    for place = 1, random(most + 1) - 1 do made[place] = make() end
    return made
end
local function sides(dimension)
    local made = {}
    for axis = 1, dimension do made[axis] = random(30) end
    if maybe(60) then for axis = 1, dimension do made[dimension + axis] = made[axis] + random(12) - 1 end end
    return made
end
local FIELDS = {
    tags = function()
        return list(4, function() return maybe(3) and 'wrong' or random(12) end), list(3, function() return { name = word(), at = random(60) } end)
    end,
    words = function()
        local words = list(4, word)
        return maybe(3) and 5 or table.concat(words, ' ')
    end,
    places = function() return maybe(3) and { 1 } or sides(2), sides(3) end,
    bits = function() return maybe(3) and 'wrong' or random(64) - 1, random(16) - 1 end,
}
local padding = ''
local function row_of(space, id)
    local row = { id, FIELDS[space]() }
    if padding ~= '' then
        for place = #row + 1, 3 do row[place] = 0 end
        row[4] = padding
    end
    return row
end
local IDS = mode == 'full' and 1200 or 150
local function statement()
    local name = pick(SPACES)
    local space, id, action = box.space[name], random(IDS), random(100)
    if action <= 30 then space:replace(row_of(name, id))
    elseif action <= 50 then space:insert(row_of(name, id))
    elseif action <= 65 then space:delete(id)
    elseif action <= 85 then
        local row = row_of(name, id)
        space:update(id, { { '=', 2, row[2] }, row[3] ~= nil and { '=', 3, row[3] } or nil })
    elseif action <= 95 then
        local row = row_of(name, id)
        space:upsert(row, { { '=', 2, row[2] } })
    elseif name == 'tags' then
        local entry = space.index.pairs and space.index.pairs:min()
        if entry and entry[3][1] then space.index.pairs:delete({ entry[3][1].name, entry[3][1].at }) end
    end
end
local function transaction()
    box.begin()
    for _ = 1, random(6) do
        local point = box.savepoint()
        pcall(statement)
        if maybe(20) then box.rollback_to_savepoint(point) end
    end
    if maybe(60) then box.commit() else box.rollback() end
end
local function definition()
    local name = pick(SPACES)
    local index = pick(sorted_names(INDEXES[name]))
    if box.space[name].index[index] then box.space[name].index[index]:drop() end
    make_index(name, index)
end
local function work(steps)
    for step = 1, steps do
        local action = random(100)
        if action <= 80 then pcall(statement)
        elseif action <= 97 then transaction()
        elseif action <= 98 then definition()
        elseif maybe(10) then box.space[pick(SPACES)]:truncate()
        elseif maybe(30) and mode ~= 'full' then box.snapshot() end
        if step % 50 == 0 and mode ~= 'full' then check() end
    end
end

local function die() ffi.C.kill(ffi.C.getpid(), 9) end

if mode == 'follow' then
    while box.space.ended == nil or box.space.ended:get(count) == nil do fiber.sleep(0.01) end
    check()
    print('follows ' .. summary())
    os.exit(0)
end

if box.space.ended == nil then define() end
check()
print('found ' .. summary())
if mode == 'work' then
    work(count)
elseif mode == 'lead' then
    local popen = require('popen')
    local function replica(number)
        local handle = assert(popen.new({ arg[-1], arg[0], 'follow', tostring(seed), tostring(number), port }, { stdout = 'pipe', stderr = 'inherit', stdin = 'devnull' }))
        return function()
            local said = ''
            repeat
                local part, problem = handle:read()
                assert(part, problem)
                said = said .. part
            until part == ''
            local status = handle:wait()
            assert(status.exit_code == 0, 'the replica ended: ' .. json.encode(status) .. said)
            return (said:gsub('\n', ''))
        end
    end
    work(count / 2)
    local wait = replica(1)
    work(count / 2)
    box.space.ended:replace{ 1 }
    local expected = 'follows ' .. summary()
    local said = wait()
    assert(said == expected, said .. ' in place of ' .. expected)
    -- The replica starts from its own folder.
    work(count / 4)
    box.space.ended:replace{ 2 }
    expected, said = 'follows ' .. summary(), replica(2)()
    assert(said == expected, said .. ' in place of ' .. expected)
elseif mode == 'full' then
    padding = ('x'):rep(50000)
    local refused, step = 0, 0
    -- A full memory refuses statements of all kinds, and has room again behind some deletions.
    while refused < count do
        step = step + 1
        assert(step < 200000, 'the memory is never full')
        local done, problem = pcall(statement)
        if not done and type(problem) == 'cdata' and problem.code == box.error.MEMORY_ISSUE then
            refused = refused + 1
            if refused % 20 == 1 then check() end
            if refused % 10 == 0 then
                for _, name in ipairs(SPACES) do
                    for _ = 1, 3 do
                        local first = box.space[name].index.pk:random(random(100000))
                        if first then box.space[name]:delete(first[1]) end
                    end
                end
            end
        end
    end
    transaction()
    -- There is room for what is small.
    padding = ''
end
check()
print('left ' .. summary())
die()
