-- log: lines for the process's log, with levels and formats.
local say = require('lycosa.log').say

local LEVELS = { fatal = 0, syserror = 1, error = 2, crit = 3, warn = 4, info = 5, verbose = 6, debug = 7 }
local current = LEVELS.info

local function text_of(format, ...)
    if select('#', ...) > 0 and type(format) ~= 'string' and type(format) ~= 'number' then
        error(("bad argument #1 to '?' (string expected, got %s)"):format(type(format)), 3)
    end
    if type(format) == 'table' then
        local loaded, json = pcall(require, 'json')
        return loaded and json.encode(format) or tostring(format)
    end
    format = tostring(format)
    if select('#', ...) == 0 then return format end
    local done, text = pcall(string.format, format, ...)
    if done then return text end
    -- Old string.format refuses objects for %s: they are shown as tostring does.
    local values = { ... }
    for i = 1, select('#', ...) do
        local kind = type(values[i])
        if kind ~= 'number' and kind ~= 'string' then values[i] = tostring(values[i]) end
    end
    return string.format(format, unpack(values, 1, select('#', ...)))
end

local log = {}

local function writer(name)
    local level = LEVELS[name]
    return function(...)
        if level > current then return end
        -- Only lines about errors show their place.
        if level >= LEVELS.warn then return say(level, nil, nil, text_of(...)) end
        local place = debug.getinfo(2, 'Sl')
        local file, line = '?', 0
        if place then file, line = place.short_src, place.currentline or 0 end
        say(level, file, line, text_of(...))
    end
end

log.error, log.warn, log.info = writer('error'), writer('warn'), writer('info')
log.verbose, log.debug, log.crit = writer('verbose'), writer('debug'), writer('crit')

function log.level(level)
    if type(level) ~= 'number' and type(level) ~= 'string' then error('must be a number or a string', 2) end
    local number = type(level) == 'string' and (LEVELS[level] or tonumber(level)) or level
    if type(number) ~= 'number' then
        error('expected crit,warn,info,debug,syserror,verbose,fatal,error', 2)
    end
    current = number
end

function log.log_format(format)
    if format ~= 'plain' and format ~= 'json' then error('expected json,plain', 2) end
end

function log.pid() return require('lycosa.system').pid() end
function log.rotate()
    local internal = package.loaded['lycosa.box']
    if internal then internal.reopen_log() end
end
function log.logger_pid() return 0 end

local config = { log = nil, nonblock = nil, level = 5, format = 'plain' }
log.cfg = setmetatable({}, {
    __call = function(_, options)
        for name, value in pairs(options or {}) do config[name] = value end
        if options and options.level then log.level(options.level) end
    end,
    __index = config,
})
config.level = current

return log
