--- Weights in the .safetensors files of Hugging Face: tensors by the names that its models give them.
--
--     local file = hugging_face.open(path, "h.0.ln_1.weight", "transformer.")
--     file:copy(layer.gamma, "ln_f.weight")
local core = require "mgpu.core"
local tensor_file = require "mgpu.io.tensor_file"

local M = {}

local File = {}
File.__index = File

--- set(v, t): the variable v gets the elements of t, in its own shape, dtype and device.
function M.set(v, t) v:assign(t:reshape(v:shape()):cast(v:dtype()):to(v:device())) end

--- open(path, sign, prefix) -> a file whose tensors are asked for without the prefix, which all or some names may have.
-- ARGS sign: the name of a tensor that each such file holds. It shows whether there is a prefix.
-- Errors: a file that cannot be read.
function M.open(path, sign, prefix)
  local tensors = tensor_file.load(path)
  return setmetatable({ path = path, tensors = tensors, prefix = tensors[prefix .. sign] and prefix or "" }, File)
end

--- file:find(name) -> the tensor, or nil.
function File:find(name) return self.tensors[self.prefix .. name] or self.tensors[name] end

--- file:take(name, shape) -> the tensor. Errors: none of that name, or with another shape.
function File:take(name, shape)
  local t = self:find(name)
  if not t then core.fail("data", ("%s: there is no tensor %q"):format(self.path, self.prefix .. name)) end
  local found, wanted = table.concat(t:shape(), ", "), table.concat(shape, ", ")
  if found ~= wanted then
    core.fail("data", ("%s: %s has shape {%s}, the model needs {%s}"):format(self.path, name, found, wanted))
  end
  return t
end

--- file:copy(v, name): the variable v gets the tensor, which has its shape.
function File:copy(v, name) M.set(v, self:take(name, v:shape())) end

--- file:copy_norm(layer, prefix): gamma and beta of a normalization.
function File:copy_norm(layer, prefix)
  self:copy(layer.gamma, prefix .. ".weight")
  self:copy(layer.beta, prefix .. ".bias")
end

return M
