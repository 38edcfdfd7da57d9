-- box.execute, box.prepare, box.unprepare: SQL. Rust makes the plans and reads; changes go through the door of all
-- statements, so triggers, rights and transactions are those of space:insert, update and delete.
local internal = require('lycosa.box')
local digest = require('digest')
local ffi = require('ffi')
local definitions = require('lycosa.sql_definitions')
local rules = require('lycosa.sql_rules')
local conflicts = require('lycosa.sql_conflicts')

local int64_t, uint64_t = ffi.typeof('int64_t'), ffi.typeof('uint64_t')

-- `ER_SQL_EXECUTE`, `ER_SQL_BIND_TYPE`, `ER_SQL_BIND_NOT_FOUND`, `ER_WRONG_QUERY_ID`, `ER_SQL_PREPARE`.
local SQL_EXECUTE, BIND_TYPE, BIND_NOT_FOUND, WRONG_QUERY_ID, SQL_PREPARE = 159, 157, 161, 211, 210
-- `ER_SQL_SYNTAX_NEAR_TOKEN`.
local SQL_SYNTAX = 184


-- Named savepoints of a transaction.
local MAX_SAVEPOINTS = 1024

-- Plans that are kept, and how heavy one may be for that: parts of expressions, columns and parameters.
local MAX_PLANS, MAX_WEIGHT = 256, 256

-- Bytes of the prepared statements of all sessions, and what each takes beside its text.
local MAX_PREPARED, OVERHEAD = 5 * 1024 * 1024, 128

-- Bytes of a `SET SESSION`, whose patterns go back and forth over spaces.
local MAX_SETTING = 256

-- The parameter that has the value of this function.
local ROW_COUNT = 'ROW_COUNT()'

-- The number of rows that the last statement of each session has changed. All fibers that serve no connection have one number.
local row_counts = {}

local function counter()
    local session = box.session.id()
    return internal.is_connected(session) and session or 0
end
function rules.row_count() return row_counts[counter()] or 0 end
function rules.set_row_count(count) row_counts[counter()] = count ~= 0 and count or nil end

local function fail(code, message) error(internal.new_error('ClientError', code, message), 0) end
local function illegal(message) internal.client_error('ILLEGAL_PARAMS', 'Illegal parameters, ' .. message) end

-- Plans by text, the oldest first. A plan is good for one version of the schema.
local plans, order = {}, {}

-- `SET SESSION "name" = value`: the name and the value. What is no such statement goes on to the parser.
local function session_setting(text)
    if #text > MAX_SETTING then return nil end
    local rest = text:match('^%s*[sS][eE][tT]%s+[sS][eE][sS][sS][iI][oO][nN]%s+(.*)$')
    if not rest then return nil end
    local name, value = rest:match('^"([^"]*)"%s*=%s*(.-)%s*;?%s*$')
    if not name then
        name, value = rest:match('^([%a_][%w_]*)%s*=%s*(.-)%s*;?%s*$')
        name = name and name:upper()
    end
    if not name then return nil end
    local lower = value:lower()
    if lower == 'true' or lower == 'false' then return name, lower == 'true' end
    if value:match("^'[^']*'$") then return name, value:sub(2, -2) end
    if value:match('^%d+%.?%d*$') then return name, tonumber(value) end
    fail(SQL_SYNTAX, ("Syntax error at line 1 near '%s'"):format(value:match('^[%w_]+') or value:sub(1, 1)))
end

