-- The errors that net.box raises itself.
local internal = require('lycosa.box')

local errors = {}

function errors.new(code, message, kind)
    return internal.new_error(kind or 'ClientError', code, message)
end

function errors.no_connection(message) return errors.new(box.error.NO_CONNECTION, message) end
function errors.timed_out() return errors.new(box.error.TIMEOUT, 'Timeout exceeded') end

return errors
