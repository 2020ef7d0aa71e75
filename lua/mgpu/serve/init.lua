--- mgpulua --serve MODEL: predictions of a model file over HTTP. The manual, using_a_model.md, says what clients send.
local command_line = require "mgpu.serve.command_line"
local core = require "mgpu.core"

local M = {}

local function is_loopback(host) return host == "localhost" or host == "::1" or host:match "^127%." ~= nil end

-- Whoever serves a network says so: with a token, or without one.
local function check_host(chosen)
  if is_loopback(chosen.host) then return end
  if not (chosen.token or chosen.no_token) then
    error(("--serve: others can reach --host %s: give --token TEXT, which clients must send, or --no-token; or leave "
      .. "--host out, and forward the port by ssh -L"):format(chosen.host), 0)
  end
  io.stderr:write(("mgpulua: warning: whoever reaches %s%s can ask for predictions; nothing is encrypted\n"):format(
    chosen.host, chosen.token and " and has the token" or ""))
end

local function url_of(http)
  local address = http:address()
  return ("http://%s:%d/"):format(address:find ":" and "[" .. address .. "]" or address, http:port())
end

local function open(chosen)
  return core.server { host = chosen.host, port = chosen.port, token = chosen.token, names = chosen.host_names,
    requests = true, body = chosen.max_body, connections = chosen.connections }
end

--- run(arguments) -> the program's exit status: 0 after SIGTERM, 130 after Ctrl-C. arguments: MODEL and options.
-- Errors: options, the file, the address.
function M.run(arguments)
  local chosen = command_line.parse(arguments)
  if chosen.help then
    io.write(command_line.HELP)
    return 0
  end
  local mgpu = require "mgpu" -- joins the other processes
  if core.world().size > 1 then error("--serve: one process serves: leave out --np and mpirun", 0) end
  check_host(chosen)
  local model = mgpu.load_model(chosen.model, { compile = false })
  local http = open(chosen)
  local server = require "mgpu.serve.server".new(model, http, chosen)
  local problem = server:warm_up()
  if problem then
    io.stderr:write(core.printable("mgpulua: warning: a row of zeros cannot be predicted: " .. problem, true), "\n")
  end
  if not problem and server:separate_rows() then
    io.stderr:write("mgpulua: warning: the rows of a batch depend on each other in this model, so each request is "
      .. "predicted by itself\n")
  end
  core.stop_listen(true, true) -- SIGTERM and Ctrl-C ask to stop
  io.write(core.printable(("serving %s at %s"):format(chosen.name, url_of(http)), true), "\n")
  io.flush()
  server:loop()
  return core.stop_requested() == "SIGINT" and 130 or 0
end

return M
