--- Image data sets of four IDX files: found on this machine or downloaded once, never substituted.
--
-- They are looked for in the folder MGPU_DATA, in ~/.cache/mgpulua and in /usr/share/datasets, each time in the
-- sub-folder of the data set, plain or gzipped; then downloaded into ~/.cache/mgpulua, where a file is kept only if
-- its SHA-256 is the expected one. Errors: files that are not found and cannot be downloaded (the message lists the
-- folders), damaged files, images and labels that do not belong together.
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

-- ---- loading ------------------------------------------------------------------------------------

local function fail_missing(set, file, reason)
  core.fail("io", ("%s: %s is in none of %s, and %s; put the files into a folder %s and set "
    .. "MGPU_DATA to the folder above it%s"):format(set.name, file,
    table.concat(folders(set), ", "), reason, set.folders[1], set.hint or ""))
end

-- "t10k-labels-idx1-ubyte" -> "t10k_labels"
local function sum_name(file) return (file:match("^%w+%-%w+"):gsub("%-", "_")) end

-- Downloads a file into the cache and RETURNS its path.
local function download(set, file)
  local cache = cache_folder()
  if not cache then fail_missing(set, file, "it cannot be downloaded since HOME is not set") end
  local folder = cache .. "/" .. set.folders[1]
  local path = ("%s/%s.gz"):format(folder, file)
  local ok, reason = pcall(function()
    core.make_folder(folder)
    core.fetch(set.url .. file .. ".gz", path, set.sha256[sum_name(file)])
  end)
  if not ok then
    if core.error_code() == "interrupted" then error(reason, 0) end
    fail_missing(set, file, "the download failed (" .. tostring(reason):gsub("^[^:]*:%d+: ", "") .. ")")
  end
  return path
end

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- The "train" or "test" part of the set.
local function load_part(set, which)
  local images, labels = unpack(PARTS[which])
  local image_path = find_file(set, images) or download(set, images)
  local label_path = find_file(set, labels) or download(set, labels)
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
--   set.url, set.sha256     the folder of the gzipped files on the web, and their checksums
function M.define(set)
  --- load_data() -> train, test: tables {x =, y =, classes =, name =}, x uint8 {rows, 28, 28}, y int32 {rows}.
  local function load_data() return load_part(set, "train"), load_part(set, "test") end
  return { load_data = load_data, load = load_data }
end

return M
