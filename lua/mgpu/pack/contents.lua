--- What goes into a packed program: the entries of the archive behind it, by name (runtime/pack/archive.h).
local core = require "mgpu.core"
local lexer = require "mgpu.pack.lexer"
local quoted = require "mgpu.quoted"

local M = {}

local function fail(message, ...) core.fail("usage", "--pack: " .. message:format(...)) end

-- What of lua/mgpu only options of mgpulua use, which a packed program does not have.
local LEFT_OUT = { "^mgpu/prompt/", "^mgpu/pack/", "^mgpu/doctor%.lua$", "^mgpu/serve/", "^mgpu/attach/client%.lua$",
  "^mgpu/attach/ps%.lua$" }
local DEEPEST = 8

-- Endings of files whose bytes hardly become fewer by compression, or that are read in place.
local STORED = {}
for ending in ("safetensors npy npz onnx png jpg jpeg gif webp gz zip tfrecord bin"):gmatch "%S+" do
  STORED[ending] = true
end

local function size_of(path)
  local file = assert(io.open(path, "rb"))
  local size = file:seek "end"
  file:close()
  return size
end

--- normal(name) -> the name without ".", repeated and final slashes; nil if it is absolute or leads to a folder above.
function M.normal(name)
  if name:sub(1, 1) == "/" then return nil end
  local parts = {}
  for part in name:gmatch "[^/]+" do
    if part == ".." then
      if #parts == 0 then return nil end
      parts[#parts] = nil
    elseif part ~= "." then
      parts[#parts + 1] = part
    end
  end
  return #parts > 0 and table.concat(parts, "/") or nil
end

--- new() -> contents: nothing yet.
function M.new() return setmetatable({ entries = {}, by_name = {}, manifest = {} }, { __index = M }) end

-- Adds an entry {name =, bytes = or file =, deflate =, origin = the file}. The same file twice is one entry.
local function add(self, entry)
  local there = self.by_name[entry.name]
  if there then
    if there.origin ~= entry.origin then
      fail("%s and %s would both be %s in the program", there.origin, entry.origin, entry.name:gsub("^%w+/", ""))
    end
    return
  end
  if entry.name:find "%c" then fail("the name %s has control characters", quoted(entry.name)) end
  entry.size = entry.bytes and #entry.bytes or size_of(entry.origin)
  self.by_name[entry.name] = entry
  self.entries[#self.entries + 1] = entry
end

--- note(kind, name, file): a line of the manifest.
function M:note(...) self.manifest[#self.manifest + 1] = table.concat({ ... }, "\t") .. "\n" end

--- add_script(path, name, text)
function M:add_script(path, name, text)
  add(self, { name = "files/" .. name, bytes = text, deflate = true, origin = path })
  self:note("script", name)
end

-- The name of a module's file in the program: relative to the script, or to here; else by the module's name.
local function name_of_module(module, folder)
  local path = module.path
  if folder ~= "" and path:sub(1, #folder) == folder then path = path:sub(#folder + 1) end
  return M.normal(path) or module.name:gsub("%.", "/") .. (path:find "/init%.lua$" and "/init.lua" or ".lua")
end

--- add_module({name =, path =}, folder of the script)
function M:add_module(module, folder)
  local name = name_of_module(module, folder)
  add(self, { name = "files/" .. name, file = module.path, deflate = true, origin = module.path })
  self:note("module", module.name, name)
end

--- add_file(name, path): a file that the script opens by this name.
function M:add_file(name, path)
  local normal = M.normal(name)
  if not normal then
    fail("%s is no name in a program, since it is not below the script's folder: give NAME=%s, where NAME is what the "
      .. "script opens", name, path)
  end
  local ending = (normal:match "%.([^./]*)$" or ""):lower()
  add(self, { name = "files/" .. normal, file = path, deflate = not STORED[ending], origin = path })
end

--- add_plugin(name, path)
function M:add_plugin(name, path)
  add(self, { name = ("mgpulua/plugins/mgpu-%s.so"):format(name), file = path, deflate = true, origin = path })
  self:note("plugin", name)
end

local function is_left_out(name)
  for _, pattern in ipairs(LEFT_OUT) do
    if name:find(pattern) then return true end
  end
end

--- add_mgpu(): the Lua files of mgpu without comments, on the same lines, and the models of the zoo.
function M:add_mgpu()
  local lua, stars = core.root .. "/lua/", "mgpu"
  for _ = 1, DEEPEST do
    stars = stars .. "/*"
    for _, path in ipairs(core.glob(lua .. stars .. ".lua")) do
      local name = path:sub(#lua + 1)
      if not is_left_out(name) then self:add_own("lua/" .. name, path) end
    end
  end
  for _, path in ipairs(core.glob(core.root .. "/models/*.lua")) do
    self:add_own("models/" .. path:match "[^/]*$", path)
  end
end

--- add_own(name, path): a file of mgpu's own.
function M:add_own(name, path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  add(self, { name = "mgpulua/" .. name, bytes = lexer.stripped(text), deflate = true, origin = path })
end

--- list() -> the entries for core.zip_write, sorted by name, so that equal contents give equal bytes.
function M:list()
  table.sort(self.manifest)
  local list = { { name = "mgpulua/manifest", bytes = table.concat(self.manifest), deflate = true } }
  for _, entry in ipairs(self.entries) do
    list[#list + 1] = { name = entry.name, bytes = entry.bytes, file = entry.file, deflate = entry.deflate }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

return M
