--- The files of data sets: found on this machine or downloaded once, never substituted.
--
-- They are looked for in the folder MGPU_DATA, in ~/.cache/mgpulua and in /usr/share/datasets, each time in the
-- sub-folder of the data set; then downloaded into ~/.cache/mgpulua, once a machine. A file there must have the
-- expected checksum, which is computed once; if not, it is downloaded again. With the option data_dir only that folder
-- and its sub-folders are searched, and nothing is downloaded.
--
-- A set has name; folders = the names that its folder may have; hint, appended to the error about missing files. A file
-- has names = the names under which it is distributed, url, sha256 or md5 = its checksum, bytes (nil: unknown), and
-- kept, its name in the cache.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local options = require "mgpu.options"

local M = {}

local function cache_folder()
  local home = os.getenv "HOME"
  return home and home ~= "" and home .. "/.cache/mgpulua" or nil
end

-- The folder that the environment names, without slashes at its end; nil without one.
local function data_folder()
  local own = os.getenv "MGPU_DATA"
  return own and own ~= "" and own:gsub("/+$", "") or nil
end

-- Appends the folders in `root` that may hold the set; before them `root` itself if `whole`, or if its name is one of
-- the set's.
local function add_folders(list, set, root, whole)
  for _, name in ipairs(set.folders) do whole = whole or root:match "[^/]*$" == name end
  if whole then list[#list + 1] = root end
  for _, name in ipairs(set.folders) do list[#list + 1] = root .. "/" .. name end
end

-- The folders to look in, in order.
local function folders(set, data_dir)
  local list = {}
  if data_dir then
    add_folders(list, set, data_dir, true)
    return list
  end
  for _, root in ipairs { data_folder() or false, cache_folder() or false, "/usr/share/datasets" } do
    if root then add_folders(list, set, root) end
  end
  return list
end

--- find(set, file, data_dir) -> the path of a file on this machine, or nil.
function M.find(set, file, data_dir)
  for _, folder in ipairs(folders(set, data_dir)) do
    for _, name in ipairs(file.names) do
      local path = folder .. "/" .. name
      if core.file_exists(path) then return path end
    end
  end
end

-- Where the file is kept after a download; nil without a home.
local function cache_path(set, file)
  local cache = cache_folder()
  return cache and ("%s/%s/%s"):format(cache, set.folders[1], file.kept)
end

-- Raises the error about a set whose files are missing. wanted: the names of its files.
local function fail_missing(set, wanted, reason, data_dir)
  if data_dir then
    core.fail("io", ("%s: %s has no %s"):format(set.name, data_dir, wanted))
  end
  local root = data_folder() or cache_folder() or "a folder named by MGPU_DATA, as FOLDER"
  core.fail("io", ("%s: cannot download it (%s): put %s into %s/%s%s"):format(set.name, reason, wanted, root,
    set.folders[1], set.hint or ""))
end

-- Downloads a file into the cache and RETURNS its path.
local function download(set, file, wanted)
  local path = cache_path(set, file)
  if not path then fail_missing(set, wanted, "HOME is not set") end
  local ok, reason = pcall(function()
    core.make_folder(path:match "^(.*)/")
    core.fetch(file.url, path, file.sha256 or file.md5, file.bytes or 0)
  end)
  if ok then return path end
  if core.error_code() == "interrupted" then error(reason, 0) end
  fail_missing(set, wanted, (tostring(reason):gsub("^[^:]*:%d+: ", ""):gsub("^cannot download %S+: ", "")))
end

--- obtain(set, file, wanted, data_dir) -> the path of a file, which is downloaded unless it is there and right.
-- wanted: the names of the set's files, for the error if it cannot be downloaded.
function M.obtain(set, file, wanted, data_dir)
  local path = M.find(set, file, data_dir)
  if path and (path ~= cache_path(set, file) or core.fetch_verify(path, file.sha256 or file.md5)) then return path end
  if data_dir then fail_missing(set, wanted, nil, data_dir) end
  return download(set, file, wanted)
end

--- read_json(set, file, data_dir) -> the value in a JSON file, which is obtained. Errors: no file; invalid JSON.
function M.read_json(set, file, data_dir)
  local path = M.obtain(set, file, file.kept, data_dir)
  local f, reason = io.open(path, "rb")
  if not f then core.fail("io", ("%s: cannot open %s"):format(set.name, reason)) end
  local text = f:read "*a"
  f:close()
  local ok, value = pcall(core.json_decode, text)
  if ok then return value end
  checks.forward(set.name, ("%s: %s"):format(path, tostring(value):gsub("^[^:]*:%d+: ", "")))
end

--- check(who, given, more) -> the checked options of load_data: data_dir, a folder without a slash at its end, and
--- those declared in the array `more`. Errors: an unknown option.
function M.check(who, given, more)
  local chosen = options.check(who, options.declare { { "data_dir", "string" }, unpack(more or {}) },
    given == nil and {} or given)
  chosen.data_dir = chosen.data_dir and chosen.data_dir:gsub("(.)/+$", "%1")
  return chosen
end

--- part(set, x, y) -> the table that load_data returns for the images x and labels y.
function M.part(set, x, y)
  return { x = x, y = y, x, y, classes = set.classes, class_names = set.class_names, name = set.name }
end

return M
