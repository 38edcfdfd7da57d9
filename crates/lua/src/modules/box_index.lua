-- Definitions of indexes: made, altered and dropped, with the sequence that feeds a space.
local internal = require('lycosa.box')
local client_error, change, names_of = internal.client_error, internal.change, internal.names_of
local check_space, check_index, check_options = internal.check_space, internal.check_index, internal.check_options
local lookup, reload, schema_statement = internal.lookup_space, internal.reload_space, internal.schema_statement
local space_methods, index_methods = internal.space_methods, internal.index_methods
local spaces, schema = internal.guarded.space, internal.guarded.schema

local SPACE_SEQUENCE, INDEX, SEQUENCE, FUNCTION, FUNC_INDEX = 340, 288, 284, 296, 372
local EQ, REQ = box.index.EQ, box.index.REQ

local INDEX_OPTIONS = {
    if_not_exists = 'boolean', name = 'string', type = 'string', parts = 'table', unique = 'boolean', id = 'number',
    sequence = 'boolean, number, string, table', dimension = 'number', distance = 'string', func = 'number, string',
    page_size = 'number', range_size = 'number', run_count_per_level = 'number', run_size_ratio = 'number', bloom_fpr = 'number',
}

-- Options that the row of an index keeps as they are.
local ROW_OPTIONS = {
    'dimension', 'distance', 'page_size', 'range_size', 'run_count_per_level', 'run_size_ratio', 'bloom_fpr',
}

local TYPE_ALIASES = { num = 'unsigned', uint = 'unsigned', str = 'string', int = 'integer', ['*'] = 'any' }

local function type_name(name)
    local lower = name:lower()
    return TYPE_ALIASES[lower] or lower
end

local function illegal(text, ...) client_error('ILLEGAL_PARAMS', 'Illegal parameters, ' .. text:format(...)) end

