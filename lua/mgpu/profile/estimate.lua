--- The table of a profile from estimates, without running a step: for mgpu.explain.
local rows = require "mgpu.profile.rows"

local function columns(row)
  return rows.cell("%.3f", row.flops * 1e-6), rows.cell("%.3f", row.bytes * 1e-6), ""
end

local function text(self)
  local lines = { ("about %s a step on a device with %.3g GFLOP/s and %.3g GB/s"):format(rows.time(self.seconds),
    self.peak.flops * 1e-9, self.peak.bytes * 1e-9) }
  rows.add_lines(lines, self.rows, { "MFLOP", "MB", "" }, columns)
  return table.concat(lines, "\n")
end

--- estimate(steps, peak) -> {seconds, peak, rows}, which prints as a table. steps: of a jitted function's work(), on
--- one device; peak: {flops, bytes}, a second. A row's seconds are its estimate.
return function(steps, peak)
  local list, by_key, seconds = {}, {}, 0
  for _, step in ipairs(steps) do rows.count(list, by_key, step) end
  for _, row in ipairs(list) do
    rows.estimate(row, peak)
    row.label, row.seconds = rows.label(row), row.estimate
    seconds = seconds + row.seconds
  end
  for _, row in ipairs(list) do row.share = seconds > 0 and row.seconds / seconds or 0 end
  rows.sort(list)
  return setmetatable({ seconds = seconds, peak = peak, rows = list }, { __tostring = text })
end
