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
    elseif text:match('^/.') then
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
    local service
    service, after = rest:match('^:([%w%-._~]+)(.*)$')
    if service then
        if not parsed.host then return nil end
        parsed.service, rest = service, after
    end
    return rest
end

local function parse(text)
    local parsed, rest = {}, text
    if rest:match('^%d+$') then
        parsed.service = rest
        return parsed
    end
    local scheme, after = rest:match('^(%a[%w+.-]*)://(.*)$')
    if scheme then parsed.scheme, rest = scheme:lower(), after end
    if rest:match('^[?#]') == nil then
        rest = host(account(rest, parsed), parsed)
    end
    if not rest or rest:find('[%s<>"]') then return nil end
    local path, query, fragment
    rest, fragment = rest:match('^([^#]*)#?(.*)$')
    path, query = rest:match('^([^?]*)%??(.*)$')
    if path ~= '' then
        if path:sub(1, 1) ~= '/' or (not parsed.host and not parsed.scheme) then return nil end
        parsed.path = path
    end
    if query ~= '' then parsed.query = query end
    if fragment ~= '' then parsed.fragment = fragment end
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
    if parts.scheme then add(parts.scheme, '://') end
    if parts.host then
        if parts.login then
            add(parts.login)
            if with_password and parts.password and parts.password ~= '' then add(':', parts.password) end
            add('@')
        end
        add(parts.host)
        if parts.service then add(':', parts.service) end
    end
    if parts.path then add(parts.path) end
    if parts.query then add('?', parts.query) end
    if parts.fragment then add('#', parts.fragment) end
    return table.concat(text)
end

return uri
