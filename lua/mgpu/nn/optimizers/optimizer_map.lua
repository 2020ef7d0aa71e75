--- OptimizerMap {default_optimizer, optimizer_map = {["encoder/.*"] = optimizer}}: which optimizer trains which
--- variable.
-- A key is the path of a variable or a regular expression that matches the whole path; a path is the names of layers
-- and of the variable, as "encoder/dense/kernel". map[key] = optimizer adds one. Variables that no key matches have the
-- default. The expressions are POSIX's extended ones. Errors: keys that are there already; two expressions for one
-- variable; a LossScaleOptimizer or MultiOptimizer inside. Source: Keras.
-- Example:
--     local map = mgpu.optimizers.OptimizerMap { mgpu.optimizers.SGD { 0.1 } }
--     map["dense/.*"] = mgpu.optimizers.Adam {}
--     print(map(mgpu.variable(mgpu.ones { 1 }, { name = "dense/kernel" })))  --> optimizer Adam
--     print(map(mgpu.variable(mgpu.ones { 1 }, { name = "gru/bias" })))      --> optimizer SGD
local compile_options = require "mgpu.train.compile_options"
local core = require "mgpu.core"
local options = require "mgpu.options"
local ordered_keys = require "mgpu.ordered_keys"

local M = {}

M.declared = options.declare { positional = 2,
  { "default_optimizer", "any", required = true },
  { "optimizer_map", "table", default = {} },
}

local function fail(message, ...) core.fail("usage", "OptimizerMap: " .. message:format(...)) end

-- The optimizer that a value is, names or describes.
local function optimizer_of(value, where)
  if type(value) == "table" and type(value.class_name) == "string" then
    value = require "mgpu.nn.optimizers"[value.class_name](value.config)
  end
  local optimizer = compile_options.optimizer(value, "OptimizerMap: " .. where)
  if optimizer.skips_steps or optimizer.optimizers then fail("%s cannot be a %s", where, optimizer.class) end
  return optimizer
end

-- Raises for what a regular expression of Python means and one of POSIX does not.
local function check_key(key)
  if type(key) ~= "string" then fail("a key must be the path of a variable, got a %s", type(key)) end
  local foreign = key:match "\\%w" or key:match "%(%?" or key:match "[%*%+%?]%?"
  if foreign then fail("the key %q has %s, which POSIX's regular expressions lack", key, foreign) end
  core.full_match(key, "")
end

-- The keys that one of the paths matches: an exact one before all expressions.
local function keys_of(entries, paths)
  for _, path in ipairs(paths) do
    if entries[path] then return { path } end
  end
  local found = {}
  for _, key in ipairs(ordered_keys(entries)) do
    local matches = false
    for _, path in ipairs(paths) do matches = matches or core.full_match(key, path) end
    if matches then found[#found + 1] = key end
  end
  return found
end

local meta = {}

function meta.__call(self, v) return (self:find(v)) end

function meta.__newindex(self, key, value)
  check_key(key)
  if self.entries[key] then fail("there is an optimizer for %q already", key) end
  self.entries[key] = optimizer_of(value, ("the optimizer of %q"):format(key))
end

function meta.__index(self, key) return M.methods[key] or rawget(self, "entries")[key] end

function meta.__tostring(self) return ("OptimizerMap of %d keys"):format(#ordered_keys(self.entries)) end

M.methods = {}

--- map:find(variable, paths = {its name}) -> its optimizer, and the key that chose it, or nil.
function M.methods.find(self, v, paths)
  local keys = keys_of(self.entries, paths or { v.name })
  if #keys > 1 then fail("the variable %q is matched by %q and %q", v.name, keys[1], keys[2]) end
  return self.entries[keys[1]] or self.default_optimizer, keys[1]
end

--- map:list() -> the optimizers, each once: in the order of their keys, then the default.
function M.methods.list(self)
  local list, seen = {}, {}
  local function add(optimizer)
    if not seen[optimizer] then list[#list + 1] = optimizer end
    seen[optimizer] = true
  end
  for _, key in ipairs(ordered_keys(self.entries)) do add(self.entries[key]) end
  add(self.default_optimizer)
  return list
end

--- map:get_config() -> the options. An optimizer that stands there twice is described once; the others name its key.
function M.methods.get_config(self)
  local map, first = {}, {}
  local function described(optimizer, key)
    if first[optimizer] then return { same_as = first[optimizer] } end
    first[optimizer] = key
    return { class_name = optimizer.class, config = optimizer:get_config() }
  end
  for _, key in ipairs(ordered_keys(self.entries)) do map[key] = described(self.entries[key], key) end
  return { optimizer_map = map, default_optimizer = described(self.default_optimizer) }
end

--- new(options) -> the map; the same as calling OptimizerMap.
function M.new(given)
  local chosen = options.check("OptimizerMap", M.declared, given)
  local self, later = setmetatable({ entries = {} }, meta), {}
  for _, key in ipairs(ordered_keys(chosen.optimizer_map)) do
    local value = chosen.optimizer_map[key]
    if type(value) == "table" and value.same_as then later[key] = value.same_as else self[key] = value end
  end
  for key, other in pairs(later) do self[key] = self.entries[other] end
  local default = chosen.default_optimizer
  rawset(self, "default_optimizer", type(default) == "table" and default.same_as and self.entries[default.same_as]
    or optimizer_of(default, "default_optimizer"))
  return self
end

--- is(value) -> whether it is an OptimizerMap.
function M.is(value) return type(value) == "table" and getmetatable(value) == meta end

return setmetatable(M, { __call = function(_, given) return M.new(given) end,
  __tostring = function() return "class OptimizerMap" end })
