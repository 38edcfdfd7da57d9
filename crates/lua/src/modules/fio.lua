-- fio: files, folders and paths.
--
-- The calls for files and folders go to the C library directly. They hold up the loop while the disk works, so large copies
-- belong into a program of their own. A FIFO or a device may keep its caller waiting without a limit: it is opened by a
-- thread, and the fiber waits for its bytes while others run.
local bit = require('bit')
local ffi = require('ffi')
local errno = require('errno')
local native = require('lycosa.fio')

local C = ffi.C
ffi.cdef([[
typedef long ssize_t;
struct fio_time { int64_t sec; uint32_t nsec; int32_t reserved; };
struct fio_statx {
    uint32_t mask, blksize; uint64_t attributes; uint32_t nlink, uid, gid; uint16_t mode, spare0;
    uint64_t ino, size, blocks, attributes_mask;
    struct fio_time atime, btime, ctime, mtime;
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor; uint64_t spare2[14];
};
struct fio_dirent { uint64_t ino; int64_t off; uint16_t reclen; uint8_t type; char name[256]; };
struct fio_glob { size_t count; char **paths; size_t offs; int flags; void *hooks[5]; };
struct fio_timespec { long sec; long nsec; };
int fio_open(const char *, int, int) asm("open");
int fio_close(int) asm("close");
ssize_t fio_read(int, void *, size_t) asm("read");
ssize_t fio_write(int, const void *, size_t) asm("write");
ssize_t fio_pread(int, void *, size_t, int64_t) asm("pread64");
ssize_t fio_pwrite(int, const void *, size_t, int64_t) asm("pwrite64");
int64_t fio_lseek(int, int64_t, int) asm("lseek64");
int fio_ftruncate(int, int64_t) asm("ftruncate64");
int fio_truncate(const char *, int64_t) asm("truncate64");
int fsync(int); int fdatasync(int); void sync(void);
int fio_statx(int, const char *, int, unsigned, struct fio_statx *) asm("statx");
int mkdir(const char *, unsigned); int rmdir(const char *); int unlink(const char *);
int rename(const char *, const char *); int link(const char *, const char *); int symlink(const char *, const char *);
ssize_t readlink(const char *, char *, size_t);
char *setlocale(int, const char *); int chmod(const char *, unsigned); int chown(const char *, unsigned, unsigned);
unsigned umask(unsigned); int chdir(const char *); char *getcwd(char *, size_t); char *mkdtemp(char *);
int utimensat(int, const char *, const struct fio_timespec *, int);
void *opendir(const char *); int closedir(void *);
struct fio_dirent *fio_readdir(void *) asm("readdir64");
int glob(const char *, int, void *, struct fio_glob *); void globfree(struct fio_glob *);
]])

-- A `?` of a pattern is a character of UTF-8.
local LC_CTYPE = 0
ffi.C.setlocale(LC_CTYPE, 'C.UTF-8')

local AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
local STATX_BASIC = 0x7ff
local CHUNK = 65536
local MAX_PATH = 4096
local PAGE = 4096

local fio = {
    c = {
        flag = {
            O_RDONLY = 0, O_WRONLY = 1, O_RDWR = 2, O_CREAT = 0x40, O_EXCL = 0x80, O_NOCTTY = 0x100, O_TRUNC = 0x200,
            O_APPEND = 0x400, O_NONBLOCK = 0x800, O_NDELAY = 0x800, O_ASYNC = 0x2000, O_SYNC = 0x101000,
            O_CLOEXEC = 0x80000, O_NOATIME = 0x40000, O_PATH = 0x200000, O_LARGEFILE = 0,
        },
        mode = {
            S_IRWXU = 448, S_IRUSR = 256, S_IWUSR = 128, S_IXUSR = 64, S_IRWXG = 56, S_IRGRP = 32, S_IWGRP = 16,
            S_IXGRP = 8, S_IRWXO = 7, S_IROTH = 4, S_IWOTH = 2, S_IXOTH = 1,
        },
        seek = { SEEK_SET = 0, SEEK_CUR = 1, SEEK_END = 2, SEEK_DATA = 3, SEEK_HOLE = 4 },
    },
    path = {},
}
-- These differ between processors.
local is_arm = ffi.arch == 'arm64' or ffi.arch == 'arm'
fio.c.flag.O_DIRECTORY = is_arm and 0x4000 or 0x10000
fio.c.flag.O_NOFOLLOW = is_arm and 0x8000 or 0x20000
fio.c.flag.O_DIRECT = is_arm and 0x10000 or 0x4000
fio.c.flag.O_TMPFILE = bit.bor(0x400000, fio.c.flag.O_DIRECTORY)

