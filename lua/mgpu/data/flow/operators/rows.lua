--- The elements of a chain on row numbers (dataset.lua), which comes before the first step that needs values.
local Iterator = require "mgpu.data.iterator"
local operator = require "mgpu.data.flow.operator"

local Rows = operator.class()

local FEW = 64 -- to skip so few elements, making and dropping them is faster than seeking

function Rows:pull()
  self.iterator = self.iterator or Iterator.new(self.dataset, self.pass, self.at)
  local element = { self.iterator() }
  if element[1] == nil then return nil end
  self.at = self.at + 1
  return element
end

function Rows:rows() return self.iterator and self.iterator:rows() end

function Rows:leap(n)
  n = math.min(n, self.dataset.count - self.at)
  if self.iterator and n <= FEW then
    for _ = 1, n do self:pull() end
    return n
  end
  self:close()
  self.at = self.at + n
  return n
end

function Rows:close()
  if self.iterator then self.iterator:close() end
  self.iterator = nil
end

return Rows
