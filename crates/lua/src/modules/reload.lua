-- package.reload: forgets the modules of the program and counts generations.
local kept = {}
for name in pairs(package.loaded) do kept[name] = true end

local reload = { count = 1, callbacks = {} }

function reload:register(object, callback)
    self.callbacks[#self.callbacks + 1] = callback and function(...) return callback(object, ...) end or object
end

setmetatable(reload, {
    __call = function(self)
        local forgotten = {}
        for name, module in pairs(package.loaded) do
            if not kept[name] and not package.preload[name] then forgotten[name] = module end
        end
        for name in pairs(forgotten) do package.loaded[name] = nil end
        local before = self.count
        self.count = before + 1
        local script = require('lycosa.program').script
        local done, message = true, nil
        if script then
            local chunk
            chunk, message = loadfile(script)
            local internal = require('lycosa.box')
            internal.is_reloading = true
            if chunk then done, message = pcall(internal.as_program, chunk) else done = false end
            internal.is_reloading = nil
        end
        if not done then
            for name, module in pairs(forgotten) do package.loaded[name] = module end
            self.count = before
            require('log').error('reload failed, the former program goes on: %s', tostring(message))
            error(message, 0)
        end
        local callbacks = self.callbacks
        self.callbacks = {}
        for _, callback in ipairs(callbacks) do pcall(callback) end
    end,
})

package.reload = reload
return reload
