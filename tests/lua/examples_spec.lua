-- Every example runs to its end, explains itself with --help, and refuses unknown options.

local check = require "check"

local test = check.test

local function run(name, words)
  local folder = check.path "examples"
  return check.run(("%s examples/%s.lua %s"):format(check.program, name, words:gsub("FOLDER", folder)))
end

for name, case in pairs {
  custom_loop = { "--epochs 1 --batch-size 200", "test accuracy 0%.%d+" },
  custom_layer = { "--epochs 1 --save " .. check.path "custom.safetensors", "differ by at most 0\n" },
  two_inputs = { "--epochs 1", "mean error of the sum %d" },
  imdb_lstm = { "--epochs 1 --rows 100 --length 8 --units 4", "test accuracy 0%.%d+" },
  seq2seq_addition = { "--epochs 1 --rows 100 --units 8", "%d+%+%d+ = %d* %(%d+%)" },
  char_gpt = { "--epochs 1 --steps 2 --context 8 --width 8 --layers 1 --samples 1", "sample 1: " },
  timeseries_gru = { "--epochs 1 --values 300 --units 4", "mean squared error of the test: %d" },
  audio_ctc = { "--epochs 1 --rows 20 --units 4", "right sequences: %d%.%d+" },
  model_parallel = { "--epochs 1 --devices ref:0,ref:1,ref:2", "mean squared error: %d" },
} do
  test(name .. ".lua runs to its end", function()
    local output, status = run(name, case[1])
    check.equal(status, 0)
    check.matches(output, case[2])
  end)
  test(name .. ".lua has help and knows its options", function()
    local output, status = run(name, "--help")
    check.equal(status, 0)
    check.matches(output, "Usage: mgpulua " .. name .. ".lua")
    output, status = run(name, "--nonsense")
    check.equal(status, 1)
    check.matches(output, "unknown option")
  end)
end

for _, strategy in ipairs { "mirrored", "central", "async" } do
  test("train_mnist.lua trains on two devices, " .. strategy, function()
    check.needs "cpu"
    local output, status = run("train_mnist", "--data digits --limit 500 --epochs 1 --devices cpu:0-1 --verbose 2 "
      .. "--bn local --strategy " .. strategy .. " --save " .. check.path(strategy .. ".safetensors"))
    check.equal(status, 0)
    check.matches(output, "Using Multi-GPU: 2 devices")
    check.matches(output, "Test accuracy: 0%.%d+")
  end)
end
