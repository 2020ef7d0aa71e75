-- tests/run.lua: what counts as a failure of a test file.

local check = require "check"

-- What run.lua says of a C test that prints this text and ends with this status; and its own status.
local function run(output, status)
  local path = check.path "a_test"
  check.write(path, ("#!/bin/sh\ncat <<'END'\n%s\nEND\nexit %d\n"):format(output, status))
  check.run("chmod +x " .. path)
  return check.run(("%s tests/run.lua %s"):format(check.program, path))
end

local GOOD = "[==========] Running 2 test(s).\n[  PASSED  ] 2 test(s)."

check.test("a C test passes only if its groups could be set up and torn down", function()
  local said, status = run(GOOD, 0)
  check.matches(said, "\n2 passed, 0 failed\n")
  check.equal(status, 0)
  said, status = run("[  FAILED  ] GROUP TEARDOWN\n[  ERROR   ] tests\n" .. GOOD, 0) -- as cmocka 1.1 does
  check.matches(said, "\n2 passed, 1 failed\n")
  check.matches(said, "GROUP TEARDOWN")
  check.equal(status, 1)
end)

check.test("a status of its own, or no summary, is a failure", function()
  local said, status = run(GOOD, 3)
  check.matches(said, "\n2 passed, 1 failed\n")
  check.matches(said, "ended with status 3")
  check.equal(status, 1)
  said, status = run("nothing", 0)
  check.matches(said, "\n0 passed, 1 failed\n")
  check.equal(status, 1)
end)
