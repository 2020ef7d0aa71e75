-- Which launcher started a process: the variables of each, as they set them, and mistakes in them.

local check = require "check"
local test = check.test
local sorted = check.sorted_lines

local PRINT = [[local core = require "mgpu.core"
local ok, l = pcall(core.launch)
if not ok then print((l:gsub("^[^:]*:%d+: ", ""))) os.exit(0) end
print(l.by, l.rank, l.size, l.local_rank, l.local_size, l.role, l.transport, l.address, l.port, l.seen)]]

-- The variables of a launcher that may be set where the tests run.
local CLEAN = "env"
for _, name in ipairs { "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "PMI_RANK",
  "PMI_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_STEP_ID",
  "SLURM_JOB_ID", "MGPU_LAUNCH", "MGPU_RANK", "MGPU_SIZE", "MGPU_HUB", "MGPU_TOKEN", "MGPU_TRANSPORT" } do
  CLEAN = CLEAN .. " -u " .. name
end

local script = check.path "print.lua"
check.write(script, PRINT)

-- What a process with these variables finds: the first line that it prints.
local function found(variables, with)
  local words = {}
  for name, value in pairs(variables) do
    words[#words + 1] = ("%s='%s'"):format(name, (tostring(value):gsub("'", "'\\''")))
  end
  local output = check.run(("%s %s MGPU_OUTPUT=all %s %s"):format(CLEAN, table.concat(words, " "),
    with or check.program, script))
  return (output:match "^[^\n]*")
end

local with = require "fixtures".with

local TORCHRUN = { RANK = 1, WORLD_SIZE = 4, LOCAL_RANK = 1, LOCAL_WORLD_SIZE = 2, MASTER_ADDR = "a",
  MASTER_PORT = 29500, OMP_NUM_THREADS = 1, TORCHELASTIC_RUN_ID = "none" }
local OPENMPI = { OMPI_COMM_WORLD_RANK = 1, OMPI_COMM_WORLD_SIZE = 2, OMPI_COMM_WORLD_LOCAL_RANK = 1,
  OMPI_COMM_WORLD_LOCAL_SIZE = 2, PMIX_RANK = 1, PMIX_NAMESPACE = 258473985 }
local HYDRA = { PMI_RANK = 1, PMI_SIZE = 2, PMI_FD = 8, MPI_LOCALRANKID = 1, MPI_LOCALNRANKS = 2 }
local SRUN = { SLURM_PROCID = 2, SLURM_NTASKS = 3, SLURM_STEP_NUM_TASKS = 3, SLURM_LOCALID = 0, SLURM_NODEID = 1,
  SLURM_JOB_ID = 7, SLURM_STEP_ID = 0, SLURM_STEP_NODELIST = "n[1-2]", SLURM_STEP_TASKS_PER_NODE = "2,1",
  SLURM_LAUNCH_NODE_IPADDR = "127.0.0.1" }
local TF = '{"cluster": {"ps": ["d:4"], "worker": ["b:2", "c:3"], "chief": ["a:1"], "evaluator": ["e:5"]}, '
  .. '"task": {"type": "%s", "index": %s}}'

test("a process without variables is alone", function()
  check.equal(found {}, "none\t0\t1\t0\t1\t\t\t\t0\tno variables of a launcher")
  check.equal(found { RANK = 3 }, "none\t0\t1\t0\t1\t\t\t\t0\tno variables of a launcher")
end)

test("torchrun's variables are read, and its own store keeps MASTER_PORT", function()
  check.equal(found(TORCHRUN), "torchrun\t1\t4\t1\t2\t\tucx\ta\t29500\tRANK=1 of WORLD_SIZE=4")
  check.matches(found(with(TORCHRUN, { TORCHELASTIC_USE_AGENT_STORE = "True" })), "\ta\t29501\t")
  check.matches(found(with(TORCHRUN, { TORCHELASTIC_USE_AGENT_STORE = "False" })), "\ta\t29500\t")
  check.matches(found(with(TORCHRUN, { TORCHELASTIC_USE_AGENT_STORE = "True", MASTER_PORT = 65535 })), "\ta\t65534\t")
  check.equal(found { RANK = 1, WORLD_SIZE = 2, MASTER_ADDR = "h", MASTER_PORT = 1 },
    "torchrun\t1\t2\t-1\t0\t\tucx\th\t1\tRANK=1 of WORLD_SIZE=2")
  check.equal(found { RANK = 0, WORLD_SIZE = 1 }, "torchrun\t0\t1\t-1\t0\t\tucx\t127.0.0.1\t0\tRANK=0 of WORLD_SIZE=1")
end)

test("the variables of mpirun of Open MPI, Hydra and PMI are read", function()
  check.equal(found(OPENMPI),
    "openmpi\t1\t2\t1\t2\t\topenmpi\t\t0\tOMPI_COMM_WORLD_RANK=1 of OMPI_COMM_WORLD_SIZE=2")
  check.matches(found(HYDRA), "^hydra\t1\t2\t1\t2\t\tmp[%w_]+\t\t0\tPMI_RANK=1 of PMI_SIZE=2$")
  check.matches(found { PMI_RANK = 1, PMI_SIZE = 2 }, "^pmi\t1\t2\t%-1\t0\t\tmp[%w_]+\t\t0\t")
  check.equal(found { PMIX_RANK = 1, PMIX_NAMESPACE = "x", MGPU_SIZE = 3, MGPU_LAUNCH = "pmix" },
    "pmix\t1\t3\t-1\t0\t\topenmpi\t\t0\tPMIX_RANK=1 of MGPU_SIZE=3")
  check.matches(found { PMIX_RANK = 1, PMIX_NAMESPACE = "x" }, "^MGPU_SIZE is not set, though")
end)

test("a task of srun finds the first node and a port that follows from job and step", function()
  check.equal(found(SRUN),
    "srun\t2\t3\t0\t1\t\tucx\tn1,127.0.0.1\t20259\tSLURM_PROCID=2 of SLURM_STEP_NUM_TASKS=3")
  check.matches(found(with(SRUN, { SLURM_STEP_ID = 1 })), "\t20260\t")
  check.matches(found(with(SRUN, { SLURM_PROCID = 0, SLURM_NODEID = 0, PMI_RANK = 0, PMI_SIZE = 3, PMI_FD = 9 })),
    "^srun\t0\t3\t0\t2\t")
  check.matches(found(with(SRUN, { SLURM_STEP_TASKS_PER_NODE = "3", SLURM_NODEID = 0, SLURM_STEP_NODELIST = "n1" })),
    "\tucx\t127.0.0.1\t20259\t")
end)

test("shells of sbatch and salloc are no tasks of a step", function()
  local batch = with(SRUN, { SLURM_PROCID = 0 })
  batch.SLURM_STEP_ID, batch.SLURM_STEP_NUM_TASKS = nil, nil
  check.matches(found(batch), "^none\t0\t1\t.*SLURM_JOB_ID is set, but not the variables of a task of srun")
  batch.SLURM_PROCID = nil
  check.matches(found(batch), "^none\t0\t1\t")
  check.matches(found(with(SRUN, { SLURM_STEP_ID = 4294967290 })), "^none\t0\t1\t") -- salloc's interactive step
end)

test("TF_CONFIG numbers chief, workers, parameter servers and evaluators in this order", function()
  for role, rank in pairs { chief = 0, worker = 1, ps = 3, evaluator = 4 } do
    check.equal(found { TF_CONFIG = TF:format(role, 0) },
      ("tf_config\t%d\t5\t-1\t0\t%s\tucx\ta\t1\tTF_CONFIG: %s 0, rank %d of 5"):format(rank, role, role, rank))
  end
  check.matches(found { TF_CONFIG = TF:format("worker", '"1"') }, "^tf_config\t2\t5\t")
  local workers = '{"cluster": {"worker": ["b:2", "[::1]:3"]}, "task": {"type": "worker", "index": 1}}'
  check.matches(found { TF_CONFIG = workers }, "^tf_config\t1\t2\t%-1\t0\tworker\tucx\tb\t2\t")
  check.matches(found { TF_CONFIG = '{"cluster": {"master": ["m:9"]}, "task": {"type": "master"}}' },
    "^tf_config\t0\t1\t%-1\t0\tchief\tucx\tm\t9\t")
  check.matches(found { TF_CONFIG = "{}" }, "^none\t0\t1\t.*TF_CONFIG names no cluster")
  check.matches(found { TF_CONFIG = '{"cluster": {}, "task": {}}' }, "^none\t")
end)

test("mistakes in TF_CONFIG are named", function()
  for config, message in pairs {
    ["{"] = "TF_CONFIG: the JSON is damaged at line 1, column 1",
    ["[]"] = 'TF_CONFIG: "cluster" must be an object',
    ['{"cluster": 3}'] = 'TF_CONFIG: "cluster" must be an object',
    ['{"cluster": {"worker": ["a:1"]}}'] = 'TF_CONFIG: "task" must tell this process\'s place',
    ['{"cluster": {"worker": "a:1"}, "task": {"type": "worker"}}'] = "cluster.worker must be a list of addresses",
    ['{"cluster": {"worker": [1]}, "task": {"type": "worker"}}'] = 'cluster.worker[0] must be a text "host:port"',
    ['{"cluster": {"worker": ["a"]}, "task": {"type": "worker"}}'] = 'cluster.worker[0]=a: it must be "host:port"',
    ['{"cluster": {"worker": ["a:70000"]}, "task": {"type": "worker"}}'] = 'it must be "host:port"',
    ['{"cluster": {"workers": ["a:1"]}, "task": {"type": "worker"}}'] =
      'unknown role "workers" (did you mean "worker"?)',
    ['{"cluster": {"worker": ["a:1"]}, "task": {"type": "werker"}}'] =
      'task.type "werker" is unknown (did you mean "worker"?)',
    ['{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}'] =
      "the task is worker number 1, but cluster.worker has 1 entry",
    ['{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}'] =
      "task.index must be a whole number from 0 on",
    ['{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}'] = "neither a chief nor a worker",
  } do check.matches(found { TF_CONFIG = config }, message) end
  check.matches(found { MGPU_LAUNCH = "tf_config" }, "TF_CONFIG is not set")
end)

test("variables that contradict each other or cannot be read are named, with what to do", function()
  for message, variables in pairs {
    ["RANK=4 of WORLD_SIZE=4: the rank must be less than"] = with(TORCHRUN, { RANK = 4 }),
    ["RANK=1 of WORLD_SIZE=4: process 2 of 2 on this host contradicts that"] = with(TORCHRUN, { LOCAL_RANK = 2 }),
    ["RANK=-1: it must be a whole number from 0 to 2147483647"] = with(TORCHRUN, { RANK = -1 }),
    ["WORLD_SIZE=0: it must be a whole number from 1"] = with(TORCHRUN, { WORLD_SIZE = 0 }),
    ["WORLD_SIZE=4x: it must be a whole number"] = with(TORCHRUN, { WORLD_SIZE = "4x" }),
    ["LOCAL_RANK=99999999999999999999: it must"] = with(TORCHRUN, { LOCAL_RANK = "99999999999999999999" }),
    ["MASTER_PORT=70000: it must be a whole number from 1 to 65535"] = with(TORCHRUN, { MASTER_PORT = 70000 }),
    ["but not MASTER_ADDR, the host of rank 0"] = { RANK = 1, WORLD_SIZE = 2 },
    ["MGPU_SIZE is not set, though other variables of its launcher are"] = { MGPU_RANK = 0 },
    ["but not MGPU_HUB, the address of rank 0"] = { MGPU_RANK = 0, MGPU_SIZE = 2 },
    ['MGPU_HUB=a: it must be "host:port"'] = { MGPU_RANK = 0, MGPU_SIZE = 2, MGPU_HUB = "a" },
    ["MGPU_TOKEN has more than 64 characters"] =
      { MGPU_RANK = 0, MGPU_SIZE = 2, MGPU_HUB = "a:1", MGPU_TOKEN = ("x"):rep(65) },
    ["MASTER_ADDR: the host's name has more than 255 characters"] =
      with(TORCHRUN, { MASTER_ADDR = ("x"):rep(256) }),
    ["not a list of nodes"] = with(SRUN, { SLURM_STEP_NODELIST = "n[1-" }),
    ["SLURM_STEP_TASKS_PER_NODE=2 has 1 nodes, but node 1 is asked for"] =
      with(SRUN, { SLURM_STEP_TASKS_PER_NODE = "2" }),
    ["SLURM_STEP_TASKS_PER_NODE=2(x: not a list of counts"] = with(SRUN, { SLURM_STEP_TASKS_PER_NODE = "2(x" }),
    ['MGPU_LAUNCH=srum names no launcher (did you mean "srun"?)'] = { MGPU_LAUNCH = "srum" },
    ["MGPU_TRANSPORT=pigeons: there is no plug-in mgpu-pigeons.so for messages"] =
      with(TORCHRUN, { MGPU_TRANSPORT = "pigeons" }),
  } do check.matches(found(variables), message) end
  local lacks = with(SRUN, {})
  lacks.SLURM_STEP_NODELIST = nil
  check.matches(found(lacks), "but SLURM_STEP_NODELIST, which tells rank 0's host, is not set")
end)

test("MGPU_LAUNCH forces a launcher or none, and MGPU_HUB tells any of them where rank 0 is", function()
  local several = with(with(TORCHRUN, OPENMPI), { TF_CONFIG = TF:format("worker", 0) })
  check.matches(found(several), "^torchrun\t")
  check.matches(found(with(several, { MGPU_LAUNCH = "openmpi" })), "^openmpi\t")
  check.matches(found(with(several, { MGPU_LAUNCH = "tf_config" })), "^tf_config\t")
  check.equal(found(with(several, { MGPU_LAUNCH = "none" })), "none\t0\t1\t0\t1\t\t\t\t0\tMGPU_LAUNCH=none")
  check.matches(found { MGPU_LAUNCH = "hydra" }, "PMI_RANK is not set")
  check.matches(found(with(OPENMPI, { MGPU_HUB = "[fd00::2]:99" })), "\tfd00::2\t99\t")
  check.matches(found { RANK = 1, WORLD_SIZE = 2, MGPU_HUB = "h:99" }, "\th\t99\t")
end)

test("MGPU_TRANSPORT replaces the transport, and needs an address where the launcher tells none", function()
  if not check.run(check.program .. " -e 'for _, t in ipairs(require \"mgpu.core\".transports()) do print(t.name) end'")
    :find "ucx" then check.skip "this build has no mgpu-ucx.so" end
  check.matches(found(with(OPENMPI, { MGPU_TRANSPORT = "ucx" })),
    "MGPU_TRANSPORT=ucx: launcher openmpi does not tell where rank 0 is: set MGPU_HUB=host:port too")
  check.matches(found(with(OPENMPI, { MGPU_TRANSPORT = "ucx", MGPU_HUB = "h:1" })),
    "^openmpi\t1\t2\t1\t2\t\tucx\th\t1\t")
  check.matches(found(with(SRUN, { MGPU_TRANSPORT = "ucx" })), "^srun\t")
end)

test("an empty variable counts as unset", function()
  check.matches(found { RANK = "", WORLD_SIZE = "", TF_CONFIG = "", MGPU_LAUNCH = "" }, "^none\t")
end)

-- What two processes print that this mpirun starts.
local function printed_by(command, options, file)
  local errors = check.path "errors"
  local text, status = check.run(("%s -np 2 %s %s %s </dev/null 2>%s"):format(command, check.program, options, file,
    errors))
  if status ~= 0 or text == "" then check.fail(("status %d: %s"):format(status, check.read(errors))) end
  return text
end

-- What two processes find that this mpirun starts, in the order of ranks.
local function started_by(command, package)
  if check.run("command -v " .. command:match "mpirun%S+") == "" then check.skip(package .. " is not installed") end
  return sorted(printed_by(command, "--output all", script))
end

test("processes started by mpirun of Open MPI find their places", function()
  local text = started_by("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe",
    "openmpi-bin")
  check.matches(text, "^openmpi\t0\t2\t0\t2\t[^\n]*\nopenmpi\t1\t2\t1\t2\t[^\n]*$")
end)

test("processes started by mpirun of MPICH find their places", function()
  check.matches(started_by("mpirun.mpich", "mpich"), "^hydra\t0\t2\t0\t2\t[^\n]*\nhydra\t1\t2\t1\t2\t[^\n]*$")
end)

test("--output chooses what processes of mpirun show", function()
  if check.run "command -v mpirun.mpich" == "" then check.skip "mpich is not installed" end
  local lines = check.path "lines.lua"
  check.write(lines, "for i = 1, 200 do print(os.getenv 'PMI_RANK', ('x'):rep(i)) end io.stderr:write 'error\\n'")
  local function shown(options) return printed_by("mpirun.mpich", options, lines) end
  local function count(text, pattern) return select(2, text:gsub(pattern, "")) end
  local text = shown ""
  check.equal(count("\n" .. text, "\n0\tx"), 200)
  check.equal(count(text, "\n"), 200)
  text = shown "--output=all"
  check.equal(count(text, "\n"), 400)
  text = shown "--output prefix"
  for rank = 0, 1 do check.equal(count("\n" .. text, ("\n%%[%d%%] %d\tx"):format(rank, rank)), 200) end
  check.equal(count(text, "\n"), 400)
  check.matches(check.run(("mpirun.mpich -np 2 %s --output prefix %s 2>&1 >/dev/null </dev/null"):format(check.program,
    lines)), "%[1%] error\n")
end)

test("--doctor tells the launcher and the plug-ins for messages", function()
  local text = check.run(("%s %s --doctor"):format(CLEAN, check.program))
  check.matches(text, "\nlauncher none%s+no variables of a launcher\n")
  check.matches(text, "mgpu%-ucx%.so")
  text = check.run(("%s RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 %s --doctor"):format(CLEAN, check.program))
  check.matches(text, "\nlauncher torchrun%s+RANK=0 of WORLD_SIZE=2, messages by ucx\n")
  check.matches(text, "%.safetensors files +works")
  text = check.run(("%s RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 %s --doctor"):format(CLEAN, check.program))
  check.matches(text, "\nWRONG%s+launcher%s+RANK=2 of WORLD_SIZE=2: the rank must be")
end)
