-- memory: 2048
-- 30 000 fibers that live at once.
local fiber = require('fiber')
local COUNT = 30000
local ended = 0
for _ = 1, COUNT do
    fiber.create(function()
        fiber.sleep(0.5)
        ended = ended + 1
    end)
end
local alive = 0
for _ in pairs(fiber.info()) do alive = alive + 1 end
assert(alive >= COUNT, alive)
while ended < COUNT do fiber.sleep(0.05) end
