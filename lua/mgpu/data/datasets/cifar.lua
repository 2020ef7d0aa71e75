--- CIFAR-10 and CIFAR-100: small colour photographs, from the published archive of binary files or its unpacked files.
--
-- The archive is read in place, not unpacked. Where the files come from: files.lua. Errors: files that are not found
-- and cannot be downloaded; damaged files; labels out of range.
local core = require "mgpu.core"
local files = require "mgpu.data.datasets.files"

local M = {}

local URL = "https://www.cs.toronto.edu/~kriz/"

-- The paths of the unpacked files of both parts, or nil unless all of them are there.
local function find_unpacked(set, data_dir)
  local paths = { train = {}, test = {} }
  for which, list in pairs(paths) do
    for i, name in ipairs(set[which]) do
      list[i] = files.find(set, { names = { name, name .. ".gz" } }, data_dir)
      if not list[i] then return nil end
    end
  end
  return paths
end

local function archive_file(set)
  return { names = { set.archive, (set.archive:gsub("%.gz$", "")) }, kept = set.archive, url = URL .. set.archive,
    sha256 = set.sha256, bytes = set.bytes }
end

-- A part: its images, and the labels of column `column`.
local function load_part(set, paths, members, column)
  local x, labels = core.cifar_load(paths, members, set.label_classes)
  local y = labels:slice { {}, column }:cast "int32"
  core.eval(y)
  return files.part({ name = set.name, classes = set.label_classes[column],
    class_names = set.class_names[column] }, x, y)
end

--- define(set) -> {load_data = function(options) -> train, test}, also as load.
-- ARGS
--   set.name                     copied into the loaded tables
--   set.folders                  see files.lua
--   set.archive, set.sha256, set.bytes   the published archive
--   set.train, set.test          the names of the files in it
--   set.label_classes            the number of classes of each label of a record
--   set.class_names              their names, an array for each label
--   set.modes                    the names of the labels, for the option label_mode; nil if there is one
function M.define(set)
  local wanted = ("%s or its files %s ... %s"):format(set.archive, set.train[1], set.test[1])
  local more = set.modes and { { "label_mode", "string", default = set.modes[#set.modes], values = set.modes } }
  --- load_data {data_dir =, label_mode =} -> train, test: tables {x =, y =, classes =, class_names =, name =}, x uint8
  --- {rows, 32, 32, 3}, y int32 {rows}.
  -- data_dir: the only folder to search, instead of the usual ones. label_mode (CIFAR-100): "fine", 100 classes, or
  -- "coarse", 20 of them.
  local function load_data(given)
    local chosen = files.check(set.name, given, more)
    local column = 1
    for i, mode in ipairs(set.modes or {}) do
      if mode == chosen.label_mode then column = i end
    end
    local unpacked = find_unpacked(set, chosen.data_dir)
    if unpacked then
      return load_part(set, unpacked.train, nil, column), load_part(set, unpacked.test, nil, column)
    end
    local path = { files.obtain(set, archive_file(set), wanted, chosen.data_dir) }
    return load_part(set, path, set.train, column), load_part(set, path, set.test, column)
  end
  return { load_data = load_data, load = load_data }
end

return M
