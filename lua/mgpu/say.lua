--- say(format, ...): prints a sentence through mgpu.output. Control characters that its arguments may have from a file
--- become visible; pictures and progress bars, which need some, go to mgpu.output itself.
local core = require "mgpu.core"

return function(format, ...)
  local text = select("#", ...) > 0 and format:format(...) or format
  require "mgpu".output(core.printable(text))
end
