--- Rows of layers and ops, {layer, op, where, backward, calls, seconds, flops, bytes, collective}: their estimates, and
--- their lines in a table. A profile measures them, an estimate (estimate.lua) counts them.
local core = require "mgpu.core"

local SHORT = 5e-6 -- seconds of a launch in which starting it counts
local MOST = 20    -- lines

local M = {}

--- label(row) -> the layer, or else the line of the script.
function M.label(row) return (row.layer or row.where or "-") .. (row.backward and " (gradient)" or "") end

--- count(list, by_key, step) -> the row of the step's layer and op, which is added to the list if there is none; the
--- step {layer, op, where, backward, flops, bytes} is counted in it. by_key: a table for each list, empty at first.
function M.count(list, by_key, step)
  local key = ("%s\0%s\0%s"):format(step.layer or step.where or "", step.backward and "b" or "", step.op)
  local row = by_key[key]
  if not row then
    row = { layer = step.layer, op = step.op, where = step.where, backward = step.backward, calls = 0, flops = 0,
      bytes = 0 }
    by_key[key], list[#list + 1] = row, row
  end
  row.calls, row.flops, row.bytes = row.calls + 1, row.flops + step.flops, row.bytes + step.bytes
  return row
end

--- sort(list): the slowest rows first.
function M.sort(list)
  table.sort(list, function(a, b)
    return a.seconds > b.seconds or a.seconds == b.seconds and a.label .. a.op < b.label .. b.op
  end)
end

--- estimate(row, peak): sets `estimate`, the seconds that the row takes if the device reaches its peak {flops, bytes},
--- and `bound`: "arithmetic", "memory", "devices" for collectives, or "launches" for steps too short to use the device.
function M.estimate(row, peak)
  local arithmetic, memory = row.flops / peak.flops, row.bytes / peak.bytes
  local each = (row.steady or math.huge) / row.calls
  row.estimate = math.max(arithmetic, memory)
  row.bound = row.collective and "devices"
    or each < SHORT and row.estimate < 0.5 * row.steady and "launches"
    or arithmetic > memory and "arithmetic" or "memory"
end

--- cell(format, value) -> the value, "-" for nil.
function M.cell(format, value) return value and format:format(value) or "-" end

--- time(seconds) -> "1.20 ms".
function M.time(seconds)
  return seconds < 1e-3 and ("%.1f us"):format(seconds * 1e6) or seconds < 1 and ("%.2f ms"):format(seconds * 1e3)
    or ("%.3f s"):format(seconds)
end

-- Text for a column of so many characters: in one line, and cut between characters.
local function fit(text, width)
  local characters, n = {}, 0
  for character in core.printable(text, true):gmatch "[^\128-\191][\128-\191]*" do
    if n == width then break end
    n = n + 1
    characters[n] = character
  end
  return table.concat(characters) .. (" "):rep(width - n)
end

local ROW = "%s %s %8s %10s %6s %9s %8s %8s %-10s %9s"

--- add_lines(lines, rows, titles, columns): the slowest rows. titles: of the three columns before the bound, which
--- columns(row) returns.
function M.add_lines(lines, rows, titles, columns)
  if #rows == 0 then return end
  lines[#lines + 1] = ROW:format(fit("layer", 28), fit("op", 22), "launches", "time", "share",
    titles[1], titles[2], titles[3], "bound by", "estimate")
  for i = 1, math.min(MOST, #rows) do
    local row = rows[i]
    local a, b, c = columns(row)
    lines[#lines + 1] = ROW:format(fit(row.label, 28), fit(row.op, 22), row.calls,
      M.time(row.seconds), ("%.1f %%"):format(100 * row.share), a, b, c, row.bound or "-",
      row.estimate and M.time(row.estimate) or "-")
  end
  if #rows > MOST then lines[#lines + 1] = ("... and %d more rows"):format(#rows - MOST) end
end

return M
