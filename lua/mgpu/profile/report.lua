--- The report of a profile: what mgpu.profile.table() returns and prints.
local advice = require "mgpu.profile.advice"
local core = require "mgpu.core"
local peaks = require "mgpu.profile.peaks"
local PARTS = require "mgpu.profile.summary".PARTS
local rows = require "mgpu.profile.rows"

local OFF = 3 -- times the estimate: more is said

local M = {}

-- ---- what the device could reach -----------------------------------------------------------------

-- Devices of one kind that share the host's cores share what it reaches.
local function reached(devices)
  local peak = devices[1] and peaks.of(devices[1])
  if not peak then return nil end
  local shared = devices[1]:match "^cpu" and #devices or 1
  return { flops = peak.flops / shared, bytes = peak.bytes / shared }
end

-- Adds the rates, and what the device would need at its best, the estimate. The first launch on a device, in which
-- libraries make their threads and kernels, counts for the rates only if there is no other; then nothing is concluded
-- from them (`unsteady`).
local function finish_row(row, computing, peak)
  row.share = computing > 0 and row.seconds / computing or 0
  row.label = rows.label(row)
  local later = row.calls > row.first_calls
  row.steady = later and (row.seconds - row.first) * row.calls / (row.calls - row.first_calls) or row.seconds
  row.first = later and row.first - row.steady * row.first_calls / row.calls or 0
  row.unsteady = not later
  row.seen, row.first_calls = nil, nil
  if row.steady == 0 then return end
  row.gflops, row.gbytes = row.flops / row.steady * 1e-9, row.bytes / row.steady * 1e-9
  if not peak then return end
  rows.estimate(row, peak)
  row.peak = row.estimate / row.steady
  if row.unsteady then row.first = row.steady - row.estimate end
end

-- What bounds the whole: "data", "Lua", "devices", "memory", "arithmetic" or "launches"; "computing" if the speeds of
-- the device are not known.
local function bound_of_all(self)
  local share, best, sums = self.share, nil, {}
  local lua = share.Lua + share.callbacks + share.tracing + share["making plans"] + share["starting steps"]
  if share.data > math.max(lua, self.busy) then return "data" end
  if lua > self.busy then return "Lua" end
  for _, row in ipairs(self.rows) do
    if row.bound then sums[row.bound] = (sums[row.bound] or 0) + row.seconds end
  end
  for _, name in ipairs { "arithmetic", "memory", "launches", "devices" } do
    if sums[name] and (not best or sums[name] > sums[best]) then best = name end
  end
  return best or self.busy > 0 and "computing" or "Lua"
end

-- ---- as text ------------------------------------------------------------------------------------

local function part_lines(self, lines)
  for _, name in ipairs(PARTS) do
    if self.parts[name] > 0 then
      lines[#lines + 1] = ("  %-20s %10s %6.1f %%"):format(name, rows.time(self.parts[name]), 100 * self.share[name])
    end
  end
end

-- The columns between time and bound.
local function rates(row)
  return rows.cell("%.2f", row.gflops), rows.cell("%.2f", row.gbytes),
    rows.cell("%.0f %%", row.peak and 100 * row.peak)
end

local RATES = { "GFLOP/s", "GB/s", "of peak" }

-- The rows that take some of the time, and much more than estimated: not by starting launches, which no estimate has
-- in it.
local function wrong_line(self, lines)
  local names = {}
  for _, row in ipairs(self.rows) do
    local off = row.estimate and row.steady > OFF * row.estimate
    local judged = not row.collective and not row.unsteady and row.bound ~= "launches"
    if off and judged and row.share > 0.02 and #names < 3 then
      names[#names + 1] = ("%s of %s (%.0f times)"):format(row.op, core.printable(row.label, true),
        row.steady / row.estimate)
    end
  end
  if #names > 0 then lines[#lines + 1] = "much slower than estimated: " .. table.concat(names, ", ") end
end

local function text(self)
  local lines = { ("a profile of %s%s%s on %s, bound by %s"):format(rows.time(self.wall),
    self.lost > 0 and (", the end of %s"):format(rows.time(self.lost + self.wall)) or "",
    self.steps and (", %d steps"):format(self.steps) or "",
    #self.devices > 0 and table.concat(self.devices, ", ") or "no device", self.bound) }
  part_lines(self, lines)
  rows.add_lines(lines, self.rows, RATES, rates)
  if self.warming > 0.02 * self.wall then
    lines[#lines + 1] = ("of the computing, %s went into the first launch of each op, which may make threads and "
      .. "kernels"):format(rows.time(self.warming))
  end
  wrong_line(self, lines)
  for _, sentence in ipairs(self.advice) do lines[#lines + 1] = "advice: " .. core.printable(sentence, true) end
  return table.concat(lines, "\n")
end

-- ---- making it ----------------------------------------------------------------------------------

--- new(summary, lost) -> the report of a summary (summary.lua); see mgpu.profile.table. lost: the seconds before it, of
--- which not all events were kept.
function M.new(summary, lost)
  local self = { wall = summary.wall, lost = lost, steps = summary.steps, parts = summary.parts, calls = summary.calls,
    share = {}, rows = summary.rows, devices = summary.devices, callbacks = summary.callbacks,
    functions = summary.functions, data_threads = summary.data_threads, computing = 0, warming = 0 }
  for name, seconds in pairs(self.parts) do self.share[name] = self.wall > 0 and seconds / self.wall or 0 end
  for _, row in ipairs(self.rows) do self.computing = self.computing + row.seconds end
  self.busy = self.wall > 0 and math.min(1, self.computing / math.max(1, #self.devices) / self.wall) or 0
  self.peaks = reached(self.devices)
  for _, row in ipairs(self.rows) do finish_row(row, self.computing, self.peaks) end
  rows.sort(self.rows)
  for _, row in ipairs(self.rows) do self.warming = self.warming + math.max(0, row.first) end
  self.bound, self.advice = bound_of_all(self), advice(self)
  return setmetatable(self, { __tostring = text })
end

return M
