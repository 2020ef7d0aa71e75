-- Several ranks train, and one of them comes to grief: the others end soon, with the same sentence and
-- unchanged weights. Trainings that save checkpoints are continued.
local check = require "check"
local ranks = require "lua.world.faults.ranks"
local test = check.test

local function needs(launcher)
  local problem = ranks.problem(launcher)
  if problem then check.skip(problem) end
end

for i, case in ipairs(ranks.cases) do
  test(("a rank %s ends the others with a sentence that names it"):format(case[1]), function()
    needs "each"
    local problem = ranks.try(case, 2 + i % 2, math.floor(i / 2) % 2)
    if problem then check.fail(problem) end
  end)
end

-- ---- one refuses -------------------------------------------------------------------------------

test("fewer rows on one rank are an error on all ranks, before the step", function()
  needs "each"
  local result = ranks.run("each", 3, "fault='rows',at=10,on=1")
  for r = 0, 2 do
    check.equal({ result[r].status, result[r].done, result[r].weights }, { 1, 9, "unchanged" })
    check.matches(result[r].message, "rank 1 has come to a step that is new, but rank 0 to a step: all ranks must")
  end
end)

test("a loss that is not finite in one rank's rows is refused on all ranks, and the training goes on", function()
  needs "each"
  local result = ranks.run("each", 3, "fault='nan',at=10,on=1,steps=12")
  for r = 0, 2 do
    check.equal({ result[r].status, result[r].done, result[r].weights }, { 0, 12, "unchanged" })
    check.matches(result[r].message, "train_on_batch: the loss is not finite")
    check.equal(result[r].message, result[0].message)
    check.truthy(result[r].values == result[0].values, "all have the same weights")
  end
end)

test("a rank that has too little memory for a step ends the others, and says so itself", function()
  needs "each"
  local result = ranks.run("each", 2, "units=300", "export EXTRA1=MGPU_MEMORY=cpu:0=900K")
  check.equal({ result[0].status, result[1].status }, { 76, 1 })
  check.matches(result[1].output, "cpu:0: out of memory")
  check.matches(result[0].output, "rank 1 %(host %S+, pid %d+%) failed: .*cpu:0: out of memory")
end)

-- ---- the start ---------------------------------------------------------------------------------

test("ranks that do not fit together are refused at the start, with a reason", function()
  needs "each"
  for variables, says in pairs {
    ["EXTRA1=MGPU_TOKEN=other"] = { "rank 0 did not let rank 1 in .*it has another token than rank 0",
      [0] = "rank 1 of 2 has not come within 2 seconds: .*was not let in: it has another token" },
    ["EXTRA1=WORLD_SIZE=3"] = { "it is one of 3 processes, rank 0 one of 2: start all with the same number",
      [0] = "it is one of 3 processes" },
    ["EXTRA1=RANK=0"] = { [0] = "" },
  } do
    local result = ranks.run("each", 2, "", "export MGPU_JOIN=2 " .. variables)
    for r = 0, 1 do
      check.equal(result[r].status, 76)
      if says[r] then check.matches(result[r].output, says[r]) end
    end
  end
end)

-- ---- launchers ---------------------------------------------------------------------------------

for launcher in pairs(ranks.launchers) do
  test(("%s ends all ranks when one is killed or stopped"):format(launcher), function()
    needs(launcher)
    for _, signal in ipairs { 9, 19 } do
      local result = ranks.run(launcher, 3, ("fault='signal',signal=%d,wakes=8,at=10,on=1"):format(signal))
      check.truthy(launcher == "each" or result.status ~= 0, "its status")
      for r = 0, 2 do check.falsy(result[r].left, "rank " .. r .. " still runs") end
    end
  end)
end

-- ---- checkpoints -------------------------------------------------------------------------------

-- Runs fitting.lua in a new folder, or in this one. Returns output, exit status, the numbers at the end and the folder.
local function fit(n, options, more, folder)
  folder = folder or check.run "mktemp -d":gsub("\n", "")
  local text, status = check.run(("export MGPU_SILENCE=2 MGPU_LAUNCH_GRACE=3; "
    .. '%s --np %d %s tests/lua/world/faults/fitting.lua %s "%s"')
    :format(check.program, n, more or "", folder, options))
  local ok, numbers = pcall(check.read, folder .. "/weights")
  return text, status, ok and numbers, folder
