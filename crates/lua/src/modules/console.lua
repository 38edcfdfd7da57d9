-- console: statements that are typed, here or from elsewhere, and their results as YAML or Lua.
local errno = require('errno')
local fiber = require('fiber')
local log = require('log')
local utf8 = require('utf8')
local native = require('lycosa.console')
local internal = require('lycosa.box')

local console = {}

local default_output, default_eos = 'yaml', nil

-- Results as text.

-- Functions, threads and C data are shown by their names; the program's settings of `yaml` concern its own texts.
local shown = require('yaml').new()
shown.cfg({
    encode_invalid_numbers = true, encode_load_metatables = true, encode_use_tostring = true, encode_invalid_as_nil = true,
})

local function as_yaml(...)
    local count = select('#', ...)
    if count == 0 then return '---\n...\n' end
    local values = {}
    for i = 1, count do
        local value = select(i, ...)
        if value == nil then value = box.NULL end
        values[i] = value
    end
    local done, text = pcall(shown.encode, values)
    if done then return text end
    return shown.encode({ { error = 'console: an exception occurred when formatting the output: ' .. tostring(text) } })
end

local NAMES = {}
for name in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
    until while]]):gmatch('%a+') do
    NAMES[name] = true
end

local as_lua

-- The length of a list, whose gaps are nil, as in the encoders: one with too many gaps is none.
local MOST_GAPS = 10
local function length_of(value)
    local last, count = 0, 0
    for key in pairs(value) do
        if type(key) ~= 'number' or key < 1 or key % 1 ~= 0 then return #value end
        last, count = math.max(last, key), count + 1
    end
    return (last <= MOST_GAPS or last <= 2 * count) and last or #value
end

