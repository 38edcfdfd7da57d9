-- tarantool: what this server is, under the names by which programs ask for it.
local clock = require('clock')

local started = clock.monotonic()

return {
    version = _G._TARANTOOL,
    package = 'Lycosa',
    build = { target = jit.os .. '-' .. jit.arch, options = '', compiler = 'rustc', mod_format = 'so', flags = '' },
    uptime = function() return clock.monotonic() - started end,
    pid = function() return tonumber((require('fio').readlink('/proc/self'))) end,
}
