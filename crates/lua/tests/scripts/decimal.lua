-- oracle
local d = require('decimal')
local function try(f,...) local r={pcall(f,...)} for i=1,table.maxn(r) do r[i]=tostring(r[i]):gsub('^%S+:%d+: ','') end print(unpack(r)) end
for _,v in ipairs{'1','1.50','-0','0','0.00','1e5','1e-5','1E+3',' 1','1 ','abc','','+5','.5','5.','nan','inf','1e38','9.99e37','123456789012345678901234567890123456789','1e-38','1e-39','1e-60','0.00000000000000000000000000000000000000000012','99999999999999999999999999999999999999','0.12345678901234567890123456789012345678901','12.3456789012345678901234567890123456789', 1,1.5,-2,0.1,1e20,1e37,1e38,1e-20,1/3,2^53,2^63,123456.789,0/0,1/0,5ULL,-7LL,true,{}} do try(d.new,v) end
try(d.new) try(d.new,nil) try(d.new,d.new('3.0'))
local a,b=d.new('10.25'),d.new('-3')
print(a,b,a+b,a-b,a*b,a/b,a%b,a^b,-a,a==b,a<b,a<=b,a>b,a==10.25,a==d.new('10.250'))

try(function() return a%b end) try(function() return a+1 end) try(function() return 1+a end) try(function() return '1'+a end) try(function() return a+'x' end) try(function() return a+{} end) try(function() return a+nil end) try(function() return a==1 end) try(function() return a==nil end) try(function() return a=='10.25' end)try(function() return a<'x' end) try(function() return a<11 end) try(function() return a<11ULL end) try(function() return a+1.5 end) try(function() return a<nil end) try(function() return a=={} end)
for _,f in ipairs{'abs','minus','exp','ln','log10','sqrt','trim','precision','scale','is_decimal'} do for _,v in ipairs{'10.25','-3','0','1','2','100','1.5000','0.00010','1000','-0.0','12345678901234567890.123456789','1e37','0.5','88','87','86','-87','-100'} do try(d[f],d.new(v)) end try(d[f]) try(d[f],'4') try(d[f],4) try(d[f],'x') try(d[f],{}) try(d[f],2,3) end
for _,f in ipairs{'round','rescale'} do for _,p in ipairs{{'10.255',2},{'10.245',2},{'-10.255',1},{'10',3},{'10.5',0},{'0.5',0},{'2.5',0},{'1.5',-1},{'1.5',39},{'1.5',38},{'123',36},{'0',3},{'99.99',1},{'1.005',5},{'1.5','1'}} do try(d[f],d.new(p[1]),p[2]) end try(d[f]) try(d[f],1) try(d[f],'1.55',1) try(d[f],a,1.5) end
for _,p in ipairs{{'1','3'},{'2','3'},{'10','4'},{'1','0'},{'0','5'},{'1','7'},{'100','10'},{'1.00','2'},{'1e37','1e-5'},{'1e-38','10'},{'-1','3'},{'99999999999999999999999999999999999999','99999999999999999999999999999999999999'},{'6.0','2.0'},{'1234.5678','3.14159'},{'0.1','0.3'}} do local x,y=d.new(p[1]),d.new(p[2])
 for _,op in ipairs{'+','-','*','/','^','%','==','<','<='} do io.write(p[1],op,p[2],' ') try(loadstring('local x,y=... return x'..op..'y'),x,y) end end
for _,p in ipairs{{'2','10'},{'2','0.5'},{'0','0'},{'-2','3'},{'-2','0.5'},{'10','37'},{'10','38'},{'1.1','100'},{'2','-1'},{'9','0.5'},{'0','-1'},{'1.10','2'},{'2','120'},{'1.5','2.5'}} do io.write(p[1],'^',p[2],' ') try(function() return d.new(p[1])^d.new(p[2]) end) end
print(require('json').encode({ a }), type(a), tostring(a), d.is_decimal(a))
print(require('msgpack').decode(require('msgpack').encode(a)))
print(tonumber(a))

for _,v in ipairs{'1.5','1.9','2.7','3'} do io.write(v..' ') try(d.ln,v) try(d.log10,v) end
for _,p in ipairs{{'0.05',1},{'0.04',1},{'0.96',1},{'9.5',0},{'0.005',1},{'99.5',0},{'0.99',1},{'0.0',0},{'-0.5',0},{'1.96',1}} do io.write(p[1],' ',p[2],' ') try(d.round,d.new(p[1]),p[2]) end
for _,p in ipairs{{'1','3.00'},{'10','0.3'},{'5','2.50'},{'-7.5','2'},{'7.5','-2'}} do io.write(p[1],'%',p[2],' ') try(function() return d.new(p[1])%d.new(p[2]) end) end
try(function() return d.new(1)=='x' end) try(function() return d.new(1)<={} end) try(function() return d.new(1)+true end)
try(d.exp,'0.00000001') try(d.sqrt,'4.0000') try(d.sqrt,'2e-10')
