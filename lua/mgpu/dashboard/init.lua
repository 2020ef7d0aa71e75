--- mgpu.dashboard: a page that shows training while it runs, served by this process to browsers of this machine.
--
--     model:fit(x, y, { epochs = 20, dashboard = true })   -- prints http://127.0.0.1:8765/?token=...
--     mgpulua --dashboard train.lua                        -- for all fits of a script
--
-- While a dashboard is open, each fit is a run on its page, and mgpu.show, warnings and the printed lines go there,
-- too. The page stays until the program ends. It loads nothing from elsewhere; only who knows the token in its address
-- can see it. What a browser saves as a file is a report that needs no server.
local at_end = require "mgpu.at_end"
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"
local events = require "mgpu.dashboard.events"
local Messages = require "mgpu.dashboard.messages"
local options = require "mgpu.options"
local page = require "mgpu.dashboard.page"
local svg = require "mgpu.plot.svg"
local warnings = require "mgpu.warnings"
local world = require "mgpu.parallel.world"

local M = {}

local PORT, PORTS = 8765, 10 -- tried one after the other, where none is given
local MOST = 512 * 2 ^ 20 -- bytes of events, of which
local MOST_EXTRA = 64 * 2 ^ 20 -- are pictures and histograms
local CLOSING = 2 -- seconds for answers that are being sent

local OPTIONS = options.declare { positional = 0,
  { "port", "integer", min = 0, max = 65535 },
  { "name", "string" },
  { "histogram_freq", "integer", default = 0, min = 0 },
  { "runs", "table" },
  { "save", "string" },
}

local board -- the one that is open: {server, address, port, lines, extra, runs, messages, save}

-- ---- options ------------------------------------------------------------------------------------

--- check(who, given) -> the checked options of fit's option `dashboard`: true, a port or a table.
function M.check(who, given)
  who = who .. ": dashboard"
  if type(given) == "number" then given = { port = given } end
  if type(given) ~= "table" then given = {} end
  local chosen = options.check(who, OPTIONS, given)
  if chosen.save then svg.check_file(who .. ": save", chosen.save, ".html", options.declare {}) end
  if chosen.runs then require "mgpu.dashboard.saved".check(chosen.runs) end
  return chosen
end

-- ---- the server ---------------------------------------------------------------------------------

local function new_token()
  local file = io.open("/dev/urandom", "rb")
  local bytes = file and file:read(16)
  if file then file:close() end
  if not bytes then core.fail("io", "dashboard: cannot read /dev/urandom, which makes the token of the address") end
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- A server at the port or, where none is given, at the first free one of a few, so that an ssh tunnel can be set up
-- before.
local function open_server(port, token)
  if port then return core.server { port = port, token = token } end
  for try = PORT, PORT + PORTS - 1 do
    local ok, server = pcall(core.server, { port = try, token = token })
    if ok then return server end
    if core.error_code() ~= "io" then error(server, 0) end
  end
  return core.server { port = 0, token = token }
end

