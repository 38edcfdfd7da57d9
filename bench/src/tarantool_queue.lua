-- The least that can be called a queue: a space, an index by state, three functions. No owners, no deadlines, no
-- waiting, no statistics but a count. What a Lua module in Tarantool does more than this, it does more slowly.

local queue = {tube = {}}

local READY, TAKEN = 'r', 't'

local function methods(space)
    local next_id = (space.index.primary:max() or {-1})[1] + 1
    local state = space.index.state
    return {
        put = function(_, data)
            local id = next_id
            next_id = id + 1
            return space:insert{id, READY, data}
        end,
        take = function()
            local first = state:min(READY)
            if first ~= nil and first[2] == READY then
                return space:update(first[1], {{'=', 2, TAKEN}})
            end
        end,
        ack = function(_, id)
            local task = space:get(id)
            if task == nil or task[2] ~= TAKEN then
                error('Task was not taken')
            end
            space:delete(id)
            return {id, '-', task[3]}
        end,
        drop = function()
            queue.tube[space.name] = nil
            space:drop()
        end,
    }
end

function queue.create_tube(name)
    local space = box.schema.space.create(name, {if_not_exists = true})
    space:create_index('primary', {parts = {{1, 'unsigned'}}, if_not_exists = true})
    space:create_index('state', {parts = {{2, 'string'}, {1, 'unsigned'}}, if_not_exists = true})
    queue.tube[name] = methods(space)
end

function queue.statistics(name)
    local space = box.space[name]
    if queue.tube[name] ~= nil then
        return {tasks = {ready = space.index.state:count(READY), taken = space.index.state:count(TAKEN)}}
    end
end

-- Tubes of an earlier start.
for _, row in box.space._space:pairs(512, {iterator = 'GE'}) do
    queue.create_tube(row[3])
end

return queue
