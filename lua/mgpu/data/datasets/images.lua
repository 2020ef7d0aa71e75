--- Image data sets of four IDX files: found on this machine or downloaded once, never substituted.
--
-- They are looked for in the folder MGPU_DATA, in ~/.cache/mgpulua and in /usr/share/datasets, each time in the
-- sub-folder of the data set, plain or gzipped; then downloaded into ~/.cache/mgpulua, once a machine. A file there
-- must have the expected SHA-256, which is computed once; if not, it is downloaded again. Errors: files that are not
-- found and cannot be downloaded, damaged files, images and labels that do not belong together.
local core = require "mgpu.core"

local M = {}

local PARTS = {
  train = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
  test = { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
}

-- ---- finding ------------------------------------------------------------------------------------

local function cache_folder()
  local home = os.getenv "HOME"
  return home and home ~= "" and home .. "/.cache/mgpulua" or nil
end

-- The folders to look in, in order. MGPU_DATA may also name the data set's folder itself.
local function folders(set)
  local roots, list = {}, {}
  local own = os.getenv "MGPU_DATA"
  if own and own ~= "" then
    own = own:gsub("/+$", "")
    for _, name in ipairs(set.folders) do
      if own:match "[^/]*$" == name then list[1] = own end
    end
    roots[1] = own
  end
  roots[#roots + 1] = cache_folder()
  roots[#roots + 1] = "/usr/share/datasets"
  for _, root in ipairs(roots) do
    for _, name in ipairs(set.folders) do list[#list + 1] = root .. "/" .. name end
  end
  return list
end

-- The names under which the same file is distributed.
local function spellings(file)
  local dotted = file:gsub("%-idx", ".idx")
  return { file, file .. ".gz", dotted, dotted .. ".gz" }
end

-- The path of a file of the set on this machine, or nil.
local function find_file(set, file)
  for _, folder in ipairs(folders(set)) do
    for _, name in ipairs(spellings(file)) do
      local path = folder .. "/" .. name
      if core.file_exists(path) then return path end
    end
  end
end

-- ---- downloading --------------------------------------------------------------------------------

-- Where the file is kept after a download; nil without a home.
local function cache_path(set, file)
  local cache = cache_folder()
  return cache and ("%s/%s/%s.gz"):format(cache, set.folders[1], file)
end

local function fail_missing(set, reason)
  local own = os.getenv "MGPU_DATA"
  local root = own and own ~= "" and own or cache_folder() or "a folder named by MGPU_DATA, as FOLDER"
  core.fail("io", ("%s: cannot download it (%s): put %s, %s, %s, %s, or these with .gz, into %s/%s%s"):format(set.name,
    reason, PARTS.train[1], PARTS.train[2], PARTS.test[1], PARTS.test[2], root, set.folders[1], set.hint or ""))
end

-- "t10k-labels-idx1-ubyte" -> "t10k_labels"
local function key_of(file) return (file:match("^%w+%-%w+"):gsub("%-", "_")) end

-- Downloads a file into the cache and RETURNS its path.
local function download(set, file)
  local path = cache_path(set, file)
  if not path then fail_missing(set, "HOME is not set") end
  local ok, reason = pcall(function()
    core.make_folder(path:match "^(.*)/")
    core.fetch(set.url .. file .. ".gz", path, set.sha256[key_of(file)], set.bytes[key_of(file)])
  end)
  if ok then return path end
  if core.error_code() == "interrupted" then error(reason, 0) end
  reason = tostring(reason):gsub("^[^:]*:%d+: ", ""):gsub("^cannot download %S+: ", "")
  fail_missing(set, reason)
end

-- The path of a file of the set, which is downloaded unless it is there already, and is right.
local function path_of(set, file)
  local path = find_file(set, file)
  if path and (path ~= cache_path(set, file) or core.fetch_verify(path, set.sha256[key_of(file)])) then
    return path
  end
  return download(set, file)
end

-- ---- loading ------------------------------------------------------------------------------------

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- The "train" or "test" part of the set.
local function load_part(set, which)
  local images, labels = unpack(PARTS[which])
  local image_path, label_path = path_of(set, images), path_of(set, labels)
  local x, y = core.idx_load(image_path), core.idx_load(label_path)
  if x:rank() ~= 3 or y:rank() ~= 1 or x:shape()[1] ~= y:shape()[1] then
    core.fail("data", ("%s: %s has shape %s and %s has shape %s: they do not belong together")
      :format(set.name, image_path, show(x:shape()), label_path, show(y:shape())))
  end
  y = core.ops.cast(y, { dtype = "int32" })
  core.eval(y)
  return { x = x, y = y, x, y, classes = set.classes, name = set.name }
end

--- define(set) -> {load_data = function() -> train, test}, also as load.
-- ARGS
--   set.name, set.classes   copied into the loaded tables
--   set.folders             the names that its folder may have
--   set.url                 the folder of the gzipped files on the web
--   set.sha256, set.bytes   their checksums and sizes
function M.define(set)
  --- load_data() -> train, test: tables {x =, y =, classes =, name =}, x uint8 {rows, 28, 28}, y int32 {rows}.
  local function load_data() return load_part(set, "train"), load_part(set, "test") end
  return { load_data = load_data, load = load_data }
end

return M
