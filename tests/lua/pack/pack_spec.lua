-- mgpulua --pack: programs of one file, run in an empty folder.

local check = require "check"
local test = check.test

local build = check.program:match "^'?(.*)/mgpulua'?$" or "build"
if check.run(("ls '%s/mgpu-pack' 2>/dev/null"):format(build)) == "" then
  check.skip "mgpu-pack was not built: static libraries are missing"
end

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local here = check.run("pwd"):gsub("\n", "")
local program = build:sub(1, 1) == "/" and check.program or quote(here .. "/" .. build .. "/mgpulua")
local count = 0

-- A new folder with these files: name -> text.
local function folder_of(files)
  count = count + 1
  local folder = check.path("w" .. count)
  for name, text in pairs(files) do
    check.run("mkdir -p " .. quote(folder .. "/" .. (name:match "^(.*)/" or "")))
    check.write(folder .. "/" .. name, text)
  end
  return folder
end

local function pack(folder, arguments)
  return check.run(("cd %s && %s --pack %s"):format(quote(folder), program, arguments))
end

-- Packs in the folder to "app" and moves that to an empty folder, whose path is returned.
local function packed(folder, arguments)
  local text, status = pack(folder, arguments .. " -o app")
  if status ~= 0 then check.fail(text) end
  local empty = folder_of { [".keep"] = "" }
  check.run(("mv %s/app %s/app"):format(quote(folder), quote(empty)))
  return empty, text
end

local function run(folder, command) return check.run(("cd %s && %s"):format(quote(folder), command)) end

local MODEL = [[
local mgpu = require "mgpu"
mgpu.seed(1)
mgpu.models.lenet5 {}:save(arg[1])
]]
local PREDICT = [[
local mgpu = require "mgpu"
local model = mgpu.load_model "lenet5.safetensors"
mgpu.seed(3)
print(("%.5f"):format(model:predict(mgpu.rand { 2, 28, 28, 1 }, { verbose = 0 }):totable()[1][1]))
]]

local function lenet5()
  local folder = folder_of { ["save.lua"] = MODEL, ["predict.lua"] = PREDICT }
  check.run(("cd %s && %s save.lua lenet5.safetensors"):format(quote(folder), program))
  return folder
end

