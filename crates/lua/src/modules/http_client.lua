-- http.client: requests over HTTP/1.1 by the sockets of the loop; only the fiber that asks waits.
--
-- `https` is TLS between the request and the socket. Absent: compressed bodies, proxies. A connection serves one request.
local errno = require('errno')
local fiber = require('fiber')
local socket = require('socket')
local tls = require('lycosa.tls')
local uri = require('uri')

local DEFAULT_TIMEOUT, MAX_REDIRECTS, MAX_HEAD, MAX_BODY = 36586400100, 30, 256 * 1024, 1024 * 1024 * 1024

local NO_BODY = { GET = true, HEAD = true }

-- Failures of a request that are answers, as libcurl's codes are in Tarantool.
local function refused(status, reason) return { status = status, reason = reason } end
local function no_connection(text) return refused(595, text) end
local function timed_out() return refused(408, 'Timeout was reached') end
local function no_answer() return refused(444, 'Server returned nothing (no headers, no data)') end

local function place_of(url)
    -- What ends behind the scheme is an address of the host `http` for `uri`, as in Tarantool, and none here.
    local is_empty = url == '' or url:match('^%a[%w+.-]*://$')
    local parts = not is_empty and uri.parse(url)
    if not is_empty and not parts and not url:match('^%a[%w+.-]*:') then parts = uri.parse('http://' .. url) end
    if not parts or not parts.host and not parts.unix then error('curl: URL using bad/illegal format or missing URL', 0) end
    local scheme = parts.scheme or 'http'
    if scheme ~= 'http' and scheme ~= 'https' then error('curl: Unsupported protocol', 0) end
    local path = parts.path or '/'
    if parts.query then path = path .. '?' .. parts.query end
    local host = parts.ipv6 and '[' .. parts.ipv6 .. ']' or parts.host
    return {
        host = parts.host, port = parts.service or (scheme == 'https' and '443' or '80'), path = path, is_secure = scheme == 'https', login = parts.login, password = parts.password,
        name = parts.service and host .. ':' .. parts.service or host,
    }
end

local function check_text(what, text)
    if text:find('[\r\n%z]') then error(('http.client: %s has a line break or a zero'):format(what), 0) end
    return text
end

