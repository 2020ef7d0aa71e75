--- The prompt's commands: `:time expr` and the like, `?name`, `??name`.
--
-- commands.run(prompt, text) does what a line that begins with `:` or `?` says; commands.names are the commands.
local core = require "mgpu.core"
local input = require "mgpu.prompt.input"

local M = {}

local HELP = [[
Type Lua. Expressions print their values, a ; at the end suppresses this; unfinished input continues on the next line.
`mgpu` and `L` = mgpu.layers are predefined. `_` is the last value: the next one replaces it, `_ = nil` frees it.
`local` outside of a block keeps its name for the session; files that you run do not see it.

  ?name          documentation: ?L.Dense  ?model.fit  ?softmax      ??name   its source
  :time EXPR     run it, compute the tensors it gives, and show how long this took
  :mem           memory of the devices and of Lua
  :devices       the devices
  :who           your variables
  :load FILE     run a file
  :save FILE     write the inputs that ran without an error as a script; :save! replaces a file
  :help          this text
  :quit          leave, as Ctrl-D does

Tab completes names, methods, options in { }, modules after require, and files in quotes.
Ctrl-C discards the line, or stops the computation with an error; Ctrl-Z suspends.
Init files: MGPULUA_INIT and ~/.config/mgpulua/init.lua. MGPU_TRACE=full shows all of a traceback.
MGPU_LINE_EDITOR=readline, libedit or none chooses the line editor.]]

local commands = {}

function commands.help(prompt)
  prompt:say(HELP)
  if not prompt.terminal.interactive then return end
  prompt:say(("Lines are edited with %s; the history is %s."):format(prompt.terminal.editor or "nothing",
    prompt.history.path or "not kept"))
end

function commands.quit(prompt) prompt.leaving = true end

local function seconds_text(seconds)
  if seconds < 1e-3 then return ("%.1f us"):format(seconds * 1e6) end
  if seconds < 1 then return ("%.2f ms"):format(seconds * 1e3) end
  return ("%.3f s"):format(seconds)
end

-- Calls fn and computes the tensors among its results. RETURNS the seconds and the results.
local function timed(fn, pass)
  local start = core.clock()
  local function finish(...)
    for i = 1, select("#", ...) do
      if core.is_tensor((select(i, ...))) then core.eval((select(i, ...))) end
    end
    return core.clock() - start, ...
  end
  return finish(fn(pass))
end

function commands.time(prompt, rest)
  if rest == "" then return prompt:complain ":time needs an expression, as in :time x:matmul(y)" end
  local compiled, message = input.compile(rest, prompt.session)
  if not compiled then return prompt:complain(message) end
  local fn, seconds = compiled.fn, nil
  prompt:run(compiled, rest, function(pass)
    local function keep(took, ...)
      seconds = took
      return ...
    end
    return keep(timed(fn, pass))
  end)
  if seconds then prompt:say(seconds_text(seconds)) end
end

local function bytes_text(bytes)
  if bytes >= 2 ^ 30 then return ("%.2f GiB"):format(bytes / 2 ^ 30) end
  if bytes >= 2 ^ 20 then return ("%.1f MiB"):format(bytes / 2 ^ 20) end
  return ("%.0f KiB"):format(bytes / 2 ^ 10)
end

-- The resident memory of the process and its peak, where /proc tells.
local function resident()
  local file = io.open "/proc/self/status"
  local text = file and file:read "*a" or ""
  if file then file:close() end
  local now, peak = text:match "VmRSS:%s*(%d+)", text:match "VmHWM:%s*(%d+)"
  return now and now * 1024, peak and peak * 1024
end

function commands.mem(prompt)
  for _, name in ipairs(core.devices()) do
    local memory = core.memory(name)
    local limit = memory.limit and memory.limit > 0 and memory.limit < 2 ^ 60 and ", limit " .. bytes_text(memory.limit)
    prompt:say(("%-8s tensors %s, peak %s%s"):format(name, bytes_text(memory.used), bytes_text(memory.peak),
      limit or ""))
  end
  prompt:say(("%-8s %s in %d tensors alive"):format("library", bytes_text(core.memory().bytes), core.live_tensors()))
  prompt:say(("%-8s %s"):format("Lua", bytes_text(collectgarbage "count" * 1024)))
  local now, peak = resident()
  if now then prompt:say(("%-8s %s, peak %s"):format("process", bytes_text(now), bytes_text(peak))) end
end

function commands.devices(prompt)
  require "mgpu.program".list_devices(function(line) prompt:say(line) end)
end

-- A line about a value; a tensor is not computed for it.
local function described(value)
  if core.is_tensor(value) or core.is_variable(value) then return require "mgpu.prompt.docs".headline(value) end
  local text = require "mgpu.prompt.show_value"(value, { width = math.huge }):gsub("\n.*", " ...")
  if type(value) == "string" then text = ("%q"):format(text) end
  return #text > 60 and text:sub(1, 57) .. "..." or text
end

function commands.who(prompt)
  local session, list = prompt.session, {}
  for name in pairs(session.declared) do list[#list + 1] = name end
  for name in pairs(_G) do
    if type(name) == "string" and not session.before[name] and not session.declared[name] and name ~= "_" then
      list[#list + 1] = name
    end
  end
  table.sort(list)
  for _, name in ipairs(list) do
    local is_local = session.declared[name]
    local value = rawget(is_local and session.locals or _G, name)
    prompt:say(("%-16s %s%s"):format(name, is_local and "local " or "", described(value)))
  end
  if #list == 0 then prompt:say "no variables yet" end
end

-- The path that a command's argument names.
local function path_of(rest)
  local path = rest:match '^"(.*)"$' or rest:match "^'(.*)'$" or rest
  local home = os.getenv "HOME"
  return home and path:gsub("^~/", function() return home .. "/" end) or path
end

function commands.load(prompt, rest)
  if rest == "" then return prompt:complain ":load needs the name of a file" end
  local fn, message = loadfile(path_of(rest), "t")
  if not fn then return prompt:complain(message) end
  prompt:call(fn)
end

function commands.save(prompt, rest, is_forced)
  if rest == "" then return prompt:complain ":save needs the name of a file" end
  local path = path_of(rest)
  if not is_forced and core.file_exists(path) then
    return prompt:complain(("%s is there already; :save! %s replaces it"):format(path, rest))
  end
  local ok, message = pcall(core.write_file, path, prompt.session:script())
  if not ok then return prompt:complain(message) end
  prompt:say(("%d inputs written to %s"):format(#prompt.session.inputs, path))
end

M.names = {}
for name in pairs(commands) do M.names[#M.names + 1] = name end
table.sort(M.names)

local function ask(prompt, text, answer)
  if text == "" then return commands.help(prompt) end
  local docs = require "mgpu.prompt.docs"
  local found = docs.find(prompt, text)
  if found then prompt:say(docs[answer](prompt, found)) end
end

--- run(prompt, text): see the top.
function M.run(prompt, text)
  local marks, rest = text:match "^%s*(%?+)%s*(.-)%s*$"
  if marks then return ask(prompt, rest, marks == "?" and "explain" or "source") end
  local name, force
  name, force, rest = text:match "^%s*:([%w_]*)(!?)%s*(.-)%s*$"
  if not commands[name] or (force ~= "" and name ~= "save") then
    return prompt:complain(("there is no command :%s%s%s; :help lists them"):format(name, force,
      core.did_you_mean(name, M.names)))
  end
  commands[name](prompt, rest, force ~= "")
end

return M
