-- The dashboard: what the server answers while a fit runs and after it.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function needs_server()
  local ok, server = pcall(core.server, { port = 0 })
  if not ok and core.error_code() == "unsupported" then check.skip "the plug-in mgpu-httpd.so is not built" end
  if ok then server:close(0) end
  if check.run "command -v curl" == "" then check.skip "curl is not installed" end
end

-- Runs fn with the output of mgpu kept; the dashboard is closed at the end.
local function quietly(fn)
  local output = mgpu.output
  mgpu.output = function() end
  local ok, message = pcall(fn)
  mgpu.dashboard.close()
  mgpu.output = output
  if not ok then error(message, 0) end
end

local function get(address) return check.run(("curl -s --max-time 60 '%s'"):format(address)) end

local function events_of(address) return get((address:gsub("/%?", "/events?from=0&"))) end

local HOSTILE = "</script><img src=x onerror=alert(1)> \"'\\ \255\237\160\128\27[1m\0" .. ("x"):rep(9000)

local function fit(given, name)
  mgpu.seed(1)
  local model = mgpu.Sequential { name = name or "small", L.Input { 2 }, L.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse", metrics = "mae" }
  given.epochs, given.verbose = given.epochs or 2, 0
  return model:fit(mgpu.ones { 8, 2 }, mgpu.ones { 8, 1 }, given)
end

test("fits are runs on the page, whose events are lines of JSON behind a token", function()
  needs_server()
  quietly(function()
    fit { dashboard = { port = 0, histogram_freq = 1 } }
    fit {}
    fit { dashboard = false }
    local address = mgpu.dashboard.address()
    check.matches(address, "^http://127%.0%.0%.1:%d+/%?token=%x+$")
    local kinds = {}
    for line in events_of(address):gmatch "[^\n]+" do
      local event = core.json_decode(line)
      kinds[event.t] = (kinds[event.t] or 0) + 1
    end
    check.equal({ kinds.j, kinds.r, kinds.e, kinds.x, kinds.h }, { 1, 2, 4, 2, 4 })
    check.matches(get(address), "Content-Security-Policy", "the page")
    check.falsy(get((address:gsub("token=%x+", "token=0"))):find "mse", "another token")
  end)
  check.equal(mgpu.dashboard.address(), nil)
end)

test("hostile names stay data", function()
  needs_server()
  quietly(function()
    fit({ dashboard = { port = 0, name = HOSTILE } }, "m")
    mgpu.show(mgpu.tensor { 1, 2, 3 }, { title = HOSTILE })
    require "mgpu.warnings".also(HOSTILE)
    local address = mgpu.dashboard.address()
    local page, text = get(address), events_of(address)
    check.falsy(text:find "<" or text:find "%z", "markup in the events")
    for line in text:gmatch "[^\n]+" do core.json_decode(line) end
    local _, scripts = page:gsub("</script>", "")
    check.equal(scripts, 2)
  end)
end)

test("a tunnel may have another port, another name is refused, and the page names no address of its own", function()
  needs_server()
  quietly(function()
    mgpu.dashboard.open { port = 0 }
    local address = mgpu.dashboard.address()
    local function status(host)
      return check.run(("curl -s -o /dev/null -w '%%{http_code}' -H 'Host: %s' '%s'"):format(host, address)):match "%d+"
    end
    check.equal({ status "localhost:9999", status "127.0.0.1:1", status "evil.example" }, { "200", "200", "403" })
    check.falsy(get(address):find(address:match "^http://([^/]+)", 1, true), "the address in the page")
  end)
end)

test("a saved page is a run beside others", function()
  needs_server()
  local path = check.path "run.html"
  local history
  quietly(function() history = fit({ dashboard = { port = 0, save = path } }, "first") end)
  quietly(function()
    mgpu.dashboard.open { port = 0, runs = { path, history } }
    local text = events_of(mgpu.dashboard.address())
    check.matches(text, '"r":1,"from":')
    check.matches(text, '"r":2,"from":"a history"')
  end)
end)

test("a folder that cannot be written is refused before the training; one that is gone at its end costs no result",
  function()
    needs_server()
    check.raises(function() fit { dashboard = { port = 0, save = check.path "none/x.html" } } end, "No such file", "io")
    local folder, warned = check.path "gone", {}
    check.run("mkdir " .. folder)
    local warnings = require "mgpu.warnings"
    local warn = warnings.warn
    warnings.warn = function(message, ...) warned[#warned + 1] = message:format(...) end
    local ok, message = pcall(quietly, function()
      local history = fit { dashboard = { port = 0, save = folder .. "/x.html" },
        callbacks = { on_train_end = function() check.run("rm -r " .. folder) end } }
      check.equal(#history.epoch, 2)
    end)
    warnings.warn = warn
    if not ok then error(message, 0) end
    check.equal(#warned, 2, "at the end of the fit, and of the dashboard")
    check.matches(warned[1], "cannot write .*gone/x.html.*the page is not saved")
  end)

test("short epochs do not fill the memory: after a thousand the page gets a part of them, and the last", function()
  needs_server()
  quietly(function()
    fit { dashboard = { port = 0 }, epochs = 3000 }
    local epochs, parts, last = 0, 0, nil
    for line in events_of(mgpu.dashboard.address()):gmatch "[^\n]+" do
      local event = core.json_decode(line)
      if event.t == "e" then epochs, last = epochs + 1, event.e end
      if event.t == "p" then parts = parts + 1 end
    end
    check.truthy(epochs > 1000 and epochs < 3000 and parts < 3000, epochs .. " epochs, " .. parts .. " times")
    check.equal(last, 3000)
  end)
end)

test("many readers at a time get the same, and the training waits for none of them", function()
  needs_server()
  quietly(function()
    mgpu.dashboard.open { port = 0 }
    local address, script = mgpu.dashboard.address(), check.path "readers.sh"
    local events = address:gsub("/%?", "/events?from=0&wait=50&")
    check.write(script, ([[
      for i in 1 2 3 4 5 6 7 8 9 10; do
        curl -sN --limit-rate 200 --max-time 60 '%s' >/dev/null & slow="$slow $!"
        curl -s --max-time 60 '%s' >%s/$i & fast="$fast $!"
      done
      wait $fast; kill $slow 2>/dev/null]]):format(address, events, check.path "."))
    local readers = io.popen("sh " .. script .. " 2>&1; echo done")
    fit { epochs = 20 }
    check.equal(readers:read "*a", "done\n")
    readers:close()
    for i = 1, 10 do check.matches(check.read(check.path(tostring(i))), '^{"t":"j"') end
  end)
end)

test("wrong options are refused", function()
  local function refused(dashboard, text, code)
    check.raises(function() fit { dashboard = dashboard } end, text, code or "usage")
  end
  refused("yes", 'option "dashboard" must be')
  refused({ prot = 1 }, 'did you mean "port"')
  refused({ port = 70000 }, "at most 65535")
  refused({ save = "x.htm" }, "must end in .html")
  refused({ runs = { 3 } }, "entry 1 must be the path")
  refused({ runs = { "a.html", nil, "b.html" } }, "dashboard: runs: ")
  check.raises(function() mgpu.dashboard.open(8765) end, "options are a table, such as {port = 8765}, got a number",
    "usage")
end)

test("runs that cannot be shown are refused, and no dashboard stays open", function()
  needs_server()
  local path = check.path "other.html"
  check.write(path, "<html></html>")
  local function refused(entry, text, code)
    quietly(function()
      check.raises(function() mgpu.dashboard.open { port = 0, runs = { entry } } end, text, code)
      check.equal(mgpu.dashboard.address(), nil)
    end)
  end
  refused(path, "other.html is no page that a dashboard has saved", "data")
  refused(check.path "none.html", "cannot read .*none.html: No such file", "io")
  refused({ class = "History" }, "a history has no epoch", "usage")
end)

test("a port that is in use, and another one while a dashboard is open, are refused", function()
  needs_server()
  local other = core.server { port = 0 }
  check.raises(function() fit { dashboard = other:port() } end, "use", "io")
  other:close(0)
  quietly(function()
    mgpu.dashboard.open { port = 0 }
    check.raises(function() fit { dashboard = 1 } end, "a dashboard is open at port", "usage")
  end)
end)
