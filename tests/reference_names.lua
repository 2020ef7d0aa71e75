-- All public names by page, each with what ?name shows: reference.lua makes HTML of them, reference_examples.lua runs
-- their examples, and `make lint` wants both a docstring and an example for each.
local c_functions = require "mgpu.prompt.c_functions"
local core = require "mgpu.core"
local docs = require "mgpu.prompt.docs"
local docstrings = require "mgpu.prompt.docstrings"
local known_options = require "mgpu.prompt.known_options"
local mgpu = require "mgpu"
local names = require "mgpu.prompt.names"

local M = {}

-- What the documentation asks of a prompt: the entries of a folder, folders with a slash.
local prompt = { session = { locals = {}, text_of = function() end }, terminal = { list = function(folder)
  local list, pipe = {}, io.popen("ls -p " .. folder)
  for entry in pipe:lines() do table.insert(list, entry) end
  pipe:close()
  return list
end } }

local pages, warnings = {}, {} -- what collect returns

local function warn(message, ...) table.insert(warnings, message:format(...)) end

-- The text that explains the value, and its place in the source.
local function explained(name, value)
  local text = docs.explain(prompt, { name = name, value = value })
  local root = (core.root .. "/"):gsub("%p", "%%%0")
  local where = text:match("\n" .. root .. "([^\n]*)$") or text:match "\n(%S+%.lua:?%d*)$"
  if where then text = text:gsub("\n[^\n]*$", "") end
  local plain = text:gsub("^%s+", "")
  if plain:find "^[%w_]+%b()$" or plain:find "written in C" or plain:find "^nothing is known" or plain == name then
    warn("%s has no documentation", name)
  end
  return text, where and where:gsub("^" .. root, "")
end

local Page = {}
Page.__index = Page

-- A new page of the reference.
local function begin(title, file, introduction)
  local page = setmetatable({ title = title, file = file, introduction = introduction, entries = {} }, Page)
  table.insert(pages, page)
  return page
end

-- Adds a section: a name, its documentation, and the place in the source.
function Page:add(name, text, where)
  local example = docstrings.example(text)
  if not example then warn("%s: %s has no example", self.title, name) end
  table.insert(self.entries, { name = name, text = text, where = where, example = example })
end

-- Adds a function; `name` may begin with the name of a module.
function Page:add_function(name, value) self:add(name, explained(name:match "[%w_]+$", value)) end

local function sorted_keys(t)
  local list = {}
  for key in pairs(t) do table.insert(list, key) end
  table.sort(list)
  return list
end

-- The first docstring of a module's file.
local function introduction_of(module)
  return docstrings.top(docstrings.lines_of(assert(package.searchpath(module, package.path))))
end

-- Options that all layers have; Layer's own page explains them.
local COMMON = { name = true, trainable = true, dtype = true, input_shape = true, device = true, stream_name = true }

-- The docstring of a class with these names, and its declared options.
local function class_text(class)
  local lines, text = docstrings.lines_of(class.path), nil
  for _, name in ipairs(class.names) do
    local found = docstrings.named(lines, name)
    if found and found:find "see the top" then found = docstrings.top(lines) end
    if not found then warn("%s: no docstring begins with %s or says \"also %s\"", class.path, name, name) end
    text = text or found
  end
  if not text then return class.names[1] end
  local declared = known_options(class.value, class.names[1]) or {}
  local options = { positional = declared.positional }
  for _, option in ipairs(declared) do
    if not COMMON[option[1]] then table.insert(options, option) end
  end
  return docs.with_options(text, options)
end

