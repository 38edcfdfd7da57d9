-- oracle
-- Arguments of `fiber` that are wrong or odd, and numbers that json and yaml write and read in a way of their own.
local fiber = require('fiber')
local json, yaml = require('json'), require('yaml')

local function show(name, body, ...)
    local done, result = pcall(body, ...)
    local text = tostring(result):gsub('^[^ ]*:%d+: ', '')
    print(name, done, done and type(result), text)
end

for _, name in ipairs({ 'create', 'new', 'sleep', 'find', 'cancel', 'kill', 'wakeup', 'join', 'set_joinable', 'id', 'status', 'channel' }) do
    show(name, fiber[name], 'x')
    if name ~= 'id' and name ~= 'status' and name ~= 'channel' then show(name, fiber[name]) end
end
for _, name in ipairs({ 'kill', 'cancel', 'wakeup', 'join', 'find' }) do show(name, fiber[name], 99999) end
show('set_joinable', fiber.set_joinable, 99999, true)
show('sleep', fiber.sleep, -1)
show('sleep', fiber.sleep, '0.001')
show('name', fiber.name, ('x'):rep(300))
show('name', fiber.name, ('x'):rep(300), { truncate = true })
print(#fiber.name())
for _, size in ipairs({ -1, 1.5, '2', {} }) do
    show('channel', function() return fiber.channel(size):size() end)
end
show('join', function() return fiber.create(fiber.sleep, 0.001):join() end)
fiber.name('main')
local shown = json.decode(json.encode(fiber.self()))
print(shown.name, shown.status, shown.id == fiber.id(), type(fiber.clock64()), type(fiber.time64()))
-- A cancelled `cancel` of another fiber does not end this one.
local sleeper = fiber.create(function() pcall(fiber.sleep, 10) end)
fiber.cancel(sleeper)
fiber.yield()
print(sleeper:status())

local texts = {
    '1', '1000000000000000', '1e15', 'nan', 'inf', '-inf', 'Infinity', 'NaN', '.inf', '-5', '100000000000000', '99999999999999',
    '0x10', '0b1', '0b2', '018', '9007199254740992', '18446744073709551615', '18446744073709551616',
    '-9223372036854775808', '-9223372036854775809', '+5', '1e400',
}
for _, text in ipairs(texts) do
    show('yaml ' .. text, yaml.decode, text)
    print((yaml.encode(text):gsub('\n', ' ')))
end
for _, text in ipairs({ 'nan', 'inf', '-inf', 'NaN', 'INF', 'Infinity', '18446744073709551616', '-9223372036854775809' }) do
    show('json ' .. text, json.decode, text)
end
show('encode', json.encode, 1 / 0)
show('encode', json.encode, 1 / 0, { encode_invalid_numbers = false })
show('encode', json.encode, { 0 / 0 }, { encode_invalid_numbers = false, encode_invalid_as_nil = true })
show('decode', json.decode, 'nan', { decode_invalid_numbers = false })
local other = json.new()
other.cfg({ encode_invalid_numbers = false })
show('other', other.encode, { -1 / 0 })
show('json', json.encode, { -1 / 0 })

-- Values that are no texts or whole numbers where those are usual.
local fio, msgpack = require('fio'), require('msgpack')
for _, arguments in ipairs({ { nil }, { 5 }, { {} }, { '12', nil }, { nil, 10 }, { msgpack.NULL }, { true } }) do
    show('tonumber64', tonumber64, unpack(arguments, 1, 2))
end
for _, parts in ipairs({ { 1, 2 }, { '', 1 }, { '/', '/a//' }, { 'a', '' }, { '' }, { true, 'x' }, { 5ULL } }) do
    show('pathjoin', fio.pathjoin, unpack(parts))
end
show('pathjoin', fio.pathjoin, nil, 'a')
show('pathjoin', fio.pathjoin, 'a', nil, 'b')
show('pathjoin', fio.pathjoin, 'a', msgpack.NULL)
show('basename', fio.basename, 'a1', 1)
show('basename', fio.basename, 'a.lua', true)
print(fio.abspath(1) == fio.cwd() .. '/1')
show('ljust', string.ljust, 'a', 2.7)
show('rjust', string.rjust, 'a', 3, 5)
show('center', string.center, 'a', 4.9, '-')
show('encode', json.encode, { 1 }, 'x')
show('encode', json.encode, { 1 }, 5)
show('decode', json.decode, '[1]', true)
show('decode', msgpack.decode, '\1\2\3', 2.5)
show('decode', msgpack.decode, '\1\2\3', 0.5)
os.exit(0)
