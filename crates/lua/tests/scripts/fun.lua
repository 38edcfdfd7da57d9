-- oracle
local fun = require('fun')
local function show(...) local t={} for i=1,select('#',...) do t[i]=tostring((select(i,...))) end print(table.concat(t,' ')) end
local function dump(it) local out={} for _,a,b,c in it:unwrap() do out[#out+1]=tostring(a)..(b~=nil and ':'..tostring(b) or '')..(c~=nil and ':'..tostring(c) or '') end print(table.concat(out,' ')) end
local function try(f,...) local r={pcall(f,...)} for i=1,#r do r[i]=tostring(r[i]):gsub('^[^ ]*:%d+: ','') end print(table.concat(r,' ')) end
dump(fun.range(5)) dump(fun.range(-3)) dump(fun.range(1,6,2)) dump(fun.range(3,1)) dump(fun.range(1,0)) dump(fun.range(0.5,2.1,0.5)) try(fun.range) try(fun.range,1,2,0) try(fun.range,'a')
dump(fun.take(3,fun.duplicate('x'))) dump(fun.take(2,fun.duplicate('x',1))) dump(fun.take(3,fun.tabulate(function(x) return x*x end))) dump(fun.take(2,fun.zeros())) dump(fun.take(2,fun.ones()))
dump(fun.iter({1,2,3})) dump(fun.iter('abc')) dump(fun.iter({a=1})) dump(fun.iter('')) dump(fun.iter({})) try(fun.iter,1) try(fun.iter,nil)
show(fun.nth(2,fun.range(5))) show(fun.nth(9,fun.range(5))) show(fun.nth(2,'abc')) show(fun.nth(2,{4,5})) try(fun.nth,0,{1}) show(fun.head({3,4})) try(fun.head,{}) dump(fun.tail({1,2,3})) dump(fun.tail({})) show(fun.head(fun.enumerate({'a'})))
dump(fun.range(5):take_n(2)) dump(fun.range(5):take_while(function(x) return x<3 end)) dump(fun.range(5):drop_n(2)) dump(fun.range(5):drop_while(function(x) return x<3 end)) dump(fun.range(5):take(0)) try(fun.take,-1,{})
local a,b=fun.range(6):span(function(x) return x<3 end) dump(a) dump(b) a,b=fun.range(6):split(2) dump(a) dump(b)
show(fun.index(2,{1,2,3})) show(fun.index(9,{1})) dump(fun.indexes('a',{'a','b','a'}))
dump(fun.filter(function(x) return x%2==0 end, fun.range(6))) dump(fun.enumerate({'a','b','c'}):filter(function(i,x) return i~=2 end)) dump(fun.grep('b',{'abc','xyz','b'})) a,b=fun.partition(function(x) return x>2 end,fun.range(4)) dump(a) dump(b)
show(fun.foldl(function(a,x) return a+x end,0,fun.range(5))) show(fun.range(4):reduce(function(a,x) return a*x end,1)) show(fun.length(fun.range(7)),fun.length('abc'),fun.length({}),fun.length({1,2}))
show(fun.is_null({}),fun.is_null({1}),fun.is_prefix_of({1,2},{1,2,3}),fun.is_prefix_of({1,3},{1,2}),fun.is_prefix_of({},{}),fun.is_prefix_of({1,2},{1}))
show(fun.all(function(x) return x>0 end,{1,2}),fun.all(function(x) return x>1 end,{1,2}),fun.all(print,{}),fun.any(function(x) return x>1 end,{1,2}),fun.any(function(x) return x>5 end,{1,2}))
show(fun.sum(fun.range(4)),fun.product(fun.range(4)),fun.min({3,1,2}),fun.max({3,1,2}),fun.min({'b','a'}),fun.sum({})) try(fun.min,{}) try(fun.max,{}) show(fun.min_by(function(a,b) if a<b then return a else return b end end,{3,1,2})) show(fun.max_by(function(a,b) return a>b and a or b end,{3,1,2}))
show(#fun.totable('abc'),fun.tomap({a=1,b=2}).b, fun.tomap(fun.zip({'x','y'},{7,8})).y)
dump(fun.map(function(x) return x*2 end,fun.range(3))) dump(fun.map(function(k,v) return v,k end,{a=1})) dump(fun.enumerate(fun.zip({'a','b'},{'c','d'}))) dump(fun.intersperse('-',{'a','b','c'}))
dump(fun.zip(fun.range(3),'abc',{'x','y'})) dump(fun.zip()) dump(fun.take(7,fun.cycle(fun.range(3)))) dump(fun.chain({1,2},'ab',fun.range(2))) dump(fun.chain()) dump(fun.take(8,fun.cycle(fun.enumerate({'a','b','c'})))) dump(fun.chain(fun.enumerate({'a'}),{'z'}))
fun.each(show,{1,2}) fun.range(2):each(show) for _it,x in fun.range(2) do show(x) end for _,k,v in fun.iter({z=9}) do show(k,v) end
show(tostring(fun.range(2))) show(fun.op.intdiv(-7,2),fun.op.floordiv(-7,2),fun.op.mod(7,4),fun.op.truth(1),fun.operator.concat('a','b')) local n={} for k in pairs(fun.operator) do n[#n+1]=k end table.sort(n) show(unpack(n))
local it=fun.range(3) show(#it:totable(),#it:totable()) local g,p,s=it:unwrap() show(type(g)) show(fun.range(1,1e5):filter(function(x) return x>99999 end):head())
show(fun.range(10):map(function(x) return x+1 end):filter(function(x) return x%2==0 end):take(3):foldl(function(a,b) return a+b end,0))
show(1)
-- Aliases are the function itself, errors have a place, and an empty range is no object.
do
    print(fun.each == fun.for_each, fun.car == fun.head, fun.minimum == fun.min, fun.split_at == fun.span, fun.maximum_by)
    print(type(fun.range(0)), fun.length(fun.range(0)), (select(2, pcall(fun.zip, fun.range(0))):match('^.-:%d+: (.*)')))
    print((select(2, pcall(fun.head, {})):match('^.-:%d+: (.*)')), (select(2, pcall(fun.iter, 1)):match('^.-:%d+: (.*)')))
end
