--- The prompt: reads inputs, runs them, and prints their values.
--
-- require "mgpu.prompt" RETURNS run(terminal, init). `terminal` is what runtime/prompt/prompt.c offers. An input is a
-- piece of Lua (input.lua), a command such as :time (commands.lua), or a question: ?name, ??name (docs.lua).
-- evaluator.lua runs it. What the user's code raises is shown and forgotten.
local core = require "mgpu.core"
local Evaluator = require "mgpu.prompt.evaluator"
local history = require "mgpu.prompt.history"
local input = require "mgpu.prompt.input"
local Session = require "mgpu.prompt.session"

local PROMPT, CONTINUED = "> ", ">> "

-- The prompt's state; commands get it as their first argument.
local Prompt = setmetatable({}, { __index = Evaluator })
Prompt.__index = Prompt

-- The input that begins with this line: the commands and questions are one line. RETURNS its text and what
-- input.compile made of it, or nil if Ctrl-C discarded it.
local function read_rest(self, line)
  local text = line
  if text:find "^%s*[:?]" then return text end
  while true do
    local compiled, message, incomplete = input.compile(text, self.session)
    if not incomplete then return text, compiled, message end
    self.pending = text .. "\n"
    local more, why = self.terminal.read(CONTINUED)
    self.pending = nil
    if why == "interrupted" then return nil end
    if not more then return text, nil, message end -- the end of input: it stays incomplete
    text = text .. "\n" .. more
  end
end

--- prompt:step() -> false at the end of input. Reads one input and does what it says.
function Prompt:step()
  local line, why = self.terminal.read(PROMPT)
  if not line then return why == "interrupted" end
  if not line:find "%S" then return true end
  local text, compiled, message = read_rest(self, line)
  if not text then return true end
  self.history:add(text)
  self:answer(text, compiled, message)
  return true
end

-- Puts `mgpu` and `L` where the user has no globals of these names.
local function add_globals(self)
  local ok, mgpu = pcall(require, "mgpu")
  if not ok then return self:complain(mgpu) end
  if rawget(_G, "mgpu") == nil then rawset(_G, "mgpu", mgpu) end
  if rawget(_G, "L") == nil then rawset(_G, "L", mgpu.layers) end
end

--- run(terminal, init): the prompt, until the user leaves it. init: run the user's init files first.
return function(terminal, init)
  local self = setmetatable({ terminal = terminal, leaving = false }, Prompt)
  add_globals(self)
  self.session = Session.new()
  self.history = history.open(terminal)
  terminal.complete = function(line, cursor) return require "mgpu.prompt.complete".line(self, line, cursor) end
  local shown = terminal.interactive and core.columns() -- standard output is a terminal, too
  local wanted = os.getenv "MGPU_LINE_EDITOR"
  if terminal.interactive and wanted and wanted ~= "" and wanted ~= "none" and not terminal.editor then
    self:complain(("MGPU_LINE_EDITOR=%s: there is no such line editor here: readline, libedit or none"):format(wanted))
  end
  if shown then self:say "Expressions print themselves; Tab completes; ?name explains; :help" end
  if init then require "mgpu.prompt.init_files".run(self) end
  while not self.leaving and self:step() do end
  self.history:close()
  if shown and terminal.editor ~= "readline" then self:say "" end -- readline has done so
end
