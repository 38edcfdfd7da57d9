-- uri: addresses as text, taken apart and put together.
local uri = {}

local UNIX = 'unix/'

local function is_ipv4(text)
    local count = 0
    for number in text:gmatch('[^.]+') do
        if not number:match('^%d%d?%d?$') or tonumber(number) > 255 then return false end
        count = count + 1
    end
    return count == 4 and text:match('^[%d.]+$') ~= nil and not text:find('..', 1, true)
end

-- Takes `login:password@` off the front.
local function account(text, parsed)
    local before, after = text:match('^([^@/?#%[%]]*)@(.*)$')
    if not before then return text end
    local login, password = before:match('^([^:]*):(.*)$')
    parsed.login, parsed.password = login or before, password
    return after
end

-- Takes the host and the service off the front; nil if there are none where some are needed.
local function host(text, parsed)
    local rest
    local path, rest_of_path = text:match('^unix/:([./].*)$'), nil
    if path then
        -- Behind a second colon stands the path of the URI.
        local socket, behind = path:match('^([^:]*):(/.*)$')
        if socket then path, rest_of_path = socket, behind end
    elseif text == '/' or text:match('^/[^/]') then
        path = text
    end
    if path then
        parsed.host, parsed.service, parsed.unix = UNIX, path, path
        return rest_of_path or ''
    end
    local v6, after = text:match('^%[([%x:.]+)%](.*)$')
    if v6 then
        parsed.host, parsed.ipv6, rest = v6, v6, after
    else
        local name
        name, rest = text:match('^([%w%-._~%%!$&\'()*+,;=]*)(.*)$')
        if name ~= '' then
            parsed.host = name
            if is_ipv4(name) then parsed.ipv4 = name end
        end
    end
    -- A service is a number or a name of letters, and may be empty.
    local service
    service, after = rest:match('^:(%d+)(.*)$')
    if not service then service, after = rest:match('^:(%a*)(.*)$') end
    if service then
        if not parsed.host then return nil end
        if service ~= '' then
            parsed.service = service
        elseif after:match('^/') and parsed.host:match('^%a[%w+.-]*$') then
            -- `name:/path`: the name is both, as in Tarantool.
            parsed.scheme = parsed.host
        end
        rest = after
    end
    return rest
end

-- Whether each `%` begins an encoded byte: one or two hexadecimal digits, `u` and four of them, or a second `%`.
local function has_whole_percents(text)
    local at = 1
    while true do
        at = text:find('%', at, true)
        if not at then return true end
        local _, last = text:find('^%%%%', at)
        if not last then _, last = text:find('^%%u%x%x%x%x', at) end
        if not last then _, last = text:find('^%%%x%x?', at) end
        if not last then return false end
        at = last + 1
    end
end

local function parse(text)
    -- A byte 0 ends the text, as in C.
    text = text:match('^[^%z]*')
    if not has_whole_percents(text) then return nil end
    local parsed, rest = {}, text
    if rest:match('^%d+$') then
        parsed.service = rest
        return parsed
    end
    local scheme, after = rest:match('^(%a[%w+.-]*)://(.*)$')
    if scheme and after ~= '' then parsed.scheme, rest = scheme:lower(), after end
    if rest:match('^[?#]') == nil then
        rest = host(account(rest, parsed), parsed)
    end
    if not rest or rest:find('[%s<>"]') or rest:match('^//') and not parsed.host then return nil end
    local path, query, fragment
    rest, fragment = rest:match('^([^#]*)#?(.*)$'), rest:match('#(.*)$')
    path, query = rest:match('^([^?]*)'), rest:match('%?(.*)$')
    if path ~= '' then
        if path:sub(1, 1) ~= '/' or (not parsed.host and not parsed.scheme) then return nil end
        parsed.path = path
    end
    parsed.query, parsed.fragment = query, fragment
    if next(parsed) == nil or ((parsed.scheme or parsed.login) and not parsed.host) then return nil end
    return parsed
end

--- Takes a URI apart: scheme, login, password, host, ipv4, ipv6, unix, service, path, query, fragment; nil if it is none.
function uri.parse(text)
    if text == nil then error('Usage: uri.parse(string)', 2) end
    if type(text) ~= 'string' then
        error(("Usage: uri.parse(string): expected a string, got %s"):format(type(text)), 2)
    end
    return parse(text)
end

--- The text of a URI. The password is left out unless asked for.
function uri.format(parts, with_password)
    if type(parts) ~= 'table' then error('Usage: uri.format(table[, include_password])', 2) end
    local text = {}
    local function add(...)
        for at = 1, select('#', ...) do text[#text + 1] = tostring((select(at, ...))) end
    end
    local function has(name) return parts[name] ~= nil and parts[name] ~= '' end
    if has('scheme') then add(parts.scheme, '://') end
    if has('host') then
        if has('login') then
            add(parts.login)
            if with_password and has('password') then add(':', parts.password) end
            add('@')
        end
        add(parts.host)
        if has('service') then add(':', parts.service) end
    end
    if has('path') then add(parts.path) end
    if has('query') then add('?', parts.query) end
    if has('fragment') then add('#', parts.fragment) end
    return table.concat(text)
end

return uri
