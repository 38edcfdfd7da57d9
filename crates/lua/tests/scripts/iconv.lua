-- oracle
-- iconv: encodings by the names of the C library, what cannot be converted, converters that go on after an error.
local iconv = require('iconv')

-- Without the place of an error, which is in another file there.
local function told(done, result)
    if done then return 'ok', result:hex() end
    return 'error', (tostring(result):gsub('^[^ ]*%.lua:%d+: ', ''))
end

local function convert(to, from, text)
    local done, converter = pcall(iconv.new, to, from)
    if not done then return print(to, from, told(false, converter)) end
    print(to, from, told(pcall(converter, text)))
end

local names = {
    'UTF-8', 'utf8', 'UTF-16', 'UTF-16LE', 'UTF-16BE', 'UTF-32', 'UTF-32LE', 'UTF-32BE', 'UCS-2', 'UCS-2BE', 'UCS-4',
    'KOI8-R', 'KOI8-U', 'CP1251', 'WINDOWS-1251', 'CP1252', 'CP866', 'ISO-8859-1', 'LATIN1', 'ISO-8859-5', 'ISO-8859-15',
    'ASCII', 'US-ASCII', 'GBK', 'GB18030', 'BIG5', 'EUC-JP', 'SHIFT_JIS', 'EUC-KR', 'CP1250', 'CP437', 'no-such',
}
for _, name in ipairs(names) do
    convert(name, 'UTF-8', 'Привет, €')
    convert(name, 'UTF-8', 'abc')
    convert('UTF-8', name, 'abcd')
end

convert('UTF-8', 'KOI8-R', '\xf0\xd2')
convert('UTF-8', 'ASCII', 'a\xff')
convert('UTF-8', 'UTF-16LE', 'a')
convert('UTF-8', 'UTF-16', '\xff\xfea\0')
convert('UTF-8', 'UTF-8', '\xff')
convert('UTF-8', 'UTF-8', '\xc3')
convert('UTF-8', 'UTF-8', '')
convert('UTF-8', 'SHIFT_JIS', '\x82\xa0')
convert('KOI8-R', 'UTF-16BE', '\4\x1f')
-- More than one piece of output.
local long = ('Я'):rep(10000)
print(#iconv.new('UTF-32LE', 'UTF-8')(long), iconv.new('UTF-8', 'UTF-32LE')(iconv.new('UTF-32LE', 'UTF-8')(long)) == long)

local ascii = iconv.new('ASCII', 'UTF-8')
print(told(pcall(ascii, 'ж')))
print(ascii('abc'), type(ascii))
print(told(pcall(iconv.new)), told(pcall(iconv.new, 'UTF-8')), told(pcall(iconv.new, 1, 2)))
