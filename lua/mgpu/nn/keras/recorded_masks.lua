--- The masks that Keras 3 records in functional models: where a mask reaches a layer, the file has the mask as an
--- argument of the call, computed by operations (NotEqual for Embedding, Any of NotEqual for Masking).
--
-- Here masks travel with the tensors (nn/masks.lua), so such an argument is left out, if it is the mask that arrives
-- anyway. Any other mask, which a user has given, is refused.
local objects = require "mgpu.nn.keras.objects"

local M = {}

-- The operation's name of a use, or the class of its layer.
local function kind_of(use, list)
  local layer = use and list[use.layer]
  return layer and (layer.class_name == "Operation" and layer.config.op or layer.class_name)
end

local function use_at(place, by_place) return by_place[place.name] and by_place[place.name][place.use] end

local function same(a, b) return a and b and a.name == b.name and a.use == b.use and a.output == b.output end

-- The place whose values the mask was computed from, or nil if it is no mask of Embedding or Masking.
local function source_of(mask, list, by_place)
  local use = use_at(mask, by_place)
  if kind_of(use, list) == "Any" then use = use_at(use.inputs[1], by_place) end
  return kind_of(use, list) == "NotEqual" and use.inputs[1] or nil
end

-- Whether a layer between `place` and the inputs makes a mask of the values at `source`. seen: the uses that do not.
local function arrives(place, source, list, by_place, seen)
  local use = use_at(place, by_place)
  if not use or seen[use] then return false end
  seen[use] = true
  local layer, kind = list[use.layer], kind_of(use, list)
  local makes = kind == "Masking" or kind == "Embedding" and layer.config.mask_zero
  if makes and same(use.inputs[1], source) then return true end
  for _, input in ipairs(use.inputs) do
    if arrives(input, source, list, by_place, seen) then return true end
  end
  return false
end

--- check(uses, list, by_place, at): raises for a use with a mask that does not arrive by itself. ARGS uses: with the
--- fields mask (a place, or nil), inputs, layer, name; list: the layers in our form; by_place: name -> use.
function M.check(uses, list, by_place, at)
  for _, use in ipairs(uses) do
    local source = use.mask and source_of(use.mask, list, by_place)
    if use.mask and not (source and arrives(use.inputs[1], source, list, by_place, {})) then
      objects.fail(at, "layer %q is called with the argument mask, which is not supported: use Masking or "
        .. "Embedding(mask_zero=True)", tostring(list[use.layer].config.name))
    end
  end
end

return M
