-- pwd: accounts and groups of the system, read from its files.
local pwd = {}

local function rows(file)
    local list = {}
    local opened = io.open(file)
    if opened == nil then return list end
    for line in opened:lines() do
        local fields = line:split(':')
        if #fields > 3 then list[#list + 1] = fields end
    end
    opened:close()
    return list
end

local group_of

local function account(fields)
    return {
        name = fields[1], id = tonumber(fields[3]), group = group_of(tonumber(fields[4])), workdir = fields[6], shell = fields[7],
    }
end

local function group(fields)
    local members = fields[4] == '' and {} or fields[4]:split(',')
    return { id = tonumber(fields[3]), name = fields[1], members = members }
end

local function find(file, key, build)
    local column = type(key) == 'number' and 3 or 1
    for _, fields in ipairs(rows(file)) do
        if fields[column] == tostring(key) then return build(fields) end
    end
    return nil
end

group_of = function(gid) return find('/etc/group', gid, group) end

local ffi = require('ffi')
ffi.cdef('uid_t geteuid(void); gid_t getegid(void);')

local function check(key, what)
    if type(key) ~= 'number' and type(key) ~= 'string' then
        error(("Bad type of %s (expected 'string'/'number')"):format(what), 3)
    end
end

--- An account by its name or number; that of the process without an argument.
function pwd.getpw(key)
    if key == nil then key = tonumber(ffi.C.geteuid()) end
    check(key, 'uid')
    if type(key) == 'number' then key = math.floor(key) end
    return find('/etc/passwd', key, account)
end

--- A group by its name or number; that of the process without an argument.
function pwd.getgr(key)
    if key == nil then key = tonumber(ffi.C.getegid()) end
    check(key, 'gid')
    if type(key) == 'number' then key = math.floor(key) end
    return find('/etc/group', key, group)
end

--- All accounts.
function pwd.getpwall()
    local all = {}
    for _, fields in ipairs(rows('/etc/passwd')) do all[#all + 1] = account(fields) end
    return all
end

--- All groups.
function pwd.getgrall()
    local all = {}
    for _, fields in ipairs(rows('/etc/group')) do all[#all + 1] = group(fields) end
    return all
end

return pwd
