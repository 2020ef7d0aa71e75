--- Spans: what the script is in, for SIGQUIT and for profiles (runtime/core/activity.h).
local core = require "mgpu.core"

local function ended(depth, ok, ...)
  core.span_end(depth)
  if not ok then error((...), 0) end
  return ...
end

--- span(kind, what, number, fn, ...) -> the results of fn(...), which runs in a span of this kind ("script",
--- "callback", "data", "checkpoint") and text; number: of the epoch, the element, ...; nil: it has none. An error ends
--- the span, and is raised as it is.
return function(kind, what, number, fn, ...)
  return ended(core.span(kind, what, number), pcall(fn, ...))
end
