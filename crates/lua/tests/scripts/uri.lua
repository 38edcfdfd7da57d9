-- oracle
local uri = require('uri')
local function flat(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for _, item in ipairs(value) do parts[#parts + 1] = flat(item) end
    return '[' .. table.concat(parts, ',') .. ']'
end
local function show(r) if not r[1] then r[2]='error' end print(flat(r)) end
local function try(f,...) show{pcall(f,...)} end
for _,s in ipairs{'localhost','localhost:3301','3301','/tmp/a.sock','unix/:/tmp/a.sock','http://user:pw@host:80/path/x?q=1&b=2#frag','user:pass@localhost:3301','user@host','[::1]:3301','127.0.0.1:3301','http://x.y/','','host:service','http://h?x','unix/:./a.sock','unix/:a','http://user:@h','/tmp/x:/a','mailto:a@b','http://[::1]:80/','a b','host:99999','tarantool://u:p@h:1','http://h:80','::1','1.2.3.4','0','user:p%40ss@h:1','http://h/%20a','*:3301','?a=b','#x','host/path','1234567890'} do local ok,u=pcall(uri.parse,s) local keys={} if type(u)=='table' then for k,v in pairs(u) do keys[#keys+1]=k..'='..tostring(v) end table.sort(keys) end print(s,ok,type(u)=='table' and table.concat(keys,' ') or tostring(u)) if type(u)=='table' then print('  ',uri.format(u),uri.format(u,true)) end end
try(uri.parse) try(uri.parse,1) try(uri.format,{host='h',service='1'}) try(uri.format,{}) try(uri.format,{scheme='http',host='h',login='l',password='p',path='/x',query='q',fragment='f'},true) try(uri.format,{scheme='http',host='h',login='l',password='p',path='/x',query='q',fragment='f'})
