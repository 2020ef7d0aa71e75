--- The paths that a source of files is given: one, or a list of them, and patterns such as "train-*.tfrecord".
local core = require "mgpu.core"

-- Whether it is a path: text without zero bytes.
local function is_path(value) return type(value) == "string" and value ~= "" and not value:find "%z" end

-- Adds the files that a pattern (* ? [a-z]) matches, in the order of their bytes. If a file has exactly this name, it
-- is taken as a path.
local function add(who, list, path)
  if not path:find "[*?%[]" or core.file_exists(path) then
    list[#list + 1] = path
    return
  end
  local found = core.glob(path)
  if #found == 0 then core.fail("io", ("%s: no file matches %s"):format(who, path)) end
  for _, file in ipairs(found) do list[#list + 1] = file end
end

--- paths(who, given) -> a new list of paths, patterns replaced by the files that match. Errors, which begin with `who`:
--- an empty list, an entry that is not a path, a pattern that matches no file.
return function(who, given)
  local list, fault = type(given) == "table" and given or { given }, nil
  if getmetatable(list) then list = {} else fault = core.array_fault(list) end
  for i, path in ipairs(list) do
    if not is_path(path) then
      fault = ("%s is %s, not a path"):format(list == given and ("path %d"):format(i) or "the first argument",
        type(path) == "string" and ("%q"):format(path) or "a " .. type(path))
      break
    end
  end
  if fault or #list == 0 then
    core.fail("usage", ("%s: %s"):format(who, fault or "a path, or a list of paths, is needed"))
  end
  local all = {}
  for _, path in ipairs(list) do add(who, all, path) end
  return all
end
