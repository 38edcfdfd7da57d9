-- json: values as JSON text and back.
local native = require('lycosa.json')
local serializer = require('serializer')

return serializer.new(function(json, cfg)
    json.null = json.NULL

    --- The text of a value.
    function json.encode(...)
        local count = select('#', ...)
        if count < 1 or count > 2 then
            error("bad argument #1 to '?' (expected 1 or 2 arguments)", 2)
        end
        local value, options = ...
        return native.encode(value, serializer.with(cfg, options))
    end

    --- The value of a text.
    function json.decode(...)
        local count = select('#', ...)
        if count < 1 or count > 2 then
            error("bad argument #1 to '?' (expected 1 or 2 arguments)", 2)
        end
        local text, options = ...
        return native.decode(text, serializer.with(cfg, options))
    end
end)
