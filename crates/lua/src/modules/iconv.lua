-- iconv: texts from one encoding to another, by the C library's iconv, so the names of encodings are its own (`iconv -l`).
local errno = require('errno')
local ffi = require('ffi')

ffi.cdef([[
typedef struct lycosa_iconv *lycosa_iconv_t;
lycosa_iconv_t lycosa_iconv_open(const char *to, const char *from) __asm__("iconv_open");
size_t lycosa_iconv_convert(lycosa_iconv_t state, const char **text, size_t *left, char **out, size_t *space)
    __asm__("iconv");
int lycosa_iconv_close(lycosa_iconv_t state) __asm__("iconv_close");
]])

local FAILED = ffi.cast('size_t', -1)
local PIECE = 4096

local names = {
    [errno.E2BIG] = 'Not enough memory',
    -- Tarantool has these two the other way round than the C library.
    [errno.EILSEQ] = 'Incomplete multibyte sequence',
    [errno.EINVAL] = 'Invalid multibyte sequence',
}

-- Converts a text. A text that cannot be converted leaves the converter as it was made.
local function convert(state, data)
    if type(data) ~= 'string' then
        error(("attempt to index local 'data' (a %s value)"):format(type(data)), 2)
    end
    local text, left = ffi.new('const char *[1]', { data }), ffi.new('size_t[1]', #data)
    local piece = ffi.new('char[?]', PIECE)
    local out, space = ffi.new('char *[1]'), ffi.new('size_t[1]')
    local result = {}
    repeat
        out[0], space[0] = piece, PIECE
        local converted = ffi.C.lycosa_iconv_convert(state, text, left, out, space)
        local number = ffi.errno()
        if converted == FAILED and number ~= errno.E2BIG then
            ffi.C.lycosa_iconv_convert(state, nil, nil, nil, nil)
            error(names[number] or ('iconv: ' .. errno.strerror(number)), 2)
        end
        result[#result + 1] = ffi.string(piece, PIECE - space[0])
    until left[0] == 0 and converted ~= FAILED
    -- An encoding with states ends in the one that it began in.
    out[0], space[0] = piece, PIECE
    if ffi.C.lycosa_iconv_convert(state, nil, nil, out, space) ~= FAILED then
        result[#result + 1] = ffi.string(piece, PIECE - space[0])
    end
    return table.concat(result)
end

ffi.metatype('struct lycosa_iconv', { __call = convert, __tostring = function() return 'iconv: converter' end })

--- A converter: a function of a text.
local function new(to, from)
    if type(to) ~= 'string' or type(from) ~= 'string' then error('Usage: iconv.new("CP1251", "KOI8-R")', 2) end
    local state = ffi.C.lycosa_iconv_open(to, from)
    if ffi.cast('intptr_t', state) == -1 then error('iconv: ' .. errno.strerror(ffi.errno()), 2) end
    return ffi.gc(state, ffi.C.lycosa_iconv_close)
end

return { new = new }