-- What a failed call returns: its result and an error object of the class `SystemError`, with the number of the error.
local function failure(result)
    return result, require('lycosa.box.error').system_error('fio', ffi.errno())
end

local function done(code)
    if code < 0 then return failure(false) end
    return true
end

local function want(kind, value, usage)
    if type(value) ~= kind then error('Usage: ' .. usage, 3) end
end

-- A path: a text, or a number as a text.
local function want_path(value, usage)
    if type(value) ~= 'string' and type(value) ~= 'number' then error('Usage: ' .. usage, 3) end
    return tostring(value)
end

-- Flags or a mode: a number, a name, or a list of names.
local function combined(value, names, what, default)
    if value == nil then return default end
    if type(value) == 'number' then return value end
    if type(value) ~= 'table' then value = { value } end
    local all = 0
    for _, name in ipairs(value) do
        local one = type(name) == 'number' and name or names[name]
        if one == nil then error(('fio.open(): unknown %s: %s'):format(what, tostring(name)), 3) end
        all = bit.bor(all, one)
    end
    return all
end

-- Status

local stat_methods = {}
for name, kind in pairs({ is_reg = 8, is_dir = 4, is_link = 10, is_sock = 12, is_fifo = 1, is_chr = 2, is_blk = 6 }) do
    stat_methods[name] = function(self)
        if self == nil then error(('usage: stat:%s()'):format(name), 0) end
        return bit.rshift(bit.band(self.mode, 0xf000), 12) == kind
    end
end
local stat_meta = { __index = stat_methods }

local function seconds(time) return tonumber(time.sec) + time.nsec / 1e9 end

local function status(fd, path, flags)
    local found = ffi.new('struct fio_statx')
    if C.fio_statx(fd, path, flags, STATX_BASIC, found) < 0 then return failure(nil) end
    local function device(major, minor) return bit.bor(bit.lshift(major, 8), minor) end
    return setmetatable({
        dev = device(found.dev_major, found.dev_minor),
        rdev = device(found.rdev_major, found.rdev_minor),
        inode = tonumber(found.ino),
        mode = found.mode,
        nlink = found.nlink,
        uid = found.uid,
        gid = found.gid,
        size = tonumber(found.size),
        blksize = found.blksize,
        blocks = tonumber(found.blocks),
        atime = seconds(found.atime),
        mtime = seconds(found.mtime),
        ctime = seconds(found.ctime),
    }, stat_meta)
end

function fio.stat(path)
    path = want_path(path, 'fio.stat(pathname)')
    return status(AT_FDCWD, path, 0)
end

function fio.lstat(path)
    if type(path) ~= 'string' and type(path) ~= 'number' then error('pathname is absent', 2) end
    path = tostring(path)
    return status(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW)
end

-- Open files

local READABLE, WRITABLE = 1, 2

-- Whether an open of the path, and reads and writes of what is opened, may wait for somebody else.
local function may_wait(path)
    local found = ffi.new('struct fio_statx')
    if C.fio_statx(AT_FDCWD, path, 0, STATX_BASIC, found) < 0 then return false end
    local kind = bit.rshift(bit.band(found.mode, 0xf000), 12)
    return kind == 1 or kind == 2 or kind == 6
end

