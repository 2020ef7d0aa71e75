-- Processes started by SLURM: a cluster of three nodes on this machine (tests/world/slurm_cluster.sh).

local check = require "check"
local launched = require "lua.world.launched"
local test = check.test
local JOIN, expected, sorted = launched.JOIN, launched.expected, check.sorted_lines

check.slow()
for _, program in ipairs { "slurmctld", "slurmd", "srun", "munged" } do launched.needs_program(program) end
launched.needs_transport "ucx"
if check.run "id -u" ~= "0\n" then check.skip "only root can start a SLURM" end

local FOLDER = check.path "slurm"
local function cluster(arguments) return check.run(("tests/world/slurm_cluster.sh %s %s"):format(FOLDER, arguments)) end

local pid = io.open "/proc/self/stat":read "*n"
local said
for attempt = 0, 2 do -- ports may be in use
  said = cluster(("%d %d"):format(12000 + (pid + attempt * 997) % 2000 * 4, pid))
  if said == "ready\n" then break end
end
if said ~= "ready\n" then check.skip("SLURM does not start here: " .. said) end

-- Runs a command of SLURM. The nodes have few CPUs for the tasks that the tests start.
local function slurm(command)
  return check.run(("SLURM_CONF=%s/slurm.conf timeout 120 %s </dev/null"):format(FOLDER, command))
end

local function join(command) return sorted(slurm(("%s %s --output all %s"):format(command, check.program, JOIN))) end

test("tasks of srun on two nodes are one world, whichever PMI they are given", function()
  check.equal(join "srun -Q --mpi=none -N2 -n3 --overcommit", expected("srun", 3))
  check.equal(join "srun -Q --mpi=pmi2 -N2 -n3 --overcommit", expected("srun", 3))
  check.equal(join "srun -Q --mpi=none -N1 -n1", expected("none", 1))
end)

test("tasks of srun --mpi=pmix are one world by UCX, and by MPI if that is asked for", function()
  if not slurm "srun --mpi=list 2>&1":find "pmix" then check.skip "this SLURM has no PMIx" end
  check.equal(join "srun -Q --mpi=pmix -N1 -n2", expected("srun", 2))
  launched.needs_transport "openmpi"
  check.equal(join "env MGPU_TRANSPORT=openmpi srun -Q --mpi=pmix -N1 -n2", expected("srun", 2))
end)

test("mgpulua --np in an allocation starts its processes on the nodes of that", function()
  local place = check.path "place.lua"
  check.write(place, "print(os.getenv 'SLURMD_NODENAME', os.getenv 'MGPU_RANK', os.getenv 'MGPU_LOCAL_RANK')")
  local text = sorted(slurm(("salloc -Q -N2 -n3 --overcommit %s --np 3 --output prefix %s"):format(check.program,
    place))) .. "\n"
  local count, on = 0, {}
  for rank, node, local_rank in text:gmatch "%[(%d)%] (n%d)\t%d\t(%d)\n" do
    check.equal(tonumber(local_rank), on[node] or 0, rank)
    on[node], count = (on[node] or 0) + 1, count + 1
  end
  check.equal(count, 3, text)
  text = slurm(("salloc -Q -N2 -n3 --overcommit %s --np 3 --output all %s"):format(check.program, JOIN))
  for rank = 0, 2 do check.matches(text, rank .. " of 3 by mgpulua: word 0\n") end -- besides what srun says of binding
end)

test("a batch script and the shell of salloc are no ranks, but srun in them starts some", function()
  local script, output = check.path "job.sh", check.path "output"
  check.write(script, ("#!/bin/sh\n%s %s\nsrun -Q --mpi=none %s --output all %s\n")
    :format(check.program, JOIN, check.program, JOIN))
  slurm(("sbatch -W -N2 -n3 --overcommit -o %s %s"):format(output, script))
  check.equal(sorted(check.read(output)), sorted(expected("none", 1) .. "\n" .. expected("srun", 3)))
  check.matches(slurm(("salloc -Q -N2 -n3 --overcommit %s %s"):format(check.program, JOIN)), "0 of 1 by none")
end)

cluster "stop"
