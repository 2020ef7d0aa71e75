--- Golden files: numbers that a test had when they were known to be right.
local assert_close = require "mgpu.testing.close"
local core = require "mgpu.core"
local options = require "mgpu.options"

local GOLDEN = options.declare {
  { "rtol", "number", min = 0 }, { "atol", "number", min = 0 },
  { "equal_nan", "boolean", default = false },
}

--- golden(path, tensors, {rtol, atol, equal_nan = false}): assert_close with the tensors of a file, which the
--- environment variable MGPU_GOLDEN = write makes.
-- path: a .npz, .safetensors or .h5 file, which stays in the repository of the test. tensors: by name. With
-- MGPU_GOLDEN=write the file is written, or replaced, and nothing is compared: look at what changed before you commit.
-- Errors: the file is missing; names, shapes or numbers differ.
-- Example:
--     local path = os.tmpname() .. ".npz"
--     mgpu.save(path, { y = mgpu.tensor { 1, 2, 3 } })
--     mgpu.testing.golden(path, { y = mgpu.arange(3) + 1 })
--     os.remove(path)
return function(path, tensors, given)
  given = options.check("golden", GOLDEN, given or {})
  local file = require "mgpu.io.tensor_file"
  if type(tensors) ~= "table" or not next(tensors) then
    core.fail("usage", "golden: expected a table of tensors by name, got " .. type(tensors))
  end
  local chosen = os.getenv "MGPU_GOLDEN"
  if chosen == "write" then return file.save(path, tensors) end
  if chosen and chosen ~= "" then
    core.fail("usage", ("MGPU_GOLDEN must be write or empty, got %q"):format(chosen))
  end
  if not core.file_exists(path) then
    core.fail("io", ("golden: there is no %s: run the test once with MGPU_GOLDEN=write"):format(path))
  end
  local ok, message = pcall(assert_close, tensors, (file.load(path)), given)
  if ok then return end
  core.fail("usage", ("golden: %s: %s (if the new numbers are right: MGPU_GOLDEN=write)"):format(path,
    tostring(message):gsub("^.-assert_close: actual%.?", "")))
end
