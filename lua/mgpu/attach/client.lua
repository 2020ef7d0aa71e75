--- mgpulua --attach: a prompt whose inputs run in another process.
--
-- require "mgpu.attach.client" RETURNS run(terminal, given). Lines are edited here, and it is decided here whether an
-- input is complete; then the job runs it between two of its steps, and what it prints comes back. given: job (the
-- process, a text, or nil), chunks (of -e), script (its path), arguments (how many follow it).
local core = require "mgpu.core"
local history = require "mgpu.prompt.history"
local input = require "mgpu.prompt.input"
local jobs = require "mgpu.attach.jobs"
local link = require "mgpu.attach.link"

local PATIENCE = 1 -- seconds until it is said what the job is in
local AGAIN = 60 -- and once more after so many
local TAB_WITHIN = 1 -- seconds that Tab waits for the job
local FINE, FAILED = 0, 1 -- results, as in runtime/program/attach/record.h

local HELP = [[
Type Lua: the job runs it between two of its steps, and goes on. Its globals are the script's; `local` outside of a
block keeps its name for this session. `job` is the training that is under way:

  job.model  job.optimizer  job.history  job.logs
  job.epoch  job.epochs  job.step  job.steps  job.state
  job.learning_rate = 1e-4     from the next step on
  job.stop()                   ends fit after this epoch
  job.checkpoint "folder"      saves a checkpoint; a model if the path ends in .safetensors, .keras ...
  job.add_callback(cb)         one more callback for the rest of the fit

  :where         what each thread of the job is in
  :status        epoch, step and loss
  :pause         the job stands still between two steps, as long as this prompt is there
  :continue      it goes on
  :detach        leave, as Ctrl-D does; the job goes on
  ?name  :time EXPR  :mem  :devices  :who  :load FILE     as at the prompt, in the job

Ctrl-C gives up the command that waits or runs, not the job.]]

local function complain(text)
  io.stdout:flush()
  io.stderr:write(core.printable(text), "\n")
  io.stderr:flush()
end

local function say(text)
  io.stdout:write(core.printable(text), "\n")
  io.stdout:flush()
end

-- ---- finding the job ------------------------------------------------------------------------------

-- The one job of this user, or an error that lists them.
local function only_job()
  local list = jobs.list()
  if #list == 1 then return list[1].pid end
  if #list == 0 then error("--attach: there are no jobs of yours; --ps lists them", 0) end
  error(("--attach: there are %d jobs: give the PID of one of them\n%s"):format(#list,
    table.concat(jobs.table_of(list), "\n")), 0)
end

local function fail_missing(pid)
  local is_there, user = link.owner(pid)
  if not is_there then error(("--attach %d: there is no such process; --ps lists your jobs"):format(pid), 0) end
  if user then error(("--attach %d: it belongs to another user, %s"):format(pid, user), 0) end
  error(("--attach %d: it does not listen: it is no job of this version of mgpulua, or was started with MGPU_ATTACH=0"
    ):format(pid), 0)
end

local function connect(pid)
  local why
  for _, folder in ipairs(link.folders(pid)) do
    local connection, reason = link.connect(("%s/%d.sock"):format(folder, pid))
    if connection then return connection end
    if reason ~= "missing" and reason ~= "refused" then why = reason end
  end
  if why == "busy" then error(("--attach %d: too many wait for it already"):format(pid), 0) end
  local _, other = link.owner(pid)
  if why and not other then error(("--attach %d: %s"):format(pid, why), 0) end
  fail_missing(pid)
end

local function process_of(text)
  if text == nil then return only_job() end
  local pid = text:find "^%d+$" and tonumber(text) or 0
  if pid < 1 or pid >= 2 ^ 31 then error(("--attach %s: give the PID of a job; --ps lists them"):format(text), 0) end
  return pid
end

-- ---- talking to it --------------------------------------------------------------------------------

local Client = {}
Client.__index = Client

-- Why nothing comes any more, as an error.
local function fail_lost(self, why, version)
  if why == "version" then
    error(("--attach %d: it runs another version of mgpulua (version %d of the protocol)"):format(self.pid, version), 0)
  elseif why == "damaged" then
    error(("--attach %d: it sends what is no answer"):format(self.pid), 0)
  elseif not self.greeted then
    error(("--attach %d: it has closed the connection: it has ended, or has too many"):format(self.pid), 0)
  end
  error(("the job %d has ended"):format(self.pid), 0)
