-- A program that is loaded again: what it holds in the queue stays. It reloads itself and is reloaded by a signal.
local fiber = require('fiber')
require('package.reload')
local generation = (_G.generation or 0) + 1
if _G.fails then error('this version is broken') end
_G.generation = generation
box.cfg({ log = '/dev/null' })
queue = require('queue')
queue.start()
local tube = queue.create_tube('mail', 'fifottl', { if_not_exists = true })
if generation > 1 then return end

local function check(what, found, wanted)
    if found ~= wanted then error(('%s: %s instead of %s'):format(what, tostring(found), tostring(wanted)), 2) end
end

tube:put('owned')
tube:put('late', { delay = 0.2 })
local owned = tube:take(0)
local waited
local waiter = fiber.create(function() waited = tube:take(30) end)
fiber.sleep(0.01)

package.reload()
check('the program ran again', _G.generation, 2)
check('the generation', package.reload.count, 2)
check('the owner stays', queue.tube.mail:peek(owned[1])[2], 't')
check('acked', queue.tube.mail:ack(owned[1])[2], '-')
for _ = 1, 500 do
    if waited then break end
    fiber.sleep(0.01)
end
check('a waiting take gets the delayed task', waited and waited[3], 'late')

-- A program that fails leaves the old one running, and says why.
_G.fails = true
local done, message = pcall(package.reload)
check('refused', done, false)
check('why', tostring(message):match('this version is broken') ~= nil, true)
check('the generation stays', package.reload.count, 2)
check('the queue goes on', queue.tube.mail:put('x')[2], 'r')

-- A signal does the same.
_G.fails = nil
require('ffi').cdef('int kill(int pid, int signal); int getpid(void);')
require('ffi').C.kill(require('ffi').C.getpid(), 1)
for _ = 1, 500 do
    if _G.generation == 3 then break end
    fiber.sleep(0.01)
end
check('by SIGHUP', _G.generation, 3)

-- SIGTERM runs the triggers of the end.
box.ctl.on_shutdown(function() print('done') io.flush() end)
require('ffi').C.kill(require('ffi').C.getpid(), 15)
fiber.sleep(30)
