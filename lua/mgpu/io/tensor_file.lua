--- Files of tensors: mgpu.load and mgpu.save. The ending of the name chooses the format of a file that is written.
local core = require "mgpu.core"
local world = require "mgpu.parallel.world"
local options = require "mgpu.options"

local M = {}

local LOAD = options.declare { { "widen", "boolean", default = false } }

local function fail(who, message, ...) core.fail("usage", ("mgpu.%s: " .. message):format(who, ...)) end

-- ---- formats ------------------------------------------------------------------------------------

-- The groups of HDF5 files are the parts of names before slashes. RETURNS what is wrong with a name, or nil.
local function h5_name_fault(name, tensors)
  local padded = "/" .. name .. "/"
  if padded:find("//", 1, true) or padded:find "/%.%.?/" then
    return "the parts of a name between slashes are groups, and must not be empty, \".\" or \"..\""
  end
  local group = name:match "^(.*)/"
  while group do
    if tensors[group] ~= nil then return ("%q is a tensor, so that it cannot be a group as well"):format(group) end
    group = group:match "^(.*)/"
  end
end

local function save_h5(path, tensors)
  local h5_file = require "mgpu.nn.keras.h5_file"
  local entries, made, names = { { path = "" } }, {}, {}
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names) -- equal tensors give equal files
  for _, name in ipairs(names) do h5_file.add_dataset(entries, made, name, tensors[name]) end
  core.h5_write(path, entries)
end

local function load_h5(path)
  local tensors, widened = {}, {}
  for _, entry in ipairs(core.h5_read(path)) do
    if entry.tensor and not entry.attribute then
      tensors[entry.path], widened[entry.path] = entry.tensor, entry.stored
    end
  end
  return tensors, widened
end

local function load_store(path, widen)
  local file, widened = core.store_open(path, widen), {}
  for name, entry in pairs(file:tensors()) do widened[name] = entry.stored end
  local tensors = file:read()
  local single = file:format() == "npy"
  file:close()
  if single and not widened.arr_0 then return tensors.arr_0 end -- so that print shows no second result
  if single then return tensors.arr_0, widened.arr_0 end
  return tensors, widened
end

local H5 = { load = load_h5, save = save_h5, name_fault = h5_name_fault }
local FORMATS = { -- single: the name of a tensor that is given without one
  npy = { single = "arr_0" }, npz = { single = "arr_0" }, safetensors = {}, h5 = H5, hdf5 = H5,
}
local ENDINGS = ".npy, .npz, .safetensors, .h5"

-- RETURNS the format of a path, or nil. Models are refused.
local function format_of(who, path)
  if type(path) ~= "string" then
    fail(who, 'the path comes first, as in mgpu.%s "x.npz"; got %s', who, path == nil and "nothing"
      or "a " .. type(path))
  end
  local ending = path:lower():match "%.([^./]*)$"
  if ending == "keras" or ending == "onnx" or ending == "json" then
    fail(who, "%s is a file of a model: %s", path, who == "load" and "mgpu.load_model(path) reads it"
      or "model:save(path) writes it")
  end
  return FORMATS[ending]
end

-- ---- loading ------------------------------------------------------------------------------------

--- load(path, {widen = false}) -> what is in a file of tensors, and which types were widened.
-- A .npy file gives its tensor; a .npz, .safetensors or .h5 file a table of tensors by name, where names in groups of
-- .h5 files are "group/name". Files of models in these formats give the model's weights.
-- Types that tensors do not have are widened to a dtype that holds all their values: int8, int16 and uint16 to int32,
-- uint32 and uint64 to int64, and with widen = true also the float8 kinds of .safetensors files to float32. The second
-- result tells the types in the file: a table by name, {} if nothing was widened; for a .npy file a text or nothing.
-- Files of other endings are recognised by their contents, except .h5.
-- Errors: a damaged file; a uint64 above 2^63 - 1; complex numbers, text and other types, by name; float8 kinds without
-- widen.
-- Example:
--     mgpu.save("x.npz", { a = mgpu.ones { 2, 3 }, b = mgpu.tensor({ 1, 2 }, { dtype = "int64" }) })
--     local x, widened = mgpu.load "x.npz"
--     print(x.a:dtype(), x.b:dtype(), next(widened))  --> float32 int64 nil
function M.load(path, given)
  local format = format_of("load", path)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    fail("load", "options are a table such as {widen = true}, got a %s", type(given))
  end
  local chosen = options.check("mgpu.load", LOAD, given or {})
  return (format and format.load or load_store)(path, chosen.widen)
