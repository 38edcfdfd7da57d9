-- Random queries over several spaces: `joins.lua SEED COUNT`. Each is printed with its rows in a fixed order; both servers have to
-- print the same. Columns of a comparison have one type, as an index may answer where a comparison of two types is an error. Absent:
-- IS NOT NULL, with which Tarantool 2.6 loses rows of an index.
local seed, count = tonumber(arg[1]), tonumber(arg[2])
local json = require('json')

box.cfg({ log = 'joins.log', wal_mode = 'none' })
io.stdout:setvbuf('line')

local random, pick, maybe = dofile(arg[0]:match('^.*/') .. 'chance.lua')(seed)
local function between(least, most) return least + random(most - least + 1) - 1 end

local function execute(text)
    local result, failure = box.execute(text)
    if not result then return ('error %s %s'):format(failure.code, failure.message) end
    if not result.rows then return ('row_count %d'):format(result.row_count) end
    local names, lines = {}, {}
    for place, column in ipairs(result.metadata) do names[place] = column.type end
    for place, row in ipairs(result.rows) do lines[place] = json.encode(row) end
    if not text:match(' ORDER BY ') then table.sort(lines) end
    return table.concat(names, ', ') .. ': ' .. table.concat(lines, ' ')
end

local function show(text) print(text .. ' -> ' .. execute(text)) end

-- Four spaces: numbers A, B and texts S that repeat, with and without an index.
local indexes = { T1 = { 'B' }, T2 = { 'A', 'S' }, T3 = { 'A, B' }, T4 = {} }
local spaces = { 'T1', 'T2', 'T3', 'T4' }
for _, space in ipairs(spaces) do
    show(('CREATE TABLE %s (ID INT PRIMARY KEY, A INT, B INT, S TEXT)'):format(space))
    for place, columns in ipairs(indexes[space]) do
        show(('CREATE INDEX I%d ON %s (%s)'):format(place, space, columns))
    end
    for id = 1, between(3, 9) do
        local function value() return maybe(20) and 'NULL' or tostring(between(0, 5)) end
        show(("INSERT INTO %s VALUES (%d, %s, %s, %s)"):format(space, id, value(), value(),
            maybe(20) and 'NULL' or ("'%s'"):format(pick({ 'a', 'b', 'c', 'd' }))))
    end
end

local operators = { '=', '=', '=', '=', '<', '<=', '>', '>=', '<>' }
local numbers = { 'ID', 'A', 'B' }

local query

-- A number of one of the sources, or a constant.
local function number(sources, depth)
    local kind = between(1, 12)
    if kind <= 8 or #sources == 0 then
        if #sources == 0 then return tostring(between(0, 5)) end
        return ('%s.%s'):format(pick(sources), pick(numbers))
    end
    if kind == 9 then return tostring(between(0, 6)) end
    if kind == 10 then return ('%s.%s + %d'):format(pick(sources), pick(numbers), between(0, 2)) end
    if kind == 11 and depth < 2 then
        local inner = ('Q%d'):format(depth)
        return ('(SELECT %s(%s.%s) FROM %s AS %s WHERE %s.%s = %s.%s)'):format(pick({ 'MAX', 'MIN', 'COUNT', 'SUM' }), inner,
            pick(numbers), pick(spaces), inner, inner, pick(numbers), pick(sources), pick(numbers))
    end
    return ('COALESCE(%s.%s, %d)'):format(pick(sources), pick(numbers), between(0, 3))
end

local function condition(sources, depth)
    local kind = between(1, 16)
    if kind <= 8 then return ('%s %s %s'):format(number(sources, depth), pick(operators), number(sources, depth)) end
    if kind == 9 then return ('%s.S %s %s.S'):format(pick(sources), pick(operators), pick(sources)) end
    if kind == 10 then return ('%s.%s IS NULL'):format(pick(sources), pick(numbers)) end
    if kind == 11 then return ('(%s OR %s)'):format(condition(sources, depth), condition(sources, depth)) end
    if kind == 12 then return ('NOT (%s)'):format(condition(sources, depth)) end
    if kind == 13 then
        return ('%s.%s BETWEEN %s AND %s'):format(pick(sources), pick(numbers), number(sources, 2), number(sources, 2))
    end
    if depth >= 2 then return ('%s.A = %s.B'):format(pick(sources), pick(sources)) end
    if kind == 14 then
        local inner = ('Q%d'):format(depth)
        return ('%sEXISTS (SELECT 1 FROM %s AS %s WHERE %s LIMIT 1)'):format(pick({ '', 'NOT ' }), pick(spaces), inner,
            ('%s.%s = %s.%s'):format(inner, pick(numbers), pick(sources), pick(numbers)))
    end
    return ('%s.%s %sIN (%s)'):format(pick(sources), pick(numbers), pick({ '', 'NOT ' }), query(1, depth + 1, sources))
