-- budget: 100
-- Finalizers that never end, of objects in use until the state is closed, do not keep the process from its end.
local ffi = require('ffi')
kept = {}
for number = 1, 12 do
    local function endless() while true do pcall(error, number) end end
    if number % 2 == 0 then
        kept[number] = newproxy(true)
        getmetatable(kept[number]).__gc = endless
    else
        kept[number] = ffi.gc(ffi.new('int[1]'), endless)
    end
end
assert(#kept == 12)