-- The number of a field from 0, and the path inside of it: `2`, `'name'`, `'name.path'`, `'[2].path'`, `'["name"].path'`.
local function resolve_field(field, names, place)
    local number, path
    if type(field) == 'number' then
        number = field
    elseif type(field) ~= 'string' then
        illegal('%s: field (name or number) is expected', place)
    elseif names[field] then
        number = names[field]
    else
        local digits = field:match('^%[(%d+)%]')
        local quoted = field:match('^%["([^%]]+)"%]') or field:match("^%['([^%]]+)'%]")
        local name = field:match('^([^.[]+)')
        if digits then
            number, path = tonumber(digits), field:sub(#digits + 3)
        elseif quoted and names[quoted] then
            number, path = names[quoted], field:sub(#quoted + 5)
        elseif name and names[name] then
            number, path = names[name], field:sub(#name + 1)
        else
            illegal("%s: field was not found by name '%s'", place, field)
        end
    end
    if number <= 0 then illegal('%s: field (number) must be one-based', place) end
    return number - 1, path
end

-- The number of a collation with this name.
local function collation_of(name, place)
    local function find(key) return internal.select(276, 1, EQ, { key }, 0, 1)[1] end
    local found = find(name) or find(name:lower())
    if not found then illegal("%s: collation was not found by name '%s'", place, name) end
    return found[1]
end

-- `{1, 'unsigned', 2, 'string'}`: fields and types by turns, which say all.
local function flat_parts(parts)
    if #parts % 2 ~= 0 then illegal('options.parts: expected field_no (number), type (string) pairs') end
    local rows = {}
    for i = 1, #parts, 2 do
        local field, kind = parts[i], parts[i + 1]
        if field == 0 then illegal('invalid index parts: field_no must be one-based') end
        if type(field) ~= 'number' or type(kind) ~= 'string' then
            illegal('options.parts: expected field_no (number), type (string) pairs')
        end
        rows[#rows + 1] = { field - 1, type_name(kind) }
    end
    return rows
end

-- Parts as a row of `_index` has them. Each may be a field, or a table with its field, type and options; what is not said of
-- the type and of nil comes from the format of the space. Options that are unknown go into the row, which is refused then.
local function normalize_parts(space, parts)
    if #parts == 0 then illegal('options.parts must have at least one part') end
    if type(parts[1]) == 'number' and type(parts[2]) == 'string' then return flat_parts(parts) end
    local format, names = space:format(), names_of(space.id) or {}
    local rows, is_short = {}, true
    for i = 1, #parts do
        local part, place = parts[i], ('options.parts[%d]'):format(i)
        local row = {}
        for key, value in pairs(type(part) == 'table' and part or { part }) do
            if key == 1 then key = 'field' elseif key == 2 then key = 'type' end
            if key == 'collation' then value = collation_of(value, place) end
            row[key] = value
            if key ~= 'field' and key ~= 'type' then is_short = false end
        end
        local path
        row.field, path = resolve_field(row.field, names, place)
        row.path = path or row.path
        local known = format[row.field + 1]
        if row.type == nil then
            row.type = known and known.type or 'scalar'
        elseif type(row.type) ~= 'string' then
            illegal('%s: type (string) is expected', place)
        end
        row.type = type_name(row.type)
        if row.is_nullable == nil then
            row.is_nullable = known and known.is_nullable or nil
        elseif type(row.is_nullable) ~= 'boolean' then
            illegal('%s: type (boolean) is expected', place)
        end
        if row.path ~= nil or row.is_nullable ~= nil then is_short = false end
        rows[i] = setmetatable(row, { __serialize = 'map' })
    end
    -- Parts that say nothing but their field and type are written in the short form.
    if is_short then
        for i, row in ipairs(rows) do rows[i] = { row.field, row.type } end
    end
    return rows
end

-- The parts of an index that names none: the first field, or the second of a BITSET or RTREE, with the type that the format
-- gives it.
local function default_parts(space, kind)
    local field = (kind == 'rtree' or kind == 'bitset') and 2 or 1
    local known = space:format()[field]
    if known and known.type ~= 'any' then return { { field, known.type } } end
    return { field, kind == 'rtree' and 'array' or 'unsigned' }
end

-- The number of the function whose keys an index has.
local function key_function(func)
    if type(func) == 'number' then return func end
    local row = internal.select(FUNCTION, 2, EQ, { func }, 0, 1)[1]
    if not row then client_error('NO_SUCH_FUNCTION', ("Function '%s' does not exist"):format(func)) end
    return row[1]
end

-- What a row of `_index` says about the index beside its parts.
local function row_options(options, unique)
    local row = { unique = unique }
    for _, name in ipairs(ROW_OPTIONS) do row[name] = options[name] end
    if options.func ~= nil then row.func = key_function(options.func) end
    return setmetatable(row, { __serialize = 'map' })
end

-- What an index that is made or altered is to be fed by, for `sequence = true`, a number, a name, or a table of `id` and
-- `field`: the number of the sequence, whether it is the space's own, and the place that it fills. What is not said stays as
-- it is attached now. A sequence that is still to be made has no number.
local function sequence_of_index(space, index_id, index_name, parts, wanted)
    local function wrong(reason)
        client_error('MODIFY_INDEX', ("Can't create or modify index '%s' in space '%s': %s"):format(index_name, space.name, reason))
    end
    if index_id ~= 0 then wrong('sequence cannot be used with a secondary key') end
    if type(wanted) ~= 'table' then wanted = { id = wanted ~= true and wanted or nil } end
    local attached = internal.get(SPACE_SEQUENCE, 0, { space.id }) or {}
    local source = { field = attached[4], path = attached[5] }
    if wanted.id ~= nil then
        local row = internal.select(SEQUENCE, type(wanted.id) == 'number' and 0 or 2, EQ, { wanted.id }, 0, 1)[1]
        if not row then client_error('NO_SUCH_SEQUENCE', ("Sequence '%s' does not exist"):format(tostring(wanted.id))) end
        source.id, source.is_own = row[1], false
        local user = internal.select(SPACE_SEQUENCE, 1, EQ, { row[1] }, 0, 1)[1]
        if user and user[3] then
            client_error('ALTER_SPACE', ("Can't modify space '%s': can not attach generated sequence"):format(space.name))
        end
    else
        source.is_own = true
        if attached[3] then source.id = attached[2] end
    end
    if wanted.field ~= nil then
        source.field, source.path = resolve_field(wanted.field, names_of(space.id) or {}, 'sequence field')
    end
    local function place_of(part) return part.field or part[1], part.path or '' end
    local filled = source.field == nil and parts[1]
    if filled then source.field, source.path = place_of(filled) end
    source.path = source.path or ''
    for _, part in ipairs(parts) do
        local field, path = place_of(part)
        if not filled and field == source.field and path == source.path then filled = part end
    end
    if not filled then wrong('sequence field must be a part of the index') end
    local kind = filled.type or filled[2]
    if kind ~= 'unsigned' and kind ~= 'integer' then wrong('sequence cannot be used with a non-integer key') end
    return source
end

local function attach_sequence(space, source)
    local id = source.id or schema.sequence.create(space.name .. '_seq').id
    change('replace', SPACE_SEQUENCE, 0, { space.id, id, source.is_own, source.field, source.path })
    reload(space.id)
end

function space_methods.create_index(space, name, options)
    check_space(space, 'create_index')
    internal.check_space_exists(space)
    if type(name) ~= 'string' then illegal('name should be a string') end
    options = check_options(options, INDEX_OPTIONS)
    local known = space.index[name]
    if known then
        if options.if_not_exists then return known, 'not created' end
        client_error('INDEX_EXISTS', ("Index '%s' already exists"):format(name))
    end
    local id = options.id
    if id == nil then
        id = 0
        local last = internal.select(INDEX, 0, REQ, { space.id }, 0, 1)[1]
        if last then id = last[2] + 1 end
    end
    local kind = options.type or 'tree'
    local unique = options.unique
    if unique == nil then unique = kind ~= 'rtree' and kind ~= 'bitset' end
    local parts = normalize_parts(space, options.parts or default_parts(space, kind))
    local row = row_options(options, unique)
    local source = options.sequence and sequence_of_index(space, id, name, parts, options.sequence)
    schema_statement(space.id, 'insert', INDEX, { space.id, id, name, kind, row, parts })
    if row.func ~= nil then schema_statement(space.id, 'insert', FUNC_INDEX, { space.id, id, row.func }) end
    if source then attach_sequence(space, source) end
    return space.index[id]
end

function schema.index.create(space_id, name, options) return spaces[space_id]:create_index(name, options) end

function index_methods.drop(index)
    check_index(index, 'drop')
    if index.id == 0 then
        if #internal.system_rows(INDEX, index.space_id) > 1 then
            client_error('DROP_PRIMARY_KEY', ("Can't drop primary key in space '%s' while secondary keys exist"):format(
                spaces[index.space_id].name))
        end
        internal.detach_sequence(index.space_id)
    end
    if internal.get(FUNC_INDEX, 0, { index.space_id, index.id }) then
        schema_statement(index.space_id, 'delete', FUNC_INDEX, { index.space_id, index.id })
    end
    schema_statement(index.space_id, 'delete', INDEX, { index.space_id, index.id })
end

function index_methods.rename(index, name)
    check_index(index, 'rename')
    if type(name) ~= 'string' then client_error('ILLEGAL_PARAMS', 'Illegal parameters, name should be a string') end
    schema_statement(index.space_id, 'update', INDEX, { index.space_id, index.id }, { { '=', 3, name } })
end

local ALTER_OPTIONS = {}
for name, kind in pairs(INDEX_OPTIONS) do if name ~= 'if_not_exists' then ALTER_OPTIONS[name] = kind end end

function index_methods.alter(index, options)
    check_index(index, 'alter')
    options = check_options(options, ALTER_OPTIONS)
    local space = spaces[index.space_id]
    local row = internal.get(INDEX, 0, { index.space_id, index.id })
    local operations = {}
    local parts = options.parts and normalize_parts(space, options.parts) or row[6]
    if options.id ~= nil then operations[#operations + 1] = { '=', 2, options.id } end
    if options.name then operations[#operations + 1] = { '=', 3, options.name } end
    if options.type then operations[#operations + 1] = { '=', 4, options.type } end
    if options.parts then operations[#operations + 1] = { '=', 6, parts } end
    local kept, is_other = row[5], false
    for option, value in pairs(row_options(options, options.unique)) do kept[option], is_other = value, true end
    if is_other then operations[#operations + 1] = { '=', 5, kept } end
    local source = options.sequence and sequence_of_index(space, index.id, index.name, parts, options.sequence)
    if options.sequence ~= nil and index.id == 0 then internal.detach_sequence(space.id, source and source.id) end
    if #operations > 0 then schema_statement(index.space_id, 'update', INDEX, { index.space_id, index.id }, operations) end
    if kept.func ~= nil then schema_statement(space.id, 'insert', FUNC_INDEX, { space.id, index.id, kept.func }) end
    if source then attach_sequence(space, source) end
end