end

-- FROM with its sources: spaces and derived tables, joined in all ways.
local function from(depth)
    local sources, parts = {}, {}
    for place = 1, between(1, depth == 0 and 4 or 2) do
        local name = ('%s%d'):format(pick({ 'X', 'Y' }), place + 10 * depth)
        local source = ('%s AS %s'):format(pick(spaces), name)
        if depth == 0 and maybe(15) then
            source = ('(SELECT ID, A, B, S FROM %s WHERE %s > %d) AS %s'):format(pick(spaces), pick(numbers), between(0, 3), name)
        end
        sources[place] = name
        if place == 1 then
            parts[1] = source
        else
            local join = pick({ ', ', ' JOIN ', ' INNER JOIN ', ' CROSS JOIN ', ' LEFT JOIN ', ' LEFT OUTER JOIN ', ' LEFT JOIN ' })
            local on = ''
            if join ~= ', ' and join ~= ' CROSS JOIN ' and maybe(90) then
                on = ' ON ' .. condition(sources, 2)
                if maybe(30) then on = on .. ' AND ' .. condition(sources, 2) end
            end
            parts[place] = join .. source .. on
        end
    end
    return table.concat(parts), sources
end

-- A query of this many columns. `outer` has sources around it.
function query(width, depth, outer)
    local text, own = from(depth)
    local sources = {}
    for _, name in ipairs(own) do sources[#sources + 1] = name end
    if maybe(50) then
        for _, name in ipairs(outer) do sources[#sources + 1] = name end
    end
    local columns, terms = {}, {}
    for place = 1, width do columns[place] = number(own, 2) end
    for place = 1, between(0, 3) do terms[place] = condition(sources, depth) end
    local where = #terms > 0 and ' WHERE ' .. table.concat(terms, ' AND ') or ''
    return ('SELECT %s%s FROM %s%s'):format(maybe(10) and 'DISTINCT ' or '', table.concat(columns, ', '), text, where)
end

local function grouped()
    local text, sources = from(0)
    local key = ('%s.%s'):format(pick(sources), pick(numbers))
    local where = maybe(50) and ' WHERE ' .. condition(sources, 0) or ''
    local having = maybe(30) and ' HAVING COUNT(*) > ' .. between(1, 3) or ''
    return ('SELECT %s, COUNT(*), SUM(%s), MAX(%s) FROM %s%s GROUP BY %s%s'):format(key, number(sources, 2),
        number(sources, 2), text, where, key, having)
end

for _ = 1, count do
    local kind, width = between(1, 12), between(1, 4)
    if kind <= 7 then
        show(query(width, 0, {}))
    elseif kind == 8 then
        show(grouped())
    elseif kind == 9 then
        local parts = { query(width, 0, {}) }
        for place = 2, between(2, 3) do
            parts[place] = pick({ 'UNION ALL ', 'UNION ', 'INTERSECT ', 'EXCEPT ' }) .. query(width, 0, {})
        end
        show(table.concat(parts, ' '))
    elseif kind == 10 then
        local order, direction = {}, pick({ '', ' DESC' })
        for place = 1, width do order[place] = place .. direction end
        show(('%s ORDER BY %s LIMIT %d'):format(query(width, 0, {}), table.concat(order, ', '), between(1, 20)))
    elseif kind == 11 then
        local space = pick(spaces)
        show(('UPDATE %s SET A = (SELECT MAX(ID) FROM %s WHERE B = %s.B) WHERE %s.ID IN (%s)'):format(space, pick(spaces), space,
            space, query(1, 1, {})))
    else
        show(('SELECT COUNT(*) FROM (%s)'):format(query(width, 0, {})))
    end
end
os.exit(0)
