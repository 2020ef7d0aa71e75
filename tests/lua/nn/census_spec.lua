-- Losses, metrics, optimizers, schedules, regularizers, constraints and activations compute what they compute in
-- Keras's own tests, made from their configurations in Keras's files. The numbers are some of those that
-- tests/golden/census/record.py records: see tests/README.md, "Census of Keras".
package.path = "tests/golden/census/?.lua;" .. package.path
local check = require "check"
local comparing = require "compare"
local values = require "kinds"

local TOLERANCE = 2e-5 -- float32, up to ten steps

-- What differs on purpose, by class and test: see "What is different" in lua/manual/from_keras.md.
local DIFFERENT = {
  ["MeanIoU test_user_warning_float_weight"] = "Keras cuts the weights to whole numbers",
  ["ScheduleFreeAdamW test_multiple_steps"] = "Keras takes other steps with TensorFlow than with JAX",
  ["Identity test_identity_initializer"] = "Keras's configuration lacks the gain",
  ["PiecewiseConstantDecay test_piecewise_values"] = "a step is not negative",
  ["SparseCategoricalAccuracy test_reshape_matches"] = "targets {2, 1} do not fit predictions {1, 2, 3}",
  ["LossFunctionWrapper test_ema_with_model_fit"] = "targets {1, 1} do not fit predictions {1, 2}",
}

for _, record in ipairs(comparing.read "tests/golden/census/records.json") do
  local name = record.test:match "::(.*)$"
  local reason = DIFFERENT[record.class .. " " .. name]
  local title = ("%s %s, record %d, %s, "):format(record.kind, record.class, record.number, name)
  check.test(title .. (reason and "differs, since " .. reason or "is as in Keras"), function()
    local function compare()
      local found, wanted = values(record)
      comparing.compare(found, wanted, TOLERANCE)
    end
    if not reason then return compare() end
    if name == "test_piecewise_values" and record.step.data[1] >= 0 then return compare() end
    check.equal((pcall(compare)), false)
  end)
end
