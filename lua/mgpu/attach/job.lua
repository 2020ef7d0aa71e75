--- The job's side of an attached prompt: runs inputs that come from another process, between two steps.
--
-- runtime/program/attach/visit.c calls these functions, takes what is printed, and puts back the random numbers and
-- hooks of the script. Each connection has a session of its own (prompt/session.lua), in which `job` is the table of
-- view.lua; the globals are the script's.
local core = require "mgpu.core"
local Evaluator = require "mgpu.prompt.evaluator"
local input = require "mgpu.prompt.input"
local Session = require "mgpu.prompt.session"
local shared = require "mgpu.attach.shared"
local view = require "mgpu.attach.view"

local M = {}

local registry = debug.getregistry()
local stdout, stderr = registry["mgpu.attach.stdout"], registry["mgpu.attach.stderr"]

-- ---- prompts --------------------------------------------------------------------------------------

-- Lua's own globals, which are not the user's variables.
local OWN = { "_G", "_VERSION", "arg", "assert", "bit", "collectgarbage", "coroutine", "debug", "dofile", "error",
  "gcinfo", "getfenv", "getmetatable", "io", "ipairs", "jit", "load", "loadfile", "loadstring", "math", "module",
  "newproxy", "next", "os", "package", "pairs", "pcall", "print", "rawequal", "rawget", "rawlen", "rawset", "require",
  "select", "setfenv", "setmetatable", "string", "table", "tonumber", "tostring", "type", "unpack", "xpcall" }

-- A session that sets no global of the script: `_`, `job`, and what the prompt predefines, are its locals.
local function new_session()
  local session, mgpu = Session.new(), package.loaded["mgpu"]
  session.before = {}
  for _, name in ipairs(OWN) do session.before[name] = true end
  local function predefine(name, value)
    session.declared[name] = true
    rawset(session.locals, name, value)
  end
  predefine("_", nil)
  predefine("job", view.job)
  if mgpu and rawget(_G, "mgpu") == nil then predefine("mgpu", mgpu) end
  if mgpu and rawget(_G, "L") == nil then predefine("L", mgpu.layers) end
  function session:record(_, text, n, value)
    self.inputs[#self.inputs + 1] = { text = text, values = n }
    if n > 0 and value ~= nil then rawset(self.locals, "_", value) end
  end
  return session
end

local Attached = setmetatable({}, { __index = Evaluator })
Attached.__index = Attached

-- The script may have replaced io.stdout.
function Attached.say(_, text) -- luacheck: no self
  stdout:write(core.printable(text), "\n")
  stdout:flush()
end

function Attached:complain(message)
  self.failed = true
  stderr:write(core.printable(type(message) == "string" and message or require "mgpu.prompt.show_value"(message)), "\n")
  stderr:flush()
end

local prompts = {} -- by the number of the connection

local terminal = { call = registry["mgpu.attach.call"], list = function() end }

local function prompt_of(id)
  prompts[id] = prompts[id] or setmetatable({ terminal = terminal, session = new_session(), leaving = false }, Attached)
  return prompts[id]
end

-- ---- running --------------------------------------------------------------------------------------

-- Runs a whole script: its values are not printed, and its locals are its own.
local function run_script(prompt, text)
  local fn, message = load(text, "=(attached)", "t")
  if not fn then return prompt:complain(message) end
  prompt:call(setfenv(fn, prompt.session.environment))
end

local function run_input(prompt, text)
  local compiled, message
  if not text:find "^%s*[:?]" then compiled, message = input.compile(text, prompt.session) end
  prompt:answer(text, compiled, message)
end

-- Calls fn; meanwhile io.write and mgpu.output print to whoever has attached.
local function with_output(fn)
  local mgpu, default = package.loaded["mgpu"], io.output()
  local output = mgpu and rawget(mgpu, "output")
  io.output(stdout)
  if mgpu then
    rawset(mgpu, "output", function(text)
      stdout:write(text)
      stdout:flush()
    end)
  end
  local ok, message = pcall(fn)
  if mgpu then rawset(mgpu, "output", output) end
  io.output(default)
  if not ok then error(message, 0) end
end

--- run(id, place, columns, is_script, text) -> whether it ran without an error.
-- ARGS id: of the connection; place: where the job is (view.lua), or nil; columns: of the other's terminal, or nil.
function M.run(id, place, _, is_script, text)
  local prompt, fit = prompt_of(id), view.fit_of(place)
  prompt.failed = false
  view.enter(place)
  local settle = shared.guard(fit)
  if fit then fit.history:note_attached(fit.epoch, fit.step, text) end
  local ok, message = pcall(with_output, function() (is_script and run_script or run_input)(prompt, text) end)
  local undone = settle()
  view.leave()
  if not ok then error(message, 0) end
  if undone then prompt:complain(undone) end
  return not prompt.failed
end

--- complete(id, place, columns, cursor, text) -> true, and what Tab inserts and lists, with a zero byte between them.
-- text: the input so far; the cursor is in its last line.
function M.complete(id, place, _, cursor, text)
  local prompt = prompt_of(id)
  local before, line = text:match "^(.*\n)([^\n]*)$"
  prompt.pending, line = before, line or text
  view.enter(place)
  cursor = math.max(cursor - #(before or ""), 0)
  local ok, insert, listing = pcall(require "mgpu.prompt.complete".line, prompt, line, cursor)
  view.leave()
  prompt.pending = nil
  return ok, ok and (insert or "") .. "\0" .. (listing or "") or nil
end

--- forget(id): the connection has ended.
function M.forget(id) prompts[id] = nil end

return M