end

-- The next record within so many seconds; nil: there was none. Output is printed.
local function receive(self, seconds)
  local kind, body, version = self.connection:receive(seconds)
  if kind == "hello" then
    self.greeted = true
  elseif kind == "output" then
    io.stdout:write(body)
    io.stdout:flush()
  elseif kind == "errors" then
    io.stderr:write(body)
  elseif not kind and body ~= "time" then
    fail_lost(self, body, version)
  end
  return kind, body
end

local function send(self, kind, body)
  if not self.connection:send(kind, body) then fail_lost(self, "closed") end
end

-- Asks what the job is in, and prints it when it comes.
local function tell_where(self)
  if not self.greeted then
    complain(("the job %d does not answer yet: it is stopped, or has not begun to compute"):format(self.pid))
    return
  end
  send(self, "where")
  self.wanted = "the job is in"
end

-- Waits until the command is done. RETURNS its result and text.
local function wait_for_done(self, is_quiet)
  local began, patience = core.clock(), PATIENCE
  while true do
    local kind, body = receive(self, math.max(began + patience - core.clock(), 0))
    if kind == "done" then return body:byte(1), body:sub(2) end
    if kind == "told" and self.wanted then
      complain(("%s\n  %s\nit will answer between two steps; Ctrl-C gives up"):format(self.wanted,
        (body:gsub("\n$", ""):gsub("\n", "\n  "))))
      self.wanted = nil
    end
    if not kind then
      if not is_quiet then tell_where(self) end
      patience = patience + AGAIN
    end
  end
end

-- RETURNS what fn returns, and raises what it raises; after Ctrl-C, what `interrupted` returns.
local function until_interrupted(self, fn, interrupted)
  local function finish(ok, ...)
    if ok then return ... end
    if core.error_code() == "interrupted" and not self.stopping then return interrupted() end
    error((tostring((...)):gsub("\nstack traceback:.*", "")), 0)
  end
  return finish(self.terminal.call(fn))
end

-- Sends a command and waits for it. Ctrl-C gives it up. RETURNS its result and text.
local function ask(self, kind, body)
  self.wanted = nil
  return until_interrupted(self, function()
    send(self, kind, body)
    return wait_for_done(self)
  end, function()
    send(self, "cancel")
    complain "given up"
    self.stopping = true -- at the next Ctrl-C the client ends
    local result, text = until_interrupted(self, function() return wait_for_done(self, true) end)
    self.stopping = false
    return result, text
  end)
end

local function number16(n) return string.char(n % 256, math.floor(n / 256) % 256) end

local function run(self, text, is_script)
  local columns = math.min(link.columns(), 65535)
  return (ask(self, "run", string.char(is_script and 1 or 0) .. number16(columns) .. text)) == FINE
end

-- Sends a question that the job answers at any time. RETURNS the text.
local function question(self, kind)
  self.wanted = nil
  return until_interrupted(self, function()
    send(self, kind)
    while true do
      local got, body = receive(self, PATIENCE)
      if got == "told" then return body end
      if not got and not self.greeted then
        tell_where(self)
        receive(self, math.huge)
      end
    end
  end, function() return nil end)
end

-- ---- the prompt -----------------------------------------------------------------------------------

local commands = {}

function commands.where(self)
  local text = question(self, "where")
  if text then say((text:gsub("\n$", ""))) end
end

function commands.status(self)
  local text = question(self, "state")
  if not text then return end
  local fields = jobs.fields(text)
  say(table.concat(jobs.table_of { fields }, "\n"))
  if fields.doing ~= "" then say("  " .. fields.doing) end
end

commands.ps = commands.status

local function simple(kind)
  return function(self)
    local result, text = ask(self, kind)
    if result == FAILED then return complain(text) end
    if text and text ~= "" then say(text) end
  end
end

commands.pause, commands["continue"] = simple "pause", simple "continue"

function commands.help() say(HELP) end

function commands.detach(self) self.leaving = true end

commands.quit = commands.detach

-- An input that is complete, or nil after Ctrl-C. The session is the job's: here only names of chunks matter.
local function read_input(self, line)
  local text = line
  while not text:find "^%s*[:?]" do
    local _, _, incomplete = input.compile(text, self)
    if not incomplete then break end
    self.pending = text .. "\n"
    local more, why = self.terminal.read ">> "
    self.pending = nil
    if why == "interrupted" then return nil end
    if not more then break end
    text = text .. "\n" .. more
  end
  return text
