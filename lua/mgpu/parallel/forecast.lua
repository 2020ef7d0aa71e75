--- How long a training step will take, from counts of its work and the speeds of devices and links: for mgpu.explain.
--
-- A device computes its multiplications and moves its elements through memory; the gradients are added up within each
-- host and then between the hosts, in rings. As far as it can, that happens beside the backward pass, which is two
-- thirds of the computation; the rest, and the loading of rows where it is slower than the step, makes the step longer.
local M = {}

--- What is assumed unless `speeds` says otherwise: a GPU of a data center, of which a training step reaches a third,
--- and links of eight GPUs a host.
M.ASSUMED = {
  compute = 3e13, -- float operations a second of a device
  memory = 1e12,  -- bytes a second of a device's memory
  link = 1e11,    -- bytes a second between devices of a host
  network = 1e10, -- bytes a second between hosts
  latency = 2e-5, -- seconds of a message
  input = math.huge, -- rows a second that each host loads
}

local BACKWARD = 2 / 3 -- of the computation, beside which gradients are reduced

local function rounds(n) return math.ceil(math.log(n) / math.log(2) - 1e-9) end

--- ring(n, bytes, count, rate, latency) -> seconds of a sum of `bytes` in `count` calls over a ring of n, each of which
--- sends to its neighbour.
function M.ring(n, bytes, count, rate, latency)
  if n == 1 then return 0 end
  return 2 * (n - 1) / n * bytes / rate + count * 2 * rounds(n) * latency
end

--- gather(n, bytes, rate, latency) -> seconds until each of n has the `bytes` of all.
function M.gather(n, bytes, rate, latency)
  if n == 1 then return 0 end
  return (n - 1) * bytes / rate + rounds(n) * latency
end

--- step(work, speeds) -> {compute, communication, hidden, input, seconds, bound}: seconds, and which of "compute",
--- "communication" and "input" takes most of the step.
-- work: products and elements of the device with most rows; bytes and collectives of its sums; devices, hosts, and
-- batch, its rows.
function M.step(work, speeds)
  local s, each = speeds, math.ceil(work.devices / work.hosts)
  local t = { compute = 2 * work.products / s.compute + 4 * work.elements / s.memory }
  t.communication = M.ring(each, work.bytes, work.collectives, s.link, s.latency)
    + M.ring(work.hosts, work.bytes, work.collectives, s.network, s.latency)
  t.hidden = math.min(t.communication, BACKWARD * t.compute)
  t.input = work.batch / work.hosts / s.input
  local exposed = t.communication - t.hidden
  t.seconds = math.max(t.compute + exposed, t.input)
  t.bound = t.input > t.compute + exposed and "input" or exposed > t.compute and "communication" or "compute"
  return t
end

-- The work with `factor` times as many devices and hosts; of each device, `rows` times as many rows.
local function scaled(work, factor, rows)
  local w = setmetatable({}, { __index = work })
  w.devices = work.devices * factor
  w.hosts = work.hosts > 1 and work.hosts * factor or 1
  w.products, w.elements, w.batch = work.products * rows, work.elements * rows, work.batch * rows * factor
  return w
end

--- advice(work, speeds) -> {same_batch, same_rows}: how many times as many rows a second twice the devices would train,
--- with the same batch, and with as many rows on each device as now.
function M.advice(work, speeds)
  local now, half, same = M.step(work, speeds), M.step(scaled(work, 2, 0.5), speeds), M.step(scaled(work, 2, 1), speeds)
  return { same_batch = now.seconds / half.seconds, same_rows = 2 * now.seconds / same.seconds }
end

-- ---- as text ------------------------------------------------------------------------------------

local function short(number)
  for _, unit in ipairs { { 1e12, " T" }, { 1e9, " G" }, { 1e6, " M" }, { 1e3, " k" } } do
    if number >= unit[1] then return ("%.3g%s"):format(number / unit[1], unit[2]) end
  end
  return ("%.3g "):format(number)
end

local WHY = {
  compute = "computing takes most of the step: faster devices, a lower precision or more devices help",
  communication = "sums of gradients take most of the step: more rows for each device, or faster links help",
  input = "loading rows takes longer than the step: more hosts, threads or a cache of rows help",
}

--- lines(forecast) -> what a report prints of {step's result, speeds =, given =, advice =}.
function M.lines(f)
  local s = f.speeds
  local input = s.input < math.huge and (", %srows/s loaded by a host"):format(short(s.input)) or ""
  return {
    ("forecast: %.3g ms a step: computing %.3g ms, sums %.3g ms, of which %.3g ms hidden, loading %.3g ms"):format(
      f.seconds * 1e3, f.compute * 1e3, f.communication * 1e3, f.hidden * 1e3, f.input * 1e3),
    ("bound by %s: %s"):format(f.bound, WHY[f.bound]),
    ("twice the devices: %.2f times the rows a second with the same batch, %.2f times with twice the batch"):format(
      f.advice.same_batch, f.advice.same_rows),
    ("%s: a device %sflop/s and %sB/s of memory, links %sB/s in a host and %sB/s between hosts, %.3g us a message%s")
      :format(f.given and "with the given speeds, else assumed" or "assumed, not measured", short(s.compute),
        short(s.memory), short(s.link), short(s.network), s.latency * 1e6, input),
  }
end

return M
