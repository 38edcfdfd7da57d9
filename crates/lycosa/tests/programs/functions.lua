-- Functions as objects: what they raise, functions in C whose module is missing.
box.cfg{log_level = 0}
local fiber = require('fiber')
local function show(...)
    local shown = {}
    for place = 1, select('#', ...) do
        local value = select(place, ...)
        shown[place] = type(value) .. ' ' .. (type(value) == 'table' and 'table' or tostring(value):gsub('0x%x+', 'x'):gsub('^[^:]*/', ''))
    end
    print(table.concat(shown, ', '))
end
function raises(kind)
    if kind == 1 then error('text') end
    if kind == 2 then error({1}) end
    if kind == 3 then box.error(box.error.ILLEGAL_PARAMS, 'object') end
    if kind == 4 then error() end
    if kind == 5 then error(5, 0) end
    return kind, {kind}, nil
end
box.schema.func.create('raises')
for kind = 1, 6 do
    show(pcall(box.func.raises.call, box.func.raises, {kind}))
    show(pcall(box.schema.func.call, 'raises', kind))
end
local ok, failure = pcall(box.func.raises.call, box.func.raises, {1})
print(ok, failure.type, failure.code, box.error.last() == failure)
box.schema.func.create('sandboxed', {body = 'function() return box.info end', is_sandboxed = true, setuid = true})
show(select(2, pcall(box.func.sandboxed.call, box.func.sandboxed)).type)
for _, name in ipairs({'missing', 'missing.function', 'a.b.c'}) do
    box.schema.func.create(name, {language = 'C'})
    show(pcall(box.func[name].call, box.func[name]))
end

-- A yield aborts a transaction; statements go on, and the end takes all of them back.
local space = box.schema.space.create('numbers')
space:create_index('primary')
box.begin()
space:insert{1}
fiber.yield()
show(space:get(1), pcall(space.insert, space, {2}))
show(space:get(2), box.is_in_txn())
fiber.yield()
show(space:get(2), pcall(space.insert, space, {3}))
print((pcall(box.savepoint)))
show(pcall(box.commit))
print(box.is_in_txn(), space:count())
box.begin()
space:insert{1}
fiber.yield()
space:insert{2}
box.on_commit(function() print('committed') end)
box.on_rollback(function(changes) for place, old, new in changes() do print('taken back', place, old, new) end end)
show(pcall(box.commit))
box.begin()
space:insert{1}
fiber.yield()
space:insert{2}
box.rollback()
print(box.is_in_txn(), space:count())
show(pcall(box.atomic, function()
    space:insert{1}
    fiber.yield()
    space:insert{2}
    return 5
end))
print(space:count())
space:insert{4}
print(space:count())
os.exit(0)
