-- oracle
local function flat(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for _, item in ipairs(value) do parts[#parts + 1] = flat(item) end
    return '[' .. table.concat(parts, ',') .. ']'
end
local function show(...) local t={} for i=1,select('#',...) do local v=select(i,...) t[i]=type(v)=='table' and flat(v) or tostring(v) end print(table.concat(t,' | ')) end
local function try(f,...) local r={pcall(f,...)} if not r[1] then r[2]=tostring(r[2]):gsub('^[^ ]*:%d+: ','') end show(unpack(r,1,table.maxn(r))) end
try(string.split,'a b  c') try(string.split,' a b ') try(string.split,'a,b,,c',',') try(string.split,'a,b,c',',',1) try(string.split,'',',') try(string.split,'') try(string.split,'abc','') try(string.split,'a  b  c',nil,1) try(string.split,1) try(string.split,'a',1) try(string.split,'a','a','x') try(string.split,'aXXbXXc','XX')
try(string.ljust,'ab',5) try(string.ljust,'ab',5,'x') try(string.ljust,'ab',1) try(string.ljust,'ab',5,'xy') try(string.ljust,'ab',-1) try(string.ljust,'ab') try(string.rjust,'ab',5,'x') try(string.center,'ab',5,'x') try(string.center,'ab',6,'x') try(string.center,'a',4)
try(string.startswith,'hello','he') try(string.startswith,'hello','el',2) try(string.startswith,'hello','el',2,3) try(string.startswith,'hello','ello',2,3) try(string.startswith,'hello','') try(string.startswith,'hello','lo',-2) try(string.startswith,'hello',1) try(string.endswith,'hello','lo') try(string.endswith,'hello','ll',1,4) try(string.endswith,'hello','ll',1,-2) try(string.endswith,'hello','') try(string.endswith,'a','lo')
try(string.hex,'hello') try(string.hex,'\0\255') try(string.hex,1) try(string.fromhex,'68656c6C') try(string.fromhex,'686') try(string.fromhex,'zz') try(string.fromhex,1)
try(string.strip,'  a b \t\n') try(string.lstrip,'  a ') try(string.rstrip,'  a ') try(string.strip,'xxaxx','x') try(string.strip,1) try(string.strip,'a',1) try(string.strip,'') try(string.strip, 'xyaxy','yx') try(string.strip,'abc','')
local mt={__index=1} local t=setmetatable({1,{2,3},a={b=1}},mt) local c=table.copy(t) show(c==t, getmetatable(c)==mt, c[2]==t[2]) local d=table.deepcopy(t) show(d[2]==t[2],getmetatable(d)==mt,d[2][2])
local cyc={} cyc.self=cyc local e=table.deepcopy(cyc) show(e.self==e) try(table.copy,1) try(table.deepcopy,'x') try(table.copy)
print(debug.sourcefile():match('[^/]*$'),debug.__file__:match('[^/]*$')) os.setenv('ABCD','x') print(os.getenv('ABCD'),os.environ().ABCD) os.setenv('ABCD') print(os.getenv('ABCD'))
