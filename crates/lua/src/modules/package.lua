-- Where modules are looked for: the folder of `package.setsearchroot`, `.rocks` of it and of the folders above, `package.path`,
-- `package.cpath`. A file that ends in `.so` is a module in C.
local search_root

--- The folder that `setsearchroot` has named, else the working directory.
function package.searchroot() return search_root or require('fio').cwd() end

--- Modules are looked for in that folder first; nil is the folder of the calling script, `box.NULL` the working directory.
function package.setsearchroot(path)
    if path == nil and type(path) == 'cdata' then
        search_root = nil
        return
    end
    if path == nil then path = debug.sourcedir(2) end
    if type(path) ~= 'string' then error('Search root must be a string', 2) end
    search_root = require('fio').abspath(path)
end

-- Folders are absolute, so that errors name files by their whole paths.
local function root_places(...)
    local places = {}
    for i, pattern in ipairs({...}) do places[i] = package.searchroot() .. pattern end
    return table.concat(places, ';')
end

local function rock_places(...)
    local places, folder = {}, package.searchroot()
    while folder do
        for _, pattern in ipairs({...}) do places[#places + 1] = folder .. '/.rocks' .. pattern end
        folder = folder:match('^(.*)/[^/]*$')
    end
    return table.concat(places, ';')
end

-- The name of the function that a file in C has for its module; what stands before a hyphen is a version.
local function opening_function(name) return 'luaopen_' .. name:gsub('^[^-]*-', ''):gsub('%.', '_') end

local function load_lua(_, file) return loadfile(file) end
local function load_c(name, file) return package.loadlib(file, opening_function(name)) end

-- In their order.
local places = {
    {load = load_lua, list = function() return root_places('/?.lua', '/?/init.lua') end},
    {load = load_c, list = function() return root_places('/?.so') end},
    {load = load_lua, list = function() return rock_places('/share/tarantool/?.lua', '/share/tarantool/?/init.lua') end},
    {load = load_c, list = function() return rock_places('/lib/tarantool/?.so') end},
}

--- The file that `require` would load; nil if there is none.
function package.search(name)
    if not name then error('Empty module name', 2) end
    for _, place in ipairs(places) do
        local file = package.searchpath(name, place.list())
        if file then return file end
    end
    return package.searchpath(name, package.path) or package.searchpath(name, package.cpath) or nil
end

for i, place in ipairs(places) do
    table.insert(package.loaders, i + 1, function(name)
        local file, tried = package.searchpath(name, place.list())
        if not file then return tried end
        local chunk, message = place.load(name, file)
        if not chunk then error(("error loading module '%s' from file '%s':\n\t%s"):format(name, file, message), 3) end
        return chunk
    end)
end

-- Where luarocks and the packages of a system put modules, as Debian's Tarantool looks for them.
local home = os.getenv('HOME')
local function patterns(user, kinds, roots, endings)
    local all = {}
    local function add(folder)
        for _, ending in ipairs(endings) do all[#all + 1] = folder .. ending end
    end
    if home and home ~= '' then
        for _, folder in ipairs(user) do add(home .. '/.luarocks/' .. folder) end
    end
    for _, kind in ipairs(kinds) do
        for _, root in ipairs(roots) do add(root .. kind) end
    end
    return table.concat(all, ';') .. ';'
end

local triplet = ({x64 = 'x86_64', arm64 = 'aarch64'})[jit.arch]
triplet = triplet and triplet .. '-linux-gnu/'
local libraries = {'/usr/local/lib/', '/usr/lib/'}
if triplet then libraries = {'/usr/local/lib/' .. triplet, '/usr/lib/' .. triplet, '/usr/local/lib/'} end

-- The environment may name other places; `;;` in it stands for these. An empty variable names none.
local function from_environment(name, standard)
    local given = os.getenv(name)
    if not given then return standard end
    return (given:gsub(';;', ';\1;'):gsub('\1', function() return standard end))
end

package.path = from_environment('LUA_PATH', patterns({'share/lua/5.1', 'share/lua'}, {'tarantool', 'lua/5.1'},
    {'/usr/local/share/', '/usr/share/'}, {'/?.lua', '/?/init.lua'}))
package.cpath = from_environment('LUA_CPATH', patterns({'lib/lua/5.1', 'lib/lua'}, {'tarantool', 'lua/5.1'}, libraries, {'/?.so'}))
