-- fun: iterators as values, and functions over them (the interface of the library Lua Fun).
--
-- An iterator is a step function, a parameter that does not change, and a state: `step(param, state)` returns the next
-- state and the values that belong to it, or nil at the end. `wrap` puts the three into an object with methods.
-- Iterators are pure: they can be run again from the same state.

local fun, methods = {}, {}
local meta = { __index = methods }

local function wrap(step, param, state)
    return setmetatable({ gen = step, param = param, state = state }, meta), param, state
end
fun.wrap = wrap

function meta.__call(self, param, state)
    return self.gen(param, state)
end

function meta.__tostring()
    return '<generator>'
end

function methods.unwrap(self)
    return self.gen, self.param, self.state
end

local function over_nothing()
    return nil
end

local function over_string(param, state)
    local at = state + 1
    if at > #param then return nil end
    return at, param:sub(at, at)
end

local next_index = ipairs({})
local next_key = pairs({})

local function over_map(param, key)
    local value
    key, value = next_key(param, key)
    return key, key, value
end

-- The three parts of anything that can be iterated.
local function raw(object, param, state)
    local kind = type(object)
    if kind == 'table' then
        local own = getmetatable(object)
        if own == meta then return object.gen, object.param, object.state end
        local walk = type(own) == 'table' and (own.__ipairs or own.__pairs)
        if walk then
            local iterator, walked, at = walk(object)
            if getmetatable(iterator) == meta then return iterator.gen, iterator.param, iterator.state end
            return iterator, walked, at
        end
        if #object > 0 then return next_index, object, 0 end
        return over_map, object, nil
    elseif kind == 'function' then
        return object, param, state
    elseif kind == 'string' then
        if #object == 0 then return over_nothing, nil, nil end
        return over_string, object, 0
    elseif kind == 'cdata' or kind == 'userdata' then
        local own = getmetatable(object)
        local pairs_of = type(own) == 'table' and own.__pairs
        if pairs_of then return pairs_of(object) end
    end
    if object == nil then error('invalid iterator') end
    error(('object %s of type "%s" is not iterable'):format(tostring(object), kind))
end

function fun.iter(object, param, state)
    return wrap(raw(object, param, state))
end

-- A function of the module whose last arguments are an iterator, and the method of the same name. `count` is the number
-- of arguments before the iterator.
local function export(names, count, body)
    local own, method
    if count == 0 then
        function own(...) return body(raw(...)) end
        function method(self) return body(self.gen, self.param, self.state) end
    elseif count == 1 then
        function own(one, ...) return body(one, raw(...)) end
        function method(self, one) return body(one, self.gen, self.param, self.state) end
    else
        function own(one, two, ...) return body(one, two, raw(...)) end
        function method(self, one, two) return body(one, two, self.gen, self.param, self.state) end
    end
    for name in names:gmatch('%S+') do fun[name], methods[name] = own, method end
end

-- Basics

export('each for_each foreach', 1, function(call, step, param, state)
    local function run(next_state, ...)
        if next_state == nil then return nil end
        call(...)
        return next_state
    end
    repeat state = run(step(param, state)) until state == nil
end)

-- Generators

local function up(param, state)
    local stop, by = param[1], param[2]
    state = state + by
    if state > stop then return nil end
    return state, state
end

local function down(param, state)
    local stop, by = param[1], param[2]
    state = state + by
    if state < stop then return nil end
    return state, state
end

function fun.range(start, stop, by)
    if by == nil then
        if stop == nil then
            -- Three values and no object, as in Tarantool.
            if start == 0 then return over_nothing, nil, nil end
            stop, start = start, start > 0 and 1 or -1
        end
        by = start <= stop and 1 or -1
    end
    assert(type(start) == 'number', 'start must be a number')
    assert(type(stop) == 'number', 'stop must be a number')
    assert(type(by) == 'number', 'step must be a number')
    assert(by ~= 0, 'step must not be zero')
    return wrap(by > 0 and up or down, { stop, by }, start - by)
end

function fun.duplicate(...)
    if select('#', ...) <= 1 then
        return wrap(function(value, count) return count + 1, value end, select(1, ...), 0)
    end
    return wrap(function(values, count) return count + 1, unpack(values, 1, values.n) end,
        { n = select('#', ...), ... }, 0)
