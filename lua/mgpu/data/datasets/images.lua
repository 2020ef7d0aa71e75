--- Image data sets of four IDX files, plain or gzipped, as MNIST is distributed. Where they come from: files.lua.
--
-- Errors: files that are not found and cannot be downloaded, damaged files, images and labels that do not belong
-- together.
local core = require "mgpu.core"
local files = require "mgpu.data.datasets.files"

local M = {}

local PARTS = {
  train = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
  test = { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
}

-- All files, for the error about missing ones.
local WANTED = ("%s, %s, %s, %s (or these with .gz)"):format(PARTS.train[1], PARTS.train[2], PARTS.test[1],
  PARTS.test[2])

-- "t10k-labels-idx1-ubyte" -> "t10k_labels"
local function key_of(name) return (name:match("^%w+%-%w+"):gsub("%-", "_")) end

-- The file as files.lua takes it.
local function file_of(set, name)
  local dotted = name:gsub("%-idx", ".idx")
  return { names = { name, name .. ".gz", dotted, dotted .. ".gz" }, kept = name .. ".gz",
    url = set.url .. name .. ".gz", sha256 = set.sha256[key_of(name)], bytes = set.bytes[key_of(name)] }
end

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- The images and labels of a part. paths: of the two files.
local function load_part(set, paths)
  local x, y = core.idx_load(paths[1]), core.idx_load(paths[2])
  if x:rank() ~= 3 or y:rank() ~= 1 or x:shape()[1] ~= y:shape()[1] then
    core.fail("data", ("%s: %s has shape %s and %s has shape %s: they do not belong together")
      :format(set.name, paths[1], show(x:shape()), paths[2], show(y:shape())))
  end
  y = core.ops.cast(y, { dtype = "int32" })
  core.eval(y)
  return files.part(set, x, y)
end

--- define(set) -> {load_data = function(options) -> train, test}, also as load.
-- ARGS
--   set.name, set.classes, set.class_names   copied into the loaded tables
--   set.folders, set.hint   see files.lua
--   set.url                 the folder of the gzipped files on the web
--   set.sha256, set.bytes   their checksums and sizes
function M.define(set)
  --- load_data {data_dir =} -> train, test: tables {x =, y =, classes =, name =}, x uint8 {rows, 28, 28}, y int32
  --- {rows}.
  -- data_dir: the only folder to search, instead of the usual ones.
  local function load_data(given)
    local chosen, paths = files.check(set.name, given), {}
    for which, names in pairs(PARTS) do
      paths[which] = {}
      for i, name in ipairs(names) do
        paths[which][i] = files.obtain(set, file_of(set, name), WANTED, chosen.data_dir)
      end
    end
    return load_part(set, paths.train), load_part(set, paths.test)
  end
  return { load_data = load_data, load = load_data }
end

return M
