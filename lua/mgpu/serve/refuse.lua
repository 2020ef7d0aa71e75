--- Errors that are answers: a table {status =, message =}.
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"

local M = {}

-- What became of the caller's data is their mistake, all else is ours.
local STATUSES = { usage = 400, data = 400, nonfinite = 400, unsupported = 400, oom = 503 }

--- refuse(status, message, ...): raises.
function M.refuse(status, message, ...) error({ status = status, message = message:format(...) }, 0) end

--- answer_of(problem) -> the status and message for what pcall has caught, with its code as the third result.
function M.answer_of(problem)
  if type(problem) == "table" then return problem.status, problem.message end
  local code = core.error_code()
  return STATUSES[code] or 500, error_line(tostring(problem)), code
end

return M
