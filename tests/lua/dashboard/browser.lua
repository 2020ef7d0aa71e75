-- Headless Chromium, which the specs of the dashboard drive by the DevTools protocol over two pipes.
--
--     local b = browser.open()            -- skips the test where there is no Chromium
--     b:go(address)
--     b:wait "runs.size === 1"            -- until the JavaScript expression is true
--     b:eval "document.title"             -- its value, which must fit into JSON
--     b:key "ArrowLeft"
--     b:size(390, 800)  b:dark(true)  b:offline(true)
--     b:close()                           -- fails if the page has logged an error
-- Chromium ends when the pipes close, so also when the test is killed. DEADLINE only stops a hang.
-- With MGPU_KEEP=FOLDER b:picture(name) keeps pictures of the page there, to be looked at.
local check = require "check"
local core = require "mgpu.core"
local ffi = require "ffi"
local fixtures = require "fixtures"

ffi.cdef [[
  typedef struct { int fd; short events, revents; } browser_poll;
  int open(const char *path, int flags, ...);
  int poll(browser_poll *, unsigned long, int);
  long read(int, void *, size_t);
  long write(int, const void *, size_t);
  int close(int);
]]
local C = ffi.C
local READ_WRITE, CLOEXEC, IN = 2, 0x80000, 1
local DEADLINE = 120 -- seconds
local PROGRAMS = { "chromium", "chromium-browser", "google-chrome" }

-- What a headless test needs to be left alone: no first-run pages, updates, GPU or shared memory of the system.
local FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions "
  .. "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars "
  .. "--force-color-profile=srgb --remote-debugging-pipe"

local Browser = {}
Browser.__index = Browser

local function program()
  for _, name in ipairs(PROGRAMS) do
    local path = check.run("command -v " .. name):match "^[^\n]+"
    if path then return path end
  end
  check.skip "Chromium is not installed"
end

-- ---- messages -------------------------------------------------------------------------------------

local function next_message(self)
  local deadline = core.clock() + DEADLINE
  while true do
    local message, rest = self.received:match "^(%Z*)%z(.*)$"
    if message then
      self.received = rest
      return core.json_decode(message)
    end
    local wanted = ffi.new("browser_poll[1]", { { self.output, IN, 0 } })
    if C.poll(wanted, 1, 100) > 0 then
      local bytes = ffi.new "char[65536]"
      local n = tonumber(C.read(self.output, bytes, 65536))
      if n > 0 then self.received = self.received .. ffi.string(bytes, n) end
    elseif core.clock() > deadline or not core.file_exists(self.alive) then
      check.fail("Chromium does not answer:\n" .. check.read(self.log):sub(-2000))
    end
  end
end

local function text_of(list)
  local texts = {}
  for i, each in ipairs(list) do texts[i] = tostring(each.value or each.description) end
  return table.concat(texts, " ")
end

