--- map and filter: dataset.fn, a function of user_function.lua, is called on each element.
local operator = require "mgpu.data.flow.operator"

local Map, Filter = operator.class(), operator.class()

operator.rows_of_input { Map, Filter }

function Map:begin() self.place = operator.place(self) end

Filter.begin = Map.begin

function Map:pull()
  local element = self.input:pull()
  if not element then return nil end
  self.at = self.at + 1
  return self.dataset.fn:element(element, self.place)
end

function Map:leap(n)
  local left_out = self.input:leap(n)
  self.at = self.at + left_out
  return left_out
end

function Filter:pull()
  while true do
    local element = self.input:pull()
    if not element then return nil end
    self.at = self.at + 1 -- elements asked
    if self.dataset.fn:truth(element, self.place) then return element end
  end
end

return { Map = Map, Filter = Filter }
