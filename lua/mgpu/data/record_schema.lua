--- Schemas of TFRecord files, for mgpu.data.tfrecord and mgpu.data.write_tfrecord: which features of a record are the
--- fields of a row, and how.
--
--     { { "image/encoded", "jpeg", channels = 3 }, { "image/class/label", "int64" } }
-- A list in the order of the fields. Each is {name, kind, options}; the name is a feature's in tf.train.Example.
--   kind                         the feature holds                       the field is
--   "float32"                    a list of floats                        float32
--   "int64" "int32"              a list of integers                      that dtype
--   "string" "bytes"             one string, or with shape = {n} n       a string in Lua, or an array of strings
--   "jpeg" "png" "image"         one string: a JPEG or PNG file          uint8 {height, width, channels}
--   "uint8" "bool" "float16"     one string: the elements' bytes,        that dtype
--   "bfloat16" "float64"         as tf.io.decode_raw reads them
-- Options of a field:
--   shape      {} by default: one number. One size may be -1: as many as there are (VarLenFeature); such a feature may
--              be missing, and then is empty. Of images, {height, width, channels} or for gray ones {height, width};
--              by default {-1, -1, channels}: each has its own size. Of strings {n}, always as many
--   default    the value where a feature is missing: a number or string for all elements, or a table of the shape.
--              When writing, the value may then be nil, and the feature is left out
--   channels   of images: 1, 3 or 4, to which they are decoded; nil: as many as each image has
--   raw        true: numbers as the bytes of one string, also of kind float32, int64 and int32
--   quality    for writing "jpeg": 1 to 100, 95
-- When images are read, their contents tell the format; when tensors are written, "jpeg" means JPEG, the others PNG.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local options = require "mgpu.options"

local KINDS = {
  float32 = "list", int64 = "list", int32 = "list", string = "text", bytes = "text", jpeg = "image", png = "image",
  image = "image", uint8 = "raw", bool = "raw", float16 = "raw", bfloat16 = "raw", float64 = "raw",
}
local NAMES = { "float32", "int64", "int32", "string", "bytes", "jpeg", "png", "image", "uint8", "bool", "float16",
  "bfloat16", "float64" }

local FIELD = options.declare { positional = 2,
  { "name", "string", required = true }, { "kind", "string", required = true, values = NAMES }, { "shape", "shape" },
  { "default", "any" }, { "channels", "integer", values = { 1, 3, 4 } }, { "raw", "boolean" },
  { "quality", "integer", min = 1, max = 100 },
}

local MOST_STRINGS = 1e6

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- ---- one field: each function checks an option and RETURNS what it stands for -------------------

local function unknown_sizes(shape)
  local n = 0
  for _, size in ipairs(shape) do n = n + (size < 0 and 1 or 0) end
  return n
end

local function shape_of(who, form, chosen)
  local shape = chosen.shape
  if form == "text" and shape and (#shape > 1 or shape[1] and (shape[1] < 1 or shape[1] > MOST_STRINGS)) then
    fail(who, "the shape of strings is {n}, n from 1 to %d, got %s", MOST_STRINGS, show(shape))
  end
  if form == "image" then
    shape = shape or { -1, -1, chosen.channels or -1 }
    if #shape < 2 or #shape > 3 then
      fail(who, "the shape of images is {height, width, channels} or {height, width}, got %s", show(shape))
    end
  elseif shape and unknown_sizes(shape) > 1 then
    fail(who, "at most one size may be -1, got shape %s", show(shape))
  end
  return shape or {}
end

local function channels_of(who, form, shape, chosen)
  if form ~= "image" then
    if chosen.channels then fail(who, "only images have channels") end
    return 0
  end
  local sized = #shape == 2 and 1 or shape[3]
  if sized ~= -1 and sized ~= 1 and sized ~= 3 and sized ~= 4 then
    fail(who, "images have 1, 3 or 4 channels, not %d as in shape %s", sized, show(shape))
  end
  if chosen.channels and sized ~= -1 and chosen.channels ~= sized then
    fail(who, "channels = %d, but the shape %s has %d", chosen.channels, show(shape), sized)
  end
  return sized ~= -1 and sized or chosen.channels or 0
end

-- The default of n strings: a list of them, or one that stands for all.
local function strings_of(who, default, n)
  local list = type(default) == "string" and {} or default
  for i = 1, type(default) == "string" and n or 0 do list[i] = default end
  local good = type(list) == "table" and getmetatable(list) == nil and not core.array_fault(list) and #list == n
  for i = 1, good and n or 0 do good = good and type(list[i]) == "string" end
  if not good then fail(who, "the default of %d strings is a list of them, or one for all", n) end
  return list
end

-- RETURNS the default as C takes it.
local function default_of(who, form, shape, default)
  if default == nil then return nil end
  if form == "image" then fail(who, "an image has no default") end
  if form == "text" and #shape == 1 then return strings_of(who, default, shape[1]) end
  if form == "text" and type(default) ~= "string" then
    fail(who, "the default of a string is a string, got a %s", type(default))
  end
  if unknown_sizes(shape) > 0 then
    fail(who, "a field of shape %s has no default: it is empty where the feature is missing", show(shape))
  end
  return default
end

local function quality_of(who, kind, chosen)
  if kind == "jpeg" then return chosen.quality or 95 end
  if chosen.quality then fail(who, "only \"jpeg\" has a quality") end
  return 0
end

local DTYPES = { text = "uint8", image = "uint8" }

local function field_of(who, given)
  if type(given) ~= "table" or getmetatable(given) then
    fail(who, 'a field is a table such as {"label", "int64"}, got a %s', type(given))
  end
  local chosen = options.check(who, FIELD, given)
  local form = KINDS[chosen.kind]
  if chosen.name:find "%z" then fail(who, "the name contains a zero byte") end
  if chosen.raw ~= nil and form ~= "list" and form ~= "raw" then fail(who, "only numbers can be raw") end
  if chosen.raw == false and form == "raw" then fail(who, "a feature has no list of %s: it is raw", chosen.kind) end
  if chosen.raw then form = "raw" end
  local shape = shape_of(who, form, chosen)
  local default = default_of(who, form, shape, chosen.default)
  local channels = channels_of(who, form, shape, chosen)
  if #shape == 3 and form == "image" and channels > 0 then shape = { shape[1], shape[2], channels } end
  return { name = chosen.name, form = form, dtype = DTYPES[form] or chosen.kind, shape = shape, channels = channels,
    default = default, quality = quality_of(who, chosen.kind, chosen) }
end

--- record_schema(who, schema) -> the fields for core.tfrecord_*: {{name =, form =, dtype =, shape =, channels =,
--- default =, quality =}, ...}. Errors, which begin with `who`: no list; a field's options.
return function(who, schema)
  local example = '{ {"image/encoded", "jpeg"}, {"image/class/label", "int64"} }'
  if type(schema) ~= "table" or getmetatable(schema) then
    fail(who, "the schema is a list of fields, such as %s; got %s", example, checks.kind(schema))
  end
  local fault, fields = core.array_fault(schema), {}
  if fault then fail(who, "the schema is a list of fields in order, such as %s: %s", example, fault) end
  if #schema == 0 then fail(who, "the schema has no fields") end
  if type(schema[1]) == "string" then fail(who, "the schema is a list of fields, such as %s", example) end
  for i, given in ipairs(schema) do fields[i] = field_of(("%s: field %d"):format(who, i), given) end
  return fields
end