end
fun.xrepeat, fun.replicate = fun.duplicate, fun.duplicate

function fun.tabulate(call)
    assert(type(call) == 'function')
    return wrap(function(_, count) return count + 1, call(count) end, call, 0)
end

function fun.zeros()
    return wrap(function(value, count) return count + 1, value end, 0, 0)
end

function fun.ones()
    return wrap(function(value, count) return count + 1, value end, 1, 0)
end

function fun.rands(low, high)
    if low == nil and high == nil then
        return wrap(function() return 0, math.random() end, 0, 0)
    end
    assert(type(low) == 'number', 'invalid first arg to rands')
    if high == nil then
        low, high = 0, low
    else
        assert(type(high) == 'number', 'invalid second arg to rands')
    end
    assert(low < high, 'empty interval')
    return wrap(function() return 0, math.random(low, high - 1) end, { low, high - 1 }, 0)
end

-- Slicing

local function nth(count, step, param, state)
    assert(count > 0, 'invalid first argument to nth')
    if step == next_index then return param[state + count] end
    if step == over_string then
        if state + count <= #param then return param:sub(state + count, state + count) end
        return nil
    end
    for _ = 1, count - 1 do
        state = step(param, state)
        if state == nil then return nil end
    end
    local function values(next_state, ...)
        if next_state == nil then return nil end
        return ...
    end
    return values(step(param, state))
end
export('nth', 1, nth)

local function head(next_state, ...)
    if next_state == nil then error('head: iterator is empty') end
    return ...
end
export('head car', 0, function(step, param, state) return head(step(param, state)) end)

export('tail cdr', 0, function(step, param, state)
    state = step(param, state)
    if state == nil then return wrap(over_nothing, nil, nil) end
    return wrap(step, param, state)
end)

local function take_n(count, step, param, state)
    assert(count >= 0, 'invalid first argument to take_n')
    local function run(done, next_state, ...)
        if next_state == nil then return nil end
        return { done + 1, next_state }, ...
    end
    return wrap(function(_, at)
        if at[1] >= count then return nil end
        return run(at[1], step(param, at[2]))
    end, { step, param }, { 0, state })
end
export('take_n', 1, take_n)

local function take_while(test, step, param, state)
    assert(type(test) == 'function', 'invalid first argument to take_while')
    local function run(next_state, ...)
        if next_state == nil or not test(...) then return nil end
        return next_state, ...
    end
    return wrap(function(_, at) return run(step(param, at)) end, { step, param }, state)
end
export('take_while', 1, take_while)

export('take', 1, function(what, step, param, state)
    if type(what) == 'number' then return take_n(what, step, param, state) end
    return take_while(what, step, param, state)
end)

local function drop_n(count, step, param, state)
    assert(count >= 0, 'invalid first argument to drop_n')
    for _ = 1, count do
        state = step(param, state)
        if state == nil then return wrap(over_nothing, nil, nil) end
    end
    return wrap(step, param, state)
end
export('drop_n', 1, drop_n)

local function drop_while(test, step, param, state)
    assert(type(test) == 'function', 'invalid first argument to drop_while')
    local function run(next_state, ...)
        if next_state == nil then return nil, false end
        return next_state, test(...)
    end
    while true do
        local next_state, more = run(step(param, state))
        if next_state == nil then return wrap(over_nothing, nil, nil) end
        if not more then return wrap(step, param, state) end
        state = next_state
    end
end
export('drop_while', 1, drop_while)

export('drop', 1, function(what, step, param, state)
    if type(what) == 'number' then return drop_n(what, step, param, state) end
    return drop_while(what, step, param, state)
end)

local function span(what, step, param, state)
    if type(what) == 'number' then
        return (take_n(what, step, param, state)), drop_n(what, step, param, state)
    end
    return (take_while(what, step, param, state)), drop_while(what, step, param, state)
end
export('span split split_at', 1, span)

-- Indexing

local function index(value, step, param, state)
    local at = 0
    local found
    while true do
        state, found = step(param, state)
        if state == nil then return nil end
        at = at + 1
        if found == value then return at end
    end
end
export('index index_of elem_index', 1, index)

export('indexes elem_indexes indices elem_indices', 1, function(value, step, param, state)
    return wrap(function(_, at)
        local count, found = at[1], nil
        state = at[2]
        while true do
            state, found = step(param, state)
            if state == nil then return nil end
            count = count + 1
            if found == value then return { count, state }, count end
        end
    end, { step, param }, { 0, state })
end)

