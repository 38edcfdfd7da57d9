-- help: where to read more, for whoever types `help()` into a console.
local text = [[
Lycosa runs Lua programs beside the queue. In a console:
  queue.statistics()      what the tubes hold
  box.info                the state of the server
  \help                   the commands of the console
docs/lua.md lists the modules, docs/tutorial.md walks from an empty file to a queue.]]

local help = setmetatable({}, { __call = function() return text end, __serialize = function() return text end })
return { help = help, tutorial = help }