local function new_plan(text)
    local setting, value = session_setting(text)
    if setting then
        return { kind = 'set', name = setting, value = value, parameters = {}, version = internal.schema_version() }
    end
    local kind, name, is_optional, fields, keys, sequence, foreign, checks, engine = internal.sql_definition(text)
    if kind then
        return {
            kind = kind, name = name, is_optional = is_optional, fields = fields, keys = keys, sequence = sequence, foreign = foreign,
            checks = checks, engine = engine, constraint = kind == 'create index' and foreign or nil,
            is_definition = true,
            parameters = {}, version = internal.schema_version(),
        }
    end
    local plan = internal.sql_plan(text)
    local parameters, metadata, version, space, weight, conflict
    kind, parameters, metadata, version, space, weight, conflict = internal.sql_info(plan)
    local counts_rows = parameters[#parameters] == ROW_COUNT
    if counts_rows then table.remove(parameters) end
    return {
        plan = plan, kind = kind, parameters = parameters, metadata = metadata, version = version, space = space, counts_rows = counts_rows,
        weight = weight, conflict = conflict, rules = kind ~= 'select' and space ~= 0 and rules.of(space, kind) or nil,
    }
end

local function plan_of(text)
    local known = plans[text]
    if known and known.version == internal.schema_version() then
        if known.plan then internal.sql_check(known.plan) end
        return known
    end
    local made = new_plan(text)
    local is_kept = #text < 4096 and made.weight ~= nil and made.weight <= MAX_WEIGHT
    if not known and is_kept then
        if #order >= MAX_PLANS then plans[table.remove(order, 1)] = nil end
        table.insert(order, text)
    end
    if known or is_kept then plans[text] = made end
    return made
end

local function place_of(plan, name)
    if not plan.places then
        local places = {}
        for place, known in ipairs(plan.parameters) do places[known] = places[known] or place end
        plan.places = places
    end
    if plan.places[name] then return plan.places[name] end
    fail(BIND_NOT_FOUND, ("Parameter '%s' was not found in the statement"):format(name))
end

local function check_value(value, shown)
    local kind = type(value)
    if value == nil or kind == 'number' or kind == 'string' or kind == 'boolean' then return value end
    if kind == 'cdata' and (ffi.istype(int64_t, value) or ffi.istype(uint64_t, value)) then return value end
    if kind == 'cdata' then kind = 'userdata' end
    fail(BIND_TYPE, ('Bind value type %s for parameter %s is not supported'):format(kind:upper(), shown))
end

-- Values by the places of parameters.
local function bind(plan, given)
    local count = #plan.parameters
    local values = { n = count }
    if plan.counts_rows then
        values.n = count + 1
        values[values.n] = rules.row_count()
    end
    for place = 1, table.maxn(given) do
        local value = given[place]
        if type(value) == 'table' then
            local name, inner = next(value)
            if name ~= nil and next(value, name) ~= nil then
                illegal('SQL bind named parameter should be a table with one key - {name = value}')
            end
            if type(name) ~= 'string' then illegal('name of the parameter should be a string.') end
            values[place_of(plan, name)] = check_value(inner, ("'%s'"):format(name))
        else
            if place > count then fail(SQL_EXECUTE, 'Failed to execute SQL statement: The number of parameters is too large') end
            values[place] = check_value(value, place)
        end
    end
    return values
end

-- Runs `body` as one transaction, or as a part of the open one that fails alone.
local function atomically(body, ...)
    if not internal.in_txn() then return box.atomic(body, ...) end
    local place = internal.savepoint()
    local done, result, ids = pcall(body, ...)
    if done then return result, ids end
    if internal.in_txn() then pcall(internal.rollback_to, place) end
    error(result, 0)
end

local function insert_rows(plan, rows, sequence, generated)
    local count, ids, is_view = 0, nil, plan.rules and plan.rules.is_view
    local keys = plan.conflict == 'replace' and conflicts.keys_of(plan)
    for number, row in ipairs(rows) do
        local changed, new
        if is_view then
            changed = rules.instead(plan.rules, 'insert', row)
        else
            changed, new = rules.insert(plan.rules, plan.space, row, plan.conflict, keys)
        end
        count = count + changed
        if generated[number] and new ~= nil then
            ids = ids or {}
            table.insert(ids, new[sequence])
        end
    end
    return count, ids
end

local function change_rows(plan, values, of_client)
    local keys, operations = internal.sql_changes(plan.plan, values, of_client)
    local count, is_view = 0, plan.rules and plan.rules.is_view
    local unique = (plan.conflict == 'replace' or plan.conflict == 'ignore') and conflicts.keys_of(plan)
    for number, key in ipairs(keys) do
        if is_view then
            count = count + rules.instead(plan.rules, plan.kind, key, operations[number])
        elseif plan.kind == 'delete' then
            count = count + rules.delete(plan.rules, plan.space, key)
        else
            count = count + rules.update(plan.rules, plan.space, key, operations[number], plan.conflict, unique)
        end
    end
    return count
end

-- Savepoints of the open transaction by name, the oldest first: one transaction is open at a time.
local savepoints = {}

local function find_savepoint(name)
    if not box.is_in_txn() then internal.client_error('NO_TRANSACTION', 'No active transaction') end
    for place = #savepoints, 1, -1 do
        local known = savepoints[place]
        if known.name == name and internal.is_live(known.place) then return place end
    end
    internal.client_error('NO_SUCH_SAVEPOINT', 'Can not rollback to savepoint: the savepoint does not exist')
end
local function forget_savepoints(from)
    for place = #savepoints, from, -1 do savepoints[place] = nil end
end

local steps = {}
function steps.begin()
    box.begin()
    forget_savepoints(1)
end
steps['savepoint'] = function(name)
    local place = box.savepoint()
    if savepoints[1] and not internal.is_live(savepoints[1].place) then forget_savepoints(1) end
    if #savepoints >= MAX_SAVEPOINTS then
        fail(SQL_EXECUTE, ('Failed to execute SQL statement: a transaction may have %d savepoints'):format(MAX_SAVEPOINTS))
    end
    -- A name is of its last place alone.
    for number, known in ipairs(savepoints) do
        if known.name == name then table.remove(savepoints, number) break end
    end
    savepoints[#savepoints + 1] = { name = name, place = place }
end
function steps.release(name) forget_savepoints(find_savepoint(name)) end
steps['rollback to'] = function(name)
    local place = find_savepoint(name)
    box.rollback_to_savepoint(savepoints[place].place)
    forget_savepoints(place + 1)
end
for _, step in ipairs({ 'commit', 'rollback' }) do
    steps[step] = function()
        if not box.is_in_txn() then
            fail(SQL_EXECUTE, ('Failed to execute SQL statement: cannot %s - no transaction is active'):format(step))
        end
        local done, failure = pcall(box[step])
        forget_savepoints(1)
        if not done then error(failure, 0) end
    end
end

local function define(plan)
    if steps[plan.kind] then
        steps[plan.kind](plan.name)
        return 0
    end
    return definitions.define(plan, atomically)
end

-- Runs the body of a change as one transaction, or as a part of the open one. After a refused row OR FAIL keeps the changes before it, and
-- OR ROLLBACK ends the transaction.
local function change(plan, of_client, body, ...)
    if plan.conflict == 'fail' then body = conflicts.keeping(body) end
    local done, count, ids
    if plan.rules then
        done, count, ids = pcall(atomically, rules.statement, internal.in_txn(), of_client, body, ...)
    else
        done, count, ids = pcall(atomically, body, ...)
    end
    if done and count ~= nil then return count, ids end
    local failure = done and ids or count
    if plan.conflict == 'rollback' and internal.in_txn() and conflicts.is_refusal(failure) then steps.rollback() end
    error(failure, 0)
end

-- `of_client`: the statement is a request, whose SELECT gives the body of its reply.
local function run(plan, given, of_client)
    local values = bind(plan, given)
    rules.set_row_count(0)
    if plan.kind == 'set' then
        internal.set_setting(plan.name, plan.value)
        rules.set_row_count(1)
        return { row_count = 1 }
    end
    if plan.is_definition then
        local count = define(plan)
        rules.set_row_count(count)
        return { row_count = count }
    end
    if plan.kind == 'select' then
        if of_client then return internal.sql_body(plan.plan, values, true) end
        local metadata, rows = internal.sql_select(plan.plan, values)
        return { metadata = metadata, rows = rows }
    end
    local count, ids
    if plan.kind == 'insert' then
        local rows, sequence, generated = internal.sql_rows(plan.plan, values, of_client)
        if #rows == 1 and plan.conflict == 'abort' and not plan.rules then
            count, ids = insert_rows(plan, rows, sequence, generated)
        else
            count, ids = change(plan, of_client, insert_rows, plan, rows, sequence, generated)
        end
    else
        count = change(plan, of_client, change_rows, plan, values, of_client)
    end
    rules.set_row_count(count)
    return { row_count = count, autoincrement_ids = ids }
end

function rules.execute_as(text, values, of_client)
    local plan = plan_of(text)
    return run(plan, values, of_client and plan.kind ~= 'select')
end

-- Prepared statements: texts by session and number. The number is a hash of the text, as in Tarantool. Each session has a
-- sum of its bytes, and all have one: a session may have as many as are left, so that a greedy one leaves half.
local prepared, sizes, total = {}, {}, 0

local function text_of(id)
    local own = prepared[box.session.id()]
    local text = own and own[id]
    if not text then fail(WRONG_QUERY_ID, ('Prepared statement with id %s does not exist'):format(tostring(id))) end
    return text
end

-- The texts that sessions have prepared.
function internal.sql_statistics()
    local texts, size, count = {}, 0, 0
    for _, own in pairs(prepared) do
        for id, text in pairs(own) do
            if not texts[id] then
                texts[id], count = true, count + 1
                size = size + #text
            end
        end
    end
    return { size = size, stmt_count = count }
end

internal.forget_statements = function(session)
    total = total - (sizes[session] or 0)
    prepared[session], sizes[session], row_counts[session] = nil, nil, nil
end

local function describe(id, plan)
    local params = {}
    for place, name in ipairs(plan.parameters) do params[place] = { name = name, type = 'ANY' } end
    return {
        stmt_id = id, param_count = #params, params = params,
        metadata = plan.kind == 'select' and plan.metadata or nil,
    }
end

local function prepare(text)
    local plan, session, id = plan_of(text), box.session.id(), digest.murmur(text)
    local own, size = prepared[session] or {}, #text + OVERHEAD
    if own[id] ~= nil and own[id] ~= text then
        fail(SQL_PREPARE, 'Failed to prepare SQL statement: another statement of this session has the same id')
    end
    if own[id] == nil then
        local mine = (sizes[session] or 0) + size
        if mine > MAX_PREPARED - total - size then
            fail(SQL_PREPARE, ('Failed to prepare SQL statement: the session would have %d bytes of prepared statements, ' ..
                'which is more than it may have of the %d that all sessions share: unprepare some, or give values as ' ..
                'parameters'):format(mine, MAX_PREPARED))
        end
        own[id], prepared[session], sizes[session], total = text, own, mine, total + size
    end
    return describe(id, plan)
end

local function unprepare(id)
    local size, session = #text_of(id) + OVERHEAD, box.session.id()
    prepared[session][id], total = nil, total - size
    sizes[session] = sizes[session] - size
end

-- What clients ask for.
function internal.sql_request(kind, statement, given)
    local by_id = type(statement) == 'number'
    if kind == 'execute' then return run(plan_of(by_id and text_of(statement) or statement), given, true) end
    if by_id then
        unprepare(statement)
        return {}
    end
    -- What a connection that has gone had asked for would never be forgotten.
    if not internal.is_connected(box.session.id()) then
        fail(SQL_PREPARE, 'Failed to prepare SQL statement: the connection is closed')
    end
    return prepare(statement)
end

local function execute(statement, given)
    return run(plan_of(type(statement) == 'number' and text_of(statement) or statement), given)
end

-- The result, or nil and the error.
local function answer(done, result)
    if done then return result end
    if not box.error.is(result) then error(result, 0) end
    box.error.set(result)
    return nil, result
end

local function check_parameters(given)
    if given ~= nil and type(given) ~= 'table' then error('Second argument must be a table', 0) end
    return given or {}
end

function internal.guarded.execute(...)
    local statement, given = ...
    local kind = type(statement)
    if select('#', ...) < 1 or select('#', ...) > 2 or (kind ~= 'string' and kind ~= 'number') then
        error('Usage: box.execute(sqlstring[, params]) or box.execute(stmt_id[, params])', 0)
    end
    if select('#', ...) == 2 and type(given) ~= 'table' then error('Second argument must be a table', 0) end
    if kind == 'number' and statement < 0 then error("Statement id can't be negative", 0) end
    return answer(pcall(execute, statement, given or {}))
end

function internal.guarded.prepare(...)
    local text = ...
    if select('#', ...) ~= 1 or (type(text) ~= 'string' and type(text) ~= 'number') then
        error('Usage: box.prepare(sqlstring)', 0)
    end
    local result, failure = answer(pcall(prepare, tostring(text)))
    if not result then return nil, failure end
    local id = result.stmt_id
    function result.execute(_, given) return box.execute(id, check_parameters(given)) end
    function result.unprepare() return box.unprepare(id) end
    return result
end

function internal.guarded.unprepare(...)
    local id = ...
    if type(id) == 'table' then
        id = id.stmt_id
        if type(id) ~= 'number' then error('Statement id is expected to be numeric', 0) end
    end
    if select('#', ...) ~= 1 or type(id) ~= 'number' then error('Usage: statement:unprepare() or box.unprepare(stmt_id)', 0) end
    if id < 0 then error("Statement id can't be negative", 0) end
    return answer(pcall(unprepare, id))
end
