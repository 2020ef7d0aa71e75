-- Loads a golden set: its cases (NAME.lua) with their numbers (NAME.safetensors) in place.
--
--     local golden = require "golden.load" "optimizers"
--     golden.cases[1].final[1]      -- the numbers of the tensor cases/1/final/1
--
-- A tensor with axes becomes a flat row-major list of Lua numbers, a scalar becomes a number. Both
-- files are written by make_golden.py; neither is edited by hand.

local core = require "mgpu.core"

local FOLDER = "tests/golden/"

-- Puts a value where the path says ("cases/1/final/1"), making the tables on the way.
local function put(set, path, value)
  local place, last = set, nil
  for key in path:gmatch "[^/]+" do
    if last then
      place[last] = place[last] or {}
      place = place[last]
    end
    last = tonumber(key) or key
  end
  assert(place[last] == nil, path)
  place[last] = value
end

return function(name)
  local set = dofile(FOLDER .. name .. ".lua")
  local tensors, notes = core.store_load(FOLDER .. name .. ".safetensors")
  assert(notes.set == name, "the numbers are not those of the set " .. name)
  for path, tensor in pairs(tensors) do
    local numbers = tensor:reshape { -1 }:totable()
    put(set, path, #tensor:shape() == 0 and numbers[1] or numbers)
  end
  return set
end
