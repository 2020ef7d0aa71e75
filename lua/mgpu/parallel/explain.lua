--- mgpu.explain(model, {devices =, hosts =, batch_size = 32, samples =, strategy =, bn =, speeds =}): what a training
--- step will do and need, before the first one; also for devices and hosts that are not there.
--
-- devices, strategy ("mirrored", "central", "async") and bn ("sync", "local") are those of compile unless given.
-- RETURNS a table that prints itself: {devices = {{name, rows, last_rows, weights, gradients, optimizer, memory,
-- collectives, collective_bytes, transfer_bytes}, ...}, batch_size, last_batch, strategy, bn}. Sizes are in bytes.
-- `rows` is the device's share of a full batch, `last_rows` of the last one, if `samples` (rows in all) is given.
-- `memory` is what the step needs for activations, gradients and results, without the workspace of kernels. With
-- "async" a device's step is a whole batch, and `transfer_bytes` are the weights that it pulls and the gradients that
-- it pushes for each.
-- `hosts` with a number of `devices` in all is a cluster, of at most 1024 devices with equal shares of the rows: those
-- that have the same number of rows are one entry, with a `count`; its memory is that of the devices with most rows.
-- With `hosts` or `speeds`, `forecast` has the seconds of a step: {seconds, compute, communication, hidden, input,
-- bound, advice = {same_batch, same_rows}, speeds}. It is a model of the step, no measurement. speeds: {compute =
-- operations a second of a device, memory = bytes a second, link and network = bytes a second within and between hosts,
-- latency = seconds of a message, input = rows a second that a host loads}; what is not given is assumed, and printed.
-- `table()` returns what the step of one device computes, {seconds, peak, rows}, and prints as the table of a profile
-- (mgpu.profile.table): a row for each layer and op, with its arithmetic, its memory, and the time that they take at
-- the speeds of `speeds`, or else at those that are measured on the first device, if it is there, or assumed.
-- `timeline {devices = {1, 2, 4, 8, 16, 32, 64}}` returns how a step goes on so many GPUs, each with as many rows as
-- the first device here: a list of {devices, hosts, seconds, compute, communication, waiting, speedup, computing,
-- exchanging}, which prints as a drawing. `speedup` is their rows a second, divided by those of one GPU; computing and
-- exchanging are the spans of the drawing, {first, last, name} in seconds. Hosts have eight GPUs. Like a forecast it
-- is a model, with the speeds of `speeds` or assumed ones.
-- Errors: a model that is not compiled or not built; timelines of "async", "central" and device groups.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 10, input_shape = { 20 } } }
--     model:compile { loss = "mse", optimizer = "sgd" }
--     local plan = mgpu.explain(model, { devices = { "cpu:0", "cpu:1" }, batch_size = 32 })
--     print(plan.devices[1].rows, plan.devices[2].rows, plan.devices[1].weights) -- rows of a batch; bytes
--     --> 16 16 840
local asynchronous = require "mgpu.parallel.asynchronous"
local batch_layout = require "mgpu.train.batch_layout"
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local estimate = require "mgpu.profile.estimate"
local forecast = require "mgpu.parallel.forecast"
local options = require "mgpu.options"
local peaks = require "mgpu.profile.peaks"
local placement = require "mgpu.train.placement"
local timeline = require "mgpu.parallel.timeline"
local train_step = require "mgpu.train.train_step"

local ops = core.ops

local OPTIONS = options.declare {
  { "devices", "any" },
  { "hosts", "integer", min = 1 },
  { "batch_size", "integer", default = 32, min = 1 },
  { "samples", "integer", min = 1 },
  { "strategy", "string", values = { "mirrored", "central", "async" } },
  { "bn", "string", values = { "sync", "local" } },
  { "speeds", "table" },
}

local function fail(message, ...) core.fail("usage", "explain: " .. message:format(...)) end

