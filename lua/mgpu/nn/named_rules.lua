--- What constraints and regularizers share: small functions of a tensor with options, made by name.
local core = require "mgpu.core"
local options = require "mgpu.options"

local M = {}

--- define(module, spec) -> the module, with get and with a function for each class and short name; called, it RETURNS
--- the sorted names. What get returns is called with a tensor.
-- ARGS
--   spec.kind     "constraint": for messages
--   spec.rules    class -> {declared options, function(self, w)}
--   spec.short    short name -> class
--   spec.alone    short name -> its options where none are given; nil: those of the class
--   spec.check    function(class, made): checks the options further; or nil
--   spec.constructor   function(make, name) -> the function of that name; it is in the module's file, whose docstrings
--                      explain the names
function M.define(module, spec)
  local rules, names = spec.rules, {}
  for _, list in ipairs { rules, spec.short } do
    for name in pairs(list) do names[#names + 1] = name end
  end
  table.sort(names)

  local meta = { __call = function(self, w) return rules[self.class_name][2](self, w) end,
    __tostring = function(self) return spec.kind .. " " .. self.class_name end }
  meta.__index = {
    get_config = function(self)
      local config = {}
      for _, option in ipairs(rules[self.class_name][1]) do config[option[1]] = self[option[1]] end
      return { class_name = self.class_name, config = config }
    end,
  }

  local function make(name, given)
    local class = spec.short[name] or name
    if not rules[class] then
      core.fail("usage", ("unknown %s %q%s"):format(spec.kind, tostring(name), core.did_you_mean(name, names)))
    end
    local alone = given == nil and spec.alone and spec.alone[name]
    local made = options.check(class, rules[class][1], alone or given or {})
    if spec.check then spec.check(class, made) end
    made.class_name = class
    return setmetatable(made, meta)
  end

  --- get(value) -> what it means: a name, the result of an earlier get, a saved configuration, or a function.
  function module.get(value)
    if type(value) == "function" or getmetatable(value) == meta then return value end
    if type(value) == "string" then return make(value) end
    if type(value) == "table" and type(value.class_name) == "string" then
      return make(value.class_name, value.config)
    end
    core.fail("usage", ("a %s is a name, a function, or made by mgpu.%ss"):format(spec.kind, spec.kind))
  end

  return setmetatable(module, {
    __index = function(_, name)
      make(name) -- raises for an unknown name
      return spec.constructor(make, name)
    end,
    __call = function() return names end,
  })
end

return M
