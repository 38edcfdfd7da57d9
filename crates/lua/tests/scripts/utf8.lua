-- oracle
assert(require('utf8') == utf8)
local function try(f,...) print(pcall(f,...)) end
print(utf8.char(72,228,8364,0x1F600)) try(utf8.char,-1) try(utf8.char,0x110000) try(utf8.char,'a') try(utf8.char) try(utf8.char,0xd800) try(utf8.char, 1.5) try(utf8.char,'65') try(utf8.char,nil)
try(utf8.sub,'Hällo€😀',2,4) try(utf8.sub,'Hällo€😀',-2) try(utf8.sub,'abc',0) try(utf8.sub,'abc') try(utf8.sub,1,1) try(utf8.sub,'abc',5,9) try(utf8.sub,'abc',-9,2) try(utf8.sub,'a\xffbc',1,2) try(utf8.sub,'abc',2,1) try(utf8.sub,'abc','x') try(utf8.sub,{},1) try(utf8.sub,'abc',1.5,2.5)
try(utf8.upper,'straße äöü ǆ ŉ') try(utf8.lower,'ÄÖÜ İ ΣΑΣ Σ') try(utf8.upper,1) try(utf8.upper) try(utf8.upper,'a\xff') try(utf8.lower,'A\xff\xc3') try(utf8.upper, '') try(utf8.upper,'ﬁ')
try(utf8.len,'Hällo') try(utf8.len,'a\xff') try(utf8.len,'abc',2) try(utf8.len,'abc',2,2) try(utf8.len,'äbc',2) try(utf8.len,'abc',5) try(utf8.len,'abc',-1) try(utf8.len,1) try(utf8.len,'') try(utf8.len,'abc',0) try(utf8.len,'abc',4) try(utf8.len,'\xed\xa0\x80') try(utf8.len,'abc',1,9) try(utf8.len,'abc',-9) try(utf8.len,'äöü',1,3) try(utf8.len,'äöü',1,2) try(utf8.len) try(utf8.len,nil) try(utf8.len,'äöü',3,-1) try(utf8.len,'abc',3,1) try(utf8.len,'a\xc3')
for _,f in ipairs{'isalpha','isdigit','islower','isupper'} do local line={f} for _,c in ipairs{'a','A','1','٣','ä','Ä','²','Ⅷ','ⅷ','ª','ǅ','中','_','',' ','ab',65,0x661,-1,0x110000,'\xff','º','ʰ','Ⓐ','½',1e10,1.7} do line[#line+1]=tostring(select(2,pcall(utf8[f],c))) end print(table.concat(line,'|')) try(utf8[f]) try(utf8[f],{}) try(utf8[f],nil) try(utf8[f],true)end
for _,p in ipairs{{'a','B'},{'a','A'},{'ä','a'},{'ä','Ä'},{'','a'},{'a','a'},{'abc','abd'},{'\xff','a'},{1,'1'},{'ё','е'},{'straße','strasse'},{'a b','ab'},{'a\0','a'},{'ß','ss'},{'æ','ae'}} do print(p[1],p[2],pcall(utf8.cmp,p[1],p[2])) print(pcall(utf8.casecmp,p[1],p[2])) end
try(utf8.cmp,'a') try(utf8.casecmp,nil,'b') try(utf8.cmp,{},'b')
for p,c in utf8.next,'aä€😀' do print(p,c) end
try(utf8.next,'abc',0) try(utf8.next,'abc',4) try(utf8.next,'abc',3) try(utf8.next,'abc',-1) try(utf8.next,'äb',2) try(utf8.next,'a\xff',2) try(utf8.next,'') try(utf8.next,1) try(utf8.next) try(utf8.next,'abc',9) try(utf8.next,'abc',nil) try(utf8.next,'abc','x') try(utf8.next,'abc',1)try(utf8.next,'äb',1)try(utf8.next,'äb',3)
for _,v in ipairs{-1,0x110000,0xd800,0xdfff,0,0x10ffff,1.5} do print(v,utf8.char(v):hex()) end
print(utf8.upper('a\xff'):hex(), utf8.lower('A\xe2\x82B'):hex())
print(pcall(utf8.sub,'abc',1,0)) print(pcall(utf8.sub,'abc',2,-5))
print(utf8.sub('abc',-2,-1), utf8.sub('a\xe2\x82b',2,2):hex(),utf8.len('a\xe2\x82b'))
try(utf8.sub,'abc',1,'x') try(utf8.sub,'abc',1,nil) try(utf8.sub,'abc',nil) try(utf8.len,'abc','x') try(utf8.char,65,{})