-- Filtering

local function filter(test, step, param, state)
    -- Returns the next state at which the test holds, with its values.
    local function run(at, next_state, ...)
        if next_state == nil then return nil end
        if test(...) then return next_state, ... end
        return run(next_state, step(param, next_state))
    end
    local function one(_, at)
        -- A loop, not a recursion, for the usual iterators of one value: filters may skip millions.
        while true do
            local next_state, first, second = step(param, at)
            if next_state == nil then return nil end
            if second ~= nil then return run(at, step(param, at)) end
            if test(first) then return next_state, first end
            at = next_state
        end
    end
    return wrap(one, { test, step, param }, state)
end
export('filter remove_if', 1, filter)

export('grep', 1, function(test, step, param, state)
    local call = test
    if type(test) == 'string' then call = function(value) return string.find(value, test) ~= nil end end
    return filter(call, step, param, state)
end)

export('partition', 1, function(test, step, param, state)
    local function negated(...) return not test(...) end
    return (filter(test, step, param, state)), filter(negated, step, param, state)
end)

-- Reducing

export('foldl reduce', 2, function(call, start, step, param, state)
    local function run(next_state, ...)
        if next_state == nil then return nil, start end
        return next_state, call(start, ...)
    end
    repeat
        state, start = run(step(param, state))
    until state == nil
    return start
end)

export('length', 0, function(step, param, state)
    if step == next_index then return #param - state end
    if step == over_string then return #param - state end
    local count = 0
    repeat
        state = step(param, state)
        count = count + 1
    until state == nil
    return count - 1
end)

export('is_null', 0, function(step, param, state) return step(param, state) == nil end)

local function is_prefix_of(one, other)
    local step_one, param_one, state_one = raw(one)
    local step_other, param_other, state_other = raw(other)
    local value_one, value_other
    while true do
        state_one, value_one = step_one(param_one, state_one)
        if state_one == nil then return true end
        state_other, value_other = step_other(param_other, state_other)
        if state_other == nil or value_one ~= value_other then return false end
    end
end
fun.is_prefix_of, methods.is_prefix_of = is_prefix_of, is_prefix_of

export('all every', 1, function(test, step, param, state)
    local function run(next_state, ...)
        if next_state == nil then return nil, true end
        return next_state, test(...)
    end
    local holds
    repeat
        state, holds = run(step(param, state))
    until state == nil or not holds
    return state == nil
end)

export('any some', 1, function(test, step, param, state)
    local function run(next_state, ...)
        if next_state == nil then return nil, false end
        return next_state, test(...)
    end
    local holds
    repeat
        state, holds = run(step(param, state))
    until state == nil or holds
    return not not holds
end)

local function accumulate(start, call)
    return function(step, param, state)
        local total, value = start, nil
        while true do
            state, value = step(param, state)
            if state == nil then return total end
            total = call(total, value)
        end
    end
end
export('sum', 0, accumulate(0, function(total, value) return total + value end))
export('product', 0, accumulate(1, function(total, value) return total * value end))

-- The best value by `better(one, other)`; the first of equal ones.
local function best(name, better, step, param, state)
    local winner, value
    state, winner = step(param, state)
    if state == nil then error(name .. ': iterator is empty') end
    while true do
        state, value = step(param, state)
        if state == nil then return winner end
        winner = better(winner, value)
    end
end
export('min minimum', 0, function(...)
    return best('min', function(one, other) return other < one and other or one end, ...)
end)
export('max maximum', 0, function(...)
    return best('max', function(one, other) return other > one and other or one end, ...)
end)
export('min_by minimum_by', 1, function(compare, ...) return best('min', compare, ...) end)
export('max_by', 1, function(compare, ...) return best('max', compare, ...) end)

export('totable', 0, function(step, param, state)
    local list, count, value = {}, 0, nil
    while true do
        state, value = step(param, state)
        if state == nil then return list end
        count = count + 1
        list[count] = value
    end
end)

export('tomap', 0, function(step, param, state)
    local map, key, value = {}, nil, nil
    while true do
        state, key, value = step(param, state)
        if state == nil then return map end
        map[key] = value
    end
end)

-- Transformations

