--- ?name and ??name: the documentation of a value, and its source.
--
-- docs.find(prompt, text) -> what the text means: {name, value, path =}; docs.explain and docs.source make text of it.
-- The text is a chain of names, mgpu.layers.Dense, or the last of them: then the usual places are searched (PLACES).
-- Any other text is an expression, whose value is explained. The documentation of an op comes from its row, that of
-- Lua code from its docstrings.
local c_functions = require "mgpu.prompt.c_functions"
local core = require "mgpu.core"
local docstrings = require "mgpu.prompt.docstrings"
local known_options = require "mgpu.prompt.known_options"
local listing = require "mgpu.prompt.listing"
local methods = require "mgpu.methods"
local names = require "mgpu.prompt.names"

local M = {}

-- Where a name alone is looked for, in this order.
local PLACES = { "", "layers", "optimizers", "losses", "metrics", "callbacks", "schedules", "initializers",
  "regularizers", "constraints", "activations", "datasets", "data", "models", "parallel", "testing", "image", "Model",
  "Sequential", "Layer" }

-- ---- what a text means ----------------------------------------------------------------------------

-- The file of the class `name` of a table that loads its classes on first use, or of a model of the zoo.
local function path_of(namespace, name)
  local mgpu = package.loaded["mgpu"]
  if mgpu and namespace == rawget(mgpu, "models") then return ("%s/models/%s.lua"):format(core.root or ".", name) end
  local meta = debug.getmetatable(namespace)
  local files = type(meta) == "table" and rawget(meta, "files")
  local file = type(files) == "table" and files[name]
  return file and package.searchpath(meta.folder .. "." .. file, package.path) or nil
end

local function knows(prompt, namespace, name)
  local found = false
  names.each(prompt.terminal, namespace, function(known) found = found or known == name end)
  return found
end

-- The value of a chain of names, and the file of its class.
local function value_of_chain(prompt, chain)
  local value, path
  for i, name in ipairs(chain) do
    if i == 1 then
      value = rawget(prompt.session.locals, name)
      if value == nil then value = rawget(_G, name) end
    else
      path = path_of(value, name)
      value = knows(prompt, value, name) and names.get(value, name) or nil
    end
    if value == nil then return nil end
  end
  return value, path
end

-- The meaning of a name alone that is not a global.
local function search_places(prompt, name)
  local mgpu = require "mgpu"
  for _, place in ipairs(PLACES) do
    local namespace = place == "" and mgpu or names.get(mgpu, place)
    if type(namespace) == "table" and knows(prompt, namespace, name) then
      local value = names.get(namespace, name)
      if value ~= nil then return value, path_of(namespace, name) end
    end
  end
  return core.methods[name]
end