end

local function numbers_of(text)
  local list = {}
  for number in text:gmatch "[-%d.e]+" do list[#list + 1] = tonumber(number) end
  return list
end

local undisturbed

local function expected()
  undisturbed = undisturbed or select(3, fit(2, ""))
  return undisturbed
end

test("--restart starts all ranks again when one fails, and the training ends with the same numbers", function()
  needs "np"
  for on, fault in ipairs { [0] = "'signal',signal=9", "'raise'" } do
    local text, status, numbers = fit(2, ("fault=%s,at=11,on=%d"):format(fault, on), "--restart 2")
    check.matches(text, "mgpulua: all processes start again, 2 in the place of 2 %(1 restart is left%)")
    check.equal(status, 0)
    check.truthy(numbers == expected(), "other numbers")
  end
end)

test("a signal to one rank makes all save at the same step, and another number of ranks continues", function()
  needs "np"
  for on, signal in pairs { [0] = 10, 15 } do
    local text, status, numbers, folder = fit(2, ("fault='signal',signal=%d,at=11,on=%d"):format(signal, on),
      "--restart 2 --output prefix")
    check.matches(text, "%[0%] mgpulua: .*fit: epoch 3, step 1: stopped by .*, saved in ")
    check.matches(text, "%[1%] mgpulua: .*fit: epoch 3, step 1: stopped by .*, saved in ")
    check.equal({ status, numbers }, { 75, false })
    text, status, numbers = fit(2 + on, "", nil, folder)
    check.equal(status, 0)
    check.equal(text, "")
    -- sums over other shares of the rows: 24 steps of Adam amplify their rounding
    check.near(numbers_of(numbers), numbers_of(expected()), on == 0 and 0 or 1e-4)
  end
end)

test("a disk that is full on rank 0 costs checkpoints, but not the training", function()
  needs "np"
  local text, status, numbers = fit(2, "fault='disk',at=11,on=0")
  check.matches(text, "the checkpoint could not be saved: .*No space left on device")
  check.equal(status, 0)
  check.truthy(numbers == expected(), "other numbers")
end)

-- ---- the network -------------------------------------------------------------------------------

-- Two network namespaces with a link between them, which is cut after three seconds; rank 1 is on its other side.
local CUT = [[
  a=mgpu_a$$ b=mgpu_b$$ folder=%s
  trap "ip netns del $a; ip netns del $b" EXIT
  ip netns add $a && ip netns add $b && ip link add va$$ type veth peer name vb$$ &&
    ip link set va$$ netns $a && ip link set vb$$ netns $b || exit 99
  for i in a b; do
    ip -n mgpu_$i$$ addr add 10.77.0.$([ $i = a ] && echo 1 || echo 2)/24 dev v$i$$
    ip -n mgpu_$i$$ link set v$i$$ up && ip -n mgpu_$i$$ link set lo up || exit 99
  done
  start() {
    ip netns exec $1 env MGPU_LAUNCH=mgpulua MGPU_RANK=$2 MGPU_SIZE=3 MGPU_LOCAL_RANK=0 MGPU_LOCAL_SIZE=1 \
      MGPU_TOKEN=secret MGPU_HUB=10.77.0.1:23456 MGPU_SILENCE=2 MGPU_JOIN=20 %s tests/lua/world/faults/training.lua \
      $folder steps=1000000 </dev/null >$folder/output.$2 2>&1
    echo $2 $?
  }
  start $a 0 & start $b 1 & start $a 2 &
  for i in 0 1 2; do while [ ! -e $folder/pid.$i ]; do sleep 0.1; done; done
  sleep 3
  ip -n $b link set vb$$ down
  wait
]]

test("when a link is cut, the ranks on each side name one on the other", function()
  needs "each"
  local folder = check.run "mktemp -d":gsub("\n", "")
  local text, status = check.run(CUT:format(folder, check.program))
  if status == 99 then check.skip "no network namespaces can be made here" end
  for r, says in pairs { [0] = "rank 1", "rank 0", "rank 1" } do
    check.matches(text, r .. " 76\n")
    check.matches(check.read(folder .. "/output." .. r), says .. " %(host %S+, pid %d+%) .*%(last seen ")
    check.matches(check.read(folder .. "/end." .. r), "^%d+\nunchanged\n")
  end
  check.run("rm -rf " .. folder)
end)
