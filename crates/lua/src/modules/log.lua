-- log: lines for the process's log, with levels and formats.
local say = require('lycosa.log').say

local LEVELS = { fatal = 0, syserror = 1, error = 2, crit = 3, warn = 4, info = 5, verbose = 6, debug = 7 }
local LEVEL_NAMES = 'crit,warn,info,debug,syserror,verbose,fatal,error'

-- What `log.cfg` and `box.cfg` have set.
local settings = { level = LEVELS.info, format = 'plain' }
-- Where lines go is chosen once, by the first of both.
local is_chosen = false

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
        if level > settings.level then return end
        -- Lines of text show the places of errors alone.
        local is_json = settings.format == 'json'
        if level >= LEVELS.warn and not is_json then return say(level, nil, nil, text_of(...)) end
        local place = debug.getinfo(2, 'Sl')
        local file, line = '?', 0
        if place then file, line = place.short_src, place.currentline or 0 end
        say(level, file, line, text_of(...), is_json and type((...)) == 'table')
    end
end

log.error, log.warn, log.info = writer('error'), writer('warn'), writer('info')
log.verbose, log.debug, log.crit = writer('verbose'), writer('debug'), writer('crit')

-- The number of a level; nil and what is wrong with it.
local function level_number(level)
    if type(level) ~= 'number' and type(level) ~= 'string' then return nil, 'must be a number or a string' end
    local number = type(level) == 'string' and (LEVELS[level] or tonumber(level)) or level
    if type(number) ~= 'number' then return nil, 'expected ' .. LEVEL_NAMES end
    return number
end

local function is_format(format) return format == 'plain' or format == 'json' end

local function apply()
    local internal = package.loaded['lycosa.box']
    if not internal or not internal.log_as then return end
    local level = settings.level
    -- Not a number, and numbers beyond the levels, are the nearest level.
    internal.log_as(level == level and math.max(0, math.min(level, LEVELS.debug)) or 0, settings.format == 'json')
end

function log.level(level)
    local number, fault = level_number(level)
    if not number then error(fault, 2) end
    settings.level = number
    apply()
end

function log.log_format(format)
    if not is_format(format) then error('expected json,plain', 2) end
    settings.format = format
    apply()
end

-- 0, as in a Tarantool whose log goes to no command: the number of such a command's process is not known here.
function log.pid() return 0 end
function log.rotate()
    local internal = package.loaded['lycosa.box']
    if internal then internal.reopen_log() end
end
function log.logger_pid() return 0 end

local function refuse(option, fault) error(("log.cfg: '%s' %s"):format(option, fault), 3) end

local function configure(_, options)
    if options == nil then options = {} end
    if type(options) ~= 'table' then error('Usage: log.cfg({log = ..., level = ..., format = ..., nonblock = ...})', 2) end
    if is_chosen and options.log ~= nil and options.log ~= settings.log then
        refuse('log', "can't be set dynamically")
    end
    if is_chosen and options.nonblock ~= nil and options.nonblock ~= (settings.nonblock or false) then
        refuse('nonblock', "can't be set dynamically")
    end
    if options.format ~= nil and not is_format(options.format) then refuse('format', 'expected json,plain') end
    local number
    if options.level ~= nil then
        local fault
        number, fault = level_number(options.level)
        if not number then refuse('level', fault) end
    end
    if options.nonblock ~= nil and type(options.nonblock) ~= 'boolean' then
        refuse('nonblock', "option must be 'true' or 'false'")
    end
    if options.log ~= nil and not is_chosen then
        local internal = package.loaded['lycosa.box']
        if type(options.log) ~= 'string' then refuse('log', 'must be a file or a command') end
        local fault = internal and internal.log_to and internal.log_to(options.log)
        if fault then error(fault, 2) end
        settings.log = options.log
    end
    if options.nonblock ~= nil then settings.nonblock = options.nonblock end
    is_chosen = true
    settings.format = options.format or settings.format
    settings.level = number or settings.level
    apply()
end

log.cfg = setmetatable({}, {
    __call = configure,
    __index = settings,
    __newindex = function() error('log.cfg is changed by calls: log.cfg({level = ...})', 2) end,
    __pairs = function() return pairs(settings) end,
    __serialize = function() return settings end,
})

-- What is wrong with a value of an option.
local function fault_of(option, value)
    if option == 'level' then return select(2, level_number(value)) end
    if option == 'format' then return not is_format(value) and 'expected json,plain' or nil end
    return is_chosen and settings[option] ~= value and "can't be set dynamically" or nil
end

-- For `box.cfg`, whose options of the log are these.
log.box_api = {
    cfg_get = function(option) return settings[option] end,
    cfg_set = function(_, option, value)
        local fault = fault_of(option, value)
        if fault then return false, fault end
        settings[option] = option == 'level' and level_number(value) or value
        if option == 'level' or option == 'format' then apply() end
        return true
    end,
    cfg_set_log_level = function(level) log.level(level) return true end,
    cfg_set_log_format = function(format) log.log_format(format) return true end,
    fault = fault_of,
    level_number = level_number,
    is_configured = function() is_chosen = true end,
}

return log