-- Sends an event. extra: it is left out when there is too much.
local function send(line, extra)
  if not board then return end
  if extra then
    if board.extra + #line > MOST_EXTRA then
      if not board.full then
        board.full = true
        send(events.line(8, { "t", "t", "k", "warning", "w", os.time(), "text",
          "pictures and histograms are left out from here on: there are 64 MiB of them" }))
      end
      return
    end
    board.extra = board.extra + #line
  end
  board.lines[#board.lines + 1] = line
  board.server:append("/events", line, MOST)
end

-- The page with all events so far, for who opens it now, and for the file of `save`. A file that cannot be written any
-- more must not cost the result of a training: that is a warning.
local function publish()
  local html = page.html(table.concat(board.lines))
  board.server:document("/", "text/html; charset=utf-8", html)
  if not board.save then return end
  local ok, message = pcall(core.write_file, board.save, html)
  if not ok then warnings.warn("dashboard: save: %s: the page is not saved", error_line(message)) end
end

local function script_name()
  local name = type(arg) == "table" and type(arg[0]) == "string" and arg[0] or "mgpulua"
  return name:match "[^/]*$"
end

local function host_name()
  local file = io.open "/proc/sys/kernel/hostname"
  local name = file and file:read "*l"
  if file then file:close() end
  return name or "localhost"
end

local function next_number()
  board.runs = board.runs + 1
  return board.runs
end

local function add_runs(list)
  if not list then return end
  require "mgpu.dashboard.saved".add(list, next_number, send)
  publish()
end

-- Opens a dashboard with the checked options.
local function start(chosen)
  local token = new_token()
  local server = open_server(chosen.port, token)
  board = { server = server, port = server:port(), lines = {}, extra = 0, runs = 0, names = {}, save = chosen.save }
  board.address = ("http://127.0.0.1:%d/?token=%s"):format(board.port, token)
  send(events.line(12, { "t", "j", "script", script_name(), "host", host_name(), "began", os.time(), "version",
    core.version }))
  board.messages = Messages.start(function(kind, text)
    send(events.line(8, { "t", "t", "k", kind, "w", os.time(), "text", { json = events.text(text) } }))
  end)
  core.activity_sums(true)
  at_end.add(M.close)
  local ok, message = pcall(function()
    publish()
    add_runs(chosen.runs)
  end)
  if not ok then
    M.close()
    error(message, 0)
  end
  board.messages:quietly(require "mgpu.say", "dashboard: %s\n", board.address)
end

-- Opens one, or takes the options for the one that is open.
local function ensure(who, chosen)
  if not board then return start(chosen) end
  if chosen.port and chosen.port ~= 0 and chosen.port ~= board.port then
    core.fail("usage", ("%s: dashboard: a dashboard is open at port %d: close it by mgpu.dashboard.close() first, or "
      .. "leave the port out"):format(who, board.port))
  end
  board.save = chosen.save or board.save
  add_runs(chosen.runs)
end

-- ---- for users ----------------------------------------------------------------------------------

--- dashboard.open({port =, runs =, save =}) -> the address of the page: opens a dashboard for all that follows, as
--- `mgpulua --dashboard` does. With several processes only rank 0 has one; the others get nil.
--
-- port: without it 8765, or the next that is free. runs: an array of pages that were saved, and of what fit has
-- returned, to be shown beside the runs of this process. save: an .html file that gets the page after each run.
-- Errors: a port that is in use; the plug-in mgpu-httpd.so is not installed; a file that cannot be read or written.
-- Example:
--     local ok, address = pcall(mgpu.dashboard.open, { port = 0 }) -- it needs a plug-in
--     print(not ok or address:match "^http://127.0.0.1:%d+/%?token=%x+$" ~= nil)
--     --> ...true
--     mgpu.dashboard.close()
function M.open(given)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    core.fail("usage", ("dashboard.open: options are a table, such as {port = 8765}, got a %s"):format(type(given)))
  end
  local chosen = M.check("dashboard.open", given or {})
  if not world.is_first() then return nil end
  ensure("dashboard.open", chosen)
  return board.address
end

--- dashboard.address() -> the address of the page; nil if no dashboard is open.
-- Example:
--     print(mgpu.dashboard.address())  --> nil
function M.address() return board and board.address end

--- dashboard.close(): ends the dashboard; pages that are open say that the job has ended. Without it that happens at
--- the end of the program. Nothing happens if none is open.
-- Example:
--     mgpu.dashboard.close()
--     print(mgpu.dashboard.address())  --> nil
function M.close()
  if not board then return end
  local ending = board
  send(events.line(4, { "t", "q", "w", os.time() }))
  core.activity_sums(false)
  at_end.remove(M.close)
  local ok, message = pcall(publish)
  ending.messages:stop()
  board = nil
  ending.server:close(CLOSING)
  if not ok then error(message, 0) end
end

-- ---- for fit and show ---------------------------------------------------------------------------

local function distinct(name)
  local n = (board.names[name] or 0) + 1
  board.names[name] = n
  return n == 1 and name or ("%s (%d)"):format(name, n)
end

--- begin_run(fit, given) -> a run for this fit (run.lua); nil if the page does not show it.
-- ARGS fit: the state of fit.lua; given: fit's option `dashboard`, or nil.
function M.begin_run(fit, given)
  local chosen = M.check("fit", given)
  if not world.is_first() or given == nil and not board then return nil end
  ensure("fit", chosen)
  return require "mgpu.dashboard.run".new(next_number(), fit, { name = distinct(chosen.name or fit.model.name),
    histogram_freq = chosen.histogram_freq }, send, function()
      if board then publish() end
    end)
end

--- show(value, chosen, draw): what mgpu.show draws goes to the page as well; draw() draws it in the terminal.
function M.show(value, chosen, draw)
  if not board then return draw() end
  local ok, data, kind, title = pcall(require "mgpu.dashboard.pictures".of, value, chosen)
  if ok and data then
    send(events.line(14, { "t", "i", "r", board.runs, "w", os.time(), "title", chosen.title or title, "type", kind,
      "data", events.bytes(data) }), true)
  elseif not ok then
    send(events.line(8, { "t", "t", "k", "warning", "w", os.time(), "text",
      { json = events.text("a picture is not shown here: " .. data) } }))
  end
  board.messages:quietly(draw)
end

return M
