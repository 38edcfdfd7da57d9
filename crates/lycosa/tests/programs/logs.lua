-- The log of a program: `log.cfg` before and after `box.cfg`, levels, lines of JSON. Prints what it says.
local log = require('log')
local json = require('json')

-- Places in errors are those of each server's own files.
local function show(...)
    local shown = {}
    for i = 1, select('#', ...) do
        local value = select(i, ...)
        if type(value) == 'cdata' then
            value = {value.type, value.code, value.message}
        elseif type(value) == 'string' then
            value = value:gsub('^builtin/log.lua:%d+: ', '')
        end
        shown[i] = value == nil and json.NULL or value
    end
    print(json.encode(shown))
end
local function configured() return log.cfg.level, log.cfg.format, log.cfg.log, log.cfg.nonblock end

show(configured())
show(pcall(log.cfg, {level = 'nope'}))
show(pcall(log.cfg, {level = {}}))
show(pcall(log.cfg, {format = 'xml'}))
show(pcall(log.cfg, {log = 'program.log', level = 6, format = 'json'}))
show(configured())
show(pcall(log.cfg, {log = 'other.log'}))
show(pcall(log.cfg, {nonblock = true}))
log.info('a "text"\n')
log.verbose({kind = 'table', message = 'of a table'})
log.debug('not this one')
log.error('%s %d', 'number', 5)

show(pcall(box.cfg, {log = 'other.log'}))
show(pcall(box.cfg, {log = 'program.log', log_level = 'crit'}))
show(box.cfg.log, box.cfg.log_level, box.cfg.log_format)
show(configured())
log.warn('nor this one')
log.level(5)
show(box.cfg.log_level, log.cfg.level)
log.log_format('plain')
show(box.cfg.log_format)
show(pcall(box.cfg, {log = 'other.log'}))
show(pcall(box.cfg, {log_nonblock = true}))
show(pcall(box.cfg, {log_format = 'xml'}))
show(pcall(box.cfg, {log_level = {}}))
show(pcall(box.cfg, {log_level = 'x'}))
show(pcall(box.cfg, {log_format = 'json', log_level = 0}))
show(configured())
log.error('silence')

-- The program's own lines, in the order of their members' names.
local own = {}
for line in io.lines('program.log') do
    local done, entry = pcall(json.decode, line)
    if done and entry.file and entry.file:match('logs.lua$') then
        own[#own + 1] = {entry.level, entry.message, entry.kind or json.NULL, entry.line, entry.cord_name,
            entry.fiber_name, entry.pid == require('tarantool').pid(), entry.time:match('^%d+%-%d+%-%d+T%d+:%d+:%d+%.%d+') ~= nil}
    end
end
for _, line in ipairs(own) do print(json.encode(line)) end

-- Each line of the log is JSON, or a text that was written while it was to be one.
local last
for line in io.lines('program.log') do last = line end
show(last ~= nil and not last:match('silence'))
os.exit(0)
