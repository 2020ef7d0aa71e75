--- mgpu.testing: what tests of scripts and of own layers need. Each function is an error if something is wrong.
local gradients = require "mgpu.testing.gradients"
local strict_table = require "mgpu.strict_table"

return strict_table("mgpu.testing", {
  assert_close = require "mgpu.testing.close",
  check_gradients = gradients.check_gradients,
  check_layer = gradients.check_layer,
  same_on_devices = require "mgpu.testing.devices",
  golden = require "mgpu.testing.golden",
})
