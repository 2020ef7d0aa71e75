--- The small objects in Keras's configurations: initializers, regularizers, constraints, activations, dtype policies;
--- and what all translations share.
--
-- A translation gets `at` of origin.lua (with layer_at of computed_shapes.lua), and `where`, the layer and option, for
-- messages. from_X reads Keras's form, to_X writes it.
local core = require "mgpu.core"

local M = {}

--- given(value) -> the value, nil for JSON's null.
function M.given(value)
  if value == core.null then return nil end
  return value
end

-- The field that holds what an object of Python is: a tuple, bytes, or, in its config, an array.
local VALUES_OF = { __tuple__ = "items", __bytes__ = "value", __tensor__ = "value", __numpy__ = "value" }

--- plain(value) -> the list, text or numbers of a tuple, of bytes, or of an array of Python; other values as they are.
function M.plain(value)
  local field = type(value) == "table" and VALUES_OF[value.class_name]
  if not field then return value end
  if value[field] ~= nil then return value[field] end
  return type(value.config) == "table" and value.config[field] or nil
end

-- The numbers that Python writes into JSON, though JSON has no words for them, as texts.
local WORDS = { Infinity = '"inf"', ["-Infinity"] = '"-inf"', NaN = '"nan"' }
local WORD_OF = {}
for word, text in pairs(WORDS) do WORD_OF[text:sub(2, -2)] = word end

