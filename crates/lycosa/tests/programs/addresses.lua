-- Addresses as text with odd bytes, and rows of CSV with nil. Both servers print the same.
local uri, csv = require('uri'), require('csv')

local function shown(parts)
    local all = {}
    for name, value in pairs(parts) do all[#all + 1] = ('%s=%s'):format(name, value) end
    table.sort(all)
    return table.concat(all, ' ')
end

for _, text in ipairs({
    'a\0b', 'localhost:33\00001', 'a\0', '\0a', 'unix/:/tmp/a\0b', 'a%b', 'a%41b', 'a%4', '%', '%%', 'a%%b', 'user%40x@h', 'u%@h',
    'u:p%@h', 'u%4:p%%@h', 'a%zz:33', 'a%:3', 'a?%', 'a#%', 'a?%4#%5', '%u1234', '%u123', '%U1234', '/a%', '/a%4', 'unix/:/a%',
    'http://%/', 'http://a%20b/c%d?q%#f%', '/tmp/a%b', 'h:p%41', 'a?', 'a?#', 'h/p?#', 'a#', 'a?#x', 'http://h?', 'http://h/#', '?',
    '#', 'h?q#', 'x:', 'x:?', 'x:#f', 'x:/p', 'x:y', 'x:y1', 'x:1y', '[::1]:', '127.0.0.1:', 'a:b@c:', 'http:', 'http://', 'a:3301/p',
    'a:/p?q', 'a@', ':33', '*:3301', '/', '//', '//x', '//guest@localhost:3301', '//!', '/a/b', '/!',
}) do
    local parts = uri.parse(text)
    print(('%q'):format(text), parts and shown(parts), parts and uri.format(parts, true))
end

for _, parts in ipairs({
    { host = 'a', fragment = '' }, { host = 'a', query = '' }, { host = 'a', query = '', fragment = 'x' }, { host = 'a', path = '' },
    { host = 'a', login = '' }, { host = 'a', service = '' }, { scheme = '', host = 'a' }, { host = '', path = 'x' },
    { host = 'a', login = 'u', password = '' },
}) do
    print(uri.format(parts, true))
end

for _, list in ipairs({
    { 1, nil, 3 }, { { 1, nil, 3 }, { nil, 2 }, { nil, nil, nil, 4 } }, { [1] = 1, [3] = 3 }, { { box.NULL, 2 } }, { { 1 }, nil, { 3 } },
    { {} }, {}, { { 'a,b', nil, 'c\0d' } },
}) do
    print(csv.dump(list))
end
print((pcall(csv.dump, { 1 }, nil, {})))
