--- mgpu.initializers: name (or class name) -> function(options) that makes one. See initializer.lua.
local initializer = require "mgpu.nn.initializers.initializer"

return setmetatable({}, {
  __index = function(_, name)
    initializer.make(name) -- an unknown name is an error here
    return function(given) return initializer.make(name, given) end
  end,
})
