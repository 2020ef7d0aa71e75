-- examples/cluster: the batch script, the host file, and the files of containers, as far as they can be tried without
-- a cluster.

local check = require "check"
local test = check.test

local FOLDER = "examples/cluster/"

-- Runs train.slurm with a srun that ends with this status; what srun and scontrol are called with goes to the output.
local function batch(status)
  local bin = check.path "bin"
  check.run("mkdir -p " .. bin)
  check.write(bin .. "/srun", ("#!/bin/sh\necho srun \"$@\"\nexit %d\n"):format(status))
  check.write(bin .. "/scontrol", "#!/bin/sh\necho scontrol \"$@\"\n")
  return check.run(("chmod +x %s/*; PATH=%s:$PATH SLURM_JOB_ID=7 bash %strain.slurm my.lua --epochs 3"):format(bin, bin,
    FOLDER))
end

test("train.slurm starts the script with a folder for checkpoints, and ends with its status", function()
  for _, status in ipairs { 0, 1, 76 } do
    local output, ended = batch(status)
    check.equal(output, "srun --kill-on-bad-exit=1 mgpulua --resume run-7 my.lua --epochs 3\n")
    check.equal(ended, status)
  end
end)

test("train.slurm queues the job again if it was stopped after saving", function()
  local output, ended = batch(75)
  check.matches(output, "\nSaved in run%-7; the job is queued again.\nscontrol requeue 7\n$")
  check.equal(ended, 75)
end)

test("mgpulua --hostfile reads the host file", function()
  check.needs(check.program:match "^(.*)/" .. "/mgpu-ucx.so")
  local ssh = check.path "ssh" -- instead of ssh: tells its first argument, the host
  check.write(ssh, "#!/bin/sh\necho \"host $1\" >&2\nexit 9\n")
  local output, status = check.run(("chmod +x %s; MGPU_SSH=%s MGPU_LAUNCH_GRACE=1 %s --hostfile %shostfile "
    .. "examples/multi_worker.lua 2>&1 </dev/null"):format(ssh, ssh, check.program, FOLDER))
  check.matches(output, "host node1\n")
  check.matches(output, "host node2\n")
  check.truthy(status ~= 0)
end)

test("the containers are told all variables of torchrun, and run a script that is there", function()
  for _, name in ipairs { "compose.yaml", "kubernetes-job.yaml" } do
    local text = check.read(FOLDER .. name)
    for variable in ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"):gmatch "%S+" do
      check.matches(text, "%f[%w_]" .. variable .. "[:,\n]")
    end
    local script = text:match "/usr/local/share/mgpulua/(examples/[%w_]+%.lua)"
    check.truthy(io.open(script), script)
  end
end)
