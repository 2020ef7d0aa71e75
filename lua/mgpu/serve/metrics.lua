--- Counters of a server, as the text that Prometheus reads (its exposition format, version 0.0.4).
local core = require "mgpu.core"

local M = {}

local BOUNDS = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 } -- seconds

local Metrics = {}
Metrics.__index = Metrics

--- new() -> counters at zero.
function M.new()
  local below = {}
  for i = 1, #BOUNDS do below[i] = 0 end
  return setmetatable({ answers = {}, rows = 0, below = below, seconds = 0, predictions = 0 }, Metrics)
end

--- metrics:answer(status, where): counts an answer; where: "infer", "predict" or "other".
function Metrics:answer(status, where)
  local key = ('path="%s",status="%d"'):format(where, status)
  self.answers[key] = (self.answers[key] or 0) + 1
end

--- metrics:prediction(rows, began): counts rows that were computed for a request taken at core.clock() = began.
function Metrics:prediction(rows, began)
  local seconds = core.clock() - began
  self.rows, self.predictions, self.seconds = self.rows + rows, self.predictions + 1, self.seconds + seconds
  for i, bound in ipairs(BOUNDS) do
    if seconds <= bound then self.below[i] = self.below[i] + 1 end
  end
end

local function head(lines, name, kind, help)
  lines[#lines + 1] = ("# HELP %s %s"):format(name, help)
  lines[#lines + 1] = ("# TYPE %s %s"):format(name, kind)
end

--- metrics:text(batches, clients) -> the text. batches: how many were run; clients: connections that are open.
function Metrics:text(batches, clients)
  local lines = {}
  local function single(name, kind, help, value)
    head(lines, name, kind, help)
    lines[#lines + 1] = ("%s %.0f"):format(name, value)
  end
  head(lines, "mgpu_requests_total", "counter", "Answered requests.")
  for _, key in ipairs(require "mgpu.ordered_keys"(self.answers)) do
    lines[#lines + 1] = ("mgpu_requests_total{%s} %d"):format(key, self.answers[key])
  end
  single("mgpu_rows_total", "counter", "Rows that were predicted, without those that fill up batches.", self.rows)
  single("mgpu_batches_total", "counter", "Batches that were run.", batches)
  single("mgpu_connections", "gauge", "Connections that are open.", clients)
  head(lines, "mgpu_prediction_seconds", "histogram", "Time from taking a request to its answer.")
  for i, bound in ipairs(BOUNDS) do
    lines[#lines + 1] = ('mgpu_prediction_seconds_bucket{le="%g"} %d'):format(bound, self.below[i])
  end
  lines[#lines + 1] = ('mgpu_prediction_seconds_bucket{le="+Inf"} %d'):format(self.predictions)
  lines[#lines + 1] = ("mgpu_prediction_seconds_sum %.6f"):format(self.seconds)
  lines[#lines + 1] = ("mgpu_prediction_seconds_count %d"):format(self.predictions)
  return table.concat(lines, "\n") .. "\n"
end

return M
