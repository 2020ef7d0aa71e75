--- RemoteMonitor {root = "http://localhost:9000", path = "/publish/epoch/end/", field = "data", headers =,
--- send_as_json = false}: posts the values of each epoch to a server.
--
-- What is sent is JSON of the epoch and of the logs by name, {"epoch": 1, "loss": 0.5}, as the field `field` of a form,
-- or with send_as_json as the body. headers: a table {["X-Key"] = "text"} of further headers. Infinite values and NaN
-- are null. A server that cannot be reached, that answers with an error or a redirect, or not within a minute, causes a
-- warning, and training goes on. Errors, before the first step: the plug-in for downloads, mgpu-fetch.so, is not
-- installed.
-- Source: Keras's RemoteMonitor; here epochs count from 1, and an answer with an error is told, too.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     mgpu.warnings(false) -- nobody listens there
--     local monitor = mgpu.callbacks.RemoteMonitor { root = "http://localhost:1", send_as_json = true }
--     local h = model:fit(mgpu.ones { 4, 1 }, mgpu.ones { 4, 1 }, { epochs = 2, verbose = 0, callbacks = monitor })
--     print(#h.epoch)  --> 2
--     mgpu.warnings(true)
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"
local logs = require "mgpu.train.logs"
local ordered_keys = require "mgpu.ordered_keys"
local warnings = require "mgpu.warnings"

local RemoteMonitor = Callback:extend("RemoteMonitor", { positional = 1,
  { "root", "string", default = "http://localhost:9000" },
  { "path", "string", default = "/publish/epoch/end/" },
  { "field", "string", default = "data" },
  { "headers", "table" },
  { "send_as_json", "boolean", default = false },
})

RemoteMonitor.adds = {}

local FORM, JSON = "application/x-www-form-urlencoded", "application/json"

--- Makes the list of headers.
function RemoteMonitor:init()
  local list, stated = {}, false
  for _, name in ipairs(ordered_keys(self.headers or {})) do
    local value = self.headers[name]
    local line = type(name) == "string" and type(value) == "string" and ("%s: %s"):format(name, value)
    if not line or line:find "[%c]" or not name:find "^[%w!#$%%&'*+.^_`|~-]+$" then
      core.fail("usage", ('RemoteMonitor: option "headers" must be a table of one line of text by name, as in '
        .. '{["X-Key"] = "text"}, got %q = %q'):format(tostring(name), tostring(value)))
    end
    list[#list + 1], stated = value:find "%S" and line or name .. ";", stated or name:lower() == "content-type"
  end
  -- "Name;" is libcurl's form of a header without a value
  if not stated then list[#list + 1] = "Content-Type: " .. (self.send_as_json and JSON or FORM) end
  self.lines = list
end

-- The value of the logs as JSON has it.
local function plain(value)
  if type(value) == "number" then return value - value == 0 and value or core.null end
  if type(value) ~= "table" then return value end
  local list = {}
  for i, item in ipairs(value) do list[i] = plain(item) end
  return #list > 0 and list or core.empty_array
end

-- Text in a form.
local function escaped(text)
  return (text:gsub("[^%w%-._~]", function(byte) return ("%%%02X"):format(byte:byte()) end))
end

--- Raises if posts are not possible at all.
function RemoteMonitor:check_fit() -- luacheck: no self
  local ok, message = pcall(core.check_post)
  if not ok then core.fail("unsupported", "RemoteMonitor: " .. error_line(message)) end
end

--- Posts the values.
function RemoteMonitor:on_epoch_end(epoch, values)
  local send = { epoch = epoch }
  for name, value in logs.each(values) do send[name] = plain(value) end
  local body = core.json_encode(send)
  if not self.send_as_json then body = escaped(self.field) .. "=" .. escaped(body) end
  local ok, message = pcall(core.post, self.root .. self.path, body, self.lines)
  if ok then return end
  if core.error_code() ~= "io" then error(message, 0) end
  warnings.once(self.model, "RemoteMonitor: %s", error_line(message))
end

return RemoteMonitor