local function note_event(self, message)
  local p = message.params
  if message.method == "Runtime.exceptionThrown" then
    self.faults[#self.faults + 1] = p.exceptionDetails.exception and p.exceptionDetails.exception.description
      or p.exceptionDetails.text
  elseif message.method == "Runtime.consoleAPICalled" and (p.type == "error" or p.type == "warning") then
    self.faults[#self.faults + 1] = text_of(p.args)
  elseif message.method == "Log.entryAdded" and p.entry.level == "error" and p.entry.source ~= "network" then
    self.faults[#self.faults + 1] = p.entry.text
  elseif message.method == "Network.requestWillBeSent" then
    self.requests[#self.requests + 1] = p.request.url
  elseif message.method == "Page.loadEventFired" then
    self.loaded = true
  end
end

--- b:call(method, parameters = {}) -> the result of a method of the DevTools protocol.
function Browser:call(method, parameters)
  self.last = self.last + 1
  local text = core.json_encode { id = self.last, method = method, params = parameters, sessionId = self.session }
  text = text .. "\0"
  while #text > 0 do
    local n = tonumber(C.write(self.input, text, #text))
    if n <= 0 then check.fail "Chromium takes no messages" end
    text = text:sub(n + 1)
  end
  while true do
    local message = next_message(self)
    if message.id == self.last then
      if message.error then check.fail(method .. ": " .. message.error.message) end
      return message.result
    end
    if message.method then note_event(self, message) end
  end
end

-- ---- pages ----------------------------------------------------------------------------------------

--- b:go(address): opens the page and waits until it is there.
function Browser:go(address)
  self.loaded = false
  local result = self:call("Page.navigate", { url = address })
  if result.errorText then check.fail(("%s: %s"):format(address, result.errorText)) end
  while not self.loaded do note_event(self, next_message(self)) end
end

--- b:eval(expression) -> its value; a promise is awaited. The page takes it for something that its reader did.
function Browser:eval(expression)
  local result = self:call("Runtime.evaluate", { expression = expression, returnByValue = true, awaitPromise = true,
    userGesture = true })
  if result.exceptionDetails then
    check.fail(("%s: %s"):format(expression, result.exceptionDetails.exception.description))
  end
  return result.result.value
end

--- b:wait(expression) -> its value, when it is true.
function Browser:wait(expression)
  return fixtures.wait_until(function() return self:eval(expression) end,
    function() return ("%s; the page:\n%s"):format(expression, self:eval "document.body.innerText") end)
end

local CODES = { Tab = 9, Enter = 13, Escape = 27, [" "] = 32, PageUp = 33, PageDown = 34, End = 35, Home = 36,
  ArrowLeft = 37, ArrowUp = 38, ArrowRight = 39, ArrowDown = 40 }
local TEXTS = { Enter = "\r", [" "] = " " }

--- b:key(name): presses a key, such as "Tab" or "ArrowLeft".
function Browser:key(name)
  local code = assert(CODES[name], name)
  local key = { key = name, code = name == " " and "Space" or name, windowsVirtualKeyCode = code, text = TEXTS[name] }
  key.type = key.text and "keyDown" or "rawKeyDown"
  self:call("Input.dispatchKeyEvent", key)
  key.type, key.text = "keyUp", nil
  self:call("Input.dispatchKeyEvent", key)
end

--- b:size(width, height, ratio = 1): of the window, in CSS pixels.
function Browser:size(width, height, ratio)
  self:call("Emulation.setDeviceMetricsOverride", { width = width, height = height, deviceScaleFactor = ratio or 1,
    mobile = false })
end

--- b:dark(is_dark): what the reader prefers.
function Browser:dark(is_dark)
  self:call("Emulation.setEmulatedMedia", { features = { { name = "prefers-color-scheme",
    value = is_dark and "dark" or "light" } } })
end

--- b:offline(is_offline): takes the network from the page, or gives it back.
function Browser:offline(is_offline)
  self:call("Network.emulateNetworkConditions", { offline = is_offline, latency = 0, downloadThroughput = -1,
    uploadThroughput = -1 })
end

--- b:downloads(folder): where files go that the page saves.
function Browser:downloads(folder)
  self:call("Browser.setDownloadBehavior", { behavior = "allow", downloadPath = folder })
end

--- b:picture(name) -> the bytes of a PNG of the whole page; kept in the folder MGPU_KEEP.
function Browser:picture(name)
  local result = self:call("Page.captureScreenshot", { captureBeyondViewport = true })
  local bytes = require "mgpu.io.base64".decode(result.data)
  local folder = os.getenv "MGPU_KEEP"
  if folder then check.write(("%s/%s.png"):format(folder, name), bytes) end
  return bytes
end

local function shut(self)
  if self.input < 0 then return end
  C.close(self.input)
  C.close(self.output)
  self.input = -1
  local deadline = core.clock() + DEADLINE
  while core.file_exists(self.alive) and core.clock() < deadline do core.sleep(0.02) end
end

--- b:close(): ends Chromium. Fails if the page has thrown or logged an error, or its policy has stopped something.
function Browser:close()
  shut(self)
  check.equal(self.faults, {})
end

local M = {}

--- open() -> a browser with an empty page of 1280 x 900 pixels.
function M.open()
  local path, folder = program(), check.path(("browser_%d"):format(core.clock() * 1e6))
  check.run("mkdir -p " .. folder)
  local self = setmetatable({ last = 0, received = "", faults = {}, requests = {}, log = folder .. "/log",
    alive = folder .. "/alive" }, Browser)
  check.run(("cd %s && mkfifo in out && : >log && : >alive"):format(folder))
  local both = bit.bor(READ_WRITE, CLOEXEC)
  self.input, self.output = C.open(folder .. "/in", both), C.open(folder .. "/out", both)
  check.run(("cd %s; exec >/dev/null; { HOME=%s setsid %s %s --user-data-dir=%s/profile 3<in 4>out >log 2>&1; "
    .. "rm alive; } 2>&1 &"):format(folder, folder, path, FLAGS, folder))
  local target = self:call("Target.createTarget", { url = "about:blank" })
  self.session = self:call("Target.attachToTarget", { targetId = target.targetId, flatten = true }).sessionId
  for _, domain in ipairs { "Page", "Runtime", "Log", "Network" } do self:call(domain .. ".enable") end
  self:size(1280, 900)
  return self
end

--- with(fn): fn(browser), which is closed then, also after an error.
function M.with(fn)
  local self = M.open()
  local ok, message = pcall(fn, self)
  if not ok then
    shut(self)
    error(message, 0)
  end
  self:close()
end

return M
