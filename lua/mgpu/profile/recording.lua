--- Recording a profile from one place of a script to another: for mgpu.profile and `mgpulua --profile`.
local core = require "mgpu.core"
local Report = require "mgpu.profile.report"
local summary = require "mgpu.profile.summary"
local trace_file = require "mgpu.profile.trace_file"

local ROOT = "profile" -- the text of the span that is the whole
local DAY = 86400

local Recording = {}
Recording.__index = Recording

local M = {}

--- start([most]) -> a recording. most: the most events that a thread keeps.
-- Errors: another one is under way.
function M.start(most)
  core.profile_begin(most)
  return setmetatable({ depth = core.span("script", ROOT) }, Recording)
end

--- recording:drop(): ends it without a report.
function Recording:drop()
  core.span_end(self.depth)
  core.profile_end()
  core.profile_drop()
end

--- recording:finish([path]) -> the report, with the field `path` if it was written to a file.
function Recording:finish(path)
  core.profile_settle()
  core.span_end(self.depth)
  local _, _, began = core.profile_end()
  local world = core.world()
  local file = path and trace_file.new(world.rank, world.size, began % DAY * 1e6)
  local sums = summary.read(ROOT, file and function(track, event) file:add(track, event) end)
  core.profile_drop()
  local report = Report.new(sums)
  if file then
    report.path = trace_file.path_of(path, world.rank, world.size)
    core.write_file(report.path, file:text())
  end
  return report
end

return M
