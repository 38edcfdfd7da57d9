-- memory: 2048
-- 30 000 fibers that live at once.
local fiber = require('fiber')
local COUNT = 30000
local ended, may_end = 0, false
for _ = 1, COUNT do
    fiber.create(function()
        repeat fiber.sleep(0.5) until may_end
        ended = ended + 1
    end)
end
local alive = 0
for _ in pairs(fiber.info()) do alive = alive + 1 end
assert(alive >= COUNT, alive)
may_end = true
while ended < COUNT do fiber.sleep(0.05) end
