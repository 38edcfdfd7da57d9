-- json: values as JSON text and back.
local native = require('lycosa.json')
local serializer = require('serializer')

local json = serializer.new(function(json, cfg)
    --- The text of a value.
    function json.encode(...)
        local count = select('#', ...)
        if count < 1 or count > 2 then
            error("bad argument #1 to '?' (expected 1 or 2 arguments)", 2)
        end
        local value, options = ...
        if count == 2 and type(options) == 'nil' then error('attempt to index a nil value', 2) end
        return native.encode(value, serializer.with(cfg, options))
    end

    --- The value of a text.
    function json.decode(...)
        local count = select('#', ...)
        if count < 1 or count > 2 then
            error("bad argument #1 to '?' (expected 1 or 2 arguments)", 2)
        end
        local text, options = ...
        if count == 2 and type(options) == 'nil' then error('attempt to index a nil value', 2) end
        return native.decode(text, serializer.with(cfg, options))
    end
end)

-- Only the module has this one, not those that `new` makes.
json.null = json.NULL

return json