--- decode(text) -> the value of Keras's JSON, with "inf", "-inf" and "nan" for these numbers.
function M.decode(text)
  if text:find "Infinity" or text:find "NaN" then
    local parts, at = {}, 1
    while at <= #text do -- strings stay as they are
      local quote = text:find('"', at, true) or #text + 1
      parts[#parts + 1] = text:sub(at, quote - 1):gsub("-?%a+", WORDS)
      local last = quote
      repeat
        last = text:find('["\\]', last + 1) or #text
        local escaped = text:sub(last, last) == "\\"
        if escaped then last = last + 1 end
      until not escaped or last >= #text
      parts[#parts + 1] = text:sub(quote, last)
      at = last + 1
    end
    text = table.concat(parts)
  end
  return core.json_decode(text)
end

local MARK = "\1" -- before a word that stands for a number

--- number(text) -> what encode writes as the number that decode gives as this text.
function M.number(text) return MARK .. WORD_OF[text] end

--- encode(value) -> JSON as Python writes it, with words for what `number` has made.
function M.encode(value) return (core.json_encode(value):gsub('"\\u0001(%-?%a+)"', "%1")) end

--- fail(at, message, ...): the file is fine, but it holds something that we do not have.
function M.fail(at, message, ...) core.fail("unsupported", at.path .. ": " .. message:format(...)) end

--- damaged(at, message, ...): the file is wrong.
function M.damaged(at, message, ...)
  core.fail("data", ("%s: the configuration is damaged: %s"):format(at.path, message:format(...)))
end

--- class_and_config(value) -> the two fields of {class_name =, config =}, or nil. A name alone has an empty config. The
--- name is that after the last ">" of a registered name.
function M.class_and_config(value)
  if type(value) == "string" then return value, {} end
  if type(value) ~= "table" or type(value.class_name) ~= "string" then return nil end
  local config = M.given(value.config)
  return value.class_name:match "[^>]*$", config == nil and {} or config
end

-- The fields of a configuration that are not null, without those that have no meaning here.
local function fields_of(config, left_out)
  local fields = {}
  for key, value in pairs(config) do
    if M.given(value) ~= nil and not left_out[key] then fields[key] = value end
  end
  return fields
end

--- object(class_name, config, module) -> Keras's form of an object.
function M.object(class_name, config, module)
  return { class_name = class_name, config = config, module = module, registered_name = core.null }
end

--- camel(name) -> "GlorotUniform" for "glorot_uniform".
function M.camel(name)
  return (("_" .. name):gsub("_(%w)", function(letter) return letter:upper() end))
end

-- ---- initializers -------------------------------------------------------------------------------

local UNUSED = { input_axes = true, output_axes = true, dtype = true, partition_info = true }

function M.from_initializer(value, at, where)
  local class, config = M.class_and_config(value)
  local fields = type(config) == "table" and fields_of(config, UNUSED)
  if not class or not fields then M.damaged(at, "%s is not an initializer", where) end
  fields.initializer = class:gsub("Initializer$", "")
  for _, key in ipairs(fields.initializer == "STFT" and { "window", "scaling" } or {}) do
    if config[key] == core.null then fields[key] = "none" end
  end
  fields.value = M.plain(fields.value) -- Constant may have an array
  if fields.distribution == "normal" then fields.distribution = "truncated_normal" end -- its name in Keras 1 and 2
  local initializers = require "mgpu.nn.initializers"
  local ok, made = pcall(initializers.get, fields)
  if not ok then M.fail(at, "%s: the initializer %q cannot be used: %s", where, class, made) end
  return made:get_config()
end

function M.to_initializer(value)
  local config = require "mgpu.nn.initializers".get(value):get_config()
  local name = config.initializer
  config.initializer = nil
  if name == "stft" then
    for _, key in ipairs { "window", "scaling" } do
      if config[key] == "none" then config[key] = core.null end
    end
    return M.object("STFT", config, "keras.initializers")
  end
  return M.object(M.camel(name), config, "keras.initializers")
end

-- ---- regularizers and constraints ---------------------------------------------------------------

-- Each axis moved by `step` unless it counts from the end; a list of one axis becomes the axis. Other values stay
-- as they are; the layer refuses them.
local function moved_axes(value, step)
  if type(value) == "number" then return value < 0 and value or value + step end
  if type(value) ~= "table" then return value end
  local list = {}
  for i, axis in ipairs(value) do list[i] = moved_axes(axis, step) end
  return #list == 1 and list[1] or list
end
M.moved_axes = moved_axes

-- Both have configurations {class_name =, config =} in our form too.
local function from_class(kind, value, at, where)
  local class, config = M.class_and_config(value)
  local fields = type(config) == "table" and fields_of(config, {})
  if not class or not fields then M.damaged(at, "%s is not a valid %s", where, kind) end
  if kind == "constraint" and fields.axis then fields.axis = moved_axes(fields.axis, 1) end
  local get = require("mgpu.nn." .. kind .. "s").get
  local ok, made = pcall(get, next(fields) and { class_name = class, config = fields } or class)
  if not ok then M.fail(at, "%s: the %s %q cannot be used: %s", where, kind, class, made) end
  return made:get_config()
end

local function to_class(kind, value)
  local config = require("mgpu.nn." .. kind .. "s").get(value):get_config()
  local fields = fields_of(config.config, {})
  if kind == "constraint" and fields.axis then fields.axis = moved_axes(fields.axis, -1) end
  return M.object(config.class_name, fields, ("keras.%ss"):format(kind))
end

function M.from_regularizer(...) return from_class("regularizer", ...) end
function M.to_regularizer(value) return to_class("regularizer", value) end
function M.from_constraint(...) return from_class("constraint", ...) end
function M.to_constraint(value) return to_class("constraint", value) end

-- ---- activations --------------------------------------------------------------------------------

-- The functions of Keras 1 and 2 that Keras 3 computes otherwise.
local OLD_ACTIVATIONS = { hard_sigmoid = "hard_sigmoid_keras2" }
local OURS = { hard_sigmoid_keras2 = true }

function M.from_activation(value, at, where)
  local name = value
  if type(value) == "table" then -- a function that Keras has registered
    name = value.class_name == "function" and M.given(value.config) or value.class_name
  end
  if type(name) ~= "string" then M.damaged(at, "%s is not an activation", where) end
  if not rawget(require "mgpu.nn.activations", name) or name == "get" then
    M.fail(at, "%s: the activation %q is not known", where, name)
  end
  return at.keras2 and OLD_ACTIVATIONS[name] or name
end

-- In custom_objects, Keras 2 looks for a name, Keras 3 for a registered function only.
function M.to_activation(value, style)
  if not OURS[value] or style == "h5" then return value end
  return { class_name = "function", config = value, module = "builtins", registered_name = value }
end

-- ---- dtype policies -----------------------------------------------------------------------------

-- The name of a policy that Keras describes by an object: {name =}, nothing for the present policy, {default_policy =,
-- policy_map =} for a layer with layers inside, or {mode =, source_name =} for quantized weights.
local function policy_name(class, config, at)
  if type(config) ~= "table" then M.damaged(at, "a dtype policy has no configuration") end
  local map, mode = M.given(config.policy_map), M.given(config.mode)
  if type(map) == "table" and next(map) then
    M.fail(at, "the dtype policy %s gives inner layers policies of their own, which is not supported: save the model "
      .. "before quantize", class)
  end
  if mode then return ("%s_from_%s"):format(tostring(mode), tostring(M.given(config.source_name) or core.floatx())) end
  local name = M.given(config.name) or M.given(config.default_policy)
  return type(name) == "table" and M.from_policy(name, at) or name or core.floatx()
end

--- from_policy(value, at) -> the policy's name. Errors: one that is not known; weights quantized by GPTQ or AWQ.
function M.from_policy(value, at)
  local class, config = M.class_and_config(value)
  local name = class
  if class and type(value) == "table" then name = policy_name(class, config, at) end
  if type(name) ~= "string" then M.damaged(at, "a dtype has no name") end
  local ok, problem = pcall(require "mgpu.nn.mixed_precision".get, name)
  if not ok and core.error_code() == "unsupported" then M.fail(at, "%s", require "mgpu.error_line"(problem)) end
  if not ok then M.fail(at, "the dtype policy %q is not known", name) end
  return name
end

return M