-- RETURNS names and shares of the rows. Unlike in compile, the devices need not exist on this machine.
local function planned(model, given)
  local compiled = model.compiled
  if given == nil then return compiled.devices or { core.default_device() }, compiled.spread
    and compiled.spread.weights end
  if type(given) == "string" and given ~= "all" then
    return devices.spelled("explain", { given })
  elseif type(given) == "table" and #given > 0 then
    return devices.spelled("explain", given)
  elseif type(given) == "table" and next(given) then
    local names, weights = {}, {}
    for name in pairs(given) do names[#names + 1] = name end
    table.sort(names)
    for i, name in ipairs(names) do weights[i] = given[name] end
    return names, weights
  end
  return devices.resolve("explain", given)
end

local MOST = 1024 -- devices of a step: MG_MAX_SHARDS

-- The number of devices of a cluster; nil without `hosts`.
local function cluster_size(chosen)
  local n, hosts = chosen.devices, chosen.hosts
  if not hosts then return nil end
  if type(n) ~= "number" or n % hosts ~= 0 or n < 1 or n > MOST then
    fail("with hosts = %d, devices must be the number of all of them: a multiple of %d, at most %d", hosts, hosts, MOST)
  elseif chosen.strategy ~= "mirrored" then
    fail('with hosts, the strategy is "mirrored", not %q', chosen.strategy)
  end
  return n
end

local function speeds_of(given)
  local speeds = {}
  for name, value in pairs(forecast.ASSUMED) do speeds[name] = value end
  for name, value in pairs(given or {}) do
    if not forecast.ASSUMED[name] then
      fail("speeds: there is no %s; there are compute, memory, link, network, latency and input", tostring(name))
    elseif type(value) ~= "number" or not (value > 0) then
      fail("speeds: %s must be a number above 0, got %s", name, tostring(value))
    end
    speeds[name] = value
  end
  return speeds
end

-- Zeros in the shapes of a batch, and their layout: the plan of a step depends on shapes only.
local function batch_of(model, rows)
  local body = model.body
  local function zeros(sizes, dtype)
    return ops.full({ rows, unpack(sizes, 2) }, 0, dtype or core.floatx())
  end
  local shapes, x, y = body.inputs and {} or { body.built_shape }, {}, {}
  for i, input in ipairs(body.inputs or {}) do shapes[i] = input:shape() end
  for i, sizes in ipairs(shapes) do x[i] = zeros(sizes) end
  local out = body:output_shape(#shapes == 1 and not body.listed and shapes[1] or shapes)
  local outputs = model.compiled.outputs
  for i, output in ipairs(outputs) do
    if output.loss then
      local target = type(out[1]) == "table" and out[i] or out
      target = output.loss.custom and target or output.loss:target_shape(target)
      y[i] = zeros(target, output.loss.labels and "int32" or nil)
    end
  end
  return batch_layout.pack(x, y, {}, #outputs)
end

-- RETURNS the index in `names` of the device that keeps the weights, #names + 1 if it is not among them, and its name;
-- nil if every device has them.
local function central_of(model, names, strategy)
  if strategy ~= "central" or #names == 1 then return nil end
  local spread, at = model.compiled.spread, #names + 1
  local central = spread and spread.central or "cpu:0"
  for i, name in ipairs(names) do at = name == central and i or at end
  return at, central
end

-- The report on the step of an asynchronous device, repeated for each device: all their steps are equal.
local function async_reports(model, names, rows)
  local tensors, layout = batch_of(model, rows)
  local step = asynchronous.gradient_step(model.compiled, model, { devices = { "null:0" } })
  step:prepare(rows, layout, 0, nil, nil, unpack(tensors))
  local report, list = step:report()[1], {}
  report.rows = rows
  for i = 1, #names do list[i] = report end
  return list, step:work()
end

-- RETURNS the reports, one a device, and the steps of the first, on the plan of a training step of `rows` rows. It is
-- made for null devices in place of the named ones, but for the devices themselves where layers are placed on groups
-- of them.
local function reports(model, names, weights, chosen, rows)
  if chosen.strategy == "async" and #names > 1 then return async_reports(model, names, rows) end
  local compiled = setmetatable({}, { __index = model.compiled })
  local central, stand_ins = central_of(model, names, chosen.strategy), {}
  for i = 1, #names do stand_ins[i] = chosen.stages and names[i] or "null:" .. (i - 1) end
  if chosen.stages then placement.place_state(model.compiled, model) end
  compiled.steps, compiled.eager, compiled.spread = {}, false, { devices = stand_ins, weights = weights,
    absent = names.absent, local_norm = chosen.bn == "local", central = central and "null:" .. (central - 1),
    stages = chosen.stages }
  local tensors, layout = batch_of(model, rows)
  local step = train_step.get(compiled, "train", model, train_step.plan_key(model))
  step:prepare(1, rows, layout, 0, nil, nil, unpack(tensors))
  return step:report(), step:work()
end

local function bytes_of(variables)
  local total = 0
  for _, v in ipairs(variables) do
    total = total + v:count() * (v:dtype():find "64" and 8 or v:dtype():find "16" and 2 or 4)
  end
  return total
end

-- The bytes of weights, gradients and optimizer state of each stage of device groups; one stage is the whole model.
local function bytes_of_stages(model, stages)
  local list, slots = {}, model.compiled.optimizer.slots
  for s = 1, stages or 1 do list[s] = { weights = 0, gradients = 0, optimizer = 0 } end
  if not stages then
    list[1].weights, list[1].gradients = bytes_of(model.variables), bytes_of(model.trainable_variables)
    list[1].optimizer = bytes_of(model.compiled.optimizer:variables())
    return list
  end
  model:each_layer(function(layer)
    local of = list[rawget(layer, "device") or 1]
    of.weights = of.weights + bytes_of(layer.weights)
    for _, v in ipairs(layer.weights) do
      if slots[v] then of.gradients = of.gradients + bytes_of { v } end
      for _, slot in pairs(slots[v] or {}) do of.optimizer = of.optimizer + bytes_of { slot } end
    end
  end)
  return list
end

-- ---- as text ------------------------------------------------------------------------------------

local function size(bytes)
  for _, unit in ipairs { { 2 ^ 30, "GiB" }, { 2 ^ 20, "MiB" }, { 2 ^ 10, "KiB" } } do
    if bytes >= unit[1] then return ("%.1f %s"):format(bytes / unit[1], unit[2]) end
  end
  return ("%d B"):format(bytes)
end

local function device_count(self)
  local n = 0
  for _, d in ipairs(self.devices) do n = n + (d.count or 1) end
  return n
end

local function text(self)
  local n = device_count(self)
  local lines = { ("a training step on %d device%s%s, %s, batch %d%s, batch normalization %s"):format(
    n, n == 1 and "" or "s", self.hosts and (" of %d hosts"):format(self.hosts) or "", self.strategy, self.batch_size,
    self.last_batch and (" (the last has %d)"):format(self.last_batch) or "", self.bn),
    ("%-10s %10s %10s %10s %10s %10s %12s"):format("device", "rows", "weights", "gradients", "optimizer",
      "step", "reductions") }
  for _, d in ipairs(self.devices) do
    lines[#lines + 1] = ("%-10s %10s %10s %10s %10s %10s %12s"):format(d.name,
      d.last_rows and ("%d, %d"):format(d.rows, d.last_rows) or tostring(d.rows), size(d.weights),
      size(d.gradients), size(d.optimizer), size(d.memory),
      d.transfer_bytes and ("moves %s"):format(size(d.transfer_bytes)) or d.collectives == 0 and "none"
      or ("%d, %s"):format(d.collectives, size(d.collective_bytes)))
  end
  for _, line in ipairs(self.forecast and forecast.lines(self.forecast) or {}) do lines[#lines + 1] = line end
  return table.concat(lines, "\n")
end

-- ---- the call -----------------------------------------------------------------------------------

-- The entries of the devices that are listed, one for each.
local function listed_devices(model, chosen, last_batch)
  local names, weights = planned(model, chosen.devices)
  local full, work = reports(model, names, weights, chosen, chosen.batch_size)
  local last = last_batch and reports(model, names, weights, chosen, last_batch)
  local central, central_name = central_of(model, names, chosen.strategy)
  local async, bytes, list = chosen.strategy == "async" and #names > 1, bytes_of_stages(model, chosen.stages), {}
  for i, r in ipairs(full) do
    local keeps, own = not central or i == central, bytes[math.ceil(i * #bytes / #full)]
    list[i] = { name = names[i] or central_name, rows = #names == 1 and chosen.batch_size or r.rows,
      last_rows = last and (#names == 1 and last_batch or last[i].rows),
      weights = keeps and own.weights or 0, gradients = own.gradients,
      optimizer = keeps and (not async or i == 1) and own.optimizer or 0, memory = r.arena_bytes + r.result_bytes,
      collectives = r.collectives, collective_bytes = r.collective_bytes,
      transfer_bytes = async and (i == 1 and 0 or own.weights + own.gradients) or nil }
  end
  return list, full[1], work
end

-- The entries of a cluster of n devices. One of them is planned, of those with most rows.
local function cluster_devices(model, chosen, last_batch, n)
  local full, work = reports(model, { "null:0", absent = n - 1 }, nil, chosen, chosen.batch_size)
  local r = full[1]
  local own, more, rows, list = bytes_of_stages(model)[1], chosen.batch_size % n, math.floor(chosen.batch_size / n), {}
  local function last_rows(i) return last_batch and math.floor(last_batch / n) + (i <= last_batch % n and 1 or 0) end
  local function add(first, last, count)
    if first > last then return end
    list[#list + 1] = { name = first == last and tostring(first) or ("%d-%d"):format(first, last),
      count = last - first + 1, rows = count, last_rows = last_rows(first), weights = own.weights,
      gradients = own.gradients, optimizer = own.optimizer, memory = r.arena_bytes + r.result_bytes,
      collectives = r.collectives, collective_bytes = r.collective_bytes }
  end
  add(1, more, rows + 1)
  add(more + 1, n, rows)
  return list, r, work
end

local function forecast_of(chosen, list, r)
  if not (chosen.hosts or chosen.speeds) then return nil end
  if chosen.strategy == "async" or chosen.stages then
    fail("there is no forecast for strategy \"async\" and for device groups: leave out speeds")
  end
  local work, speeds = { devices = device_count { devices = list }, hosts = chosen.hosts or 1,
    batch = chosen.batch_size, products = r.products, elements = r.elements, bytes = r.collective_bytes,
    collectives = r.collectives }, speeds_of(chosen.speeds)
  local result = forecast.step(work, speeds)
  result.speeds, result.given, result.advice = speeds, chosen.speeds ~= nil, forecast.advice(work, speeds)
  return result
end

-- What a device reaches: as `speeds` says, as it is measured where the first device is there, or as it is assumed.
local function peak_of(chosen, list)
  local known = not chosen.speeds and pcall(core.device_info, list[1].name) and peaks.of(list[1].name)
  local speeds = speeds_of(chosen.speeds)
  return known or { flops = speeds.compute, bytes = speeds.memory }
end

local COUNTS = options.declare { { "devices", "table" } }

-- The method `timeline` of the report.
local function timeline_of(model, chosen, rows, given)
  local counts = options.check("timeline", COUNTS, given or {}).devices or timeline.COUNTS
  if chosen.strategy ~= "mirrored" or chosen.stages then
    fail('there is a timeline for strategy "mirrored" without device groups only')
  elseif #counts == 0 then
    fail("timeline: devices must be a list of numbers of GPUs, as { 1, 8, 64 }")
  end
  for _, n in ipairs(counts) do
    if type(n) ~= "number" or n % 1 ~= 0 or n < 1 or n > MOST then
      fail("timeline: devices must be whole numbers from 1 to %d, got %s", MOST, tostring(n))
    end
  end
  return timeline.new(function(n)
    local _, work = reports(model, { "null:0", absent = n > 1 and n - 1 or nil }, nil, chosen, rows * n)
    return work
  end, counts, rows, speeds_of(chosen.speeds))
end

--- explain(model, options) -> the report; see the top.
return function(model, given)
  if type(model) ~= "table" or not model.compile then fail("the first argument must be a model") end
  local chosen = options.check("explain", OPTIONS, given or {})
  if not model.compiled then fail("call model:compile {optimizer = ..., loss = ...} first") end
  if not model.built then fail("the model has no weights yet: give it an Input or call it once") end
  chosen.strategy = chosen.strategy or model.compiled.strategy or "mirrored"
  chosen.bn = chosen.bn or model.compiled.bn
  chosen.stages = not chosen.devices and model.compiled.spread and model.compiled.spread.stages or nil
  local n = cluster_size(chosen)
  model.compiled.optimizer:build(model.trainable_variables)
  local last_batch = chosen.samples and (chosen.samples - 1) % chosen.batch_size + 1 or nil
  local list, first, work = (n and cluster_devices or listed_devices)(model, chosen, last_batch, n)
  return setmetatable({ batch_size = chosen.batch_size, last_batch = last_batch, strategy = chosen.strategy,
    bn = chosen.bn, hosts = chosen.hosts, devices = list, forecast = forecast_of(chosen, list, first) },
    { __tostring = text, __index = { table = function() return estimate(work, peak_of(chosen, list)) end,
      timeline = function(_, of) return timeline_of(model, chosen, list[1].rows, of) end } })
end
