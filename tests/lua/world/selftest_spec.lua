-- mgpulua --selftest cluster.

local check = require "check"
local test = check.test

local function run(arguments) return check.run(("%s %s </dev/null"):format(check.program, arguments)) end

test("--selftest cluster measures each rank, each link and sums over all ranks", function()
  if #require "mgpu.core".transports() == 0 then check.skip "no transport was built (libucx-dev)" end
  local text, status = run "--np 3 --selftest cluster"
  check.equal(status, 0, text)
  check.matches(text, "3 ranks, started by mgpulua, messages by UCX")
  for rank = 0, 2 do check.matches(text, ("rank %d +on %%S+ +product of 512x512: +[%%d.]+ ms"):format(rank)) end
  for _, link in ipairs { "0 to 1", "0 to 2", "1 to 2" } do
    check.matches(text, "link " .. link .. ": +[%d.]+ us for 4 bytes, +[%d.]+ GB/s for 4 MB")
  end
  check.matches(text, "sum over all ranks of +16000000 bytes: +[%d.]+ us\nall ranks and links work\n$")
end)

test("--selftest of one process, or of something else, is an error", function()
  local text, status = run "--selftest cluster"
  check.matches(text, "%-%-selftest cluster: there is one process: start several")
  check.equal(status, 1)
  text, status = run "--selftest gpu"
  check.matches(text, "%-%-selftest gpu: there is only %-%-selftest cluster")
  check.equal(status, 1)
end)
