-- decimal: numbers of up to 38 decimal digits.
local native = require('lycosa.decimal')

require('ffi').metatype('struct decimal', native.metamethods)
native.metamethods = nil

return native
