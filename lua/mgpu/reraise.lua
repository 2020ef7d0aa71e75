--- reraise(where, problem): raises again what pcall has returned, with "where: " before the message. A lack of memory,
--- Ctrl-C and errors that are no text pass unchanged.
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"

return function(where, problem)
  local code = core.error_code()
  if type(problem) ~= "string" or code == "oom" or code == "interrupted" then error(problem, 0) end
  core.fail(code or "usage", ("%s: %s"):format(where, error_line(problem)))
end
