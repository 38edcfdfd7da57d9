-- The functions of functional indexes: compiled once, and called with a tuple.
local internal = require('lycosa.box')

-- Functions by their identity.
local MOST_FUNCTIONS = 1000
local compiled, count = {}, 0

-- The numbers of the tuple's fields by their names.
local names = {}
internal.names_of = function() return names end

local keys = {}

function keys.set_names(list)
    names = {}
    for number, name in ipairs(list) do names[name] = number end
end

function keys.call(identity, tuple, name, body, is_sandboxed)
    local known = compiled[identity]
    if not known then
        if count >= MOST_FUNCTIONS then compiled, count = {}, 0 end
        known = internal.compile(name, body, is_sandboxed)
        compiled[identity], count = known, count + 1
    end
    return known(tuple)
end

return keys
