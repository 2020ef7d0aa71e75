-- The races of tests/bench: a contender that hangs, ends early or is slow must not change the figures of the
-- others.
local check = require "check"
package.path = "tests/bench/?.lua;" .. package.path
local race = require "race"

local test = check.test

-- A contender that takes `seconds` for its first answer and ends at answer number `ends`.
local function contender(name, seconds, ends)
  local path = check.path(name .. ".sh")
  check.write(path, ([[
n=0
while read -r what count; do
  n=$((n + 1))
  [ $n = 1 ] && sleep %s
  [ $n = %d ] && { echo "gave up" >&2; exit 1; }
  case $what in run) echo '{"ms": [%d], "host_us": 7.5}' ;; memory) echo '{"mb": 12.5}' ;; esac
done]]):format(seconds, ends or 0, name == "slow" and 3 or 2))
  return { name = name, command = "sh " .. path }
end

local function quietly(fn)
  local said, usual = {}, print
  print = function(...) said[#said + 1] = table.concat({ ... }, " ") end -- luacheck: ignore
  local ok, result = pcall(fn)
  print = usual -- luacheck: ignore
  return ok, result, table.concat(said, "\n")
end

test("a contender without an answer is left out and its process is ended", function()
  local ok, list, said = quietly(function()
    return race.race({ contender("ours", 0), contender("hangs", 97531), contender("slow", 1) }, 3, 5, 3)
  end)
  check.truthy(ok, list)
  check.equal({ #list, list[1].name, list[2].name }, { 2, "ours", "slow" })
  check.equal({ list[1].ratio, list[2].ratio, #list[2].ms, list[1].host }, { 1, 1.5, 3, 7.5 })
  check.matches(said, "skipped: hangs gave no answer in 3 s")
  check.equal((check.run("for i in $(seq 100); do grep -lsz '^9753[1]$' /proc/[0-9]*/cmdline >/dev/null || exit; "
    .. "sleep 0.1; done; echo alive")), "")
end)

test("a contender that ends in a later round is left out from then on", function()
  local ok, list, said = quietly(function()
    return race.race({ contender("ours", 0), contender("ends", 0, 3), contender("slow", 0) }, 3, 5, 5)
  end)
  check.truthy(ok, list)
  check.equal({ #list, #list[1].ms, list[2].name, #list[2].ms }, { 2, 3, "slow", 3 })
  check.matches(said, "skipped: ends: gave up")
end)

test("there is no race without our own contender", function()
  local ok, problem = quietly(function()
    return race.race({ contender("ours", 0, 1), contender("slow", 0) }, 3, 5, 5)
  end)
  check.falsy(ok)
  check.matches(problem, "ours: gave up")
end)

test("no round begins after the time limit", function()
  local ok, list = quietly(function()
    return race.race({ contender("ours", 0), contender("slow", 0) }, 300, 5, 5, os.time() - 1)
  end)
  check.truthy(ok, list)
  check.equal({ #list, #list[1].ms }, { 2, 1 })
end)

test("the race does not wait for a contender after the time limit", function()
  local start = os.time()
  local ok, list, said = quietly(function()
    return race.race({ contender("ours", 0), contender("hangs", 97532) }, 3, 5, 60, os.time() + 2)
  end)
  check.truthy(ok, list)
  check.equal(#list, 1)
  check.matches(said, "skipped: hangs gave no answer in")
  check.truthy(os.time() - start < 20, "it ends")
end)
