-- Definitions of indexes: made, altered and dropped, with the sequence that feeds a space.
local internal = require('lycosa.box')
local client_error, change, names_of = internal.client_error, internal.change, internal.names_of
local check_space, check_index, check_options = internal.check_space, internal.check_index, internal.check_options
local lookup, reload, schema_statement = internal.lookup_space, internal.reload_space, internal.schema_statement
local space_methods, index_methods = internal.space_methods, internal.index_methods
local spaces, schema = internal.guarded.space, internal.guarded.schema

local SPACE_SEQUENCE, INDEX, SEQUENCE = 340, 288, 284
local EQ, REQ = box.index.EQ, box.index.REQ

local INDEX_OPTIONS = {
    if_not_exists = 'boolean', type = 'string', parts = 'any', unique = 'boolean', id = 'number',
    sequence = 'any', dimension = 'number', distance = 'string', func = 'any', hint = 'boolean', page_size = 'number',
    range_size = 'number', run_count_per_level = 'number', run_size_ratio = 'number', bloom_fpr = 'number',
}

local TYPE_ALIASES = { num = 'unsigned', uint = 'unsigned', str = 'string', int = 'integer', ['*'] = 'any' }

local function type_name(name)
    local lower = tostring(name):lower()
    return TYPE_ALIASES[lower] or lower
end

