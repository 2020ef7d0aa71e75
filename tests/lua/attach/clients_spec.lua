-- --attach from terminals, from several at once, to jobs of several ranks, and where the sockets are.
local check = require "check"
local core = require "mgpu.core"
local jobs = require "lua.attach.jobs"
local terminal = require "lua.prompt.terminal"
local wait_until = require "fixtures".wait_until
local test = check.test

-- The output and status of the program with these options.
local function ask(job, options)
  return check.run(("%s %s %s"):format(job.environment, check.program, options))
end

local function attached(job)
  local t = terminal.open { arguments = "--attach " .. job.pid, env = { XDG_RUNTIME_DIR = job.run } }
  t:expect(job.pid .. "> ")
  return t
end

test("a pause lasts until :continue, and no longer than the terminal that asked for it", function()
  local output = jobs.with(function(job)
    local function now() return jobs.ranks(job)[0] or {} end -- nothing where a busy machine answers late
    local function stands()
      local first = now()
      if first.state ~= "paused" then return false end
      core.sleep(0.1)
      local second = now()
      return second.state == "paused" and second.epoch == first.epoch and second.step == first.step
    end
    local function goes_on()
      local first
      wait_until(function()
        first = first or now().epoch
        return first and (now().epoch or 0) > first
      end, "a later epoch")
    end
    local t = attached(job)
    t:type ":pause"
    wait_until(stands, "the pause")
    check.equal(ask(job, ("--attach %d -e 'print(answer)'"):format(job.pid)), "42\n", "a command in the pause")
    t:type ":continue"
    goes_on()
    t:type ":pause"
    wait_until(stands, "the second pause")
    t:signal "KILL"
    goes_on()
    t:hang_up()
    t:wait()
    local u = attached(job)
    u:type ":pause"
    wait_until(stands, "the third pause")
    u:hang_up() -- the terminal is closed
    goes_on()
    u:wait()
  end)
  check.matches(output, "status 0\n$")
end)

test("several terminals at a time each have a session of their own", function()
  local output = jobs.with(function(job)
    local list = {}
    for i = 1, 4 do list[i] = attached(job) end
    for i, t in ipairs(list) do t:type(("local mine = %d"):format(i * 11)) end
    for i, t in ipairs(list) do t:ask("print(mine, rawget(_G, 'mine'))", ("%d\tnil"):format(i * 11)) end
    list[2]:signal "KILL"
    list[2]:hang_up()
    list[2]:wait()
    list[3]:ask("print(mine + answer)", "75")
    for _, i in ipairs { 1, 3, 4 } do check.equal(list[i]:close(), 0) end
  end)
  check.matches(output, "status 0\n$")
end)

test("the one behind the 16 that a job takes is told so", function()
  jobs.with(function(job)
    local list = {}
    for i = 1, 16 do list[i] = attached(job) end
    local text, status = ask(job, ("--attach %d -e 'print(1)'"):format(job.pid))
    check.equal(status, 1)
    check.matches(text, "it has ended, or has too many")
    for _, t in ipairs(list) do t:close() end
    check.equal(ask(job, ("--attach %d -e 'print(1)'"):format(job.pid)), "1\n")
  end)
end)

test("with several ranks each is there; what one rank would change alone is undone, what rank 0 decides reaches all",
  function()
    local output = jobs.with(function(job)
      local list
      wait_until(function()
        list = jobs.ranks(job)
        return list[0] and list[1]
      end, "two ranks")
      check.equal({ list[0].size, list[1].size }, { 2, 2 })
      local function on(rank, code) return ask(job, ("--attach %d -e '%s'"):format(list[rank].pid, code)) end
      check.equal(on(1, "print(answer, require [[mgpu.core]].world().rank)"), "42\t1\n")
      for rank = 0, 1 do
        local text, status = on(rank, "model.stop_training = true")
        check.matches(text, "undone: the command has changed stop_training on one rank only")
        check.equal(status, 1)
        text, status = on(rank, "local w = model.variables[1] w:assign(w:value() * 0)")
        check.matches(text, "undone: the command has changed")
        check.equal(status, 1)
      end
      local text, status = on(1, "job.stop()")
      check.matches(text, "rank 0")
      check.equal(status, 1)
      local t = terminal.open { arguments = "--attach " .. list[1].pid, env = { XDG_RUNTIME_DIR = job.run } }
      t:expect(list[1].pid .. "> ")
      t:ask(":pause", "with several processes a job is not paused")
      check.equal(t:close(), 0)
      check.matches(on(0, "job.stop()"), "stops at the end of epoch %d+, on all ranks")
      wait_until(function() return core.file_exists(job.path .. ".end") end, "the end of all ranks")
    end, { options = " --np 2" })
    check.matches(output, "status 0\n$")
  end)

-- ---- where the sockets are --------------------------------------------------------------------------

-- Runs a job with this variable and attaches to it. RETURNS the path of its socket.
local function place_with(environment)
  local path
  jobs.with(function(job)
    job.pid = check.run("pgrep -P $(cat " .. job.path .. ".pid) || cat " .. job.path .. ".pid"):match "%d+"
    check.equal(ask(job, ("--attach %s -e 'print(answer)'"):format(job.pid)), "42\n")
    path = check.run(("ls -d %s/mgpulua/%s.sock /run/user/*/mgpulua/%s.sock /tmp/mgpulua-*/%s.sock 2>/dev/null"):format(
      job.run, job.pid, job.pid, job.pid)):match "[^\n]*"
  end, { environment = environment })
  check.falsy(core.file_exists(path), "the socket after the end")
  return path
end

test("without a folder of the system for sockets they are in /run or /tmp", function()
  local run = check.path "run"
  check.run("mkdir -p -m 700 " .. run)
  check.equal(place_with("XDG_RUNTIME_DIR=" .. run):match "^(.*)/%d+%.sock$", run .. "/mgpulua")
  for _, environment in ipairs { "env -u XDG_RUNTIME_DIR", "XDG_RUNTIME_DIR=", "XDG_RUNTIME_DIR=relative",
    "XDG_RUNTIME_DIR=/nowhere", "XDG_RUNTIME_DIR=/" .. ("x"):rep(120) } do
    local place = place_with(environment)
    check.truthy(place:find "^/run/user/%d+/mgpulua/%d+%.sock$" or place:find "^/tmp/mgpulua%-%d+/%d+%.sock$", place)
  end
end)

test("a folder of sockets that others can enter, or that is a link or belongs to another, is not used", function()
  local run = check.path "run"
  check.run("mkdir -p -m 700 " .. run)
  local ways = { "mkdir -m 750 %s", "mkdir -m 707 %s", "touch %s", "mkdir -m 700 %s.real; ln -s %s.real %s" }
  if check.run "id -u" == "0\n" then ways[#ways + 1] = "mkdir -m 700 %s; chown 65534 %s" end
  for _, way in ipairs(ways) do
    check.run(("rm -rf %s/mgpulua*; "):format(run) .. way:gsub("%%s", run .. "/mgpulua"))
    check.falsy(place_with("XDG_RUNTIME_DIR=" .. run):find(run, 1, true), way)
  end
end)
