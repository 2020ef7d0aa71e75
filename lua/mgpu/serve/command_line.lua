--- The options behind --serve MODEL.
local core = require "mgpu.core"

local M = {}

M.HELP = [[
usage: mgpulua [options] --serve MODEL [options of the server]
Answers predictions of a model file (.keras, .h5, .safetensors, .onnx) over HTTP, until Ctrl-C or SIGTERM.
  --port N        the port; 0: a free one, which is printed (8000)
  --host ADDRESS  where to listen (127.0.0.1); another one than loopback needs --token or --no-token
  --token TEXT    what each request must carry, as ?token=TEXT or Authorization: Bearer TEXT; @FILE: from there
  --no-token      let everyone who reaches the host ask
  --host-name NAME
                  another name of this machine that clients may use; several are separated by commas
  --name NAME     the model's name in paths (the file's name without its ending)
  --batch N       most rows that are predicted together (32); 1: each request by itself
  --max-delay MS  how long a request may wait for others to be joined with, in milliseconds (2)
  --max-body SIZE the largest body: 64M (the default), 512K, 1G
  --connections N most clients at a time (2048)
  --help          this text
]]

local OPTIONS = { -- name -> {field, its value; nil: none}
  ["--port"] = { "port", "N" }, ["--host"] = { "host", "ADDRESS" }, ["--token"] = { "token", "TEXT" },
  ["--no-token"] = { "no_token" }, ["--host-name"] = { "host_names", "NAME" }, ["--name"] = { "name", "NAME" },
  ["--batch"] = { "batch", "N" }, ["--max-delay"] = { "max_delay", "MS" }, ["--max-body"] = { "max_body", "SIZE" },
  ["--connections"] = { "connections", "N" }, ["--help"] = { "help" },
}
--- The names of the options, sorted.
M.names = require "mgpu.ordered_keys"(OPTIONS)

local function fail(message, ...) error("--serve: " .. message:format(...), 0) end

local UNITS = { [""] = 1, K = 2 ^ 10, M = 2 ^ 20, G = 2 ^ 30 }

-- A whole number between bounds.
local function integer(option, text, least, most)
  local n = text:match "^%d+$" and tonumber(text)
  if not n or n < least or n > most then
    fail("%s %s: give a whole number from %d to %d", option, text, least, most)
  end
  return n
end

local function size(option, text)
  local n, unit = text:upper():match "^(%d+)([KMG]?)I?B?$"
  n = n and tonumber(n) * UNITS[unit]
  if not n or n < 1 or n > 2 ^ 36 then fail("%s %s: give a size such as 64M, from 1 to 64G", option, text) end
  return n
end

local function token(text)
  if text:sub(1, 1) ~= "@" then return text end
  local file, problem = io.open(text:sub(2))
  if not file then fail("--token %s: %s", text, problem) end
  local line = file:read "*l"
  file:close()
  return line or ""
end

local function host_names(text)
  local list = {}
  for name in text:gmatch "[^,%s]+" do list[#list + 1] = name end
  return list
end

-- The text after each option: field -> text, or true.
local function scan(arguments)
  local given, i = {}, 1
  while arguments[i] do
    local name, value = arguments[i]:match "^(%-%-[^=]*)=(.*)$"
    name = name or arguments[i]
    local option = OPTIONS[name]
    if name:sub(1, 1) ~= "-" and not given.model then
      given.model = name
    elseif not option then
      fail("unknown option %s%s; mgpulua --serve --help lists them", name, core.did_you_mean(name, M.names))
    elseif not option[2] then
      if value then fail("%s takes no value", name) end
      given[option[1]] = true
    else
      if not value then
        i = i + 1
        value = arguments[i] or fail("%s needs a value: %s %s", name, name, option[2])
      end
      given[option[1]] = value
    end
    i = i + 1
  end
  return given
end

--- parse(arguments) -> {model =, host =, port =, token =, no_token =, host_names =, name =, batch =, max_delay =
--- seconds, max_body = bytes, connections =, help =}. Errors: wrong options, by name.
function M.parse(arguments)
  local given = scan(arguments)
  if given.help then return { help = true } end
  if not given.model then fail "give a model file: mgpulua --serve MODEL" end
  local delay = tonumber(given.max_delay or 2)
  if not delay or not (delay >= 0 and delay <= 60000) then
    fail("--max-delay %s: give milliseconds from 0 to 60000", given.max_delay)
  end
  if given.name == "" then fail "--name: the name is empty" end
  local chosen = {
    model = given.model,
    host = given.host or "127.0.0.1",
    port = integer("--port", given.port or "8000", 0, 65535),
    token = given.token and token(given.token),
    no_token = given.no_token,
    host_names = host_names(given.host_names or ""),
    name = given.name or given.model:match "([^/]*)$":gsub("%.%a%w*$", ""),
    batch = integer("--batch", given.batch or "32", 1, 65536),
    max_delay = delay / 1000,
    max_body = size("--max-body", given.max_body or "64M"),
    connections = integer("--connections", given.connections or "2048", 1, 100000),
  }
  if chosen.token == "" then fail "--token: the token is empty" end
  if chosen.token and chosen.no_token then fail "give --token or --no-token, not both" end
  return chosen
end

return M