end

function Client.chunk_name() return "=stdin" end

-- What Tab inserts and lists: of commands of this side at once, else the job says.
local function complete(self, line, cursor)
  local started = line:sub(1, cursor):match "^%s*:([%w_]*)$"
  if started and not self.pending then
    local list = require "mgpu.prompt.listing".new(started)
    for name in pairs(commands) do list:add(name) end
    for _, name in ipairs(require "mgpu.prompt.commands".names) do
      if not commands[name] then list:add(name) end
    end
    return list:result(core.columns() or 80, line:sub(cursor + 1))
  end
  if not line:sub(1, cursor):find "%S" and not self.pending then return "  ", nil end
  local text, at = (self.pending or "") .. line, #(self.pending or "") + cursor
  if #text > 32000 then return nil end
  send(self, "complete", "\0" .. number16(math.min(link.columns(), 65535)) .. number16(at % 65536)
    .. number16(math.floor(at / 65536)) .. text)
  local deadline, cancelled = core.clock() + TAB_WITHIN, false
  while true do
    local kind, body = receive(self, math.max(deadline - core.clock(), 0))
    if kind == "done" then
      if cancelled or body:byte(1) ~= FINE then return nil end
      local insert, listing = body:match "^.([^%z]*)%z(.*)$"
      return insert ~= "" and insert or nil, listing ~= "" and listing or nil
    elseif not kind and not cancelled then
      send(self, "cancel") -- the job is in a long step
      cancelled, deadline = true, math.huge
    end
  end
end

local function greet(self)
  local text = question(self, "state")
  if not text then return end
  local fields = jobs.fields(text)
  say(("attached to %d: %s, %s; Ctrl-D leaves, :help"):format(self.pid, fields.script or "-", jobs.what(fields)))
end

local function answer(self, text)
  local name, force, rest = text:match "^%s*:([%w_]*)(!?)%s*(.-)%s*$"
  if name and commands[name] and force == "" then
    if rest ~= "" then return complain((":%s takes no argument"):format(name)) end
    return commands[name](self)
  end
  if name then
    local known = {}
    for _, list in ipairs { require "mgpu.prompt.commands".names } do
      for _, each in ipairs(list) do known[#known + 1] = each end
    end
    for each in pairs(commands) do known[#known + 1] = each end
    local is_known = false
    for _, each in ipairs(known) do is_known = is_known or each == name end
    if not is_known then
      return complain(("there is no command :%s%s; :help lists them"):format(name, core.did_you_mean(name, known)))
    end
  end
  run(self, text)
end

local function run_prompt(self)
  self.history = history.open(self.terminal)
  self.terminal.complete = function(line, cursor) return complete(self, line, cursor) end
  greet(self)
  while not self.leaving do
    local line, why = self.terminal.read(("%d> "):format(self.pid))
    if not line and why ~= "interrupted" then break end
    local text = line and line:find "%S" and read_input(self, line)
    if text then
      self.history:add(text)
      answer(self, text)
    end
  end
  self.history:close()
end

-- ---- scripts --------------------------------------------------------------------------------------

local function read_script(path)
  local file, why
  if path == "-" then file = io.stdin else file, why = io.open(path, "rb") end
  if not file then error("--attach: " .. core.printable(why, true), 0) end
  local text = file:read "*a"
  if file ~= io.stdin then file:close() end
  return (text:gsub("^#[^\n]*", "")) -- the line that names an interpreter
end

--- run(terminal, given): see the top. Raises nil, for the exit status 1, after an error that was shown.
return function(terminal, given)
  if given.arguments > 0 then error("--attach: a script that runs in a job gets no arguments", 0) end
  local pid = process_of(given.job)
  local self = setmetatable({ pid = pid, terminal = terminal, connection = connect(pid) }, Client)
  local texts = given.chunks
  if given.script then texts[#texts + 1] = read_script(given.script) end
  if #texts == 0 and terminal.interactive then return run_prompt(self) end
  if #texts == 0 then texts[1] = read_script "-" end
  for _, text in ipairs(texts) do
    if not run(self, text, true) then error(nil, 0) end
  end
end
