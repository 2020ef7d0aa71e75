--- What to do about a profile: the most useful sentences, at most three.
--
-- Each rule looks at one way in which time is lost, and returns the share of the time that it could win and a sentence,
-- or nothing. The largest shares come first.
local MOST = 3
local LEAST = 0.05 -- of the time: less is not worth a sentence

local function percent(share) return ("%.0f %%"):format(100 * share) end

-- The key with the largest number, and that number; nil and 0 for an empty table.
local function largest(numbers)
  local best, most = nil, 0
  for key, number in pairs(numbers) do
    if number > most then best, most = key, number end
  end
  return best, most
end

local rules = {}

function rules.functions(report)
  local name, seconds = largest(report.functions)
  if not name then return nil end
  return seconds / report.wall, ("%s of the time is in your Lua code for the data (%s), which runs between the steps: "
    .. "rows of a source of mgpu.data are read by threads beside them"):format(percent(seconds / report.wall), name)
end

function rules.data(report)
  local own = 0
  for _, seconds in pairs(report.functions) do own = own + seconds end
  local share = report.share.data - own / report.wall
  if report.data_threads > 0 then
    return share, ("%s of the time waits for data, although %d thread%s read ahead: raise prefetch's threads, or keep "
      .. "the rows with :cache()"):format(percent(share), report.data_threads, report.data_threads == 1 and "" or "s")
  end
  return share, ("%s of the time goes into making batches: add :prefetch(2) to the dataset, so that threads make them "
    .. "beside the steps"):format(percent(share))
end

function rules.lua(report)
  local share = report.share.Lua
  if not report.steps then
    return share, ("%s of the time is the script's own, Lua code and files, and no device computes"):format(
      percent(share))
  end
  return share, ("%s of the time is Lua code between the steps: put what computes into mgpu.jit, or give compile "
    .. "steps_per_execution = 10"):format(percent(share))
end

function rules.callbacks(report)
  local share, worst = report.share.callbacks, largest(report.callbacks)
  return share, ("%s of the time is spent in callbacks, most of it in %s: do less after each batch"):format(
    percent(share), tostring(worst))
end

function rules.plans(report)
  local share = report.share.tracing + report.share["making plans"]
  return share, ("%s of the time makes %d plans: keep shapes of batches equal, and functions jitted; a longer run pays "
    .. "for the first ones"):format(percent(share), report.calls["making plans"])
end

function rules.checkpoints(report)
  local share = report.share.checkpoints
  return share, ("%s of the time takes or waits for checkpoints: save less often"):format(percent(share))
end

function rules.starting(report)
  local share = report.share["starting steps"]
  return share, ("%s of the time starts steps and launches: steps are short, so larger batches cost little more")
    :format(percent(share))
end

function rules.exchange(report)
  local seconds = 0
  for _, row in ipairs(report.rows) do seconds = seconds + (row.collective and row.seconds or 0) end
  local share = report.computing > 0 and seconds / report.computing * report.busy or 0
  return share, ("%s of the time the devices exchange data or wait for each other: give each more rows, or fewer "
    .. "devices the batch"):format(percent(share))
end

function rules.first_launches(report)
  local share = report.computing > 0 and report.warming / report.computing * report.busy or 0
  return share, ("%s of the time goes into the first launch of each op, which may make threads and kernels: a "
    .. "longer run pays for them"):format(percent(share))
end

-- The op that could win most at the speed that the device reaches, of those that take twice as long as then:
-- it is the speed of the best of some runs.
function rules.slowest(report)
  local worst, won = nil, 0
  for _, row in ipairs(report.rows) do
    local wins = row.estimate and row.steady - row.estimate or 0
    local judged = not row.collective and not row.unsteady and wins > (row.estimate or 0)
    if judged and wins > won then worst, won = row, wins end
  end
  if not worst or report.computing == 0 then return nil end
  local share = won / report.computing * report.busy
  if worst.bound == "launches" then
    return share, ("%s of %s takes %.0f us a launch, too short to use the device: larger batches cost little more")
      :format(worst.op, worst.label, 1e6 * worst.steady / worst.calls)
  end
  return share, ("%s of %s takes %s of the computing, at %s of what the device reaches: its sizes may suit the device "
    .. "badly"):format(worst.op, worst.label, percent(worst.share), percent(worst.peak))
end

--- advice(report) -> array of sentences.
return function(report)
  local found = {}
  for _, rule in pairs(rules) do
    local share, sentence = rule(report)
    if share and share > LEAST then found[#found + 1] = { share, sentence } end
  end
  table.sort(found, function(a, b) return a[1] > b[1] or a[1] == b[1] and a[2] < b[2] end)
  local sentences = {}
  for i = 1, math.min(MOST, #found) do sentences[i] = found[i][2] end
  if #sentences == 0 then sentences[1] = "nothing stands out: the device computes nearly all of the time" end
  return sentences
end