local function head_of(method, place, body, options)
    local lines = { ('%s %s HTTP/1.1'):format(check_text('the method', method), check_text('the path', place.path)) }
    local given = {}
    for name, value in pairs(options.headers or {}) do
        if type(value) ~= 'string' then error('opts.headers values should be strings', 0) end
        given[tostring(name):lower()] = true
        table.insert(lines, check_text('a header', ('%s: %s'):format(name, value)))
    end
    local function add(name, value)
        if not given[name:lower()] then table.insert(lines, ('%s: %s'):format(name, value)) end
    end
    add('Host', place.name)
    add('Accept', '*/*')
    if options.accept_encoding then add('Accept-Encoding', check_text('accept_encoding', options.accept_encoding)) end
    if place.login then
        local account = ('%s:%s'):format(place.login, place.password or '')
        add('Authorization', 'Basic ' .. require('digest').base64_encode(account, { nowrap = true }))
    end
    add('Connection', 'close')
    if body or not NO_BODY[method] then
        add('Content-Length', #(body or ''))
        add('Content-Type', 'application/x-www-form-urlencoded')
    end
    return table.concat(lines, '\r\n') .. '\r\n\r\n'
end

local function cookies_of(list)
    local cookies = {}
    for _, text in ipairs(list) do
        local name, value, rest = text:match('^%s*([^=;]+)=([^;]*)(.*)$')
        if name then
            local options = {}
            for option in rest:gmatch(';%s*([^;]+)') do options[#options + 1] = option end
            cookies[name] = { value, options }
        end
    end
    return cookies
end

-- The status line and the headers. A name that comes twice has its values with commas between.
local function read_head(text)
    local major, minor, status = text:match('^HTTP/(%d)%.?(%d?) (%d%d%d)')
    if not major then return nil end
    local headers, cookies = {}, {}
    for name, value in text:gmatch('\n([^:%s]+):[ \t]*([^\r\n]*)') do
        name = name:lower()
        if name == 'set-cookie' then cookies[#cookies + 1] = value end
        headers[name] = headers[name] and headers[name] .. ',' .. value or value
    end
    status = tonumber(status)
    local answer = {
        status = status, -- Tarantool tells no more of the phrase that a server has sent.
        reason = status < 400 and 'Ok' or 'Unknown', proto = { tonumber(major), tonumber(minor) or 0 }, headers = headers,
    }
    if #cookies > 0 then answer.cookies = cookies_of(cookies) end
    return answer
end

local secured

local function left(deadline) return math.max(deadline - fiber.clock(), 0) end

-- Reads exactly that many bytes; nil if they do not come.
local function read_size(client, size, deadline)
    if size == 0 then return '' end
    local text = client:read(size, left(deadline))
    return text and #text == size and text or nil
end

local function read_chunks(client, deadline)
    local pieces, total = {}, 0
    while true do
        local line = client:read('\n', left(deadline))
        local size = line and tonumber(line:match('^(%x+)'), 16)
        if not size or total + size > MAX_BODY then return nil end
        if size == 0 then break end
        local piece = read_size(client, size, deadline)
        if not piece or client:read('\n', left(deadline)) == nil then return nil end
        pieces[#pieces + 1], total = piece, total + size
    end
    repeat
        local line = client:read('\n', left(deadline))
    until not line or line == '' or line == '\r\n' or line == '\n'
    return table.concat(pieces)
end

local function read_rest(client, deadline)
    local pieces, total = {}, 0
    while true do
        local piece = client:read({ chunk = 65536 }, left(deadline))
        if piece == nil then return nil end
        if piece == '' then return table.concat(pieces) end
        total = total + #piece
        if total > MAX_BODY then return nil end
        pieces[#pieces + 1] = piece
    end
end

local function read_body(client, method, answer, deadline)
    local status, headers = answer.status, answer.headers
    if method == 'HEAD' or status == 204 or status == 304 then return '' end
    if (headers['transfer-encoding'] or ''):lower():find('chunked', 1, true) then return read_chunks(client, deadline) end
    local size = tonumber(headers['content-length'])
    if size then return size <= MAX_BODY and read_size(client, size, deadline) or nil end
    return read_rest(client, deadline)
end

local function failure(deadline, otherwise)
    if fiber.clock() >= deadline or errno() == errno.ETIMEDOUT then return timed_out() end
    return otherwise
end

-- A connection with TLS: the methods of a socket that a request uses.
local Secure = {}
Secure.__index = Secure

function Secure:send_all(deadline)
    local bytes = self.session:pull()
    return bytes == '' or self.socket:write(bytes, left(deadline)) ~= nil
end

-- Takes what has come into the buffer. Nil and the reason if nothing can come any more.
function Secure:fill(deadline)
    if self.is_over then return nil end
    local bytes
    repeat
        bytes = self.socket:sysread(65536)
        if bytes == nil then
            local number = self.socket:errno()
            if number ~= errno.EAGAIN and number ~= errno.EINTR then return nil end
            if not self.socket:readable(left(deadline)) then return nil end
        end
    until bytes ~= nil
    if bytes == '' then
        self.is_over = true
        return true
    end
    local going, reason = self.session:feed(bytes)
    -- An alert tells the peer why.
    if not self:send_all(deadline) and going ~= nil then return nil end
    if going == nil then return nil, reason end
    local plain, is_over = self.session:read()
    self.held, self.is_over = self.held .. plain, is_over
    return true, going
end

-- The end of the first of the texts in what is held.
local function behind(held, texts)
    local first
    for _, text in ipairs(texts) do
        local _, last = held:find(text, 1, true)
        if last and (not first or last < first) then first = last end
    end
    return first
end

-- As `socket:read` for the ways in which a request reads: a number of bytes, up to a text, `{delimiter, chunk}`.
function Secure:read(what, timeout)
    local deadline = fiber.clock() + timeout
    local size, texts, chunk
    if type(what) == 'number' then size = what elseif type(what) == 'string' then texts = { what } end
    if type(what) == 'table' then texts, chunk = what.delimiter, what.chunk end
    while true do
        local count
        if size then
            count = #self.held >= size and size
        elseif texts then
            count = behind(self.held, texts) or (chunk and #self.held >= chunk and chunk)
        else
            count = #self.held > 0 and math.min(#self.held, chunk)
        end
        if not count and self.is_over then count = texts and 0 or #self.held end
        if count then
            local taken = self.held:sub(1, count)
            self.held = self.held:sub(count + 1)
            return taken
        end
        if not self:fill(deadline) then return nil end
    end
end

function Secure:write(text, timeout)
    self.session:write(text)
    return self:send_all(fiber.clock() + timeout) and #text or nil
end

function Secure:close()
    self.session:close()
    self:send_all(fiber.clock() + 1)
    return self.socket:close()
end

-- Settings that were read, by what they were read from.
local known_settings, NAMES = {}, { 'ca_file', 'ca_path', 'verify_peer', 'verify_host', 'ssl_cert', 'ssl_key' }

local function settings_of(options)
    local key = {}
    for place, name in ipairs(NAMES) do key[place] = tostring(options[name]) end
    key = table.concat(key, '\n')
    known_settings[key] = known_settings[key] or tls.settings(options)
    return known_settings[key]
end

-- The connection once both sides know each other; nil and the answer if they do not.
function secured(client, place, options, deadline)
    local done, session = pcall(function() return settings_of(options):connect(place.host or 'localhost') end)
    if not done then
        client:close()
        return nil, refused(495, tostring(session))
    end
    local secure = setmetatable({ socket = client, session = session, held = '', is_over = false }, Secure)
    if not secure:send_all(deadline) then
        client:close()
        return nil, failure(deadline, no_connection('SSL connect error'))
    end
    repeat
        local filled, going = secure:fill(deadline)
        if not filled or (secure.is_over and going ~= false) then
            client:close()
            if type(going) == 'string' then
                return nil, refused(495, 'SSL peer certificate or SSH remote key was not OK: ' .. going)
            end
            return nil, failure(deadline, no_connection('SSL connect error'))
        end
    until not going
    return secure
end

local function connect(place, options, deadline)
    errno(0)
    local client
    if options.unix_socket then
        client = socket.tcp_connect('unix/', options.unix_socket, left(deadline))
    else
        local found = socket.getaddrinfo(place.host, place.port, left(deadline), { type = 'SOCK_STREAM' })
        if not found or #found == 0 then return nil, failure(deadline, no_connection("Couldn't resolve host name")) end
        client = socket.tcp_connect(place.host, place.port, left(deadline))
    end
    if not client then return nil, failure(deadline, no_connection("Couldn't connect to server")) end
    if options.keepalive_idle and not options.unix_socket then
        client:setsockopt('SOL_SOCKET', 'SO_KEEPALIVE', true)
        client:setsockopt('tcp', 'TCP_KEEPIDLE', options.keepalive_idle)
        if options.keepalive_interval then client:setsockopt('tcp', 'TCP_KEEPINTVL', options.keepalive_interval) end
    end
    if not place.is_secure then return client end
    return secured(client, place, options, deadline)
end

-- One request on one connection.
local function exchange(method, place, body, options, deadline)
    local head = head_of(method, place, body, options)
    local client, failed = connect(place, options, deadline)
    if not client then return failed end
    local function finish(answer)
        client:close()
        return answer
    end
    if not client:write(head .. (body or ''), left(deadline)) then return finish(failure(deadline, no_answer())) end
    local answer
    repeat
        local text = client:read({ delimiter = { '\r\n\r\n', '\n\n' }, chunk = MAX_HEAD }, left(deadline))
        if text == nil then return finish(failure(deadline, no_answer())) end
        if text == '' then return finish(no_answer()) end
        answer = read_head(text)
        if not answer then
            client:close()
            error('curl: Unsupported protocol', 0)
        end
    until answer.status >= 200 or answer.status == 101
    local text = read_body(client, method, answer, deadline)
    if text == nil then return finish(failure(deadline, refused(444, 'Transferred a partial file'))) end
    if text ~= '' then answer.body = text end
    return finish(answer)
end

local REDIRECTS = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }

-- Where an answer sends the client: an absolute address, or one beside the former.
local function redirected(place, location)
    if location:match('^%a[%w+.-]*://') then return place_of(location) end
    if location:sub(1, 2) == '//' then return place_of((place.is_secure and 'https:' or 'http:') .. location) end
    local path = location:sub(1, 1) == '/' and location or place.path:match('^([^?]*/)') .. location
    local new = {}
    for name, value in pairs(place) do new[name] = value end
    new.path = path:match('^[^#]*')
    return new
end

local methods = {}
local client_mt = { __index = methods }

local function count(client, name) client._stat[name] = client._stat[name] + 1 end

local function request(client, method, url, body, options)
    local deadline = fiber.clock() + (options.timeout or DEFAULT_TIMEOUT)
    local place, redirects, first = place_of(url), 0, nil
    while true do
        local answer = exchange(method, place, body, options, deadline)
        local location = answer.headers and answer.headers.location
        if first and answer.headers then
            -- As libcurl gives them to Tarantool: the headers of all answers on the way.
            for name, value in pairs(first) do if answer.headers[name] == nil then answer.headers[name] = value end end
        end
        if not location or not REDIRECTS[answer.status] or options.follow_location == false then return answer end
        redirects = redirects + 1
        if redirects > (options.max_redirects or MAX_REDIRECTS) then
            return refused(595, 'Number of redirects hit maximum amount')
        end
        local keeps_method = answer.status == 307 or answer.status == 308 or method == 'HEAD'
        if not keeps_method then method, body = 'GET', nil end
        local former = place
        place, first = redirected(place, location), answer.headers
        first['content-length'] = nil
        if place.name ~= former.name then
            place.login, place.password = nil, nil
            -- What was meant for the former server is not told to another one.
            local kept = {}
            for name, value in pairs(options.headers or {}) do
                local lower = tostring(name):lower()
                if lower ~= 'authorization' and lower ~= 'cookie' and lower ~= 'host' then kept[name] = value end
            end
            local new = {}
            for name, value in pairs(options) do new[name] = value end
            new.headers, options = kept, new
        end
    end
end

function methods.request(client, method, url, body, options)
    if getmetatable(client) ~= client_mt then
        error('Use client:request(...) instead of client.request(...)', 2)
    end
    if type(method) ~= 'string' or type(url) ~= 'string' then error('request(method, url[, body, [options]])', 2) end
    if body ~= nil and type(body) ~= 'string' then error('request(method, url[, body, [options]]): body must be a string', 2) end
    if options ~= nil and type(options) ~= 'table' then error('fifth argument must be a table', 2) end
    options = options or {}
    if options.headers ~= nil and type(options.headers) ~= 'table' then error('opts.headers must be a table', 2) end
    if options.timeout ~= nil and type(options.timeout) ~= 'number' then error('opts.timeout must be a number', 2) end
    method = method:upper()
    if client._active >= client._max_total then
        count(client, 'failed_requests')
        error(('http.client: %d requests are under way, and max_total_connections is %d'):format(client._active,
            client._max_total), 2)
    end
    count(client, 'total_requests')
    client._active = client._active + 1
    local done, answer = pcall(request, client, method, url, body, options)
    client._active = client._active - 1
    if not done then
        count(client, 'failed_requests')
        error(answer, 0)
    end
    count(client, answer.status == 200 and 'http_200_responses' or 'http_other_responses')
    if not answer.headers then count(client, 'failed_requests') end
    return answer
end

for _, name in ipairs({ 'get', 'delete', 'head', 'options', 'trace', 'connect' }) do
    methods[name] = function(client, url, options)
        if getmetatable(client) ~= client_mt then
            error(('Use client:%s(...) instead of client.%s(...):'):format(name, name), 2)
        end
        return methods.request(client, name:upper(), url, nil, options)
    end
end

for _, name in ipairs({ 'post', 'put', 'patch' }) do
    methods[name] = function(client, url, body, options)
        if getmetatable(client) ~= client_mt then
            error(('Use client:%s(...) instead of client.%s(...):'):format(name, name), 2)
        end
        return methods.request(client, name:upper(), url, body, options)
    end
end

--- Counts of requests since the client was made.
function methods.stat(client)
    if getmetatable(client) ~= client_mt then error('stat(): client expected', 2) end
    local shown = { active_requests = client._active, sockets_added = client._stat.total_requests, sockets_deleted = 0 }
    for name, value in pairs(client._stat) do shown[name] = value end
    shown.sockets_deleted = shown.sockets_added - client._active
    return shown
end

local function new(options)
    options = options or {}
    if type(options) ~= 'table' then error('http.client.new(options): options must be a table', 2) end
    for _, name in ipairs({ 'max_connections', 'max_total_connections' }) do
        if options[name] ~= nil and type(options[name]) ~= 'number' then
            error(('http.client.new(options): %s must be a number'):format(name), 2)
        end
    end
    local most = options.max_total_connections
    return setmetatable({
        _active = 0, _max_total = most and most > 0 and most or math.huge,
        _stat = { total_requests = 0, http_200_responses = 0, http_other_responses = 0, failed_requests = 0 },
    }, client_mt)
end

local default = new()
local module = { new = new }
for _, name in ipairs({ 'get', 'post', 'put', 'patch', 'delete', 'head', 'options', 'trace', 'connect', 'request' }) do
    module[name] = function(...) return default[name](default, ...) end
end
return module
