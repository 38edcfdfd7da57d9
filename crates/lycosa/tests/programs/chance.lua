-- Random numbers of a program's own, the same in both servers: a function of the seed, which returns `random(n)` for 1 to n, `pick` of a
-- list, and `maybe` with a percentage.
return function(seed)
    local state = seed % 2147483646 + 1
    local function random(n)
        state = state * 16807 % 2147483647
        return math.floor(state / 127773) % n + 1
    end
    for _ = 1, 10 do random(1) end
    local function pick(list) return list[random(#list)] end
    local function maybe(percent) return random(100) <= percent end
    return random, pick, maybe
end
