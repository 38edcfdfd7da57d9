-- clock: times of the day, of the machine, of the process and of the thread.
local nanoseconds = require('lycosa.system').nanoseconds

local clock = {}

for name, source in pairs({ time = 'realtime', realtime = 'realtime', monotonic = 'monotonic', proc = 'process', thread = 'thread' }) do
    --- Seconds.
    clock[name] = function() return tonumber(nanoseconds(source)) / 1e9 end
    --- Nanoseconds.
    clock[name .. '64'] = function() return nanoseconds(source) end
end

--- Calls a function; returns a table of the processor seconds that it took and its results.
function clock.bench(call, ...)
    local before = clock.proc()
    local results = { 0, call(...) }
    results[1] = clock.proc() - before
    return results
end

return clock
