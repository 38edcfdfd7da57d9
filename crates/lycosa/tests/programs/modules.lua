-- Where modules of a program are found, by which names errors know them, and what the log says of a server that is away.
local fiber = require('fiber')
local fio = require('fio')

local function write(path, text)
    fio.mktree(fio.dirname(path))
    local file = fio.open(path, { 'O_CREAT', 'O_WRONLY', 'O_TRUNC' }, tonumber('644', 8))
    file:write(text)
    file:close()
end

local folder = fio.cwd()
local function shown(text) return (tostring(text):gsub(folder, '<cwd>', 1)) end
local says = "return { place = debug.getinfo(1, 'S').source, fail = function() error('oops') end }"

write('plain.lua', says)
write('nested/init.lua', says)
write('nested/inner.lua', says)
write('.rocks/share/tarantool/rock.lua', says)
write('.rocks/share/tarantool/boulder/init.lua', says)
write('.rocks/share/tarantool/plain.lua', "error('the folder itself comes first')")
for _, name in ipairs({ 'plain', 'nested', 'nested.inner', 'rock', 'boulder' }) do
    local module = require(name)
    print(name, shown(module.place), shown(select(2, pcall(module.fail))), shown(package.search(name)))
end
print(package.search('nowhere'), pcall(require, 'nowhere') == false)

-- Rocks of the folders above are found too.
fio.mktree('below/further')
fio.chdir('below/further')
package.loaded.rock = nil
print(shown(require('rock').place), shown(package.searchroot()))
package.setsearchroot(folder .. '/nested')
print(shown(require('inner').place), shown(package.searchroot()))
package.setsearchroot(box.NULL)
print(shown(package.searchroot()), package.search('inner'))
fio.chdir(folder)

-- The same cause is said once.
-- A command takes the lines; what it does not take at once is lost.
box.cfg{log = '| cat > log', log_level = 4}
local connection = require('net.box').connect('127.0.0.1:1', { reconnect_after = 0.01, wait_connected = false })
local function times()
    local count = 0
    for line in io.lines(fio.path.exists('log') and 'log' or '/dev/null') do
        if line:find('127.0.0.1:1: Connection refused', 1, true) then count = count + 1 end
    end
    return count
end
while times() == 0 do fiber.sleep(0.01) end
fiber.sleep(0.2)
print(times(), connection.state ~= 'active')
connection:close()
-- Values that a format does not ask for, numbers of another kind, and an empty text at both ends.
for _, arguments in ipairs({{'b', 1, 2}, {'A', 'x', 1}, {'d', '1.5'}, {'d', {}}, {'f', 7LL}, {'d', box.NULL}, {'b', '1'}, {'i', box.NULL}, {'bb', 1}, {''}}) do
    local done, packed = pcall(require('pickle').pack, unpack(arguments))
    print(done, done and packed:hex() or packed)
end
print((''):startswith('', 5, 3), ('abc'):endswith('', 9, -9), ('abc'):startswith('', 2), ('abc'):endswith('c', 3))
os.exit(0)
