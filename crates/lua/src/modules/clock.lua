-- clock: times of the day, of the machine, of the process and of the thread.
local nanoseconds = require('lycosa.system').nanoseconds

local clock = {}

-- Tarantool's functions are C functions, which refuse arguments.
local function check_none(...)
    if select('#', ...) > 0 then error('wrong number of arguments for function call', 3) end
end

for name, source in pairs({ time = 'realtime', realtime = 'realtime', monotonic = 'monotonic', proc = 'process', thread = 'thread' }) do
    --- Seconds.
    clock[name] = function(...)
        check_none(...)
        return tonumber(nanoseconds(source)) / 1e9
    end
    --- Nanoseconds.
    clock[name .. '64'] = function(...)
        check_none(...)
        return nanoseconds(source)
    end
end

--- Calls a function; returns a table of the processor seconds that it took and its results.
function clock.bench(call, ...)
    local before = clock.proc()
    local results = { 0, call(...) }
    results[1] = clock.proc() - before
    return results
end

return clock
