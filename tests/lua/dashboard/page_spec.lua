-- The page of the dashboard in a browser: what its reader sees, and can do with the keyboard.

local browser = require "lua.dashboard.browser"
local check = require "check"
local core = require "mgpu.core"
local events = require "mgpu.dashboard.events"
local fixtures = require "fixtures"
local page = require "mgpu.dashboard.page"

local test, wait_until = check.test, fixtures.wait_until

check.slow()

-- Trains until the file arg[1] .. ".stop" is there, in two fits; the address of its page goes to the file arg[1].
local JOB = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L = mgpu.layers
  mgpu.seed(1)
  mgpu.output = function() end
  local function model(name)
    local m = mgpu.Sequential { name = name, L.Input { 4 }, L.Dense { 8, activation = "relu" }, L.Dense { 1 } }
    m:compile { loss = "mse", optimizer = "adam", metrics = "mae" }
    return m
  end
  local x, y = mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }
  local path = arg[1]
  core.write_file(path, mgpu.dashboard.open { port = 0 })
  model "first":fit(x, y, { epochs = 3, batch_size = 8, verbose = 0, validation_split = 0.25 })
  mgpu.show(mgpu.rand { 8, 8, 3 }, { title = "noise" })
  mgpu.output "said by the script\n"
  model "second":fit(x, y, { epochs = 1000000, batch_size = 8, verbose = 0, validation_split = 0.25,
    dashboard = { histogram_freq = 1000 }, callbacks = { on_epoch_end = function(self)
      core.sleep(0.01)
      if core.file_exists(path .. ".stop") then self.model.stop_training = true end
    end } })
  for _ = 1, 30000 do -- ten minutes, if the test ends without a word
    if core.file_exists(path .. ".end") then break end
    core.sleep(0.02)
  end
]]

local function needs_server()
  local ok, server = pcall(core.server, { port = 0 })
  if not ok and core.error_code() == "unsupported" then check.skip "the plug-in mgpu-httpd.so is not built" end
  if ok then server:close(0) end
end

local jobs = 0

-- Runs fn(browser, address, job) beside a job that trains. job: {path =, pid =}.
local function beside(fn)
  needs_server()
  jobs = jobs + 1
  local path, script = check.path("job" .. jobs), check.path "job.lua"
  check.write(script, JOB)
  browser.with(function(b)
    local pid = check.run(("MGPU_ATTACH=0 %s %s %s >%s.log 2>&1 & echo $!"):format(check.program, script, path, path))
    wait_until(function() return core.file_exists(path) and check.read(path) ~= "" end,
      function() return "a job: " .. check.read(path .. ".log") end)
    local ok, message = pcall(fn, b, check.read(path), { path = path, pid = tonumber(pid) })
    check.run(("kill -9 %d"):format(pid))
    if not ok then error(message, 0) end
  end)
end

local STATUS = "document.getElementById('status').textContent"
local function cell(row, column)
  return ("document.querySelectorAll('#runs tbody tr')[%d].cells[%d].textContent"):format(row, column)
end

-- The number of the epoch that the second run is in.
local EPOCH = "parseInt(" .. cell(1, 2) .. ")"
local TWO_RUNS = "document.querySelectorAll('#runs tbody tr').length === 2"

