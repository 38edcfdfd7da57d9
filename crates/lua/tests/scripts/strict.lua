-- oracle
require('strict').on()
main_global = 1
print(main_global)
local function try(f, ...)
    local done, message = pcall(f, ...)
    print(done, (tostring(message):gsub('^[^ ]*:%d+: ', '')))
end
try(function() return no_such_global end)
try(function() another_global = 1 end)
try(function() main_global = 2 return main_global end)
try(function() return rawget(_G, 'no_such_global') end)
require('strict').off()
try(function() return no_such_global end)
try(function() another_global = 3 return another_global end)
