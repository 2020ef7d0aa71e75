--- The line of the user's call that core.fail puts in front of a message: errors that are raised again lose it first,
--- since they get it anew.
local core = require "mgpu.core"

--- error_line(message) -> the message without the line.
return function(message)
  local _, line = pcall(core.fail, "usage", "")
  return message:sub(1, #line) == line and message:sub(#line + 1) or message
end
