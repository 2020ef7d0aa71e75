-- Messages between single ranks (core.mailbox), which strategies with parameter servers use.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

local PRELUDE = [[
  local mgpu = require "mgpu"
  local core = require "mgpu.core"
  local rank = mgpu.world().rank
  local box = core.mailbox()
  local a = mgpu.variable(mgpu.zeros { 2, 3 }, { name = "a" })
  local b = mgpu.variable(mgpu.zeros({ 100000 }, { dtype = "float64" }), { name = "b" })
  local form = { a, b }
]]

-- What the ranks of a script print, and its exit status.
local function run(ranks, code)
  check.needs(check.program:match "^(.*)/" .. "/mgpu-ucx.so")
  local path = check.path "mailbox.lua"
  check.write(path, PRELUDE .. code)
  return check.run(("timeout -k 5 100 %s --np %d --output all %s 2>&1 </dev/null"):format(check.program, ranks, path))
end

test("a rank adds up what several ranks have sent it, and answers each", function()
  local output, status = run(3, [[
    if rank == 0 then
      for r = 1, 2 do box:expect(r, 2, form) end
      for _ = 1, 2 do
        local from, numbers = box:next(2)
        assert(numbers[1] == from and numbers[2] == 0.5)
      end
      local sums = box:sums(2, form, { { 1, 2 }, {} })
      assert(sums[2] == false)
      for r = 1, 2 do box:send(r, { 7 }, form, { sums[1], b:value() + r }) end
      box:settle()
    else
      box:send(0, { rank, 0.5 }, form, { mgpu.full({ 2, 3 }, 10 * rank), false })
      box:expect(0, 1, form)
      local from, numbers = box:next(1)
      local got = box:sums(1, form, { { 0 }, { 0 } })
      print(from, numbers[1], got[1]:sum():item(), got[2]:sum():item())
    end]])
  local lines = {}
  for line in output:gmatch "[^\n]+" do lines[#lines + 1] = line end
  table.sort(lines)
  check.equal(lines, { "0\t7\t180\t100000", "0\t7\t180\t200000" })
  check.equal(status, 0)
end)

test("messages of a rank arrive in their order, and a rank may send to itself", function()
  local output, status = run(2, [[
    if rank == 1 then
      for i = 1, 50 do box:send(0, { i }, form, { false, b:value() + i }) end
      box:settle()
    else
      for i = 1, 50 do
        box:expect(1, 1, form)
        box:expect(0, 1, {})
        box:send(0, { i }, {})
        local sum = 0
        for _ = 1, 2 do
          local from, numbers = box:next(1)
          assert(numbers[1] == i)
        end
        assert(box:sums(1, form, { {}, { 1 } })[2]:sum():item() == i * 100000)
      end
      print "all"
    end]])
  check.equal(output, "all\n")
  check.equal(status, 0)
end)

test("who waits for a rank that dies ends with the sentence that names it", function()
  local output, status = run(2, [[
    if rank == 1 then core.sleep(0.3) os.exit(9) end
    box:expect(1, 1, form)
    box:next(1)]])
  check.matches(output, "rank 1 %(host %S+, pid %d+%)")
  check.equal(status ~= 0, true)
end)

test("what cannot be sent is an error", function()
  local v = mgpu.variable(mgpu.tensor { 1, 2, 3 }, { name = "v" })
  local box = core.mailbox()
  local function error_of(fn, ...) return select(2, pcall(fn, ...)) end
  check.matches(error_of(box.send, box, 1, {}, {}), "mailbox: there is no rank 1")
  check.matches(error_of(box.send, box, 0, {}, { 1 }), "mailbox: entry 1 of the form is a number, not a variable")
  check.matches(error_of(box.send, box, 0, {}, { v }, { mgpu.zeros { 4 } }), "mailbox: value 1 is not a tensor like v")
  check.matches(error_of(box.send, box, 0, {}, {}), "mailbox: rank 0 does not expect what it sends")
  check.matches(error_of(box.next, box, 0), "mailbox: no message is expected")
  box:expect(0, 1, {})
  check.matches(error_of(box.expect, box, 0, 1, {}), "mailbox: a message of rank 0 is expected already")
  box:send(0, { 4 }, {})
  check.matches(error_of(box.next, box, 9), "mailbox: the message has fewer than 9 numbers")
  check.matches(error_of(box.sums, box, 1, { v }, { { 0 } }), "mailbox: the message of rank 0 is too short")
end)
