-- Rights on objects that are named by their numbers, and sequences that are renamed or dropped while rights on them stand.
box.cfg{ log = 'log' }
local json = require('json')

local function try(what, f, ...)
    local done, result = pcall(f, ...)
    if done then
        print(what, json.encode(result))
    else
        print(what, type(result) == 'cdata' and result.code, tostring(result))
    end
end

box.schema.user.create('u')
local user = box.space._user.index.name:get('u')[1]
local function rights()
    local found = {}
    for _, row in box.space._priv.index[0]:pairs(user) do found[#found + 1] = { row[3], row[4], row[5] } end
    return found
end

local space = box.schema.space.create('t')
space:create_index('pk')
box.schema.func.create('f')
local function number_of(name) return box.space._func.index.name:get(name)[1] end
for _, call in ipairs({ 'grant', 'revoke' }) do
    local act = box.schema.user[call]
    try(call, act, 'u', 'read', 'space', space.id)
    try(call, act, 'u', 'read', 'space', 9999)
    try(call, act, 'u', 'execute', 'function', number_of('f'))
    try(call, act, 'u', 'execute', 'function', 9999)
    try(call, act, 'u', 'read', 'sequence', 9999)
    try(call, act, user, 'write', 'space', space.id, { if_not_exists = true })
    try('rights', rights)
end

local sequence = box.schema.sequence.create('one')
box.schema.user.grant('u', 'read,write', 'sequence', 'one')
box.schema.user.grant('u', 'read', 'space', '_space')
sequence:next()
try('rename', function()
    sequence:alter{ name = 'two', step = 5 }
    return { box.sequence.one ~= nil, box.sequence.two ~= nil, box.sequence.two.name, box.sequence.two:next() }
end)
try('rename', box.schema.sequence.alter, 'two', { name = 'three' })
try('name', function() return { box.sequence.three.name, box.sequence.two ~= nil } end)
try('type', function() box.sequence.three:alter{ name = 5 } end)
try('option', function() box.sequence.three:alter{ if_not_exists = true } end)
try('rights', rights)
try('drop', function() box.sequence.three:drop() return { box.sequence.three ~= nil, rights() } end)
os.exit(0)
