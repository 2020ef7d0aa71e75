-- tests/cuda/on_gpu.sh preflight, with a tree of links in place of the bundle and the fake CUDA in place of a GPU.
local check = require "check"
local device = require "tests.cuda.device"

if device.real then return end -- there on_gpu.sh itself is what runs

local test = check.test

-- Makes the tree; the bundle is left out if `bare`. Returns the command that runs on_gpu.sh in it.
local function tree(name, bare)
  local root = check.path(name)
  local script = root .. "/tests/cuda/on_gpu.sh"
  check.run(("mkdir -p %s/tests/cuda %s/build && cp tests/cuda/on_gpu.sh tests/cuda/preflight.lua %s/tests/cuda")
    :format(root, root, root))
  if not bare then
    check.run(("mkdir %s/runtime %s/build/gpu; ln -s $(readlink -f %s) %s/build/gpu/mgpulua; "
      .. "sh %s sources >%s/build/gpu/sources; %s tests/cuda/preflight.lua ref:0 lenet5 >%s/build/gpu/losses")
      :format(root, root, check.program, root, script, root, check.program, root))
  end
  return ("MODELS=lenet5 MGPU_CACHE=%s/cache MGPU_CUDA_LIBRARIES=$PWD/build/fake_cuda GPU_SECONDS=600 sh %s ")
    :format(root, script)
end

test("without a bundle on_gpu.sh says in one sentence how to make one", function()
  for _, what in ipairs { "preflight", "check", "sanitize", "bench" } do
    local output, status = check.run(tree("bare", true) .. what)
    check.matches(output, "^build/gpu is missing: run 'make gpu%-bundle' [^\n]*\n$")
    check.equal(status, 1)
  end
end)

test("preflight passes with the libraries, and captures the steps of lenet5 in each mode", function()
  check.slow()
  local output, status = check.run(tree "good" .. "preflight")
  check.matches(output, "1 passed, 0 failed: losses of the cpu device")
  check.matches(output, "1 passed, 0 failed: losses with MGPU_CUDA_GRAPH=chain")
  check.matches(output, "1 passed, 0 failed: losses with MGPU_CUDA_GRAPH=no")
  check.matches(output, " takes [%d.]+ ms")
  check.matches(output, "\n%d+ passed, 0 failed\n$")
  check.equal(status, 0)
end)

test("preflight fails if the losses are not those of the cpu device", function()
  check.slow()
  local command = tree "wrong"
  local path = check.path "wrong/build/gpu/losses"
  check.write(path, (check.read(path):gsub("%.%d", ".0")))
  local output, status = check.run(command .. "preflight")
  check.matches(output, "the losses are 'lenet5 [%d. ]+', those of the cpu device 'lenet5 ")
  check.equal(status, 1)
end)

test("preflight fails if a step cannot be captured", function()
  check.slow()
  local output, status = check.run("MGPU_FAKE_CUDA_FAIL=cuGraphInstantiate:-1:1 " .. tree "bad" .. "preflight")
  check.matches(output, "a step is not captured with MGPU_CUDA_GRAPH=parallel")
  check.equal(status, 1)
end)
