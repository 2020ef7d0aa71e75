--- host() -> the name of a device in host memory, for data that belong to no other.
local core = require "mgpu.core"

--- host() -> "cpu:0", or "ref:0" where there is no cpu device.
return function() return #core.devices "cpu" > 0 and "cpu:0" or "ref:0" end
