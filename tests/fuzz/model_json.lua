-- The Lua side of fuzz_model_json.c: a function of a text that RETURNS a complaint about reading it, or nothing. Both
-- forms of a configuration are tried: Keras's, and ours as our own files contain it.

-- LuaJIT's compiler refers to its block of instructions only by an address before the block, so the leak checker
-- reports the block as leaked as soon as it has grown.
jit.off()

package.path = "lua/?.lua;lua/?/init.lua;" .. package.path
local core = require "mgpu.core"
local mgpu = require "mgpu"
local model_config = require "mgpu.nn.model_config"

core.default_device "null:0"

-- Messages that Lua itself makes, or that show a defect.
local DEFECTS = { "attempt to", "bad argument", "stack overflow", "internal", "assertion" }

local function complaint(message)
  if type(message) ~= "string" then return "an error that is not text" end
  for _, words in ipairs(DEFECTS) do
    if message:find(words, 1, true) then return message end
  end
end

-- If fn makes a model of the text, reading that model's own text must give the same model.
local function try(fn, text)
  local ok, model = pcall(fn, text)
  if not ok then return complaint(model) end
  local written, again = pcall(model.to_json, model)
  if not written then return complaint(again) end
  ok, model = pcall(mgpu.model_from_json, again)
  if not ok then return "its own text is refused: " .. tostring(model) end
  if model:to_json() ~= again then return "its text changes: " .. again end
end

local function ours(text) return model_config.from_config(core.json_decode(text), {}, "fuzz") end

return function(text)
  mgpu.reset_names()
  return try(mgpu.model_from_json, text) or try(ours, text)
end