end

-- ---- saving -------------------------------------------------------------------------------------

-- RETURNS the tensor of a value; raises for others.
local function tensor_of(value, name)
  if core.is_tensor(value) then return value end
  if core.is_variable(value) then return value:value() end
  local kind = type(value) == "table" and not getmetatable(value) and 'a table (names in groups are "group/name")'
    or "a " .. type(value)
  fail("save", "entry %q must be a tensor, got %s", name, kind)
end

local function check_name(name, format, tensors)
  if type(name) ~= "string" then
    fail("save", "the names of tensors are texts, as in {weights = x}; got the %s %s", type(name), tostring(name))
  end
  local fault = name == "" and "it is empty" or name:find "%z" and "it has a zero byte"
    or not pcall(core.json_encode, name) and "it is not UTF-8 text"
    or format.name_fault and format.name_fault(name, tensors)
  if fault then fail("save", "the name %q cannot be in the file: %s", name, fault) end
end

-- RETURNS the tensors by name.
local function named_tensors(path, format, given)
  if core.is_tensor(given) or core.is_variable(given) then
    if not format.single then fail("save", "%s: give the tensor a name, as in {x = tensor}", path) end
    return { [format.single] = tensor_of(given) }
  elseif type(given) ~= "table" or getmetatable(given) then
    fail("save", "expected a tensor, or a table of tensors by name; got a %s%s", type(given),
      type(given) == "table" and " of a class: a model is saved by model:save(path)" or "")
  elseif format == FORMATS.npy then
    fail("save", "%s: a .npy file holds one tensor, without a name: give the tensor itself, or write a .npz file", path)
  end
  local tensors = {}
  for name, value in pairs(given) do
    check_name(name, format, given)
    tensors[name] = tensor_of(value, name)
  end
  return tensors
end

--- save(path, tensors): writes a tensor, or a table of tensors by name, to a .npy, .npz, .safetensors or .h5 file. If
--- it fails, an old file stays as it was.
-- A .npy file holds one tensor, the others tensors by name; a single tensor in a .npz file is called "arr_0", as by
-- NumPy. A name "group/name" makes groups in .h5 files. Every dtype is kept; NumPy's files have no bfloat16. NumPy,
-- safetensors and h5py read the files.
-- Errors: another ending; values that are no tensors; names that the format cannot hold; the disk.
-- Example:
--     mgpu.save("x.npy", mgpu.tensor { { 1, 2 }, { 3, 4 } })
--     print(mgpu.load "x.npy")
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 2},
--     -->  {3, 4}}
--     mgpu.save("x.h5", { ["encoder/kernel"] = mgpu.ones { 3 }, bias = mgpu.variable(mgpu.zeros { 2 }) })
--     print(mgpu.load("x.h5")["encoder/kernel"]:sum():item())  --> 3
function M.save(path, tensors, more)
  if more ~= nil then
    local _, value = next(type(more) == "table" and more or {})
    local of_load = type(more) == "table" and (value == nil or type(value) == "string") -- its types by name
    fail("save", "it takes a path and tensors, and has no options; got a %s more%s", type(more),
      of_load and ": if the tensors are from mgpu.load, take only its first result, as in (mgpu.load(path))" or "")
  end
  local format = format_of("save", path)
  if not format then fail("save", "%s: the ending of the name must be one of %s", path, ENDINGS) end
  local named = named_tensors(path, format, tensors)
  if not world.is_first() then return end
  core.check_creatable(path, "mgpu.save");
  (format.save or core.store_save)(path, named)
end

return M
