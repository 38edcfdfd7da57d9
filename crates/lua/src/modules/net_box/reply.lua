-- What the data of a reply become: values, tuples with the names of their fields, results of SQL.
local internal = require('lycosa.box')
local native = require('lycosa.netbox')
local errors = require('lycosa.net_box.errors')
local keys = require('lycosa.net_box.keys')

local replies = {}

-- Names of the fields of remote tuples. Equal lists share a number, above those of the own spaces.
local FIRST_NUMBER = 0x80000000
local names_by_number, numbers_by_names, next_number = {}, {}, FIRST_NUMBER
local own_names = internal.names_of

internal.names_of = function(space)
    if space >= FIRST_NUMBER then return names_by_number[space] end
    return own_names(space)
end

function replies.number_of(format)
    local names, list = {}, {}
    for position, field in ipairs(format) do
        local name = field.name or field[1]
        if type(name) == 'string' then
            names[name] = position
            list[#list + 1] = ('%d:%s'):format(position, name)
        end
    end
    if #list == 0 then return 0 end
    local text = table.concat(list, '\0')
    if not numbers_by_names[text] then
        numbers_by_names[text], names_by_number[next_number] = next_number, names
        next_number = next_number + 1
    end
    return numbers_by_names[text]
end

function replies.all_values(data) return native.values(data) end
function replies.nothing() return true end
function replies.tuples_of(number) return function(data) return (native.tuples(data, number)) end end
function replies.one_tuple_of(number)
    return function(data)
        local tuples, count = native.tuples(data, number)
        if count > 1 then
            error(errors.new(box.error.MORE_THAN_ONE_TUPLE,
                'Get() doesn\'t support partial keys and non-unique indexes'), 0)
        end
        return tuples[1]
    end
end
function replies.first_tuple_of(number)
    return function(data) return native.tuples(data, number)[1] end
end

local function columns(list)
    local shown = {}
    for i, column in ipairs(list or {}) do shown[i] = { name = column[0], type = column[1] } end
    return shown
end

function replies.sql_result(_, body)
    local fields = native.values(body)
    if fields[keys.SQL_INFO] then
        return { row_count = fields[keys.SQL_INFO][0], autoincrement_ids = fields[keys.SQL_INFO][1] }
    end
    if fields[keys.STATEMENT_ID] then
        return {
            stmt_id = fields[keys.STATEMENT_ID], param_count = fields[keys.BIND_COUNT],
            params = columns(fields[keys.BIND_METADATA]),
            metadata = fields[keys.METADATA] and columns(fields[keys.METADATA]),
        }
    end
    return { metadata = columns(fields[keys.METADATA]), rows = fields[keys.DATA] }
end

return replies
