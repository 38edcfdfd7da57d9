-- strict: an error where a global variable is read or assigned that nobody declared.
--
-- The main chunk of a program and C functions declare a global by assigning it.
local strict = {}

local meta = getmetatable(_G)
if meta == nil then
    meta = {}
    setmetatable(_G, meta)
end

local declared = {}
local former = { __index = meta.__index, __newindex = meta.__newindex }
local is_on = false

local function may_declare()
    local info = debug.getinfo(3, 'S')
    return info == nil or info.what == 'main' or info.what == 'C'
end

local function assign(globals, name, value)
    if not declared[name] then
        if not may_declare() then
            error(("assign to undeclared variable '%s'"):format(tostring(name)), 2)
        end
        declared[name] = true
    end
    rawset(globals, name, value)
end

local function read(globals, name)
    if not declared[name] and (debug.getinfo(2, 'S') or { what = 'C' }).what ~= 'C' then
        error(("variable '%s' is not declared"):format(tostring(name)), 2)
    end
    return rawget(globals, name)
end

--- From now on undeclared globals are errors.
function strict.on()
    if is_on then return end
    is_on = true
    meta.__newindex, meta.__index = assign, read
end

--- As before `on`.
function strict.off()
    if not is_on then return end
    is_on = false
    meta.__newindex, meta.__index = former.__newindex, former.__index
end

return strict