--- find(prompt, text) -> {name, value, path =}; or nil, after the error of an expression was shown; raises nothing.
function M.find(prompt, text)
  local chain = {}
  for name in text:gmatch "[%a_][%w_]*" do chain[#chain + 1] = name end
  if table.concat(chain, ".") == text:gsub(":", ".") then
    local value, path = value_of_chain(prompt, chain)
    if value == nil and #chain == 1 then value, path = search_places(prompt, chain[1]) end
    if value ~= nil then return { name = chain[#chain], value = value, path = path } end
    if #chain > 1 then
      prompt:complain(("nothing is known about %s"):format(text))
      return nil
    end
    return { name = text }
  end
  local fn, message = load("return " .. text, "=" .. text, "t")
  if not fn then
    prompt:complain(message)
    return nil
  end
  setfenv(fn, prompt.session.environment)
  local ran, value = prompt:call(fn)
  return ran and { name = text, value = value } or nil
end

-- ---- documentation --------------------------------------------------------------------------------

local function row_of(name)
  for _, row in ipairs(core.op_rows()) do
    if row.name == name then return row end
  end
end

local function explain_op(row)
  local lines = { ("%s: %s"):format(row.name, row.doc) }
  if row.attrs[1] then lines[2] = "Options, by position or by name:" end
  for _, attr in ipairs(row.attrs) do lines[#lines + 1] = ("  %-18s %s"):format(attr.name, attr.doc) end
  local inputs = row.inputs == 1 and "a tensor" or (row.inputs < 0 and "any number of" or row.inputs) .. " tensors"
  local use = row.inputs == 0 and "A function" or "A method and a function of " .. inputs .. ": t:NAME(...)"
  lines[#lines + 1] = ("%s = mgpu.NAME(%s...). %s"):format(use, row.inputs == 0 and "" or "t, ",
    row.differentiable and "Differentiable." or "It has no gradient."):gsub("NAME", row.name)
  lines[#lines + 1] = docstrings.as_example(row.example)
  return table.concat(lines, "\n")
end

-- "name(a, b, ...)" of a Lua function.
local function signature(name, fn)
  local info, parameters = debug.getinfo(fn, "u"), {}
  for i = 1, info.nparams do parameters[i] = debug.getlocal(fn, i) end
  if info.isvararg then parameters[#parameters + 1] = "..." end
  return ("%s(%s)"):format(name, table.concat(parameters, ", "))
end

-- The lines of the file or input that the function comes from, and where it is in words.
local function lines_of_function(prompt, info)
  local path = info.source:match "^@(.*)"
  if path then return docstrings.lines_of(path), path end
  local text, lines = prompt.session:text_of(info.source), {}
  for line in ((text or "") .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  return lines, info.short_src
end

local function explain_function(prompt, name, fn)
  local inner = methods.inner(fn)
  local info = debug.getinfo(inner, "S")
  if info.what == "C" or info.short_src:find "^%[builtin" then
    local row = core.ops[name] and row_of(name)
    if row then return explain_op(row) end
    if core[name] == fn or core.methods[name] ~= nil then
      return c_functions[name] or docstrings.search(prompt.terminal, name)
    end
    return require "mgpu.prompt.lua_functions"(fn) or c_functions[name] or name .. ": a function written in C"
  end
  local lines, where = lines_of_function(prompt, info)
  local text = docstrings.above(lines, info.linedefined, not names.is_ours(inner))
    or (names.is_ours(inner) and docstrings.named(lines, name))
  if text and text:find "see the top%.$" then text = docstrings.top(lines) or text end
  return ("%s\n%s:%d"):format(text or signature(name, inner), where, info.linedefined)
end

--- with_options(text, options) -> the docstring of a class with a list of these declared options before the example.
function M.with_options(text, options)
  if #options == 0 then return text end
  local example, before = docstrings.example(text)
  local texts = { before, "Options" .. ((options.positional or 0) > 0 and (", the first %d also by position:"):format(
    options.positional) or ":") }
  for _, option in ipairs(options) do texts[#texts + 1] = "  " .. listing.option_text(option) end
  texts[#texts + 1] = docstrings.as_example(example)
  return table.concat(texts, "\n")
end

-- Of a class: the docstring of its file, and its options.
local function explain_class(found)
  local lines = docstrings.lines_of(found.path)
  local text = docstrings.named(lines, found.name) or docstrings.top(lines) or found.name
  return M.with_options(text, known_options(found.value, found.name) or {}) .. "\n" .. found.path
end

-- The file of a class, from the functions it has of its own; nil for tables that are not classes.
local function class_path(value)
  local name = rawget(value, "class_name") or rawget(value, "class")
  if type(name) ~= "string" then return nil end
  for _, key in ipairs { "call", "build", "init", "update", "values", "rate", "output_shape" } do
    local fn = rawget(value, key)
    if type(fn) == "function" then return debug.getinfo(methods.inner(fn), "S").source:match "^@(.*)", name end
  end
end

-- The module that returned the table when it was required: its name and file.
local function module_of(value)
  for name, module in pairs(package.loaded) do
    if rawequal(module, value) and type(name) == "string" then
      return name, package.searchpath(name, package.path)
    end
  end
end

-- A sentence about an instance: of which class it is, and where its methods are explained.
local function explain_instance(prompt, found)
  local list = listing.new ""
  names.each(prompt.terminal, found.value, function(name) list:add(name) end)
  if list.count == 0 then return nil end
  return "Fields and methods:\n" .. list:text(core.columns() or 80):gsub("\n$", "")
end

local function explain_table(prompt, found)
  local path, name = found.path
  if not path then path, name = class_path(found.value) end
  if path then return explain_class { name = name or found.name, value = found.value, path = path } end
  local texts, _, file = {}, module_of(found.value)
  texts[1] = file and docstrings.top(docstrings.lines_of(file)) or nil
  texts[#texts + 1] = explain_instance(prompt, found)
  return table.concat(texts, "\n")
end

--- explain(prompt, found) -> the documentation as text.
function M.explain(prompt, found)
  local value = found.value
  local kind = type(value)
  if value == nil then
    local row = row_of(found.name)
    local text = row and explain_op(row) or docstrings.search(prompt.terminal, found.name)
    return text or ("nothing is known about %s; :help lists what the prompt can do"):format(found.name)
  end
  if found.name == "shape" and value == core.methods.shape then return c_functions.shape end
  local is_model = kind == "function" and found.path and not names.is_ours(methods.inner(value)) -- of the zoo
  if is_model then return explain_class(found) end
  if kind == "function" then return explain_function(prompt, found.name, value) or signature(found.name, value) end
  if kind == "table" and (found.path or not rawget(value, "name")) then
    local text = explain_table(prompt, found)
    if text ~= "" then return text end
  end
  local instance = (kind == "table" or kind == "userdata") and explain_instance(prompt, found)
  return ("%s: %s%s"):format(found.name, core.is_tensor(value) and M.headline(value) or kind == "table"
    and tostring(value) or kind .. " " .. tostring(value), instance and "\n" .. instance or "")
end

--- headline(t) -> "tensor {2, 3} float32 cpu:0", without computing it.
function M.headline(t)
  return ("%s {%s} %s %s"):format(core.is_variable(t) and "variable" or "tensor",
    table.concat(core.methods.shape(t), ", "), t:dtype(), t:device())
end

-- ---- source ---------------------------------------------------------------------------------------

-- The source of a class: the section of its file that has its name as the title, or the whole file.
local function class_source(path, value)
  local lines = docstrings.lines_of(path)
  local title, first = "-- ---- " .. tostring(type(value) == "table" and value.class_name) .. " ", nil
  for i, line in ipairs(lines) do
    if first and line:sub(1, 8) == "-- ---- " then
      return ("%s:%d\n%s"):format(path, first, (table.concat(lines, "\n", first, i - 1):gsub("%s+$", "")))
    end
    if line:sub(1, #title) == title then first = i end
  end
  return first and ("%s:%d\n%s"):format(path, first, table.concat(lines, "\n", first))
    or path .. "\n" .. table.concat(lines, "\n")
end

--- source(prompt, found) -> the source as text, after its place.
function M.source(prompt, found)
  local value = found.value
  local path = found.path or (type(value) == "table" and class_path(value))
  if path then return class_source(path, value) end
  if type(value) == "table" then
    local _, file = module_of(value)
    if file then return file .. "\n" .. table.concat(docstrings.lines_of(file), "\n") end
  end
  if type(value) ~= "function" then return found.name .. " has no source: it is a " .. type(value) end
  local info = debug.getinfo(methods.inner(value), "S")
  if info.what == "C" then return found.name .. " is written in C; ?" .. found.name .. " explains it" end
  local lines, where = lines_of_function(prompt, info)
  if #lines < info.lastlinedefined then return found.name .. ": its source is not there: " .. where end
  return ("%s:%d\n%s"):format(where, info.linedefined,
    table.concat(lines, "\n", info.linedefined, info.lastlinedefined))
end

return M
