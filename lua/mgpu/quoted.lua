--- quoted(name) -> the name in quotes, on one line, with its control characters visible.
local core = require "mgpu.core"

return function(name) return '"' .. core.printable(name, true):gsub('"', '\\"') .. '"' end