-- `{1, 'number', 'name', 'string'}`, `{{1, 'number'}, {field = 2, type = 'string'}}`, `{'name'}` …
local function normalize_parts(space, parts)
    if type(parts) ~= 'table' then parts = { parts } end
    if next(parts) == nil then
        client_error('ILLEGAL_PARAMS', 'Illegal parameters, options.parts must have at least one part')
    end
    local format = space:format()
    local names = names_of(space.id) or {}
    local function field_of(field, i)
        if type(field) == 'number' then
            if field < 1 then
                client_error('ILLEGAL_PARAMS',
                    ('Illegal parameters, options.parts[%d]: field (number) must be one-based'):format(i))
            end
            return field - 1
        end
        if type(field) == 'string' then
            if names[field] then return names[field] - 1 end
            local first, path = field:match('^([^%.%[]+)([%.%[].*)$')
            if first and names[first] then return names[first] - 1, path end
            client_error('ILLEGAL_PARAMS',
                ("Illegal parameters, options.parts[%d]: field was not found by name '%s'"):format(i, field))
        end
        client_error('ILLEGAL_PARAMS',
            ('Illegal parameters, options.parts[%d]: field (name or number) is expected'):format(i))
    end
    local function default_type(number)
        local field = format[number + 1]
        return field and field.type or 'scalar'
    end
    local rows = {}
    local function add(field, kind, extra, i)
        local number, path = field_of(field, i)
        if kind == 'any' then kind = 'scalar' end
        local row = { field = number, type = kind and type_name(kind) or default_type(number) }
        row.path = path or (extra and extra.path)
        local known = format[number + 1]
        if extra and extra.is_nullable ~= nil then
            row.is_nullable = extra.is_nullable
        elseif known and known.is_nullable then
            row.is_nullable = true
        end
        local collation = extra and extra.collation
        if type(collation) == 'string' then
            local found = internal.select(276, 1, EQ, { collation }, 0, 1)[1]
            if not found then
                client_error('ILLEGAL_PARAMS',
                    ("Illegal parameters, options.parts[%d]: collation was not found by name '%s'"):format(i, collation))
            end
            collation = found[1]
        end
        row.collation = collation
        rows[#rows + 1] = setmetatable(row, { __serialize = 'map' })
    end
    local nested = false
    for _, part in ipairs(parts) do if type(part) == 'table' then nested = true end end
    if nested then
        for i, part in ipairs(parts) do
            if type(part) ~= 'table' then part = { part } end
            add(part.field or part[1], part.type or part[2], part, i)
        end
    elseif parts.field then
        add(parts.field, parts.type, parts, 1)
    else
        local i = 1
        while i <= #parts do
            local field, kind = parts[i], parts[i + 1]
            if field == 0 then
                client_error('ILLEGAL_PARAMS', 'Illegal parameters, invalid index parts: field_no must be one-based')
            end
            if type(kind) == 'string' and not names[kind] then
                add(field, kind, nil, #rows + 1)
                i = i + 2
            else
                add(field, nil, nil, #rows + 1)
                i = i + 1
            end
        end
    end
    -- Parts that say nothing but their field and type are written in the short form.
    for _, row in ipairs(rows) do
        if row.is_nullable ~= nil or row.collation ~= nil or row.path ~= nil then return rows end
    end
    for i, row in ipairs(rows) do rows[i] = { row.field, row.type } end
    return rows
end

-- What feeds an index: the sequence's row and the field, for `sequence = true`, a number, a name, or a table of both.
local function sequence_of_index(space, index_name, parts, wanted)
    local field
    if type(wanted) == 'table' then wanted, field = wanted.id, wanted.field end
    local row
    if wanted ~= nil and wanted ~= true then
        row = internal.select(SEQUENCE, type(wanted) == 'number' and 0 or 2, EQ, { wanted }, 0, 1)[1]
        if not row then client_error('NO_SUCH_SEQUENCE', ("Sequence '%s' does not exist"):format(tostring(wanted))) end
    end
    local part = parts[1]
    local function field_of(one) return one.field or one[1] end
    if field ~= nil then
        local number = type(field) == 'number' and field - 1 or ((names_of(space.id) or {})[field] or 0) - 1
        part = nil
        for _, one in ipairs(parts) do if field_of(one) == number then part = one end end
        if not part then
            client_error('MODIFY_INDEX', ("Can't create or modify index '%s' in space '%s': sequence field must be a part of "
                .. 'the index'):format(index_name, space.name))
        end
    end
    local kind = part.type or part[2]
    if kind ~= 'unsigned' and kind ~= 'integer' and kind ~= 'number' and kind ~= 'scalar' then
        client_error('MODIFY_INDEX', ("Can't create or modify index '%s' in space '%s': sequence cannot be used with a "
            .. 'non-integer key'):format(index_name, space.name))
    end
    return { row = row, field = field_of(part), path = part.path or '' }
end

local function attach_sequence(space, source)
    local generated = source.row == nil
    local id = generated and schema.sequence.create(space.name .. '_seq').id or source.row[1]
    change('replace', SPACE_SEQUENCE, 0, { space.id, id, generated, source.field, source.path })
    reload(space.id)
end

function space_methods.create_index(space, name, options)
    check_space(space, 'create_index')
    if type(name) ~= 'string' then
        client_error('ILLEGAL_PARAMS', 'Illegal parameters, name should be a string')
    end
    options = check_options(options, INDEX_OPTIONS)
    lookup(space.id)
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
    local unique = options.unique
    if unique == nil then unique = true end
    local kind = tostring(options.type or 'tree')
    local row_options = setmetatable({ unique = unique }, { __serialize = 'map' })
    if options.func then
        client_error('UNSUPPORTED', 'Lycosa does not support functional indexes')
    end
    local parts = normalize_parts(space, options.parts or { 1, 'unsigned' })
    local source = options.sequence and sequence_of_index(space, name, parts, options.sequence)
    schema_statement(space.id, 'insert', INDEX, { space.id, id, name, kind, row_options, parts })
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
    schema_statement(index.space_id, 'delete', INDEX, { index.space_id, index.id })
end

function index_methods.rename(index, name)
    check_index(index, 'rename')
    schema_statement(index.space_id, 'update', INDEX, { index.space_id, index.id }, { { '=', 3, name } })
end

local ALTER_OPTIONS = { name = 'string' }
for name, kind in pairs(INDEX_OPTIONS) do if name ~= 'if_not_exists' then ALTER_OPTIONS[name] = kind end end

function index_methods.alter(index, options)
    check_index(index, 'alter')
    options = check_options(options, ALTER_OPTIONS)
    local space = spaces[index.space_id]
    local row = internal.get(INDEX, 0, { index.space_id, index.id })
    local operations = {}
    local parts = options.parts and normalize_parts(space, options.parts) or row[6]
    if options.name then operations[#operations + 1] = { '=', 3, options.name } end
    if options.parts then operations[#operations + 1] = { '=', 6, parts } end
    if options.type then operations[#operations + 1] = { '=', 4, options.type } end
    if options.unique ~= nil then
        local kept = row[5]
        kept.unique = options.unique
        operations[#operations + 1] = { '=', 5, kept }
    end
    local source = options.sequence and sequence_of_index(space, index.name, parts, options.sequence)
    if options.sequence ~= nil and index.id == 0 then internal.detach_sequence(space.id) end
    if #operations > 0 then schema_statement(index.space_id, 'update', INDEX, { index.space_id, index.id }, operations) end
    if source then attach_sequence(space, source) end
end