-- A page with one run of so many values within epochs, as a file.
local function page_of(n)
  local lines = { '{"t":"j","script":"long.lua","host":"h","began":1,"version":"1"}\n',
    '{"t":"r","r":1,"name":"long","epochs":10,"first":0,"steps":' .. n / 10 .. "}\n" }
  for i = 1, n do
    local epoch = math.ceil(i / (n / 10))
    lines[#lines + 1] = ('{"t":"b","r":1,"e":%d,"s":%d,"g":%d,"w":%d,"v":{"loss":%.6g}}\n'):format(epoch,
      i - (epoch - 1) * n / 10, i, i, 100 / (i + 50) + math.sin(i * 12.9898) * 43758.5453 % 1 * 0.1)
  end
  lines[#lines + 1] = '{"t":"x","r":1,"w":100,"state":"done"}\n{"t":"q","w":1}\n'
  local path = check.path "long.html"
  check.write(path, page.html(table.concat(lines)))
  return "file://" .. path
end

test("a page follows the job without being loaded again, asks nobody else, and says when the job ends", function()
  beside(function(b, address, job)
    b:go(address)
    b:wait(TWO_RUNS)
    check.matches(b:eval(STATUS), "^Live on ")
    check.equal({ b:eval(cell(0, 1)), b:eval(cell(0, 2)) }, { "done", "3/3" })
    local epoch = b:eval(EPOCH)
    b:wait(("%s > %d"):format(EPOCH, epoch + 3))
    check.truthy(b:wait "document.querySelectorAll('#curves .plot').length === 2")
    check.matches(b:eval "document.getElementById('messages').textContent", "said by the script")
    check.equal(b:eval "document.querySelector('#pictures img').alt", "noise")
    check.truthy(b:wait "document.querySelector('#histograms canvas')" ~= nil, "histograms")
    check.write(job.path .. ".stop", "")
    b:wait(cell(1, 1) .. " === 'stopped early'")
    check.matches(b:eval(STATUS), "No training is under way")
    check.write(job.path .. ".end", "")
    b:wait(STATUS .. ".endsWith('has ended.')")
    for _, request in ipairs(b.requests) do
      check.truthy(request:find("^data:") or request:find(address:match "^http://[^/]+/", 1, true), request)
    end
  end)
end)

test("a page whose network goes away or that sleeps goes on where it was; a killed job is told from an ended one",
  function()
    beside(function(b, address, job)
      b:go(address)
      b:wait(TWO_RUNS)
      b:offline(true)
      b:wait(STATUS .. ".startsWith('No answer since')")
      b:offline(false)
      b:wait(STATUS .. ".startsWith('Live')")
      b:call("Page.setWebLifecycleState", { state = "frozen" })
      core.sleep(0.2)
      b:call("Page.setWebLifecycleState", { state = "active" })
      local epoch = b:eval(EPOCH)
      b:wait(("%s > %d"):format(EPOCH, epoch + 3))
      check.equal(b:eval "document.querySelectorAll('#runs tbody tr').length", 2)
      check.run(("kill -9 %d"):format(job.pid))
      b:wait(STATUS .. ".includes('the job was killed, or the connection is lost')")
      check.equal(b:eval(cell(1, 1)), "running when last heard of")
      b:picture "killed"
    end)
  end)

test("the saved page shows the same without a server", function()
  beside(function(b, address, job)
    b:go(address)
    b:wait(TWO_RUNS)
    check.write(job.path .. ".stop", "")
    b:wait(cell(1, 1) .. " === 'stopped early'")
    check.write(job.path .. ".end", "")
    b:wait(STATUS .. ".endsWith('has ended.')")
    local table_of = "document.getElementById('runs').innerText + document.getElementById('messages').innerText"
    local before, folder = b:eval(table_of), check.path "downloads"
    b:downloads(folder)
    b:eval "document.getElementById('save').click()"
    local file = folder .. "/job.html"
    fixtures.wait_for(file)
    b:go("file://" .. file)
    check.equal(b:eval(table_of), before)
    check.matches(b:eval(STATUS), "has ended")
    check.falsy(check.read(file):find(address:match "token=(%x+)", 1, true), "the token")
  end)
end)

test("ten pages at a time all follow the job", function()
  beside(function(b, address)
    b:go(address)
    b:wait(TWO_RUNS)
    b:eval "window.others = []; 0"
    for _ = 1, 9 do b:eval "others.push(window.open(location.href)); 0" end
    b:wait("others.every(w => w.document.readyState === 'complete' && w." .. TWO_RUNS .. ")")
    b:eval("window.before = others.map(w => parseInt(w." .. cell(1, 2) .. ")); 0")
    b:wait("others.every((w, i) => parseInt(w." .. cell(1, 2) .. ") > before[i] + 2)")
  end)
end)

test("the page fits into a narrow window and a wide one, and follows the reader's choice of light or dark", function()
  beside(function(b, address)
    b:go(address)
    b:wait(TWO_RUNS)
    b:eval "document.querySelectorAll('details').forEach(d => { d.open = true; })"
    for _, width in ipairs { 320, 390, 768, 1280, 2560 } do
      b:size(width, 800)
      b:wait("innerWidth === " .. width)
      check.equal(b:eval "document.scrollingElement.scrollWidth", width)
      b:picture("width_" .. width)
    end
    b:size(1280, 900)
    local paper, seen = "getComputedStyle(document.body).backgroundColor", {}
    for _, dark in ipairs { false, true } do
      b:dark(dark)
      seen[#seen + 1] = b:eval(paper)
      b:picture(dark and "dark" or "light")
    end
    check.equal(seen, { "rgb(255, 255, 255)", "rgb(23, 24, 28)" })
  end)
end)

test("hostile names are shown as text, and run nothing", function()
  local hostile = "</script><img src=x onerror=alert(1)>\0\27[1m\255 ${alert(2)} {{SCRIPT}} %d __proto__"
  local value = events.name(hostile)
  local lines = { '{"t":"j","script":' .. value .. ',"host":' .. value .. ',"began":1,"version":"1"}\n',
    events.line(14, { "t", "r", "r", 1, "name", hostile, "epochs", 2, "from", hostile, "graph", hostile, "tables",
      events.texts { { hostile, { hostile }, { { hostile } } } } }),
    '{"t":"e","r":1,"e":1,"s":1,"g":1,"w":1,"v":{' .. value .. ':1,"__proto__":2,"constructor":3}}\n',
    '{"t":"h","r":1,"e":1,"w":1,"name":' .. value .. ',"low":0,"high":1,"n":2,"c":[1,1]}\n',
    '{"t":"p","r":1,"e":1,"s":1,"g":1,"w":1,"d":1,"n":1,"p":{' .. value .. ':1},"m":[[' .. value .. ',1,1,1]]}\n',
    events.line(14, { "t", "i", "r", 1, "w", 1, "title", hostile, "type", hostile, "data", hostile }),
    events.line(8, { "t", "t", "k", hostile, "w", 1, "text", { json = events.text(hostile) } }),
    events.line(8, { "t", "x", "r", 1, "state", hostile, "text", hostile }) }
  local path = check.path "hostile.html"
  check.write(path, page.html(table.concat(lines)))
  browser.with(function(b)
    b:call("Page.addScriptToEvaluateOnNewDocument", { source = "window.alert = () => { window.ran = true; };" })
    b:go("file://" .. path)
    b:wait "document.querySelectorAll('#curves .plot').length === 3"
    check.equal(b:eval "document.querySelectorAll('img').length", 0)
    check.equal(b:eval "document.scripts.length", 2)
    check.equal(b:eval "window.ran === undefined", true)
    check.matches(b:eval "document.getElementById('runs').textContent", "</script><img src=x onerror=alert(1)>")
    check.equal(b:eval "document.scrollingElement.scrollWidth", 1280)
    b:picture "hostile"
  end)
end)

test("all controls can be reached and used with the keyboard, and the focus can be seen", function()
  needs_server()
  browser.with(function(b)
    b:go(page_of(1000))
    local reached = {}
    for _ = 1, 40 do
      b:key "Tab"
      local name = b:eval [[(() => {
        const e = document.activeElement, outline = getComputedStyle(e);
        if (e === document.body) return '';
        if (outline.outlineStyle === 'none' || outline.outlineWidth === '0px') return `no outline: ${e.outerHTML}`;
        return e.id || e.getAttribute('aria-label') || e.tagName;
      })()]]
      check.falsy(name:find "no outline", name)
      if name == "" then break end
      reached[name] = true
    end
    for _, name in ipairs { "save", "axis", "log", "smoothing", "batches", "chosen", "loss, a chart" } do
      check.truthy(reached[name], name)
    end
    for _, role in ipairs { "button", "select", "input" } do -- what a screen reader says
      check.equal(b:eval(([[[...document.querySelectorAll('%s')].filter(e => !e.textContent && !e.labels.length
        && !e.getAttribute('aria-label')).length]]):format(role)), 0)
    end
    local plot = "document.querySelector('#curves .plot')"
    b:eval(plot .. ".focus()")
    local function said(key)
      local before = b:eval(plot .. ".getAttribute('aria-valuetext')")
      b:key(key)
      return b:wait(("(t => t !== %q && t)(%s.getAttribute('aria-valuetext'))"):format(before, plot))
    end
    check.matches(said "ArrowLeft", "^epoch 10, within epochs ")
    check.matches(said "PageDown", "^epoch 9.5, within epochs ")
    check.matches(said "Home", "^epoch 0.01, ")
    check.matches(said "ArrowRight", "^epoch 0.02, ")
    check.matches(said "Escape", "no point is chosen")
    b:eval "document.getElementById('log').focus()"
    b:key " "
    check.equal(b:eval "document.getElementById('log').checked", true)
    b:eval(plot .. ".focus()")
    b:key "End"
    b:picture "keyboard"
  end)
end)

test("a curve of 100,000 points is drawn with few", function()
  browser.with(function(b)
    b:go(page_of(100000))
    b:eval [[
      window.lines = 0;
      const proto = CanvasRenderingContext2D.prototype, lineTo = proto.lineTo;
      proto.lineTo = function(x, y) { window.lines++; return lineTo.call(this, x, y); };
      0]]
    local function lines_of(expression)
      b:eval("window.lines = 0; " .. expression .. "; 0")
      b:eval "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
      return b:eval "window.lines"
    end
    local n = lines_of "document.getElementById('batches').dispatchEvent(new Event('change'))"
    check.truthy(n > 300 and n < 20000, n)
    n = lines_of [[document.querySelector('#curves .plot').dispatchEvent(
      new PointerEvent('pointermove', { clientX: 300 }))]]
    check.equal(n, 1, "the line of the cursor only")
    n = lines_of [[const s = document.getElementById('smoothing'); s.value = 0.9;
      s.dispatchEvent(new Event('input'))]]
    check.truthy(n > 600 and n < 40000, n)
    b:picture "100000"
  end)
end)
