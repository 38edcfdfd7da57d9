-- yaml: values as YAML documents and back.
local native = require('lycosa.yaml')
local serializer = require('serializer')

return serializer.new(function(yaml, cfg)
    --- The document of a value. Options name a tag handle and its prefix, for pushes of the console.
    function yaml.encode(...)
        local count = select('#', ...)
        local value, options = ...
        if count < 1 or count > 2 or (options ~= nil and type(options) ~= 'table') then
            error('Usage: encode(object, {tag_prefix = <string>, tag_handle = <string>})', 2)
        end
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
            local handle, prefix = tostring(text):match('^%%TAG%s+(%S+)%s+(%S+)')
            return handle, prefix
        end
        return native.decode(tostring(text), cfg)
    end
end)
