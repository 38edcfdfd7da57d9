-- internal.argparse: arguments of a command line as a table, for programs that read `arg`.
--
-- `--name value`, `--name=value`, `--flag` and letters as in `-abc`; everything else has the keys 1, 2, 3 and so on.
local argparse = {}

-- A value as an option wants it; `given` is `true` for an option without a value.
local converters = {
    boolean = function(name, given)
        if given == true then return true end
        error(('Bad value for parameter "%s". No value expected, got "%s"'):format(name, given), 0)
    end,
    string = function(name, given)
        if given ~= true then return given end
        error(('Bad value for parameter "%s". Expected string, got nothing'):format(name), 0)
    end,
    number = function(name, given)
        local number = given ~= true and tonumber(given)
        if number then return number end
        error(('Bad value for parameter "%s". Expected number, got %s'):format(name,
            given == true and 'nothing' or ('"%s"'):format(given)), 0)
    end,
}

-- Options by their names: a converter and whether the option may be repeated.
local function read_options(options)
    local known = {}
    for _, option in ipairs(options) do
        local name, kind = option, nil
        if type(option) == 'table' then name, kind = option[1], option[2] end
        local is_list = kind ~= nil and kind:sub(-1) == '+'
        local convert = converters[is_list and kind:sub(1, -2) or kind or '']
        if kind ~= nil and not convert then
            error(('Bad conversion format "%s" provided for %s'):format(kind, name), 0)
        end
        known[name] = { kind = kind, convert = convert, is_list = is_list }
    end
    return known
end

local function bad(place) error(('bad argument #%d: ID not valid'):format(place), 0) end

--- Reads arguments. `options` is a list of names and of `{name, kind}`, where the kind is `boolean`, `string` or `number`,
--- with `+` for a list; without it every name is taken.
function argparse.parse(arguments, options)
    local known = options and read_options(options)
    local parsed, order, values = {}, {}, {}
    arguments = arguments or {}
    local function add(name, value)
        if not values[name] then
            values[name] = {}
            order[#order + 1] = name
        end
        table.insert(values[name], value)
    end
    local place, count = 1, #arguments
    while place <= count do
        local argument = arguments[place]
        if argument:match('^%-%-') then
            local name, value = argument:match('^%-%-([%a_][%w_-]+)=(.*)$')
            name = name or argument:match('^%-%-([%a_][%w_-]+)$') or bad(place)
            local kind = known and known[name] and known[name].kind
            local takes_none = kind == 'boolean' or kind == 'boolean+'
            local following = arguments[place + 1]
            if value == nil and not takes_none and following and following:sub(1, 1) ~= '-' then
                value, place = following, place + 1
            elseif value == nil and not takes_none and following == '-' then
                -- A dash stands for no value.
                place = place + 1
            end
            add(name, value == nil and true or value)
        elseif argument:match('^%-.') then
            for letter in (argument:match('^%-([%a_]+)$') or bad(place)):gmatch('.') do add(letter, true) end
        else
            parsed[#parsed + 1] = argument
        end
        place = place + 1
    end
    local unknown = {}
    for _, name in ipairs(order) do
        local option = known and known[name]
        local given = values[name]
        if known and not option then
            unknown[#unknown + 1] = name
        elseif option and option.convert then
            for i, value in ipairs(given) do given[i] = option.convert(name, value) end
            if option.is_list then parsed[name] = given else parsed[name] = given[#given] end
        elseif #given > 1 then
            parsed[name] = given
        else
            parsed[name] = given[1]
        end
    end
    if #unknown > 0 then error('unknown options: ' .. table.concat(unknown, ', '), 0) end
    return parsed
end

return argparse