export('map', 1, function(call, step, param, state)
    local function run(next_state, ...)
        if next_state == nil then return nil end
        return next_state, call(...)
    end
    return wrap(function(_, at) return run(step(param, at)) end, { step, param }, state)
end)

export('enumerate', 0, function(step, param, state)
    local function run(count, next_state, ...)
        if next_state == nil then return nil end
        return { count + 1, next_state }, count, ...
    end
    return wrap(function(_, at) return run(at[1], step(param, at[2])) end, { step, param }, { 1, state })
end)

export('intersperse', 1, function(between, step, param, state)
    local function run(next_state, ...)
        if next_state == nil then return nil end
        return { next_state, true }, ...
    end
    return wrap(function(_, at)
        if at[2] then return { at[1], false }, between end
        return run(step(param, at[1]))
    end, { step, param }, { state, false })
end)

-- Compositions

-- The iterators among arguments. A call such as `fun.range(3)` as the last argument gives three values: the iterator,
-- and the parameter and state that it holds already.
local function parts(is_last_first, ...)
    local list, count = {}, select('#', ...)
    if count >= 3 then
        local last, param, state = select(count - 2, ...)
        if getmetatable(last) == meta and last.param == param and last.state == state then
            count = count - 2
        end
    end
    -- The order in which Tarantool refuses what is no iterator.
    local from, to, by = 1, count, 1
    if is_last_first then from, to, by = count, 1, -1 end
    for at = from, to, by do list[at] = { raw((select(at, ...))) } end
    return list
end

function fun.zip(...)
    local list = parts(true, ...)
    local count = #list
    if count == 0 then return wrap(over_nothing, nil, nil) end
    local start = {}
    for at = 1, count do start[at] = list[at][3] end
    return wrap(function(_, states)
        local next_states, values = {}, {}
        for at = 1, count do
            local state, value = list[at][1](list[at][2], states[at])
            if state == nil then return nil end
            next_states[at], values[at] = state, value
        end
        return next_states, unpack(values, 1, count)
    end, list, start)
end
methods.zip = fun.zip

export('cycle', 0, function(step, param, state)
    local start = state
    local function run(next_state, ...)
        if next_state == nil then return step(param, start) end
        return next_state, ...
    end
    return wrap(function(_, at) return run(step(param, at)) end, { step, param }, state)
end)

function fun.chain(...)
    local list = parts(false, ...)
    if #list == 0 then return wrap(over_nothing, nil, nil) end
    local run
    local function go_on(at, next_state, ...)
        if next_state == nil then
            if not list[at + 1] then return nil end
            return run(nil, { at + 1, list[at + 1][3] })
        end
        return { at, next_state }, ...
    end
    run = function(_, at)
        return go_on(at[1], list[at[1]][1](list[at[1]][2], at[2]))
    end
    return wrap(run, list, { 1, list[1][3] })
end
methods.chain = fun.chain

-- Operators

local operator = {
    lt = function(a, b) return a < b end,
    le = function(a, b) return a <= b end,
    eq = function(a, b) return a == b end,
    ne = function(a, b) return a ~= b end,
    ge = function(a, b) return a >= b end,
    gt = function(a, b) return a > b end,
    add = function(a, b) return a + b end,
    sub = function(a, b) return a - b end,
    mul = function(a, b) return a * b end,
    div = function(a, b) return a / b end,
    floordiv = function(a, b) return math.floor(a / b) end,
    intdiv = function(a, b)
        local quotient = a / b
        -- The sum takes the sign off a zero.
        return a >= 0 and math.floor(quotient) or math.ceil(quotient) + 0
    end,
    mod = function(a, b) return a % b end,
    unm = function(a) return -a end,
    pow = function(a, b) return a ^ b end,
    concat = function(a, b) return a .. b end,
    len = function(a) return #a end,
    length = function(a) return #a end,
    land = function(a, b) return a and b end,
    lor = function(a, b) return a or b end,
    lnot = function(a) return not a end,
    truth = function(a) return not not a end,
}
-- In Tarantool `neq` is the negative of a number too.
operator.truediv, operator.neq = operator.div, operator.unm
fun.operator, fun.op = operator, operator
methods.operator, methods.op = operator, operator

return setmetatable(fun, {
    __call = function(self, ...)
        for name, value in pairs(self) do _G[name] = value end
        return self
    end,
})
