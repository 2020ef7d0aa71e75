-- Each file call of saving a checkpoint fails, once or for ever. The checkpoint before stays whole, and the message is
-- that of the failed call.
local core = require "mgpu.core"
local ffi = require "ffi"

ffi.cdef [[
  void mg_io_fail_after(int64_t, int);
  void mg_io_fail_from(int64_t, int);
  bool mg_io_fail_stop(void);
]]

local SHORT = -1 -- MG_IO_SHORT (core/io.h)
local ERRORS = { 5, 28, 4, SHORT } -- EIO, ENOSPC, EINTR
local STATE, NOTES = function(n) return { x = core.tensor { n } } end, { fit = "{}" }

-- One save with a fault at its n-th file call. RETURNS whether the fault came, and a problem or nil.
local function save_with_fault(writer, folder, fail, n, code)
  local before = core.checkpoint_list(folder)[1]
  fail(n, code)
  writer:start(STATE(n), NOTES)
  local outcome = writer:wait()
  local came = ffi.C.mg_io_fail_stop()
  for _, number in ipairs(core.checkpoint_list(folder)) do
    local ok, message = pcall(core.checkpoint_verify, folder, number)
    if not ok then return came, message end
  end
  if not pcall(core.checkpoint_verify, folder, before) then return came, "the checkpoint before is gone" end
  if outcome.message and not outcome.message:find "cannot" then return came, outcome.message end
  if code == SHORT and outcome.message then return came, "a short write is an error" end
  return came
end

return {
  what = "failing file calls of a checkpoint: the one before lost, or no clear message",
  count = 100,
  few = 8,
  run = function(n, folder)
    local failed, note, tried = 0, "", 0
    for _, code in ipairs(ERRORS) do
      for _, fail in ipairs { ffi.C.mg_io_fail_after, ffi.C.mg_io_fail_from } do
        for call = 1, n do
          local writer = core.checkpoint_writer(folder .. "/run", 2)
          writer:start(STATE(0), NOTES)
          writer:wait()
          local came, problem = save_with_fault(writer, folder .. "/run", fail, call, code)
          writer:close()
          tried = tried + 1
          if problem then failed, note = failed + 1, ("call %d, error %d: %s"):format(call, code, problem) end
          if not came then break end
        end
      end
    end
    return failed, note, tried
  end,
}
