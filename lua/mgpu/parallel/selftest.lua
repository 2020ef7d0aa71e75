--- --selftest cluster: what each rank and each link between two ranks does, and which of them is slow.
--
-- Each rank multiplies matrices; messages of 4 bytes and of 4 MB go between pairs of ranks; all ranks add up arrays. A
-- rank or link is slow if it takes twice as long as the median of all.
local core = require "mgpu.core"
local world = require "mgpu.parallel.world"

local ops = core.ops
local SIDE, SMALL, LARGE = 512, 4, 4e6 -- of the matrices; bytes of messages
local MOST_PAIRS = 28                  -- all pairs of 8 ranks; of more ranks only neighbours, and rank 0 with each
local SLOW = 2

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)]
end

local function mark(value, middle) return value > SLOW * middle and "  <-- slow" or "" end

-- The shortest of several runs, in seconds.
local function best_time(runs, fn)
  local best = math.huge
  for _ = 1, runs do
    local start = core.clock()
    fn()
    best = math.min(best, core.clock() - start)
  end
  return best
end

-- Nanoseconds of one product on this rank.
local function product_time()
  local a = ops.full({ SIDE, SIDE }, 0.5, "float32")
  core.eval(a)
  return best_time(5, function() core.eval((ops.matmul(a, a))) end) * 1e9
end

local function pairs_of(size)
  local list = {}
  for a = 0, size - 1 do
    for b = a + 1, size - 1 do
      if size * (size - 1) / 2 <= MOST_PAIRS or a == 0 or b == a + 1 then list[#list + 1] = { a, b } end
    end
  end
  return list
end

local function report_ranks(report)
  local now = core.world()
  local times = core.world_gather(math.floor(product_time()))
  for rank, time in ipairs(times) do
    report(("rank %-3d on %-20s product of %dx%d: %8.2f ms%s"):format(rank - 1, now.hosts[rank], SIDE, SIDE,
      time / 1e6, mark(time, median(times))))
  end
end

local function report_links(report)
  local list, delays, rates = pairs_of(world.size()), {}, {}
  for i, pair in ipairs(list) do
    core.world_link(pair[1], pair[2], SMALL, 10)
    delays[i] = core.world_link(pair[1], pair[2], SMALL, 100)
    rates[i] = core.world_link(pair[1], pair[2], LARGE, 3)
  end
  local delay, rate = median(delays), median(rates)
  for i, pair in ipairs(list) do
    local slow = mark(math.max(delays[i] / delay, rates[i] / rate), 1)
    report(("link %d to %d: %8.1f us for %d bytes, %6.2f GB/s for %d MB%s"):format(pair[1], pair[2], delays[i] * 1e6,
      SMALL, LARGE / rates[i] / 1e9, LARGE / 1e6, slow))
  end
end

--- cluster(report): measures, and reports lines on rank 0. All ranks call it.
return function(report)
  if not world.is_joint() then
    core.fail("usage", "--selftest cluster: there is one process: start several, as in mgpulua --np 2 --selftest "
      .. "cluster")
  end
  if not world.is_first() then report = function() end end
  local now = core.world()
  report(("%d ranks, started by %s, messages by %s"):format(now.size, now.launcher, now.transport))
  report_ranks(report)
  report_links(report)
  for _, count in ipairs { 1, 250000, 4000000 } do
    local seconds = core.world_sum_time(count, count > 1e5 and 5 or 100)
    report(("sum over all ranks of %9d bytes: %10.1f us"):format(count * 4, seconds * 1e6))
  end
  report "all ranks and links work"
end
