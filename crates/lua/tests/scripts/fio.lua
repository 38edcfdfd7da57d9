-- oracle
local fio = require('fio')
local d
local function show(...) local t={} for i=1,select('#',...) do local v=select(i,...) t[i]=type(v)=='table' and '{'..table.concat((function() local o={} for k,x in pairs(v) do o[#o+1]=type(k)=='number' and tostring(x) or k end table.sort(o) return o end)(),',')..'}' or tostring(v) end print((table.concat(t,' | '):gsub(d,'D'))) end
local function try(f,...) local r={pcall(f,...)} if not r[1] then r[2]=tostring(r[2]):gsub('^[^ ]*:%d+: ','') end show(unpack(r,1,table.maxn(r))) end
d=fio.tempdir() show(fio.path.is_dir(d)) fio.chdir(d) show(fio.cwd()==d)
show(fio.basename('/a/b.c'),fio.basename('/a/b.c','.c'),fio.basename('b'),fio.basename('/'),fio.dirname('/a/b'),fio.dirname('b'),fio.dirname('/a'),fio.dirname('/a/b/')) show(fio.pathjoin('a','b','/c'),fio.pathjoin('/a/','b'),fio.pathjoin('a','..','b'),fio.pathjoin(''),fio.pathjoin('a','')) show(fio.abspath('x')==d..'/x',fio.abspath('/a/../b'),fio.abspath('/'))
local f=fio.open('f',{'O_CREAT','O_RDWR','O_TRUNC'},tonumber('644',8)) show(f~=nil,f:write('hello'),f:write(' world'),f:seek(0),f:read(5),f:read(),f:pread(3,1),f:pwrite('J',0),f:fsync(),f:fdatasync(),f:truncate(4),f:stat().size,f:seek(2,'SEEK_SET'),f:read(100),f:seek(0,'SEEK_END'),f:close()) try(f.read,f,1)
show(fio.open('nosuch')) show(fio.open('nosuch',{'O_RDONLY'})) show(fio.stat('nosuch')) show(fio.unlink('nosuch')) show(fio.mkdir('sub')) show(fio.mkdir('sub')) show(fio.rmdir('nosuch')) show(fio.listdir('.')) show(fio.listdir('nosuch')) show(fio.rename('f','g'),fio.path.exists('g'),fio.path.exists('f'),fio.path.is_file('g'),fio.path.is_dir('sub'),fio.path.is_link('g'),fio.path.lexists('g')) show(fio.symlink('g','l'),fio.readlink('l'),fio.path.is_link('l'),fio.link('g','h'),fio.stat('g').nlink,fio.lstat('l'):is_link())
local s=fio.stat('g') show(s) show(s:is_reg(),s:is_dir(),s.size,type(s.mtime),s.mode%512) show(fio.chmod('g',tonumber('600',8)),fio.stat('g').mode%512) show(fio.truncate('g',2),fio.stat('g').size) show(fio.copyfile('g','copy'),fio.stat('copy').size) show(fio.mktree('x/y/z')) show(fio.mktree('x/y/z')) show(fio.copytree('x','x2'),fio.path.is_dir('x2/y/z')) show(fio.glob('*')) show(fio.glob('zz*')) show(fio.rmtree('x'),fio.path.exists('x')) show(fio.rmtree('nosuch')) show(fio.utime('g',100,200),fio.stat('g').atime,fio.stat('g').mtime) show(fio.umask(18)) show(fio.umask())
try(fio.open) try(fio.stat) try(fio.mkdir) try(fio.open,'g',{'O_BAD'}) try(fio.basename) try(fio.listdir) try(fio.rename,'a') try(fio.copyfile,'nosuch','z') try(fio.mktree,'g/a') try(fio.pathjoin)
local pwd = require('pwd')
print(pwd.getpw().name, pwd.getgr(0).name, pwd.getpw(0).shell, #pwd.getpwall() > 3, pwd.getpw(54321), pwd.getpw(0).group.name)
-- Without a place `pwrite` writes at the beginning, also behind other writes.
local file = fio.open(d .. '/placed', {'O_RDWR', 'O_CREAT'}, 420)
try(file.write, file, 'helloworld!') try(file.pwrite, file, 'HE') try(file.pwrite, file, 'W', 5) try(file.pwrite, file, require('ffi').cast('const char *', 'J'), 1)
file:seek(0) try(file.read, file) file:close()
fio.chdir('/')
fio.rmtree(d)
