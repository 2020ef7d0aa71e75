--- What a prompt does with an input, wherever that comes from: runs it, and shows its values or its error.
--
-- The state of a prompt: terminal (with call(fn, ...), see runtime/prompt/prompt.c), session, leaving. Commands get it
-- as their first argument. mgpu.prompt reads the inputs from a terminal, mgpu.attach.job gets them from another
-- process.
local core = require "mgpu.core"
local show_value = require "mgpu.prompt.show_value"

local Evaluator = {}
Evaluator.__index = Evaluator

--- prompt:say(text): prints a line, with its control characters visible.
function Evaluator.say(_, text) -- luacheck: no self
  io.stdout:write(core.printable(text), "\n")
  io.stdout:flush()
end

--- prompt:complain(message): shows an error. Error values that are not strings show as the prompt prints values.
function Evaluator.complain(_, message)
  io.stdout:flush()
  io.stderr:write(core.printable(type(message) == "string" and message or show_value(message)), "\n")
  io.stderr:flush()
end

--- prompt:show(n, ...): prints n values, in one line if all fit in one.
function Evaluator:show(n, ...)
  local texts, lines = {}, false
  for i = 1, n do
    texts[i] = show_value((select(i, ...)), { width = core.columns() })
    lines = lines or texts[i]:find "\n" ~= nil
  end
  self:say(table.concat(texts, lines and "\n" or "\t"))
end

local function pass(...) return ... end

-- Handles what terminal.call returned. RETURNS whether fn ran, and its results.
local function finish(self, ok, ...)
  if ok then return true, ... end
  local message, must_end = ...
  self:complain(message)
  if must_end then self.leaving = true end
  return false
end

--- prompt:call(fn, ...) -> true and fn's results; or false, after its error was shown. Ctrl-C stops fn.
function Evaluator:call(fn, ...) return finish(self, self.terminal.call(fn, ...)) end

--- prompt:run(compiled, text, call = compiled.fn): runs a compiled input and prints its values. `call` stands for the
--- input's function.
function Evaluator:run(compiled, text, call)
  self.session:prepare(compiled, text)
  local function keep(ran, ...)
    if not ran then return end
    local n = select("#", ...)
    self.session:record(compiled, text, n, (...))
    if compiled.is_expression and not compiled.quiet and n > 0 then self:call(self.show, self, n, ...) end
  end
  keep(self:call(call or compiled.fn, pass))
end

--- prompt:answer(text, compiled, message): does what a complete input says: a command such as :time, a question, or
--- Lua, of which input.compile made `compiled`, or the message of an error.
function Evaluator:answer(text, compiled, message)
  if text:find "^%s*[:?]" then
    self:call(require "mgpu.prompt.commands".run, self, text)
  elseif compiled then
    self:run(compiled, text)
  else
    self:complain(message)
  end
end

return Evaluator
