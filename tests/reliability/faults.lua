-- Every file call of saving and loading fails in each way, once and for ever. A save leaves the old file or, if only
-- syncing the folder failed, the new one; a load gives all or an error; errors name the file or its folder;
-- nothing else is left.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L = mgpu.layers
local WAYS = { "EIO", "ENOSPC", "EINTR", "short" }

local function network(number)
  local model = mgpu.Sequential { name = "net", L.Input { 4 }, L.Dense { 3, name = "a" } }
  model:set_weights { mgpu.ones { 4, 3 } * number, mgpu.ones { 3 } * number }
  return model
end

-- The number that fills the weights of a file, which must be the same in all.
local function number_in(path)
  local tensors = core.store_load(path)
  local low, high = tensors["a/kernel"]:min():item(), tensors["a/bias"]:max():item()
  return low == high and low
end

-- {what, function(path) that saves 2 over 1 or loads, whether it saves}
local function operations(folder)
  local one, two, target = network(1), network(2), network(5)
  local idx, zip = folder .. "/t.idx", folder .. "/t.zip"
  check.write(idx, "\0\0\8\1\0\0\0\3abc")
  core.zip_write(zip, { { name = "a", bytes = ("text"):rep(1000), deflate = true } })
  return {
    { "m.safetensors", function(path) two:save(path) end, one.save },
    { "w.safetensors", function(path) two:save_weights(path) end, one.save_weights },
    { "w.npz", function(path) two:save_weights(path) end, one.save_weights },
    { "load.safetensors", function(path) mgpu.load_model(path) end, one.save, loads = true },
    { "weights.safetensors", function(path) target:load_weights(path) end, one.save_weights, loads = true },
    { "weights.npz", function(path) target:load_weights(path) end, one.save_weights, loads = true },
    { "t.idx", function(path) core.idx_load(path) end, function() end, loads = true },
    { "t.zip", function(path) core.zip_read(path):read "a" end, function() end, loads = true },
  }, one
end

-- Whether an operation that ended so has kept its promises; the second value says what is wrong.
local function is_right(op, path, ok, message, always, way)
  if not ok and not message:find(path:match "^(.*)/", 1, true) then return false, "no path in: " .. message end
  if not ok and core.error_code() ~= "io" then return false, core.error_code() .. ": " .. message end
  if not ok and (way == "short" or way == "EINTR" and not always) then return false, "not repeated: " .. message end
  if op.loads then return true end
  local expected = (ok or message:find "is written") and 2 or 1
  local found = number_in(path)
  return found == expected, ("the file has %s, expected %d"):format(tostring(found), expected)
end

-- Runs an operation with each of its file calls failing in turn. RETURNS how many were tried, how many promises were
-- broken, and the last of them.
local function fail_each_call(op, one, path, way, always)
  local tried, failed, note = 0, 0, ""
  repeat
    if not op.loads then op[3](one, path) end
    core.file_fault { at = tried + 1, error = way, always = always }
    local ok, message = pcall(op[2], path)
    local hit = core.file_fault()
    local right, why = is_right(op, path, ok, message, always, way)
    if hit then tried = tried + 1 end
    if not right then
      failed = failed + 1
      note = ("%s, %s at call %d%s: %s"):format(op[1], way, tried, always and " and later" or "", why)
    end
  until not hit
  return tried, failed, note
end

return {
  what = "file calls that fail once or for ever: promises broken",
  run = function(_, folder)
    local tried, failed, note = 0, 0, ""
    os.execute(("mkdir '%s/files'"):format(folder))
    local list, one = operations(folder .. "/files")
    local function files() return (check.run(("ls -A '%s/files'"):format(folder))) end
    for _, op in ipairs(list) do
      local path = folder .. "/files/" .. op[1]
      op[3](one, path)
      local before = files()
      for _, way in ipairs(WAYS) do
        for _, always in ipairs { false, true } do
          local more, broken, why = fail_each_call(op, one, path, way, always)
          tried, failed = tried + more, failed + broken
          if broken > 0 then note = why end
        end
      end
      if files() ~= before then failed, note = failed + 1, op[1] .. ": another file is left" end
    end
    return failed, note, tried
  end,
}
