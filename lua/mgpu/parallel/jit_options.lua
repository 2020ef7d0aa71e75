--- The option `devices` of mgpu.jit, checked: what core.jit takes.
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local options = require "mgpu.options"
local warnings = require "mgpu.warnings"
local world = require "mgpu.parallel.world"

local JIT = options.declare { { "devices", "any", required = true } }

local function remind(n)
  if not world.is_first() then return end
  warnings.warn("mgpu.jit: each of the %d devices computes the whole step, because nothing in it says what they share: "
    .. "x:shard() splits the rows of x over them", n)
end

return function(given)
  if type(given) ~= "table" then
    core.fail("usage", "mgpu.jit: options are a table, as in {devices = \"all\"}; got a " .. type(given))
  end
  local list, weights, stages = devices.resolve("mgpu.jit", options.check("mgpu.jit", JIT, given).devices)
  if stages then
    core.fail("usage", 'mgpu.jit: devices is a name, a list of names, a count, "all" or weights by name: groups are '
      .. "for models, in compile")
  end
  return { devices = list, weights = weights, joint = world.size() > 1, reminder = remind,
    many_traces = true }
end
