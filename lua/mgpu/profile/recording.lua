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

--- start([options]) -> a recording. options.path: the trace's file; most: the most events that a thread keeps.
-- Errors: another one is under way; a file that cannot be made there.
function M.start(options)
  local self = setmetatable(options or {}, Recording)
  if self.path then
    local world = core.world()
    self.path = trace_file.path_of(self.path, world.rank, world.size)
    core.check_creatable(self.path, "profile")
  end
  core.profile_begin(self.most)
  self.depth = core.span("script", ROOT)
  return self
end

--- recording:drop(): ends it without a report.
function Recording:drop()
  core.span_end(self.depth)
  core.profile_end()
  core.profile_drop()
end

--- recording:finish() -> the report, with the field `path` if it was written to a file; and what is wrong with the
--- file, or nil.
function Recording:finish()
  core.profile_settle()
  core.span_end(self.depth)
  local _, _, began = core.profile_end()
  local world = core.world()
  local file = self.path and trace_file.new(world.rank, world.size, began % DAY * 1e6)
  local sums, from = summary.read(ROOT, file and function(track, event) file:add(track, event) end)
  core.profile_drop()
  local report = Report.new(sums, from * 1e-6)
  if not file then return report end
  local ok, message = pcall(core.write_file, self.path, file:text())
  report.path = ok and self.path or nil
  return report, not ok and message or nil
end

return M