-- The descriptor; -1 and the number of the error.
local function open_waiting(path, flags, mode)
    local opening, wait_for = native.begin(path, flags, mode)
    if opening == nil then return -1, wait_for end
    local fd, number
    repeat
        native.wait(wait_for, READABLE)
        fd, number = native.opened(opening)
    until fd or number ~= 0
    return fd or -1, number
end

local handle = {}
local handle_meta = { __index = handle, __tostring = function(self) return 'fio_handle: ' .. self.fh end }

function fio.open(path, flags, mode)
    want('string', path, 'fio.open(path[, flags[, mode]])')
    flags = combined(flags, fio.c.flag, 'flag', 0)
    mode = combined(mode, fio.c.mode, 'mode', 511)
    flags = bit.bor(flags, fio.c.flag.O_CLOEXEC)
    local waits = bit.band(flags, fio.c.flag.O_NONBLOCK) == 0 and may_wait(path)
    local fd
    if waits then
        local number
        fd, number = open_waiting(path, flags, mode)
        if fd < 0 then ffi.errno(number) end
    else
        fd = C.fio_open(path, flags, mode)
    end
    if fd < 0 then return failure(nil) end
    return setmetatable({ fh = fd, waits = waits or nil }, handle_meta)
end

local function read_all(fd, count, position, waits)
    local buffer = ffi.new('char[?]', math.min(count or CHUNK, CHUNK))
    local parts, total = {}, 0
    while count == nil or total < count do
        local wanted = math.min(count and count - total or CHUNK, CHUNK)
        local got
        if waits then native.wait(fd, READABLE) end
        if position then
            got = C.fio_pread(fd, buffer, wanted, position + total)
        else
            got = C.fio_read(fd, buffer, wanted)
        end
        if got < 0 then
            if ffi.errno() ~= errno.EINTR then return failure(nil) end
        elseif got == 0 then
            break
        else
            total = total + tonumber(got)
            parts[#parts + 1] = ffi.string(buffer, got)
        end
    end
    return table.concat(parts)
end

local function write_all(fd, data, position, waits)
    if type(data) ~= 'string' then data = tostring(data) end
    local start, total = ffi.cast('const char *', data), 0
    while total < #data do
        local put
        if position then
            put = C.fio_pwrite(fd, start + total, #data - total, position + total)
        elseif waits then
            -- A writable pipe takes a page without waiting.
            native.wait(fd, WRITABLE)
            put = C.fio_write(fd, start + total, math.min(#data - total, PAGE))
        else
            put = C.fio_write(fd, start + total, #data - total)
        end
        if put < 0 then
            if ffi.errno() ~= errno.EINTR then return failure(false) end
        else
            total = total + tonumber(put)
        end
    end
    return true
end

-- `read()`, `read(count)`, or `read(buffer, count)`, which returns how many bytes came.
function handle.read(self, first, second)
    if type(first) == 'cdata' and first ~= nil then
        local text, message = read_all(self.fh, second, nil, self.waits)
        if text == nil then return nil, message end
        ffi.copy(first, text, #text)
        return #text
    end
    local text, message = read_all(self.fh, first, nil, self.waits)
    -- Of an empty file nothing is asked for, however it was opened.
    if text == nil and first == nil and errno() == errno.EBADF then
        local status = handle.stat(self)
        if status and status.size == 0 then return '' end
        errno(errno.EBADF)
    end
    if text ~= nil then return text end
    return nil, message
end

function handle.pread(self, first, second, third)
    if type(first) == 'cdata' and first ~= nil then
        local text, message = read_all(self.fh, second, third or 0)
        if text == nil then return nil, message end
        ffi.copy(first, text, #text)
        return #text
    end
    return read_all(self.fh, first, second)
end

function handle.write(self, data, count)
    if type(data) == 'cdata' and data ~= nil then data = ffi.string(data, count) end
    return write_all(self.fh, data, nil, self.waits)
end

-- `pwrite(data, place)`, or `pwrite(buffer, count, place)`. Without a place it is the beginning of the file.
-- A negative place is the present one.
local function place_of(place)
    place = type(place) ~= 'cdata' and tonumber(place) or 0
    return place >= 0 and place or nil
end

function handle.pwrite(self, data, second, third)
    local is_memory = type(data) == 'cdata' and data ~= nil and not tonumber(data)
    if is_memory then return write_all(self.fh, ffi.string(data, second), place_of(third)) end
    return write_all(self.fh, data, place_of(second))
end

function handle.seek(self, offset, whence)
    whence = whence == nil and 0 or fio.c.seek[whence] or whence
    if type(whence) ~= 'number' then error(('fio.seek(): unknown whence: %s'):format(tostring(whence)), 2) end
    local place = C.fio_lseek(self.fh, tonumber(offset) or 0, whence)
    return tonumber(place)
end

function handle.truncate(self, size) return done(C.fio_ftruncate(self.fh, tonumber(size) or 0)) end
function handle.fsync(self) return done(C.fsync(self.fh)) end
function handle.fdatasync(self) return done(C.fdatasync(self.fh)) end
function handle.stat(self) return status(self.fh, '', AT_EMPTY_PATH) end

function handle.close(self)
    local closed, message = done(C.fio_close(self.fh))
    self.fh = -1
    if closed then return true end
    return false, message
end

-- Paths

function fio.basename(path, suffix)
    want('string', path, 'fio.basename(path[, suffix])')
    local name = path:match('([^/]*)$')
    suffix = suffix ~= nil and tostring(suffix) or ''
    if suffix ~= '' and name:endswith(suffix) then name = name:sub(1, #name - #suffix) end
    return name
end

function fio.dirname(path)
    want('string', path, 'fio.dirname(path)')
    if path:find('^/+$') then return path == '//' and '//' or '/' end
    -- Two slashes at the beginning stay two, as the C library has it.
    local folder = path:gsub('/+$', ''):match('^(.*/)[^/]*$')
    if folder == nil then return '.' end
    if folder:find('^/+$') then return folder == '//' and '//' or '/' end
    return (folder:gsub('/+$', ''))
end

--- The parts with a slash between them; what is no text is told as one. Empty parts are left out.
function fio.pathjoin(...)
    local parts = {}
    for at = 1, select('#', ...) do
        local part = select(at, ...)
        if part == nil then error('fio.pathjoin(): undefined path part ' .. at, 2) end
        part = tostring(part)
        if part ~= '' then parts[#parts + 1] = part end
    end
    if #parts == 0 then return '.' end
    local path = table.concat(parts, '/'):gsub('/+', '/')
    if #path > 1 and path:sub(-1) == '/' then path = path:sub(1, -2) end
    return path
end

function fio.cwd()
    local buffer = ffi.new('char[?]', MAX_PATH)
    if C.getcwd(buffer, MAX_PATH) == nil then return failure(nil) end
    return ffi.string(buffer)
end

function fio.abspath(path)
    if path == nil then error('Usage: fio.abspath(path)', 2) end
    if type(path) ~= 'string' and type(path) ~= 'number' then
        error(("bad argument #1 to 'sub' (string expected, got %s)"):format(type(path)), 2)
    end
    path = tostring(path)
    if path:sub(1, 1) ~= '/' then path = assert(fio.cwd()) .. '/' .. path end
    local parts = {}
    for part in path:gmatch('[^/]+') do
        if part == '..' then
            parts[#parts] = nil
        elseif part ~= '.' then
            parts[#parts + 1] = part
        end
    end
    return '/' .. table.concat(parts, '/')
end

function fio.path.exists(path) return fio.stat(path) ~= nil end
function fio.path.lexists(path) return fio.lstat(path) ~= nil end
function fio.path.is_file(path) local found = fio.stat(path) return found ~= nil and found:is_reg() end
function fio.path.is_dir(path) local found = fio.stat(path) return found ~= nil and found:is_dir() end
function fio.path.is_link(path) local found = fio.lstat(path) return found ~= nil and found:is_link() end

-- Folders and names

for _, name in ipairs({ 'rmdir', 'unlink', 'chdir' }) do
    local usage = ('fio.%s(%s)'):format(name, name == 'chdir' and 'path' or 'pathname')
    fio[name] = function(path)
        if name == 'chdir' then
            want('string', path, usage)
            return C.chdir(path) == 0
        end
        return done(C[name](want_path(path, usage)))
    end
end

for _, name in ipairs({ 'rename', 'link', 'symlink' }) do
    local usage = name == 'rename' and 'fio.rename(oldpath, newpath)' or ('fio.%s(target, linkpath)'):format(name)
    fio[name] = function(from, to)
        from = want_path(from, usage)
        to = want_path(to, usage)
        return done(C[name](from, to))
    end
end

function fio.mkdir(path, mode)
    if type(path) ~= 'string' and type(path) ~= 'number' then error('Usage fio.mkdir(pathname[, mode])', 2) end
    path = tostring(path)
    return done(C.mkdir(path, tonumber(mode) or 511))
end

function fio.chmod(path, mode)
    path = want_path(path, 'fio.chmod(pathname, mode)')
    if mode == nil then error('Usage: fio.chmod(pathname, mode)', 2) end
    return done(C.chmod(path, combined(mode, fio.c.mode, 'mode', 0)))
end

function fio.chown(path, owner, group)
    path = want_path(path, 'fio.chown(pathname, owner, group)')
    if owner == nil or group == nil then error('Usage: fio.chown(pathname, owner, group)', 2) end
    local pwd = require('pwd')
    if type(owner) == 'string' then owner = assert(pwd.getpw(owner), 'user was not found').id end
    if type(group) == 'string' then group = assert(pwd.getgr(group), 'group was not found').id end
    return done(C.chown(path, owner, group))
end

function fio.readlink(path)
    path = want_path(path, 'fio.readlink(pathname)')
    local buffer = ffi.new('char[?]', MAX_PATH)
    local length = C.readlink(path, buffer, MAX_PATH)
    if length < 0 then return failure(nil) end
    return ffi.string(buffer, length)
end

function fio.truncate(path, size)
    path = want_path(path, 'fio.truncate(pathname[, newlen])')
    return done(C.fio_truncate(path, tonumber(size) or 0))
end

function fio.umask(mask)
    if mask ~= nil then
        local number = tonumber(mask)
        if not number then error("bad argument #1 to '?' (cannot convert 'nil' to 'int')", 2) end
        return C.umask(bit.band(number, 511))
    end
    local former = C.umask(0)
    C.umask(former)
    return former
end

function fio.sync()
    C.sync()
    return true
end

function fio.tempdir()
    local template = fio.pathjoin(os.getenv('TMPDIR') or '/tmp', 'XXXXXX')
    local buffer = ffi.new('char[?]', #template + 1, template)
    if C.mkdtemp(buffer) == nil then return failure(nil) end
    return ffi.string(buffer)
end

function fio.utime(path, accessed, modified)
    want('string', path, 'fio.utime(filepath[, atime[, mtime]])')
    local now = require('fiber').time()
    if accessed ~= nil and type(accessed) ~= 'number' then error('fio.utime: atime should be a number', 2) end
    if modified ~= nil and type(modified) ~= 'number' then error('fio.utime: mtime should be a number', 2) end
    accessed = accessed or now
    modified = modified or accessed
    local times = ffi.new('struct fio_timespec[2]')
    for at, time in pairs({ [0] = accessed, modified }) do
        times[at].sec = math.floor(time)
        times[at].nsec = (time - math.floor(time)) * 1e9
    end
    return done(C.utimensat(AT_FDCWD, path, times, 0))
end

function fio.listdir(path)
    want('string', path, 'fio.listdir(path)')
    local folder = C.opendir(path)
    if folder == nil then return nil, ("can't listdir %s: fio: %s"):format(path, errno.strerror(ffi.errno())) end
    local names = {}
    while true do
        local entry = C.fio_readdir(folder)
        if entry == nil then break end
        local name = ffi.string(entry.name)
        if name ~= '.' and name ~= '..' then names[#names + 1] = name end
    end
    C.closedir(folder)
    return names
end

function fio.glob(pattern)
    pattern = want_path(pattern, 'fio.glob(pattern)')
    local found, paths = ffi.new('struct fio_glob'), {}
    if C.glob(pattern, 0, nil, found) == 0 then
        for at = 0, tonumber(found.count) - 1 do paths[#paths + 1] = ffi.string(found.paths[at]) end
    end
    C.globfree(found)
    return paths
end

function fio.mktree(path, mode)
    want('string', path, 'fio.mktree(path[, mode])')
    path = fio.abspath(path)
    local made = ''
    for part in path:gmatch('[^/]+') do
        made = made .. '/' .. part
        local found = fio.stat(made)
        if found == nil then
            local created, message = fio.mkdir(made, mode)
            if not created and not fio.path.is_dir(made) then
                return false, ('Error creating directory %s: %s'):format(made, tostring(message))
            end
        elseif not found:is_dir() then
            return false, ('Error creating directory %s: %s'):format(made, errno.strerror(errno.EEXIST))
        end
    end
    return true
end

function fio.rmtree(path)
    want('string', path, 'fio.rmtree(path)')
    path = fio.abspath(path)
    local names, message = fio.listdir(path)
    if names == nil then return nil, message end
    for _, name in ipairs(names) do
        local inner = fio.pathjoin(path, name)
        local found = fio.lstat(inner)
        local _, reason
        if found ~= nil and found:is_dir() then
            _, reason = fio.rmtree(inner)
        elseif found ~= nil then
            _, reason = fio.unlink(inner)
        end
        if reason ~= nil then return nil, reason end
    end
    local gone, reason = fio.rmdir(path)
    if not gone then return false, ('failed to remove %s: %s'):format(path, tostring(reason)) end
    return true
end

function fio.copyfile(from, to)
    want('string', from, 'fio.copyfile(from, to)')
    want('string', to, 'fio.copyfile(from, to)')
    if fio.path.is_dir(to) then to = fio.pathjoin(to, fio.basename(from)) end
    local function refuse(message)
        return false, ('failed to copy %s to %s: %s'):format(from, to, tostring(message))
    end
    local source, message = fio.open(from, { 'O_RDONLY' })
    if source == nil then return refuse(message) end
    local target
    target, message = fio.open(to, { 'O_WRONLY', 'O_CREAT', 'O_TRUNC' }, bit.band(source:stat().mode, 511))
    if target == nil then
        source:close()
        return refuse(message)
    end
    local copied = true
    while copied do
        local piece
        piece, message = source:read(CHUNK)
        if piece == nil then
            copied = false
        elseif piece == '' then
            break
        else
            copied, message = target:write(piece)
        end
    end
    source:close()
    local closed, reason = target:close()
    if not copied or not closed then return refuse(message or reason) end
    return true
end

function fio.copytree(from, to)
    want('string', from, 'fio.copytree(from, to)')
    want('string', to, 'fio.copytree(from, to)')
    local status = fio.stat(from)
    if status == nil then return false, ('Directory %s does not exist'):format(from) end
    if not status:is_dir() then return false, errno.strerror(errno.ENOTDIR) end
    local names, message = fio.listdir(from)
    if names == nil then return false, message end
    local made
    made, message = fio.mktree(to)
    if not made then return false, message end
    for _, name in ipairs(names) do
        local inner, copy = fio.pathjoin(from, name), fio.pathjoin(to, name)
        local found = fio.lstat(inner)
        local copied = true
        if found == nil then
            copied = true
        elseif found:is_dir() then
            copied, message = fio.copytree(inner, copy)
        elseif found:is_link() then
            local target
            target, message = fio.readlink(inner)
            if target == nil then return false, message end
            copied, message = fio.symlink(target, copy), "can't create symlink in place of existing file " .. copy
        elseif found:is_reg() then
            copied, message = fio.copyfile(inner, copy)
        end
        if not copied then return false, message end
    end
    return true
end

return fio
