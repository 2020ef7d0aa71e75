--- The elements of a chain on row numbers (dataset.lua), which comes before the first step that needs values.
local Iterator = require "mgpu.data.iterator"
local operator = require "mgpu.data.flow.operator"

local Rows = operator.class()

local FEW = 64 -- elements that are sooner made and dropped than sought in a new stream

function Rows:pull()
  self.rows = self.rows or Iterator.new(self.dataset, self.pass, self.at)
  local element = { self.rows() }
  if element[1] == nil then return nil end
  self.at = self.at + 1
  return element
end

function Rows:leap(n)
  n = math.min(n, self.dataset.count - self.at)
  if self.rows and n <= FEW then
    for _ = 1, n do self:pull() end
    return n
  end
  self:close()
  self.at = self.at + n
  return n
end

function Rows:close()
  if self.rows then self.rows:close() end
  self.rows = nil
end

return Rows
