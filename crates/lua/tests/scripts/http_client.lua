-- oracle
-- http.client: methods, bodies by length, in chunks and till the end, redirects, cookies, failures as answers.
local fiber = require('fiber')
local http = require('http.client')
local json = require('json')
local socket = require('socket')

local function answer_to(method, path, head, body)
    if path == '/redirect' then return 'HTTP/1.1 302 Found\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n' end
    if path == '/chunks' then
        return 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=1\r\n world\r\n0\r\n\r\n'
    end
    if path == '/cookie' then
        return 'HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/; HttpOnly\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n\r\nok'
    end
    if path == '/till-the-end' then return 'HTTP/1.0 200 Fine\r\nContent-Type: text/plain\r\n\r\ntill the end', true end
    if path == '/nothing' then return nil, true end
    if path == '/echo' then
        local lines = {}
        for line in head:gmatch('[^\r\n]+') do
            if not line:match('^Host') and not line:match('^Connection') and not line:match('^TE') then
                table.insert(lines, line)
            end
        end
        table.sort(lines)
        local text = table.concat(lines, '; ') .. '; ' .. body
        return ('HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s'):format(#text, text)
    end
    if method == 'HEAD' then return 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n' end
    local status = path:match('^/status/(%d+)$')
    if status then return ('HTTP/1.1 %s Phrase\r\nContent-Length: 0\r\n\r\n'):format(status) end
    if path == '/slow' then fiber.sleep(60) end
    return 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Thing: Value\r\n\r\nok'
end

local server = socket.tcp_server('127.0.0.1', 0, function(client)
    while true do
        local head = client:read('\r\n\r\n')
        if not head or head == '' then return end
        local method, path = head:match('^(%S+) (%S+)')
        local size = tonumber(head:lower():match('content%-length: (%d+)')) or 0
        local answer, is_last = answer_to(method, path, head, size > 0 and client:read(size) or '')
        if answer then client:write(answer) end
        if is_last then return end
    end
end)
local base = 'http://127.0.0.1:' .. server:name().port

local function show(body, ...)
    local done, answer = pcall(body, ...)
    if not done then return print((tostring(answer):gsub('^[^ ]*%.lua:%d+: ', ''))) end
    local headers = {}
    for name, value in pairs(answer.headers or {}) do
        -- Of a redirected request Tarantool shows the headers of the first answer alone.
        if name ~= 'content-length' and name ~= 'x-thing' then table.insert(headers, name .. '=' .. tostring(value)) end
    end
    table.sort(headers)
    print(answer.status, answer.reason, table.concat(headers, ' '), answer.body, answer.proto and json.encode(answer.proto),
        answer.cookies and json.encode(answer.cookies.a))
end

local client = http.new()
show(client.get, client, base .. '/ok')
show(http.get, base .. '/ok')
show(http.get, base .. '/echo')
show(http.post, base .. '/echo', 'body')
show(http.put, base .. '/echo', 'b', { headers = { ['X-Y'] = 'z', ['Content-Type'] = 'a/b' } })
show(client.request, client, 'PATCH', base .. '/echo', 'q')
show(client.delete, client, base .. '/echo')
show(client.head, client, base .. '/x')
show(client.get, client, base .. '/redirect')
show(client.get, client, base .. '/redirect', { follow_location = false })
show(client.get, client, base .. '/chunks')
show(client.get, client, base .. '/cookie')
show(client.get, client, base .. '/till-the-end')
show(client.get, client, base .. '/nothing')
for _, status in ipairs({ 202, 304, 400, 404, 418, 503 }) do show(client.get, client, base .. '/status/' .. status) end
show(client.get, client, base .. '/slow', { timeout = 0.1 })
show(client.get, client, 'http://127.0.0.1:1/')
show(client.get, client)
show(client.get)
show(client.request, client)
show(client.get, client, '')
local stat = client:stat()
print(stat.active_requests, stat.total_requests > 0)
os.exit(0)
