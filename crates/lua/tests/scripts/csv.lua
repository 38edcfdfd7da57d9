-- oracle
local csv = require('csv')
local function flat(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for _, item in ipairs(value) do parts[#parts + 1] = flat(item) end
    return '[' .. table.concat(parts, ',') .. ']'
end
local function show(r) if not r[1] then r[2]='error' end print(flat(r)) end
local function try(f,...) show{pcall(f,...)} end
for _,s in ipairs{'a,b,c\n1,2,3','a,"b,c",d\n','"x""y",z','a\r\nb\r\n','\n\na','a,,b,\n',' a , b ','"a\nb",c','','a,"b','a"b,c','"a"b,c','"a" ,b','\n','a\n\nb',',',' "q" ,r','abc','a,b\n,\n'} do try(csv.load,s) end
try(csv.load,'a;b',{delimiter=';'}) try(csv.load,"a,'b,c'",{quote_char="'"}) try(csv.load,'h1,h2\n1,2\n3,4',{skip_head_lines=1}) try(csv.load,1) try(csv.load,'a,b',{chunk_size=1}) try(csv.load,{}) try(csv.load,'a',{delimiter='ab'}) try(csv.load,'a,b\n"c""\n',{})
try(csv.dump,{{1,'a,b'}}) try(csv.dump,{1,2,3}) try(csv.dump,{{'a','b'}},{delimiter=';'}) try(csv.dump,{{'a\nb',' c'}}) try(csv.dump,{}) try(csv.dump,{{}}) try(csv.dump,{{'',2,true}}) try(csv.dump,1)
for i,row in csv.iterate('a,b\nc,d') do print(i,flat(row)) end for i,row in csv.iterate('a,b\nc,d\ne',{skip_head_lines=1}) do print(i,flat(row)) end
local f={n=0,read=function(self,n) self.n=self.n+1 return self.n==1 and 'x,y\n1,' or self.n==2 and '2\n' or '' end} try(csv.load,f)
local w={t={},write=function(self,s) self.t[#self.t+1]=s end} csv.dump({{1,2},{3}},{},w) print(flat(w.t))