local function table_as_lua(value, indent, seen)
    if seen[value] then return '"table: a cycle"' end
    seen[value] = true
    local parts, count = {}, length_of(value)
    local inner = indent and indent .. '  '
    for i = 1, count do parts[i] = as_lua(value[i], inner, seen) end
    local keys = {}
    for key in pairs(value) do
        if type(key) ~= 'number' or key < 1 or key > count or key % 1 ~= 0 then keys[#keys + 1] = key end
    end
    table.sort(keys, function(one, other) return tostring(one) < tostring(other) end)
    for _, key in ipairs(keys) do
        local name = key
        if type(key) ~= 'string' or not key:match('^[%a_][%w_]*$') or NAMES[key] then
            name = '[' .. as_lua(key, nil, seen) .. ']'
        end
        parts[#parts + 1] = name .. ' = ' .. as_lua(value[key], inner, seen)
    end
    seen[value] = nil
    if #parts == 0 then return '{}' end
    if not indent then return '{' .. table.concat(parts, ', ') .. '}' end
    return '{\n' .. inner .. table.concat(parts, ',\n' .. inner) .. '\n' .. indent .. '}'
end

function as_lua(value, indent, seen)
    local kind = type(value)
    if kind == 'string' then
        local text = ('%q'):format(value):gsub('\\\n', '\\n')
        return text
    elseif kind == 'table' then
        local serialize = (getmetatable(value) or {}).__serialize
        if type(serialize) == 'function' then return as_lua(serialize(value), indent, seen) end
        return table_as_lua(value, indent, seen)
    elseif value == nil then
        return kind == 'cdata' and 'box.NULL' or 'nil'
    elseif kind == 'cdata' and box.tuple.is(value) then
        return table_as_lua(value:totable(), indent, seen)
    elseif kind == 'cdata' and tostring(value):match('^-?%d+U?LL$') then
        return (tostring(value):gsub('U?LL$', ''))
    elseif kind == 'cdata' and tonumber(value) then
        return tostring(value)
    elseif kind == 'number' or kind == 'boolean' then
        return tostring(value)
    end
    return ('%q'):format(tostring(value))
end

local function lua_text(block, eos, ...)
    local parts = {}
    for i = 1, select('#', ...) do
        parts[i] = as_lua((select(i, ...)), block and '' or nil, {})
    end
    return table.concat(parts, ', ') .. (eos or ';')
end

-- A console: how it shows results, how it knows the end of a statement, and what runs statements.
local repl_methods = {}
local repl_mt = { __index = repl_methods }

local function new_repl(fields)
    local repl = fields or {}
    repl.output, repl.eos = repl.output or default_output, repl.eos or default_eos
    repl.delimiter, repl.language = '', 'lua'
    return setmetatable(repl, repl_mt)
end

function repl_methods.format(repl, ...)
    if repl.output == 'yaml' then return as_yaml(...) end
    local done, text = pcall(lua_text, repl.output == 'lua,block', repl.eos, ...)
    if done then return text end
    return lua_text(false, repl.eos, { error = text })
end

--- Shows a value before the statement has ended; whether it was sent.
function repl_methods.push(repl, value)
    local text
    if repl.output == 'yaml' then
        if value == nil then value = box.NULL end
        text = require('yaml').encode(value, { tag_handle = '!push!', tag_prefix = 'tag:tarantool.io/push,2018' })
    else
        text = '-- Push\n' .. repl:format(value)
    end
    return repl.client:write(text) ~= nil
end

-- Commands that begin with a backslash.

local HELP = [[
Statements of Lua run here; what they return is shown.

  \set language <language>    language of statements: lua or sql
  \set output <format>        format of results: yaml, lua, lua,line or lua,block
  \set delimiter <delimiter>  what ends a statement; nothing for the end of the line
  \help                       this text
  \quit                       leave the console
]]

local FORMATS = { yaml = 'yaml', lua = 'lua', ['lua,line'] = 'lua', ['lua,block'] = 'lua,block' }

local setters = {}

function setters.output(repl, value)
    local format, eos = (value or ''):match('^(.-)%s*,%s*eos=(.*)$')
    format = format or value or ''
    if format == '' then return nil, 'Specify output format: lua or yaml.' end
    if not FORMATS[format] then
        return nil, ('Invalid format "%s", supported languages: lua and yaml.'):format(format)
    end
    repl.output, repl.eos = FORMATS[format], eos or repl.eos
    return true, true
end

function setters.language(repl, value)
    if value == nil then return true, { language = repl.language } end
    if value ~= 'lua' and value ~= 'sql' then return nil, ('Invalid language "%s", supported languages: lua and sql.'):format(value) end
    repl.language = value
    return true, true
end

-- Nothing is shown of a new delimiter.
function setters.delimiter(repl, value)
    repl.delimiter = value or ''
    return true
end
setters.o, setters.l, setters.d, setters.lang = setters.output, setters.language, setters.delimiter, setters.language

-- What a command shows; nil if the text is none.
local function run_command(repl, text)
    local name, rest = text:match('^%s*\\([%w_]+)%s*(.-)%s*$')
    if not name then
        if not text:match('^%s*\\') then return nil end
        return repl:format({ error = ('Invalid command %s. Type \\help for help.'):format(text:match('^%s*(.-)%s*$')) })
    end
    if name == 'help' or name == 'h' then return repl:format(HELP) end
    if name == 'quit' or name == 'q' then
        repl.is_over = true
        return ''
    end
    if name == 'set' or name == 's' then
        local what, value = rest:match('^(%a+);?%s*(.-)$')
        if what ~= 'delimiter' and what ~= 'd' and value then value = value:gsub(';$', '') end
        local set = what and setters[what]
        if not what then return repl:format({ error = 'Invalid set syntax, type \\help for help' }) end
        if not set then return repl:format({ error = 'Unknown parameter: ' .. what }) end
        local done, result = set(repl, value ~= '' and value or nil)
        if not done then return repl:format({ error = result }) end
        if result == nil then return repl:format() end
        return repl:format(result)
    end
    return repl:format({ error = ('Invalid command \\%s. Type \\help for help.'):format(name) })
end

-- Statements.

local function compile(text)
    local chunk = loadstring('return ' .. text)
    if chunk then return chunk end
    return loadstring(text)
end

local function is_incomplete(text)
    local chunk, message = compile(text)
    return not chunk and message:match("near '<eof>'$") ~= nil
end

local function outcome(repl, done, ...)
    if done then return repl:format(...) end
    local failure = ...
    if failure == nil then
        failure = box.NULL
    elseif type(failure) ~= 'table' and not (type(failure) == 'cdata' and box.error.is(failure)) then
        failure = tostring(failure)
    end
    return repl:format({ error = failure })
end

-- Runs a statement here; what the console shows.
local function run_here(repl, text)
    if repl.language == 'sql' then
        if not box.execute then return repl:format({ error = 'SQL is not there: \\set language lua' }) end
        return outcome(repl, pcall(box.execute, text))
    end
    local chunk, message = compile(text)
    if not chunk then return repl:format({ error = message }) end
    return outcome(repl, pcall(chunk))
end

function repl_methods.run(repl, text)
    if repl.remote then return repl.remote:run(repl, text) end
    return run_command(repl, text) or run_here(repl, text)
end

-- The console of the running fiber; for a request of a client the settings of its session.
local function repl_of_fiber()
    local repl = fiber.self().storage.console
    if type(repl) == 'table' and getmetatable(repl) == repl_mt then return repl end
    if internal.configured() and box.session.peer() then
        local storage = box.session.storage
        storage.console = storage.console or new_repl()
        return storage.console
    end
    return nil
end

-- The console at a socket that the running fiber serves.
function internal.console_of_fiber()
    local repl = fiber.self().storage.console
    if type(repl) == 'table' and getmetatable(repl) == repl_mt and repl.client then return repl end
end

--- Runs a statement; what a console prints.
function console.eval(text)
    if type(text) ~= 'string' then error('Usage: console.eval(line)', 2) end
    local repl = repl_of_fiber() or new_repl()
    return run_command(repl, text) or run_here(repl, text)
end

-- What ends a statement here: asked for without an argument.
function console.delimiter(delimiter)
    local repl = repl_of_fiber()
    if not repl then error('console.delimiter(): need existing console', 2) end
    if delimiter == nil then return repl.delimiter end
    if type(delimiter) ~= 'string' then error('invalid delimiter', 2) end
    repl.delimiter = delimiter
end

function console.eos(eos)
    local repl = repl_of_fiber()
    if eos ~= nil and repl then repl.eos = eos end
    return repl and repl.eos or default_eos
end

function console.set_default_output(output)
    local probe = new_repl()
    local done, message = setters.output(probe, output)
    if not done then error(message, 2) end
    default_output, default_eos = probe.output, probe.eos
end

function console.get_default_output() return default_output, default_eos end

-- Completion.

local function keys_of(object, found)
    local meta = type(object) == 'table' and getmetatable(object)
    if type(object) == 'table' then
        local each = type(meta) == 'table' and meta.__pairs
        local done, step, state, key = pcall(each or pairs, object)
        if done then
            for name in step, state, key do
                if type(name) == 'string' then found[name] = true end
            end
        end
    end
    local methods = type(meta) == 'table' and meta.__index
    if type(methods) == 'table' then keys_of(methods, found) end
end

-- What the text may become: whole words with what stands before them.
local function complete_here(text)
    local before, separator, prefix = text:match('^(.*)([.:])([%w_]*)$')
    local object = _G
    if before then
        for part in before:gmatch('[^.:]+') do
            local done, inner = pcall(function() return object[part] end)
            if not done or inner == nil then return {} end
            object = inner
        end
    else
        before, separator, prefix = '', '', text
    end
    local found, words = {}, {}
    keys_of(object, found)
    if object == _G then for name in pairs(NAMES) do found[name] = true end end
    for name in pairs(found) do
        local is_word = name:match('^[%a_][%w_]*$') and name:sub(1, #prefix) == prefix
        -- Internal names show only when they are asked for.
        if is_word and (name:sub(1, 1) ~= '_' or prefix:sub(1, 1) == '_') then
            local done, value = pcall(function() return object[name] end)
            local is_function = done and type(value) == 'function'
            if separator ~= ':' or is_function then
                words[#words + 1] = before .. separator .. name .. (is_function and '(' or '')
            end
        end
    end
    table.sort(words)
    return words
end

--- What completes the word that ends at a place (in bytes from 0) of a line: its begin, and a list.
function console.complete(line, place)
    local text = line:sub(1, place)
    local word = text:match('[%a_][%w_.:]*$') or ''
    local repl = console.current
    local words
    if repl and repl.remote then words = repl.remote:complete(word) else words = complete_here(word) end
    return place - #word, words
end

function console.completion_handler(text, first, last)
    if type(text) ~= 'string' then error('Usage: console.completion_handler(text, start, end)', 2) end
    local word = text:sub(first and first + 1 or 1, last or #text)
    local words = complete_here(word)
    if #words == 0 then return nil end
    return words
end
console.ac = function() end
console.complete_here = complete_here

-- Remote consoles.

local binary = {}

function binary.run(remote, repl, text)
    local done, shown = pcall(remote.connection.eval, remote.connection, "return require('console').eval(...)", { text })
    if done then
        local format = text:match('^%s*\\set%s+output%s+(%S+)')
        if format then setters.output(repl, format) end
        return shown
    end
    return repl:format({ error = tostring(shown) })
end

function binary.complete(remote, word)
    local done, words = pcall(remote.connection.eval, remote.connection,
        "local c = require('console') return (c.complete_here or c.completion_handler)(...)", { word }, { timeout = 1 })
    return done and type(words) == 'table' and words or {}
end

function binary.close(remote) remote.connection:close() end

-- The text protocol of `console.listen`: statements end with a delimiter, results as their format says.
local textual = {}
local END = '$EOF$'

local function send_text(remote, repl, text)
    if not remote.socket:write(text .. END .. '\n') then return nil end
    if repl.output == 'yaml' then return remote.socket:read('\n...\n') end
    -- The sign that ends a result may stand in a string too: a quote is open then.
    local shown = ''
    repeat
        local piece = remote.socket:read(repl.eos or ';')
        if piece == nil or piece == '' then return piece end
        shown = shown .. piece
        local _, quotes = shown:gsub('\\.', ''):gsub('"', '')
    until quotes % 2 == 0
    return shown
end

function textual.run(remote, repl, text)
    local format = text:match('^%s*\\set%s+output%s+(%S+)')
    local former = repl.output
    if format and not setters.output(repl, format) then repl.output = former end
    local shown = send_text(remote, repl, text)
    if shown and shown ~= '' then return shown end
    remote.is_gone = true
    return repl:format({ error = 'the console has closed the connection' })
end

function textual.complete(remote, word)
    local repl = new_repl({ output = 'yaml' })
    local text = send_text(remote, repl, ("return (require('console').complete_here or function() end)(%q)"):format(word))
    local done, words = pcall(require('yaml').decode, text or '')
    return done and type(words) == 'table' and type(words[1]) == 'table' and words[1] or {}
end

function textual.close(remote) remote.socket:close() end

local function place_of(address)
    local parsed = require('uri').parse(tostring(address))
    if type(address) == 'string' and address:sub(1, 1) == '/' then parsed = { host = 'unix/', service = address } end
    if not parsed or not parsed.service then return nil end
    if parsed.unix then return 'unix/', parsed.unix, parsed end
    local host = parsed.host
    if host == nil or host == '*' then host = 'localhost' end
    return host, parsed.service, parsed
end

-- The remote side that listens at an address, whatever it speaks; nil with the reason.
local function open_remote(address, options)
    options = options or {}
    local host, port, parsed = place_of(address)
    if not host then return nil, ('%q is no address: host:port, or the path of a unix socket'):format(tostring(address)) end
    local socket = require('socket').tcp_connect(host, port, options.timeout)
    if not socket then return nil, errno.strerror() end
    local greeting = socket:read(128, options.timeout or 10)
    if not greeting or #greeting < 128 then
        socket:close()
        return nil, 'the server has sent no greeting: it speaks neither IPROTO nor the text protocol of consoles'
    end
    local title = host == 'unix/' and port or ('%s:%s'):format(host, port)
    if greeting:match('%(Lua console%)') then
        local remote = setmetatable({ socket = socket, title = title, host = host, port = port }, { __index = textual })
        socket:write(("require('console').delimiter('%s')\n"):format(END))
        socket:read('\n...\n')
        return remote
    end
    socket:close()
    local connection = require('net.box').connect(host, port, {
        user = options.user or parsed.login, password = options.password or parsed.password,
        connect_timeout = options.timeout,
    })
    if connection.state ~= 'active' then return nil, connection.error end
    -- A user who may not run statements learns it now.
    local may, refusal = pcall(connection.eval, connection, 'return true')
    if not may then
        connection:close()
        return nil, refusal
    end
    return setmetatable({ connection = connection, title = title, host = host, port = port }, { __index = binary })
end

--- Makes the console one of another server.
function console.connect(address, options)
    local repl = repl_of_fiber()
    if not repl then error('console.connect() need existing console', 2) end
    if address == nil then error('Usage: console.connect("[login:password@][host:]port")', 2) end
    local remote, message = open_remote(address, options)
    if not remote then
        if type(message) ~= 'string' then error(message, 0) end
        box.error({ code = box.error.NO_CONNECTION, reason = 'Connection is not established: ' .. message })
    end
    log.info('connected to %s', remote.title)
    repl.remote, repl.prompt = remote, ('%s:%s'):format(remote.host, remote.port)
    return true
end

-- Leaves the other server; the console is one of this process again.
local function leave_remote(repl)
    repl.remote:close()
    repl.remote, repl.prompt = nil, nil
end

-- The console of the terminal.

-- A whole statement; nil at the end of the input.
local function read_statement(repl)
    local title = repl.remote and repl.remote.title or 'lycosa'
    local text
    while true do
        local prompt = text and (' '):rep(#title) .. '> ' or title .. '> '
        local line = native.read_line(prompt)
        if line == nil then return text end
        if line == false then
            text = nil
        else
            text = text and text .. '\n' .. line or line
            if text:match('^%s*\\') then return text end
            if repl.delimiter ~= '' then
                local size = #repl.delimiter
                local trimmed = text:gsub('%s+$', '')
                if trimmed:sub(-size) == repl.delimiter then return trimmed:sub(1, -size - 1) end
            elseif repl.language ~= 'lua' or not is_incomplete(text) then
                return text
            end
        end
    end
end

local function loop(repl)
    local storage = fiber.self().storage
    storage.console, console.current = repl, repl
    while not repl.is_over do
        local text = read_statement(repl)
        if text == nil then
            io.write('\n')
            break
        end
        if text:match('%S') then
            native.remember(text)
            if repl.remote and text:match('^%s*\\q') then
                repl.is_over = true
            else
                local remote = repl.remote
                local shown = repl:run(text)
                if shown ~= '' then
                    io.write(shown, '\n')
                    io.flush()
                end
                if remote and remote.is_gone then break end
            end
        end
    end
    if repl.remote then repl.remote:close() end
    storage.console, console.current = nil, nil
end

local start_trigger

function console.start()
    if fiber.self().storage.console then error('console is already started', 2) end
    local repl = new_repl()
    if start_trigger then start_trigger(repl) end
    loop(repl)
end

-- `lycosa console [ADDRESS]`: whether there was a console, and why not.
function console.attach(address, user, password)
    if address == nil or address == '' then
        console.start()
        return true
    end
    local remote, message = open_remote(address, { user = user, password = password })
    if not remote then return false, ('no console at %s: %s'):format((tostring(address):gsub('^[^@/]*@', '')), message) end
    loop(new_repl({ remote = remote }))
    return true
end

function console.on_start(body)
    if body ~= nil and type(body) ~= 'function' then error('Wrong type of on_start hook: ' .. type(body), 2) end
    start_trigger = body
end

-- Consoles for others.

local disconnect_trigger
function console.on_client_disconnect(body)
    if body ~= nil and type(body) ~= 'function' then
        error('Wrong type of on_client_disconnect hook: ' .. type(body), 2)
    end
    disconnect_trigger = body
end

-- A web page makes a browser send requests to loopback addresses, and lines of their bodies would run. So the first line
-- that is not blank decides: a request of HTTP gets an answer that says what this port is, bytes that are no text get none.
local http_refusal = 'This port is a Lua console and does not speak HTTP.\n'
http_refusal = ('HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n' ..
    'X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%s'):format(#http_refusal, http_refusal)

-- Whether the first text of a connection comes from somebody who takes this for another protocol; logs that.
local function is_stranger(socket, text)
    local line = text:match('^[^\n]*')
    local is_http = line:upper():match(' HTTP/%d[%d.]*%s*$')
    local is_text = utf8.len(line) and not line:match('[%z\1-\8\11\12\14-\31]')
    if not is_http and is_text then return false end
    if is_http then socket:write(http_refusal) end
    log.warn('console: a connection was closed: it sent %s, and this port is a Lua console',
        is_http and 'an HTTP request' or 'bytes that are no text')
    return true
end

-- What a line says that leaves the other server, or else the console, as in ssh.
local LEAVE = '~.'

local function serve_statements(socket)
    local is_first = true
    local repl = new_repl({ client = socket })
    fiber.self().storage.console = repl
    while not repl.is_over do
        local text = socket:read({ delimiter = { repl.delimiter .. '\n', repl.delimiter .. '\r\n' } })
        if text == nil or text == '' or is_first and is_stranger(socket, text) then break end
        is_first = is_first and not text:match('%S')
        text = text:gsub('\r?\n$', '')
        local is_leave = text == LEAVE
        local size = #repl.delimiter
        if size > 0 and text:sub(-size) == repl.delimiter then text = text:sub(1, -size - 1) end
        if is_leave then
            if not repl.remote then break end
            leave_remote(repl)
        elseif text:match('%S') then
            local shown = repl:run(text)
            if shown ~= '' and not socket:write(shown) then break end
        end
    end
    if repl.remote then leave_remote(repl) end
    if disconnect_trigger then pcall(disconnect_trigger, repl) end
end

-- Where a console is used from, as `box.session.peer` tells it.
local function peer_of(socket)
    local peer = socket:peer()
    if not peer or peer.family == 'AF_UNIX' then return 'unix/:' end
    return ('%s:%s'):format(peer.host, peer.port)
end

local function serve(socket)
    local version = (rawget(_G, '_TARANTOOL') or '2.6.0'):match('^[^-]*')
    local function greet()
        socket:write(('%-63s\n%-63s\n'):format('Tarantool ' .. version .. ' (Lua console)', "type '\\help' for interactive help"))
    end
    if not internal.configured() then
        greet()
        return serve_statements(socket)
    end
    -- A session of its own, with its triggers; an error of one of them closes the connection.
    internal.with_new_session(function()
        internal.connected()
        internal.logged_in('admin', true)
        greet()
        serve_statements(socket)
        internal.disconnected()
    end, peer_of(socket))
end

--- Listens for consoles that speak text; the socket.
function console.listen(address)
    local host, port
    if address == nil then
        host, port = '127.0.0.1', 3313
    else
        host, port = place_of(address)
        if not host then
            error(('console.listen(): %q is no address: host:port, or the path of a unix socket'):format(tostring(address)), 2)
        end
    end
    local server, place = require('socket').tcp_server(host, port, { handler = serve, name = 'console' })
    if not server then
        error(('failed to create server %s:%s: %s'):format(host, port, errno.strerror()), 2)
    end
    return server, place
end

return console
