-- buffer: memory that grows, with places to read and to write at; what other modules take as `ibuf`.
local ffi = require('ffi')

local READAHEAD = 16320

ffi.cdef([[
struct ibuf {
    char *rpos;
    char *wpos;
    char *buf;
    char *end;
    size_t start_capacity;
};
void *realloc(void *ptr, size_t size);
void free(void *ptr);
]])

local methods = {}
local ibuf_t

local function check(buffer, name)
    if not ffi.istype(ibuf_t, buffer) then
        error(('Attempt to call method without object, use ibuf:%s()'):format(name), 3)
    end
end

local function number(pointer) return tonumber(pointer) end

function methods.size(buffer) check(buffer, 'size') return number(buffer.wpos - buffer.rpos) end
function methods.unused(buffer) check(buffer, 'unused') return number(buffer['end'] - buffer.wpos) end
function methods.capacity(buffer) check(buffer, 'capacity') return number(buffer['end'] - buffer.buf) end
function methods.pos(buffer) check(buffer, 'pos') return number(buffer.rpos - buffer.buf) end

-- Forgets what is held and keeps the memory.
function methods.reset(buffer)
    check(buffer, 'reset')
    buffer.rpos, buffer.wpos = buffer.buf, buffer.buf
end

-- Forgets what is held and gives the memory back.
function methods.recycle(buffer)
    check(buffer, 'recycle')
    ffi.C.free(buffer.buf)
    buffer.buf, buffer['end'], buffer.rpos, buffer.wpos = nil, nil, nil, nil
end

local function check_size(size, name)
    if type(size) == 'cdata' then size = tonumber(size) end
    if type(size) ~= 'number' or size < 0 then error(('ibuf:%s(): the size %s is no size'):format(name, tostring(size)), 3) end
    return size
end

-- Makes room behind what is held: where it begins.
function methods.reserve(buffer, size)
    check(buffer, 'reserve')
    size = check_size(size, 'reserve')
    if buffer:unused() >= size then return buffer.wpos end
    local held = buffer:size()
    if buffer.rpos ~= buffer.buf and held + size <= buffer:capacity() then
        local text = ffi.string(buffer.rpos, held)
        ffi.copy(buffer.buf, text, held)
    else
        local capacity = math.max(tonumber(buffer.start_capacity), 2 * buffer:capacity())
        while capacity < held + size do capacity = capacity * 2 end
        local text = held > 0 and ffi.string(buffer.rpos, held)
        local memory = ffi.cast('char *', ffi.C.realloc(buffer.buf, capacity))
        if memory == nil then error(('ibuf:reserve(): no memory for %d bytes'):format(capacity), 2) end
        if text then ffi.copy(memory, text, held) end
        buffer.buf, buffer['end'] = memory, memory + capacity
    end
    buffer.rpos, buffer.wpos = buffer.buf, buffer.buf + held
    return buffer.wpos
end

-- Adds bytes, which the caller sets: where they begin.
function methods.alloc(buffer, size)
    check(buffer, 'alloc')
    size = check_size(size, 'alloc')
    local start = methods.reserve(buffer, size)
    buffer.wpos = start + size
    return start
end

function methods.checksize(buffer, size)
    check(buffer, 'checksize')
    if buffer.rpos + size > buffer.wpos then
        error(('Attempt to read out of range bytes: needed=%d size=%d'):format(size, buffer:size()), 2)
    end
    return buffer.rpos
end

-- Takes bytes off the front: where they stand.
function methods.read(buffer, size)
    check(buffer, 'read')
    size = check_size(size, 'read')
    if size > buffer:size() then
        error(('ibuf:read(): %d bytes are wanted and %d are there'):format(size, buffer:size()), 2)
    end
    local start = buffer.rpos
    buffer.rpos = start + size
    return start
end

ibuf_t = ffi.metatype('struct ibuf', {
    __index = methods,
    __tostring = function() return '<ibuf>' end,
    __serialize = function(buffer)
        return { rpos = buffer.rpos, wpos = buffer.wpos }
    end,
    __gc = function(buffer) ffi.C.free(buffer.buf) end,
})

local function new(_, capacity)
    local buffer = ffi.new(ibuf_t)
    buffer.start_capacity = capacity or READAHEAD
    return buffer
end

local static = ffi.new('char[?]', 3 * READAHEAD)

return {
    ibuf = function(capacity)
        if capacity ~= nil and (type(capacity) ~= 'number' or capacity <= 0) then
            error('Usage: ibuf([size])', 2)
        end
        return new(nil, capacity)
    end,
    IBUF_SHARED = new(),
    READAHEAD = READAHEAD,
    -- Memory for a moment: the next call may give the same.
    static_alloc = function(kind, count)
        count = count or 1
        local size = ffi.sizeof(kind) * count
        if size > ffi.sizeof(static) then return ffi.new(kind .. '[?]', count) end
        return ffi.cast(kind .. ' *', static)
    end,
    reg1 = ffi.new('union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; uint64_t u64; int64_t i64; double d; float f; }'),
    reg2 = ffi.new('union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; uint64_t u64; int64_t i64; double d; float f; }'),
}
