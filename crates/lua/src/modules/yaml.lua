-- yaml: values as YAML documents and back.
local native = require('lycosa.yaml')
local serializer = require('serializer')

-- Whether options name both parts of a tag, or none.
local function is_tag(options)
    if type(options) ~= 'table' then return false end
    local handle, prefix = options.tag_handle, options.tag_prefix
    return handle == nil and prefix == nil or type(handle) == 'string' and type(prefix) == 'string'
end

-- Why a tag cannot be declared; nil if it can.
local function wrong_tag(handle, prefix)
    if handle:sub(1, 1) ~= '!' then return "tag handle must start with '!'" end
    if handle:sub(-1) ~= '!' then return "tag handle must end with '!'" end
    if handle:sub(2, -2):find('[^%w_-]') then return 'tag handle must contain alphanumerical characters only' end
    if prefix == '' then return 'tag prefix must not be empty' end
end

-- The tag that the first document of a text declares; nil and a reason if it declares several.
local function tag_of(text)
    local handle, prefix
    for line in text:gmatch('[^\n]+') do
        if line:sub(1, 3) == '---' then break end
        local one, its_prefix = line:match('^%%TAG%s+(%S+)%s+(%S+)')
        if one then
            if handle then return nil, 'can not decode multiple tags' end
            handle, prefix = one, its_prefix
        end
    end
    return handle, prefix
end

return serializer.new(function(yaml, cfg)
    --- The document of a value. Options name a tag handle and its prefix, for pushes of the console.
    function yaml.encode(...)
        local count = select('#', ...)
        local value, options = ...
        if count < 1 or count > 2 or (options ~= nil and not is_tag(options)) then
            error('Usage: encode(object, {tag_prefix = <string>, tag_handle = <string>})', 2)
        end
        local wrong = options and options.tag_handle and wrong_tag(options.tag_handle, options.tag_prefix)
        if wrong then return nil, wrong end
        return native.encode(value, cfg, options and options.tag_handle, options and options.tag_prefix)
    end

    --- The values of all documents in a text.
    function yaml.decode(...)
        local count = select('#', ...)
        local text, options = ...
        local is_text = type(text) == 'string' or type(text) == 'number'
        if count < 1 or count > 2 or not is_text or (options ~= nil and type(options) ~= 'table') then
            error('Usage: yaml.decode(document, [{tag_only = boolean}])', 2)
        end
        if options ~= nil and options.tag_only then
            return tag_of(tostring(text))
        end
        return native.decode(tostring(text), cfg)
    end
end)