test("a script with lenet5 predicts alone, has less than 6 MB, and equal files give equal bytes", function()
  local folder = lenet5()
  local expected = check.run(("cd %s && %s predict.lua"):format(quote(folder), program))
  check.matches(expected, "^0%.%d+\n$")
  local empty = packed(folder, "predict.lua --model lenet5.safetensors")
  check.equal({ run(empty, "env -i ./app") }, { expected, 0 })
  local bytes = check.read(empty .. "/app")
  check.truthy(#bytes < 6e6, #bytes .. " bytes")
  check.run("touch -d 2001-01-01 " .. quote(folder .. "/lenet5.safetensors"))
  local again = packed(folder, "predict.lua --model lenet5.safetensors")
  check.truthy(check.read(again .. "/app") == bytes, "the bytes are equal")
  check.matches(check.run(("stat -c %%a %s/app"):format(quote(again))), "^755\n")
end)

test("all arguments are the script's, and arg[0] is the program as it was called", function()
  local folder = folder_of { ["s.lua"] = "for i = 0, #arg do print(arg[i]) end print(select('#', ...))" }
  local empty = packed(folder, "s.lua")
  check.equal(run(empty, "./app --help -e --devices x -- ''"), "./app\n--help\n-e\n--devices\nx\n--\n\n6\n")
  run(empty, "mkdir bin && mv app bin/other && chmod 555 bin/other && ln -s bin/other link")
  check.equal(run(empty, "PATH=$PWD/bin:$PATH other"), "other\n0\n")
  check.equal(run(empty, "./link"), "./link\n0\n")
  check.equal(run(empty, "LUA_INIT='error \"no\"' LUA_PATH=x ./link"), "./link\n0\n")
end)

test("errors name the script's file and line, and exit statuses are kept", function()
  local folder = folder_of { ["s.lua"] = "local m = require 'sub.m'\nif arg[1] then os.exit(7) end\nm.f()",
    ["sub/m.lua"] = "-- a comment\nreturn { f = function() error 'boom' end }" }
  local empty = packed(folder, "s.lua")
  local text, status = run(empty, "./app")
  check.matches(text, "^app: sub/m.lua:2: boom\nstack traceback:")
  check.matches(text, "s.lua:3: in main chunk")
  check.equal(status, 1)
  check.equal({ run(empty, "./app x") }, { "", 7 })
  text, status = run(empty, [[./app >/dev/null 2>&1; ./app 2>&1 >/dev/full | head -1]])
  check.matches(text, "boom")
  check.equal(status, 0)
end)

test("files of the program come before those on the disk and cannot be written", function()
  local folder = folder_of { ["dir/it's a script.lua"] = [[
    local function text(name) local f = assert(io.open(name)) local t = f:read "*a" f:close() return t end
    print(text "a b.txt", text "./x/../a b.txt", text((arg[0]:match "^.*/" or "") .. "a b.txt"))
    print(io.open("a b.txt", "w"))
    for line in io.lines "data/n.txt" do io.write(line, ";") end
    io.input "data/n.txt"
    print(io.read "*l", io.read "*n")
    local f = io.open "data/n.txt"
    print(f:seek "end", f:seek("set", 4), f:read(1), loadfile("h.lua")(), dofile "h.lua", io.open "none.txt")
    local rows = 0
    for _ in require "mgpu".data.text_lines "data/n.txt":batch(1):iter() do rows = rows + 1 end
    print(#require "mgpu.core".glob "data/*.txt", rows)
  ]], ["dir/a b.txt"] = "inside", ["data/n.txt"] = "one\n2\n3\n", ["dir/h.lua"] = "return 'h'" }
  local empty, listed = packed(folder, [["dir/it's a script.lua" --data "a b.txt" --data data]])
  check.matches(listed, "data/n.txt")
  check.write(empty .. "/a b.txt", "outside")
  check.equal(run(empty, "./app"), "inside\tinside\tinside\nnil\ta b.txt: this file is inside of the program and "
    .. "cannot be written\t30\none;2;3;one\t2\n8\t4\t2\th\th\tnil\tnone.txt: No such file or directory\t2\n1\t3\n")
  check.equal(check.read(empty .. "/a b.txt"), "outside")
end)

test("modules are found by constant names, and what is not followed is said", function()
  local folder = folder_of { ["s.lua"] = "require 'a' local n = 'c' print(require(n).v)\npcall(require, 'zzz')",
    ["a.lua"] = "-- require 'nothing'\nlocal s = [[require 'no']] require [[d.b]]", ["d/b.lua"] = "print 'b'",
    ["c.lua"] = "return { v = 5 }" }
  local empty, text = packed(folder, "s.lua")
  check.matches(text, "not followed: s.lua:1: the name of the module is computed: --module NAME adds one")
  check.matches(text, 'not followed: s.lua:2: there is no module "zzz"')
  check.falsy(text:find "nothing" or text:find "no'", "comments and strings are no calls")
  check.matches(run(empty, "./app"), "module 'c' not found")
  empty = packed(folder, "s.lua --module c")
  check.equal(run(empty, "./app"), "b\n5\n")
end)

test("a program that is cut or damaged says so", function()
  local folder = folder_of { ["s.lua"] = "print(assert(io.open('d.bin')):read '*a')", ["d.bin"] = ("x"):rep(5000) }
  local empty = packed(folder, "s.lua --data d.bin")
  local bytes = check.read(empty .. "/app")
  local stub = #check.read(build .. "/mgpu-pack")
  for _, size in ipairs { #bytes - 1, #bytes - 3000, stub + 10, stub - 5 } do
    check.write(empty .. "/cut", bytes:sub(1, size))
    local text, status = run(empty, "chmod +x cut && ./cut")
    check.matches(text, "^cut: this file has been ")
    check.equal(status, 74)
  end
  local at = bytes:find(("x"):rep(100), stub, true) + 50
  check.write(empty .. "/cut", bytes:sub(1, at - 1) .. "y" .. bytes:sub(at + 1))
  check.matches(run(empty, "./cut"), "checksum is wrong")
  check.matches(run(empty, quote(here .. "/" .. build .. "/mgpu-pack")), "it has none itself")
end)

test("mistakes are explained", function()
  local folder = folder_of { ["s.lua"] = "", ["bad.lua"] = "x =", ["m.h5"] = "" }
  pack(folder, "s.lua -o app")
  check.matches(pack(folder, "s.lua --list"), "0 B  s.lua\n.* files of Lua\n$")
  for arguments, message in pairs {
    ["s.lua --modle x"] = 'unknown option --modle (did you mean "--model"?)',
    ["s.lua --model"] = "--model needs a value",
    ["s.lua --model x.safetensors"] = "there is no such file beside the script or here",
    ["app"] = "app is a program, not a file of Lua", ["none.lua"] = "none.lua", ["bad.lua"] = "does not compile",
    ["s.lua --model m.h5"] = "save the model as .safetensors", ["s.lua bad.lua"] = "there can be one script",
    ["s.lua --plugin imgae"] = 'did you mean "image"?', ["s.lua -o s.lua"] = "would replace what it is made of",
    ["s.lua --module none"] = "there is no such module", ["s.lua --data ../w1/s.lua"] = "there is no such file",
    ["s.lua --batch 2"] = "goes with --c", ["-o x"] = "name the script", ["s.lua -o ."] = "is a folder",
  } do
    local text, status = pack(folder, arguments)
    check.matches(text, message)
    check.truthy(status ~= 0, arguments)
  end
end)

test("the program does not replace a model, a module or a data file that is packed into it", function()
  local folder = folder_of { ["s.lua"] = "require 'm'", ["m.lua"] = "", ["d.txt"] = "data" }
  check.run(("cd %s && %s -e 'require \"mgpu\".save(\"x.npz\", {})' && ln -s d.txt link"):format(quote(folder),
    program))
  for _, output in ipairs { "m.lua", "d.txt", "link", "x.npz", "./s.lua" } do
    local arguments = ("s.lua --model x.npz --data d.txt -o %s"):format(output)
    local before = check.read(folder .. "/" .. output)
    local text, status = pack(folder, arguments)
    check.matches(text, "-o " .. output .. " would replace what it is made of")
    check.truthy(status ~= 0 and check.read(folder .. "/" .. output) == before, output)
  end
end)

test("a file that the script names, and that is not packed, is reported", function()
  local folder = folder_of { ["s.lua"] = "-- 'z.csv'\nrequire 'm'\nlocal s = 'x.y is no file'\nio.open './d.txt'",
    ["m.lua"] = "return { 'n.safetensors', 'n.safetensors', 'other.npy' }", ["d.txt"] = "", ["n.safetensors"] = "",
    ["z.csv"] = "" }
  local text = pack(folder, "s.lua -o app")
  check.matches(text, "m.lua:1: there is a file n.safetensors, which is not packed: --model n.safetensors adds it")
  check.matches(text, "not followed: s.lua:4: there is a file ./d.txt, which is not packed: --data ./d.txt adds it")
  check.equal(select(2, text:gsub("not followed", "")), 2)
  check.falsy(pack(folder, "s.lua --data d.txt --data n.safetensors -o app"):find "not followed")
end)

test("models of .onnx files are packed", function()
  local folder = folder_of {
    ["save.lua"] = "local mgpu = require 'mgpu'\nlocal L = mgpu.layers\nmgpu.Sequential { L.Input { 2 }, "
      .. "L.Dense { 3, kernel_initializer = 'ones' } }:save 'net.onnx'",
    ["s.lua"] = "local mgpu = require 'mgpu'\nprint(mgpu.load_model 'net.onnx'(mgpu.ones { 1, 2 }):totable()[1][3])",
    ["bad.onnx"] = "{}" }
  check.run(("cd %s && %s save.lua"):format(quote(folder), program))
  check.equal({ run(packed(folder, "s.lua --model net.onnx"), "./app") }, { "2\n", 0 })
  check.matches(pack(folder, "s.lua --model bad.onnx -o app"), "bad.onnx: the ONNX file is damaged")
end)

test("a packed program cannot search for parameters, which would start it again with other arguments", function()
  local folder = folder_of { ["s.lua"] = "print 'runs' require 'mgpu'.tune { script = 't.lua', space = { x = 1 } }",
    ["t.lua"] = "" }
  local empty = packed(folder, "s.lua --data t.lua")
  local text, status = run(empty, "./app")
  check.matches(text, "^runs\n[^\n]*tune: a program made by %-%-pack cannot start its trials")
  check.equal(status, 1)
end)

test("Ctrl-C ends a packed program as it ends mgpulua", function()
  local empty = packed(folder_of { ["s.lua"] = "io.write 'x' io.flush() while true do end" }, "s.lua")
  -- without --foreground the program gets the signal twice, and the second one ends it at once
  local text, status = run(empty, "timeout --foreground -s INT -k 20 1 ./app; echo $?")
  check.matches(text, "interrupted!")
  check.equal(status, 0)
end)

test("mgpu-pack is hardened and needs no library but glibc's", function()
  local path = build .. "/mgpu-pack"
  check.equal(require "hardening".faults(path, true), {})
  for library in check.run("readelf -d " .. quote(path)):gmatch "NEEDED.-%[(.-)%]" do
    check.truthy(library:find "^libm%.so" or library:find "^libc%.so" or library:find "^ld%-linux", library)
  end
end)

test("a packed program runs in a root folder that has glibc only, without /proc", function()
  local empty = packed(lenet5(), "predict.lua --model lenet5.safetensors")
  local libraries = check.run(("ldd %s/app"):format(quote(empty)))
  for library in libraries:gmatch "(/%S+) %(" do
    local to = quote(empty) .. library
    check.run(("mkdir -p %s && cp %s %s"):format(to:match "^(.*)/", library, to))
  end
  local _, status = check.run(("chroot %s /app --version"):format(quote(empty)))
  if status == 125 or status == 126 then check.skip "chroot wants root" end
  local text
  text, status = check.run(("chroot %s /app"):format(quote(empty)))
  check.matches(text, "^0%.%d+\n$")
  check.equal(status, 0)
end)
