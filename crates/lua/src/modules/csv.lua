-- csv: comma-separated values, read and written.
local csv = {}

local CHUNK = 4096

local function options_of(options, name)
    if options ~= nil and type(options) ~= 'table' then
        error(('Usage: csv.%s: options are a table, got %s'):format(name, type(options)), 3)
    end
    options = options or {}
    local function char(key, default)
        local value = options[key]
        if value == nil then return default end
        if type(value) ~= 'string' or value == '' then
            error(("csv.%s: %s is one character, got '%s'"):format(name, key, tostring(value)), 4)
        end
        return value:sub(1, 1)
    end
    return char('delimiter', ','), char('quote_char', '"'), options
end

-- A source of text: a string, or an object whose method `read(count)` returns pieces of text and at the end '' or nil.
local function reader(source, size)
    if type(source) == 'string' then
        return function()
            local all = source
            source = nil
            return all
        end
    end
    if type(source) == 'table' and type(source.read) == 'function' then
        return function()
            local piece = source:read(size)
            if piece == '' then return nil end
            return piece
        end
    end
    error('Usage: load(string or object with method read(num)returns string)', 3)
end

-- Returns a function that gives the next row, or nil. White space around a field is not part of it unless it is quoted.
local function rows(source, options, name)
    local delimiter, quote, all = options_of(options, name)
    local read = reader(source, all.chunk_size or CHUNK)
    local text, at, ended = '', 1, false

    local function byte()
        while at > #text do
            if ended then return nil end
            local piece = read()
            if piece == nil then
                ended = true
                return nil
            end
            text, at = piece, 1
        end
        local char = text:sub(at, at)
        at = at + 1
        return char
    end

    -- A carriage return before a line end belongs to it: the character after it is looked at first.
    local kept
    local function next_char()
        local char = kept
        kept = nil
        return char or byte()
    end

    return function()
        local row, field, blanks = {}, {}, {}
        local inside, any = false, false
        local function finish()
            row[#row + 1] = table.concat(field)
            field, blanks = {}, {}
        end
        while true do
            local char = next_char()
            if char == nil then
                if inside then return nil end
                if not any then return nil end
                finish()
                return row
            end
            any = true
            if inside then
                if char == quote then
                    local following = next_char()
                    if following == quote then
                        field[#field + 1] = quote
                    else
                        inside, kept = false, following
                    end
                else
                    field[#field + 1] = char
                end
            elseif char == delimiter then
                finish()
            elseif char == '\n' or char == '\r' then
                if char == '\r' then
                    local following = next_char()
                    if following ~= '\n' then kept = following end
                end
                finish()
                return row
            elseif char == ' ' then
                if #field > 0 then blanks[#blanks + 1] = char end
            else
                for index = 1, #blanks do field[#field + 1] = blanks[index] end
                blanks = {}
                if char ~= quote then
                    field[#field + 1] = char
                elseif #field == 0 then
                    inside = true
                else
                    -- Two quotes inside of a field are one; a single one begins a quoted part.
                    local following = next_char()
                    if following == quote then
                        field[#field + 1] = quote
                    else
                        inside, kept = true, following
                    end
                end
            end
        end
    end
end

--- Iterates over the rows of a text or of an object with a method `read`.
function csv.iterate(source, options)
    local next_row = rows(source, options, 'iterate')
    for _ = 1, options and options.skip_head_lines or 0 do next_row() end
    return function(_, number)
        local row = next_row()
        if row == nil then return nil end
        return number + 1, row
    end, nil, 0
end

--- All rows of a text or of an object with a method `read`.
function csv.load(source, options)
    local next_row = rows(source, options, 'load')
    for _ = 1, options and options.skip_head_lines or 0 do next_row() end
    local all = {}
    for row in next_row do all[#all + 1] = row end
    return all
end

-- A field in quotes if a delimiter, a quote or a line end is in it; its own quotes are doubled, and a byte 0 ends it, as in C.
local function field_text(value, delimiter, quote)
    local text = tostring(value)
    local is_quoted = text:find(delimiter, 1, true) or text:find(quote, 1, true) or text:find('[\r\n]')
    text = text:match('^[^%z]*'):gsub('.', function(char) return char == quote and quote .. quote or nil end)
    return is_quoted and quote .. text .. quote or text
end

-- The fields in the order of `pairs`: a nil is no field, and the fields behind it move up, as in Tarantool.
local function line(row, delimiter, quote)
    local fields = {}
    for _, value in pairs(row) do fields[#fields + 1] = field_text(value, delimiter, quote) end
    return table.concat(fields, delimiter) .. '\n'
end

--- Writes a row, or a list of rows, as text; to an object with a method `write` if there is one, else it is returned.
function csv.dump(list, options, writable)
    if type(list) ~= 'table' or writable ~= nil and type(writable.write) ~= 'function' then
        error('Usage: dump(table[, opts, writable])', 2)
    end
    local delimiter, quote = options_of(options, 'dump')
    local lines = {}
    local function add(text)
        if writable then writable:write(text) else lines[#lines + 1] = text end
    end
    if type(list[1]) == 'table' then
        for _, row in pairs(list) do add(line(row, delimiter, quote)) end
    else
        add(line(list, delimiter, quote))
    end
    if not writable then return table.concat(lines) end
end

return csv
