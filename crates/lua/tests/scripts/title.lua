-- oracle
local title = require('title')
title.update({ interpretor_name = 'ii', script_name = 's.lua' })
print((title.get()))
title.update('custom')
print((title.get()))
title.update({ status = 'running', tail = 'nothing' })
print((title.get()))
for _, wrong in ipairs({ 1, {}, true }) do print(pcall(title.update, wrong)) end
local text, parts = title.get()
print(text, parts.interpretor_name, parts.script_name, parts.status, parts.custom_title, parts.tail)
local file = io.open('/proc/self/cmdline')
print((file:read('*a'):match('^[^%z]*')))
file:close()
