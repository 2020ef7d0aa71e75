--- The timeline of a training step on 1 to 64 GPUs, from the work of its steps and the speeds of devices and links: for
--- mgpu.explain.
--
-- All devices do the same, so one of them stands for all. It has two rows: its computation, in the order of the plan,
-- and its collectives, in their order. A collective begins when its operand is there and the collective before it has
-- ended; a step begins when the step before it has ended, and the collectives whose results it reads. A step takes
-- the longer one of the times for its arithmetic and its memory. The last collective is that in which the devices agree
-- that all have computed the step (runtime/graph/async_guards.h).
local forecast = require "mgpu.parallel.forecast"

local M = {}

M.COUNTS = { 1, 2, 4, 8, 16, 32, 64 }
M.PER_HOST = 8

local AGREEMENT = 8 -- bytes

-- Seconds of a call: `bytes` of this device are added up, or gathered, within each host and then between the hosts.
local function seconds_of(op, bytes, n, hosts, speeds)
  local each = math.ceil(n / hosts)
  if op == "all_gather" then
    return forecast.gather(each, bytes, speeds.link, speeds.latency)
      + forecast.gather(hosts, bytes * each, speeds.network, speeds.latency)
  end
  return forecast.ring(each, bytes, 1, speeds.link, speeds.latency)
    + forecast.ring(hosts, bytes, 1, speeds.network, speeds.latency)
end

-- The calls of collectives in the steps: {op, sent}, the steps of a bucket as one.
local function calls_of(steps)
  local calls = {}
  for _, s in ipairs(steps) do
    if s.collective > 0 then
      calls[s.collective] = calls[s.collective] or { op = s.op, sent = 0 }
      calls[s.collective].sent = calls[s.collective].sent + s.sent
      calls[s.collective].last = s
    end
  end
  return calls
end

--- simulate(steps, n, hosts, speeds) -> {seconds, compute, communication, waiting, computing = spans, exchanging =
--- spans}: seconds; a span is {first, last, name} in seconds from the beginning of the step.
-- steps: of a jitted function's work(), on one of n devices.
function M.simulate(steps, n, hosts, speeds)
  local t = { compute = 0, communication = 0, waiting = 0, computing = {}, exchanging = {} }
  local calls, now, free, ended = calls_of(steps), 0, 0, {}
  local function exchange(op, sent)
    local seconds, first = n > 1 and seconds_of(op, sent, n, hosts, speeds) or 0, math.max(now, free)
    t.communication, free = t.communication + seconds, first + seconds
    if n > 1 then t.exchanging[#t.exchanging + 1] = { first, free, op } end
    return free
  end
  local function wait(till)
    t.waiting, now = t.waiting + math.max(0, till - now), math.max(now, till)
  end
  for _, s in ipairs(steps) do
    local call = calls[s.collective]
    if s.awaits > 0 then wait(ended[s.awaits]) end
    if call then -- of a bucket, the last operand
      if call.last == s then ended[s.collective] = exchange(call.op, call.sent) end
    else
      local seconds = math.max(s.flops / speeds.compute, s.bytes / speeds.memory)
      t.computing[#t.computing + 1] = { now, now + seconds, s.layer or s.op }
      now, t.compute = now + seconds, t.compute + seconds
    end
  end
  if n > 1 then wait(exchange("all_reduce", AGREEMENT)) end
  t.seconds = math.max(now, free)
  return t
end

-- ---- as text ------------------------------------------------------------------------------------

local WIDE = 64

-- A row of WIDE characters for `seconds`: how much of each piece of time the spans fill.
local function bar(spans, seconds)
  local filled, text = {}, {}
  for i = 1, WIDE do filled[i] = 0 end
  for _, span in ipairs(spans) do
    local first, last = span[1] / seconds * WIDE, span[2] / seconds * WIDE
    for i = math.floor(first) + 1, math.min(WIDE, math.ceil(last)) do
      filled[i] = filled[i] + math.max(0, math.min(last, i) - math.max(first, i - 1))
    end
  end
  for i, part in ipairs(filled) do
    text[i] = part > 0.75 and "#" or part > 0.25 and "=" or part > 0.01 and "-" or "."
  end
  return table.concat(text)
end

local function short(number)
  for _, unit in ipairs { { 1e12, " T" }, { 1e9, " G" }, { 1e6, " M" } } do
    if number >= unit[1] then return ("%.3g%s"):format(number / unit[1], unit[2]) end
  end
  return ("%.3g "):format(number)
end

local function text(self)
  local s = self.speeds
  local lines = {
    ("%d rows on each GPU, %d GPUs a host; a row is the time of the longest step, # busy, = half, - little, . not")
      :format(self.rows, M.PER_HOST),
    ("a GPU %sflop/s and %sB/s of memory, links %sB/s in a host and %sB/s between hosts, %.3g us a message")
      :format(short(s.compute), short(s.memory), short(s.link), short(s.network), s.latency * 1e6),
  }
  local longest = 0
  for _, t in ipairs(self) do longest = math.max(longest, t.seconds) end
  for _, t in ipairs(self) do
    lines[#lines + 1] = ("%3d GPU%s %8.3f ms a step, %5.2f times the rows a second; computing %.3f ms, exchanging "
      .. "%.3f ms, waiting for it %.3f ms"):format(t.devices, t.devices == 1 and " " or "s", t.seconds * 1e3, t.speedup,
      t.compute * 1e3, t.communication * 1e3, t.waiting * 1e3)
    lines[#lines + 1] = "    computing  |" .. bar(t.computing, longest) .. "|"
    if t.devices > 1 then lines[#lines + 1] = "    exchanging |" .. bar(t.exchanging, longest) .. "|" end
  end
  return table.concat(lines, "\n")
end

--- new(work_of, counts, rows, speeds) -> the timelines of `counts` devices with `rows` rows on each, a list that prints
--- itself. work_of(n): the steps of one of n devices.
function M.new(work_of, counts, rows, speeds)
  local list = setmetatable({ rows = rows, speeds = speeds }, { __tostring = text })
  local one = M.simulate(work_of(1), 1, 1, speeds)
  for i, n in ipairs(counts) do
    local hosts = math.ceil(n / M.PER_HOST)
    list[i] = n == 1 and one or M.simulate(work_of(n), n, hosts, speeds)
    list[i].devices, list[i].hosts = n, hosts
    list[i].speedup = n * one.seconds / list[i].seconds
  end
  return list
end

return M
