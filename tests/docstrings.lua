-- Finds public Lua functions and classes without a docstring, and public names without an example: `make lint` runs it.
--
--     build/mgpulua tests/docstrings.lua
--
-- A docstring is a block of comment lines right above the definition whose first line begins with three dashes. A
-- class may have it at the top of its file instead; its first words are the class's name. Walks everything reachable
-- from require "mgpu" and the base classes. Functions written in C have theirs in the op rows (make doc).
local M = {}

-- Functions that a class gives to `define`, documented there, and methods that override a documented one.
local HOOKS = { values = true, observe = true, init = true, size = true, rate = true, validate = true }

local files = {} -- path -> array of its lines

local function lines_of(path)
  if not files[path] then
    files[path] = {}
    local file = io.open(path)
    for line in file and file:lines() or function() end do table.insert(files[path], line) end
    if file then file:close() end
  end
  return files[path]
end

-- Whether the line `at` follows a comment block that begins with three dashes.
local function has_docstring(lines, at)
  local top
  for i = at - 1, 1, -1 do
    if not lines[i]:find "^%s*%-%-" then break end
    top = lines[i]
  end
  return top ~= nil and top:find "^%s*%-%-%-" ~= nil
end

--- undocumented(fn) -> "path:line" if the Lua function has no docstring, else nil.
function M.undocumented(fn)
  local info = debug.getinfo(require "mgpu.methods".inner(fn), "S")
  local path = info.what ~= "C" and info.source:match "^@(.*)"
  if not path or has_docstring(lines_of(path), info.linedefined) then return nil end
  return ("%s:%d"):format(info.short_src, info.linedefined)
end

--- check_table(found, name, t): appends a line to `found` for each function in the fields of t, or of the classes it
--- extends, that has no docstring. A method that overrides one of a base class needs none of its own.
function M.check_table(found, name, t)
  local meta = getmetatable(t)
  local base = type(meta) == "table" and type(meta.__index) == "table" and meta.__index ~= t and meta.__index
  for key, value in pairs(t) do
    local private = type(key) ~= "string" or key:find "^_" or HOOKS[key]
    if type(value) == "function" and not private and not (base and base[key]) then
      local where = M.undocumented(value)
      if where then found[#found + 1] = ("%s: %s.%s has no docstring"):format(where, name, key) end
    end
  end
end

-- The names that begin the docstrings of a file.
local function documented_names(path)
  local lines, text = lines_of(path), {}
  for i, line in ipairs(lines) do
    local starts = line:find "^%-%-%- " and not (lines[i - 1] or ""):find "^%-%-"
    if starts then text[line:match "^%-%-%- ([%w_]+)" or ""] = true end
    for name in (line:find "^%-%-" and line or ""):gmatch "also ([%w_]+)" do text[name] = true end
  end
  return text
end

-- Each class or function of a table made by strict_table.lazy: its file must name one of the class's names.
local function check_lazy(found, namespace, t)
  local meta, classes = getmetatable(t), {}
  for name, file in pairs(meta.files) do
    local path = assert(package.searchpath(meta.folder .. "." .. file, package.path))
    local key = path .. "\0" .. tostring(t[name])
    classes[key] = classes[key] or { path = path, names = {}, value = t[name] }
    table.insert(classes[key].names, name)
  end
  for _, class in pairs(classes) do
    local documented, any = documented_names(class.path), false
    for _, name in ipairs(class.names) do any = any or documented[name] end
    table.sort(class.names)
    local name = namespace .. "." .. class.names[1]
    if not any then found[#found + 1] = ("%s: no docstring begins with %s"):format(class.path, class.names[1]) end
    if type(class.value) == "table" then M.check_table(found, name, class.value) end
  end
end

local NAMESPACES = { "layers", "losses", "metrics", "optimizers", "schedules", "callbacks", "datasets", "data" }
local TABLES = { "parallel", "profile", "testing", "mixed_precision", "activations", "regularizers", "constraints",
  "image", "Layer", "Model", "Sequential" }
local BASES = { "nn.losses.loss", "nn.metrics.metric", "nn.optimizers.optimizer", "nn.schedules.schedule",
  "train.callbacks.callback", "nn.network", "data.dataset", "data.iterator", "options", "strict_table",
  "plot.history", "plot.model", "plot.report", "plot.svg" }

--- check_all() -> array of lines, one for each thing without a docstring. Public names that are only in the reference,
--- and examples, are the business of reference_names.lua.
function M.check_all()
  local mgpu, core = require "mgpu", require "mgpu.core"
  local found = {}
  for _, name in ipairs { "load_model", "model_from_json", "clone_model", "with_device", "explain" } do
    assert(mgpu[name]) -- loads it
  end
  M.check_table(found, "mgpu", mgpu)
  M.check_table(found, "tensor", core.methods)
  for _, name in ipairs(NAMESPACES) do check_lazy(found, "mgpu." .. name, mgpu[name]) end
  for _, name in ipairs(TABLES) do M.check_table(found, "mgpu." .. name, mgpu[name]) end
  for _, name in ipairs(BASES) do M.check_table(found, name, require("mgpu." .. name)) end
  M.check_table(found, "dataset", require "mgpu.data.dataset".methods)
  M.check_table(found, "strategy", getmetatable(mgpu.parallel.strategy("mirrored", { devices = { "ref:0" } })))
  table.sort(found)
  return found
end

if ... ~= "docstrings" then -- run as a program, not required by the spec
  package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
  local found, _, lacks = M.check_all(), require "reference_names".collect()
  for _, line in ipairs(lacks) do table.insert(found, line) end
  for _, line in ipairs(found) do print(line) end
  os.exit(#found == 0 and 0 or 1)
end

return M
