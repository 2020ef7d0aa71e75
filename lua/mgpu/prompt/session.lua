--- What a session of the prompt remembers: the inputs that ran, the locals of the outermost level, and `_`.
--
-- A local of the outermost level lives as long as the session. It is kept in an environment that chunks get once there
-- is a local: there it hides the global of its name, as a local does, and code from files does not see it. `_` is the
-- last value that an input had; the next value replaces it, so at most one value is kept alive. `_ = nil` frees it.
local input = require "mgpu.prompt.input"
local lexer = require "mgpu.prompt.lexer"

local Session = {}
Session.__index = Session

--- Session.new() -> an empty session.
-- inputs: array of {text, values} of those that ran without an error. before: the names of the globals at the start.
function Session.new()
  local self = setmetatable({ inputs = {}, texts = {}, locals = {}, declared = {}, count = 0, before = {} }, Session)
  local declared = self.declared
  self.environment = setmetatable(self.locals, {
    __index = function(_, name)
      if declared[name] then return nil end
      return _G[name]
    end,
    __newindex = function(locals, name, value)
      if declared[name] then rawset(locals, name, value) else _G[name] = value end
    end,
  })
  for name in pairs(_G) do self.before[name] = true end
  return self
end

--- session:chunk_name() -> the name of the next input, which messages show: "stdin[3]".
function Session:chunk_name() return ("=stdin[%d]"):format(self.count + 1) end

-- Makes the name a local. Its first value is the global's, so that `local x = x` copies the global.
local function declare(self, name)
  if self.declared[name] then return end
  self.declared[name] = true
  rawset(self.locals, name, rawget(_G, name))
end

--- session:prepare(input, text): counts the compiled input and gives it the session's locals.
function Session:prepare(compiled, text)
  self.texts[self:chunk_name()] = text
  self.count = self.count + 1
  for _, name in ipairs(compiled.names) do declare(self, name) end
  if next(self.declared) then setfenv(compiled.fn, self.environment) end
end

--- session:record(compiled, text, n, value): the input ran and had n values, the first of them `value`.
function Session:record(compiled, text, n, value)
  self.inputs[#self.inputs + 1] = { text = text, is_expression = compiled.is_expression, quiet = compiled.quiet,
    values = n }
  if n > 0 and value ~= nil then rawset(_G, "_", value) end
end

-- Whether the text uses the name `_` as a variable.
local function uses_last(text)
  for _, token in ipairs(lexer.tokens(text)) do
    if token.kind == "name" and token.text == "_" then return true end
  end
end

-- Whether an input after the i-th uses the value that it left in `_`.
local function is_used_later(inputs, i)
  for k = i + 1, #inputs do
    if uses_last(inputs[k].text) then return true end
    if inputs[k].is_expression then return false end
  end
  return false
end

-- Whether the expression is a call, and so a statement as well.
local function is_statement(text) return load(text) ~= nil end

-- The i-th input as it stands in a script: an expression prints its value there as it did at the prompt.
local function as_statement(inputs, i)
  local entry = inputs[i]
  if not entry.is_expression then return entry.text end
  local expression = input.expression_of(entry.text)
  if is_used_later(inputs, i) then
    return "_ = " .. expression .. (entry.quiet and "" or "\nprint(_)")
  end
  if is_statement(expression) then
    return entry.values == 0 and expression or entry.quiet and expression or "print(" .. expression .. ")"
  end
  return entry.quiet and "local _ = " .. expression or "print(" .. expression .. ")"
end

--- session:script() -> the inputs that ran as a Lua script.
function Session:script()
  local lines = { 'local mgpu = require "mgpu"', "local L = mgpu.layers", "" }
  for i in ipairs(self.inputs) do lines[#lines + 1] = as_statement(self.inputs, i) end
  return table.concat(lines, "\n") .. "\n"
end

--- session:text_of(source) -> the text of the input whose functions have this source (debug.getinfo), or nil.
function Session:text_of(source) return self.texts[source] end

return Session