-- A table that loads its classes on first use: all names of a class are one entry.
local function lazy_page(name)
  local namespace = mgpu[name]
  local meta, classes = getmetatable(namespace), {}
  local page = begin("mgpu." .. name, name, introduction_of(meta.folder))
  for _, key in ipairs(sorted_keys(meta.files)) do
    local path = assert(package.searchpath(meta.folder .. "." .. meta.files[key], package.path))
    local id = path .. "\0" .. tostring(namespace[key])
    if not classes[id] then
      classes[id] = { names = {}, path = path, value = namespace[key] }
      table.insert(classes, classes[id])
    end
    table.insert(classes[id].names, key)
  end
  for _, class in ipairs(classes) do
    page:add(table.concat(class.names, ", "), class_text(class), class.path:sub(#core.root + 2))
  end
end

-- The methods of losses, metrics and so on that scripts call, by page: {module, names}.
local OBJECTS = {
  losses = { { "mgpu.nn.losses.loss", { "loss:per_sample", "loss:value", "loss:with", "loss:get_config", "loss:axis",
    "loss:check_shape", "loss:counted_labels", "loss:prepare", "loss:reduce", "loss:target_shape",
    "loss.from_function", "loss.last_mean", "loss.rows" } } },
  metrics = { { "mgpu.nn.metrics.metric", { "metric:update", "metric:update_state", "metric:result", "metric:reset",
    "metric:reset_state", "metric:add", "metric:fit", "metric:get_config", "metric:restore", "metric:save",
    "metric:variables" } } },
  optimizers = { { "mgpu.nn.optimizers.optimizer", { "opt:apply", "opt:apply_gradients", "opt:apply_unscaled",
    "opt:build", "opt:get_config", "opt:scale_loss", "opt:steps_taken", "opt:unscale", "opt:variables" } } },
  schedules = { { "mgpu.nn.schedules.schedule", { "schedule:get_config" } } },
  callbacks = { { "mgpu.train.callbacks.callback", { "Callback:extend", "callback:get_state", "callback:set_state",
    "callback.write" } }, { "mgpu.train.logs", { "callback.each" } } },
  datasets = { { "mgpu.data.datasets.drawn", { "shapes.write_cifar" } } },
  model = { { "mgpu.nn.sequential", { "mgpu.Sequential" } }, { "mgpu.nn.model", { "mgpu.Model" } } },
  layer = { { "mgpu.nn.layer", { "mgpu.Layer" } } },
  models = { { "mgpu.zoo.classifier", { "resnet50.preprocess_input" } } },
  history = { { "mgpu.train.callbacks.history", { "history:plot", "history:report" } } },
  dataset = { { "mgpu.data.iterator", { "it:position", "it:close" } } },
  image_data_generator = { { "mgpu.data.image_data_generator", { "mgpu.ImageDataGenerator", "generator:flow",
    "generator:flow_from_directory", "generator:fit", "generator:standardize", "generator:random_transform",
    "generator:get_random_transform", "generator:apply_transform" } } },
  profile = { { "mgpu.profile", { "mgpu.profile" } } },
  runs = { { "mgpu.runs", { "mgpu.runs", "runs:diff", "runs:plot" } } },
  tune = { { "mgpu.tune", { "mgpu.tune" } }, { "mgpu.tune.search", { "search:best", "search:table" } },
    { "mgpu.tune.trial", { "mgpu.trial", "trial:report" } } },
  parallel = { { "mgpu.parallel", { "strategy:scope" } },
    { "mgpu.parallel.keras_experiments", { "parallel.ModelMGPU" } } },
}

-- Whether the page of ops has the name. Hidden ops may share theirs with a function.
local function is_public_op(name)
  for _, row in ipairs(core.op_rows()) do
    if row.name == name then return not row.hidden end
  end
  return false
end

-- Functions of a table that are neither ops nor private.
local function function_page(title, file, introduction, tables)
  local page, seen = begin(title, file, introduction), {}
  for prefix, t in pairs(tables) do
    for _, key in ipairs(sorted_keys(t)) do
      local value = rawget(t, key)
      local is_op = is_public_op(key) and (value == mgpu[key] or value == core.methods[key])
      local wanted = type(value) == "function" and not key:find "^_" and not is_op
      if wanted and not seen[prefix .. key] then
        seen[prefix .. key] = true
        page:add_function(prefix .. key, value)
      end
    end
  end
  return page
end

-- Adds names of a module by its docstrings: names that share one are one entry.
function Page:add_named(list, module)
  local path, texts = assert(package.searchpath(module, package.path)), {}
  local lines = docstrings.lines_of(path)
  for _, name in ipairs(list) do
    local text = docstrings.named(lines, name:match "[%w_]+$")
    if not text then warn("%s: %s has no documentation", self.title, name) end
    text = text or name
    if not texts[text] then
      texts[text] = {}
      table.insert(texts, text)
    end
    table.insert(texts[text], name)
  end
  for _, text in ipairs(texts) do self:add(table.concat(texts[text], ", "), text, path:sub(#core.root + 2)) end
end

-- A table whose names are made on the fly.
local function named_page(name, module)
  begin("mgpu." .. name, name, introduction_of(module)):add_named(mgpu[name](), module)
end

local function parallel_page()
  local page = function_page("mgpu.parallel", "parallel", introduction_of "mgpu.parallel",
    { ["parallel."] = mgpu.parallel })
  local optimizers = sorted_keys(mgpu.parallel.optimizers)
  for i, name in ipairs(optimizers) do optimizers[i] = "parallel.optimizers." .. name end
  page:add_named(optimizers, "mgpu.parallel.optimizers")
end

local function models_page()
  local page = begin("mgpu.models", "models")
  for _, entry in ipairs(prompt.terminal.list(core.root .. "/models")) do
    local name = entry:match "^([%w_]+)%.lua$"
    local text = name and docstrings.named(docstrings.lines_of(core.root .. "/models/" .. entry), name)
    if name and not text then warn("models/%s has no documentation", entry) end
    if text then page:add(name, text, "models/" .. entry) end
  end
end

local function ops_page()
  local rows = core.op_rows()
  table.sort(rows, function(a, b) return a.name < b.name end)
  local page = begin("Ops", "ops", "Each is a method and a function: t:sum(2) = mgpu.sum(t, {axis = 2}).")
  for _, row in ipairs(rows) do
    if not row.hidden then page:add_function(row.name, mgpu[row.name]) end
  end
end

local function module_page()
  local page = begin("mgpu", "mgpu", introduction_of "mgpu")
  local list = {}
  names.each(prompt.terminal, mgpu, function(name) list[name] = true end)
  for _, name in ipairs(sorted_keys(list)) do
    local value = names.get(mgpu, name)
    if type(value) == "function" and not is_public_op(name) then page:add_function("mgpu." .. name, value) end
  end
end

local function each_method(class)
  local found = {}
  while type(class) == "table" do
    for name, value in pairs(class) do
      if type(value) == "function" and found[name] == nil and type(name) == "string" then found[name] = value end
    end
    local meta = getmetatable(class)
    local base = type(meta) == "table" and rawget(meta, "__index")
    class = base ~= class and base or nil
  end
  for name, value in pairs(found) do
    local text = docs.explain(prompt, { name = name, value = value })
    if text:find "^[%w_]+%b()\n" then found[name] = nil end -- hooks that a base class documents
  end
  return found
end

--- collect() -> array of pages {title, file, introduction, entries = array of {name, text, where, example}}, and an
--- array of warnings about what they lack.
function M.collect()
  pages, warnings = {}, {}
  module_page()
  local tensors = function_page("Tensors", "tensors", introduction_of "mgpu.tensor", { ["t:"] = core.methods })
  for _, name in ipairs { "value", "assign" } do tensors:add("v:" .. name, c_functions[name]) end
  ops_page()
  function_page("Models", "model", nil, { ["model:"] = each_method(mgpu.Sequential) })
  function_page("Layers of your own", "layer", nil, { ["layer:"] = each_method(mgpu.Layer) })
  for _, name in ipairs { "layers", "losses", "metrics", "optimizers", "schedules", "callbacks", "datasets", "data" } do
    lazy_page(name)
  end
  begin("History", "history", introduction_of "mgpu.train.callbacks.history")
  function_page("mgpu.mixed_precision", "mixed_precision", introduction_of "mgpu.nn.mixed_precision",
    { ["mixed_precision."] = mgpu.mixed_precision })
  function_page("Datasets: steps", "dataset", introduction_of "mgpu.data.dataset",
    { ["ds:"] = require "mgpu.data.dataset".methods })
  begin("ImageDataGenerator", "image_data_generator")
  named_page("initializers", "mgpu.nn.initializers")
  named_page("regularizers", "mgpu.nn.regularizers")
  named_page("constraints", "mgpu.nn.constraints")
  function_page("mgpu.activations", "activations", introduction_of "mgpu.nn.activations",
    { ["activations."] = mgpu.activations })
  models_page()
  parallel_page()
  function_page("mgpu.testing", "testing", introduction_of "mgpu.testing", { ["testing."] = mgpu.testing })
  function_page("mgpu.profile", "profile", nil, { ["profile."] = mgpu.profile })
  begin("mgpu.runs", "runs")
  function_page("mgpu.tune", "tune", nil, { ["tune."] = mgpu.tune })
  function_page("mgpu.image", "image", introduction_of "mgpu.data.image", { ["image."] = mgpu.image })
  for _, page in ipairs(pages) do
    for _, objects in ipairs(OBJECTS[page.file] or {}) do page:add_named(objects[2], objects[1]) end
  end
  return pages, warnings
end

return M
