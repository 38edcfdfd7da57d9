-- oracle
local popen = require('popen')
local fiber = require('fiber')

local function show(...)
    local t = {}
    for i = 1, select('#', ...) do t[i] = tostring((select(i, ...))) end
    print(table.concat(t, ' '))
end

local ph = popen.new({ '/bin/sh', '-c', 'cat; echo err >&2; exit 3' }, { stdin = 'pipe', stdout = 'pipe', stderr = 'pipe' })
show(ph:write('hello'), ph:shutdown({ stdin = true }))
local text = ''
repeat
    local piece = ph:read()
    text = text .. piece
until piece == ''
show(text, ph:read({ stderr = true }))
local status = ph:wait()
show(status.state, status.exit_code, ph:info().pid, ph:info().stdin)
show(ph:close(), pcall(ph.info, ph))

local other = 0
fiber.create(function() for _ = 1, 5 do other = other + 1 fiber.sleep(0.01) end end)
local sleeping = popen.new({ '/bin/sleep', '60' }, { stdin = 'devnull', stdout = 'devnull', stderr = 'devnull' })
show(sleeping:info().status.state, sleeping:info().pid ~= nil)
repeat fiber.sleep(0.01) until other == 5
show(other, sleeping:kill())
local ended = sleeping:wait()
show(ended.state, ended.signo)
show((sleeping:terminate()))
sleeping:close()

local shell = popen.shell('echo $((6 * 7))', 'r')
show((shell:read():gsub('\n', '')))
show(shell:wait().exit_code)
shell:close()

local env = popen.new({ '/bin/sh', '-c', 'echo $GREETING' }, { stdout = 'pipe', env = { GREETING = 'hi' } })
show((env:read():gsub('\n', '')))
env:close()
show(pcall(popen.new) == false, pcall(popen.new, { 1 }) == false, pcall(popen.new, { '/bin/true' }, { stdin = 'odd' }) == false)
