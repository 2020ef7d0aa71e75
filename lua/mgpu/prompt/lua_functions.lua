-- What ?name shows for the functions of Lua's own library: name(arguments) -> results: a sentence.
local TEXT = [[
assert(v, message = "assertion failed!") -> its arguments; raises message if v is false or nil
collectgarbage(what = "collect", n) -> memory in KiB for "count"; also "stop", "restart", "step"
dofile(path) -> what the file returns; its errors are raised
error(message, level = 1): raises; level 1 adds the place of this call, 2 that of its caller, 0 none
getfenv(f = 1) -> the environment of a function or of the function at a level
getmetatable(v) -> its metatable, or the metatable's __metatable
ipairs(t) -> an iterator over t[1], t[2], ... up to the first nil
load(text or function, name, mode = "bt", env) -> the compiled chunk; or nil and a message
loadfile(path, mode, env) -> the compiled file; or nil and a message
loadstring(text, name) -> the compiled chunk; or nil and a message
next(t, key) -> the key after it and its value; nil behind the last one
pairs(t) -> an iterator over all keys and values
pcall(f, ...) -> true and f's results; or false and the error
print(...): writes tostring of each argument, with tabs between them
rawequal(a, b) -> a == b without __eq
rawget(t, key) -> t[key] without __index
rawlen(v) -> #v without __len
rawset(t, key, value) -> t: t[key] = value without __newindex
require(name) -> the module, loaded at the first call; searched in package.path
select(n, ...) -> the arguments from the n-th on; select("#", ...) -> how many there are
setfenv(f, t) -> f, with another environment
setmetatable(t, meta) -> t
tonumber(v, base = 10) -> the number, or nil
tostring(v) -> text, by __tostring if it is there
type(v) -> "nil", "number", "string", "boolean", "table", "function", "thread", "userdata" or "cdata"
unpack(t, i = 1, j = #t) -> t[i], ..., t[j]
xpcall(f, handler, ...) -> as pcall, with the error given to the handler
string.byte(s, i = 1, j = i) -> the codes of its bytes i to j
string.char(...) -> a string of the bytes of these codes
string.dump(f, strip) -> its bytecode
string.find(s, pattern, init = 1, plain) -> first and last byte of the match, and its captures; nil: none
string.format(format, ...) -> text as C's printf makes it; %q quotes for Lua, %s takes anything
string.gmatch(s, pattern) -> an iterator over the matches: their captures
string.gsub(s, pattern, replacement, n) -> the text with matches replaced, and their number; the replacement is a
  string with %0 to %9, a table, or a function of the captures
string.len(s) -> its length in bytes
string.lower(s) -> in small letters
string.match(s, pattern, init = 1) -> the captures of the first match, or nil
string.rep(s, n, separator) -> s n times
string.reverse(s) -> its bytes in reverse order
string.sub(s, i, j = -1) -> its bytes i to j; negative ones count from the end
string.upper(s) -> in capitals
table.concat(t, separator = "", i = 1, j = #t) -> the strings of an array joined
table.foreach(t, f), table.foreachi(t, f): call f(key, value) for each entry; use pairs and ipairs
table.getn(t) -> #t
table.insert(t, position = #t + 1, value): inserts and moves what follows up
table.maxn(t) -> its largest positive numeric key
table.move(a, i, j, to, b = a) -> b, with a[i] to a[j] copied to b[to] and on
table.remove(t, position = #t) -> the removed entry; moves what follows down
table.sort(t, before = a < b): sorts an array in place
math.abs(x) -> |x|
math.acos(x), math.asin(x), math.atan(x) -> the angle in radians
math.atan2(y, x) -> the angle of the point in radians, in all quadrants
math.ceil(x) -> the least whole number that is not below x
math.cos(x), math.sin(x), math.tan(x): x in radians
math.cosh(x), math.sinh(x), math.tanh(x): hyperbolic functions
math.deg(x) -> radians in degrees
math.exp(x) -> e^x
math.floor(x) -> the largest whole number that is not above x
math.fmod(x, y) -> the remainder, with the sign of x
math.frexp(x) -> m and e with x = m 2^e and 0.5 <= |m| < 1
math.ldexp(m, e) -> m 2^e
math.log(x, base = e) -> its logarithm
math.log10(x) -> its decimal logarithm
math.max(x, ...), math.min(x, ...) -> the largest, the smallest argument
math.modf(x) -> its whole part and its fraction
math.pow(x, y) -> x^y
math.rad(x) -> degrees in radians
math.random(m, n) -> a number in [0, 1), a whole one in 1..m, or in m..n; for tensors: mgpu.rand
math.randomseed(n): starts the sequence of math.random; for tensors: mgpu.seed
math.sqrt(x) -> its square root
io.close(file), io.flush(), io.input(file), io.output(file): act on the default files
io.lines(path, ...) -> an iterator over the file's lines
io.open(path, mode = "r") -> the file; or nil and a message. Methods: read write lines seek close flush setvbuf
io.popen(command, mode = "r") -> a file of the command's output or input
io.read(...) -> from standard input: "*l" a line, "*n" a number, "*a" all, a count of bytes
io.tmpfile() -> a file that is removed when it is closed
io.type(v) -> "file", "closed file" or nil
io.write(...) -> writes strings and numbers to standard output
os.clock() -> seconds of processor time
os.date(format, time) -> the date as text; "*t": as a table
os.difftime(b, a) -> seconds between two times
os.execute(command) -> its exit status
os.exit(status = 0, close): ends the program
os.getenv(name) -> the environment variable, or nil
os.remove(path), os.rename(from, to) -> true; or nil and a message
os.setlocale(locale, category) -> its name, or nil
os.time(table) -> seconds since 1970, of now or of {year =, month =, day =, hour =, min =, sec =}
os.tmpname() -> the path of a new temporary file
coroutine.create(f) -> a coroutine, to be resumed
coroutine.isyieldable() -> whether this code may yield
coroutine.resume(co, ...) -> true and what it yields or returns; or false and the error
coroutine.running() -> the running coroutine, and whether it is the main one
coroutine.status(co) -> "running", "suspended", "normal" or "dead"
coroutine.wrap(f) -> a function that resumes the coroutine of f; errors are raised
coroutine.yield(...) -> the arguments of the next resume
bit.arshift(x, n), bit.lshift(x, n), bit.rshift(x, n) -> x shifted, the first with its sign
bit.band(x, ...), bit.bor(x, ...), bit.bxor(x, ...), bit.bnot(x) -> bitwise and, or, exclusive or, not
bit.bswap(x) -> its bytes in reverse order
bit.rol(x, n), bit.ror(x, n) -> x rotated by n bits
bit.tobit(x) -> x as a signed number of 32 bits
bit.tohex(x, n = 8) -> x in n hexadecimal digits
debug.getinfo(f or level, what) -> a table about a function: source, currentline, name, nparams ...
debug.getlocal(level or f, i) -> name and value of a local
debug.getmetatable(v), debug.setmetatable(v, meta): of any value
debug.getupvalue(f, i), debug.setupvalue(f, i, value): name and value of an upvalue
debug.sethook(f, mask, count): f is called at calls, returns, lines or each count instructions
debug.traceback(message, level) -> the stack as text
package.loadlib(path, name) -> a function of a C library
package.searchpath(name, path) -> the file that require would load; or nil and where it looked
]]

local texts -- name -> its line

local function read()
  texts = {}
  for entry in (TEXT:gsub("\n  ", " ")):gmatch "[^\n]+" do
    local heads = entry:match "^(.-) %->" or entry:match "^(.-): "
    for name in heads:gmatch "([%a][%w.]*)%(" do texts[name] = texts[name] or entry end
  end
end

-- RETURNS what is known about a function of Lua's library, or nil.
return function(fn)
  if not texts then read() end
  for name, text in pairs(texts) do
    local library, field = name:match "^(.-)%.(.*)$"
    local value = library and type(_G[library]) == "table" and rawget(_G[library], field) or rawget(_G, name)
    if value == fn then return text end
  end
end
