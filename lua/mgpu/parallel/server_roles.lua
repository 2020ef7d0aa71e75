--- Who is a parameter server and who works, and which variables each server keeps: for servers.lua.
local core = require "mgpu.core"

local M = {}

--- of(strategy, chosen) -> arrays of the servers' ranks and of the workers'. All ranks call it together.
function M.of(strategy, chosen)
  local size, servers, workers = core.world().size, {}, {}
  if strategy == "central" then
    for r = 0, size - 1 do workers[#workers + 1] = r end
    return { 0 }, workers
  end
  local is_server, named = {}, 0
  for r, flag in ipairs(core.world_gather(core.launch().role == "ps" and 1 or 0)) do
    is_server[r], named = flag == 1, named + flag
  end
  local n = chosen.servers or 1
  for r = 1, size do
    if named == 0 then is_server[r] = r > size - n end
    local list = is_server[r] and servers or workers
    list[#list + 1] = r - 1
  end
  if #workers == 0 then
    core.fail("usage", ("strategy %q: %d of %d processes would be servers, so none is left to work"):format(strategy,
      math.max(n, named), size))
  elseif named > 0 and chosen.servers and chosen.servers ~= named then
    core.fail("usage", ("strategy %q: servers = %d, but TF_CONFIG names %d tasks \"ps\": leave servers out")
      :format(strategy, chosen.servers, named))
  end
  return servers, workers
end

--- is_only_server(strategy, chosen) -> whether this rank keeps weights and does not work. All ranks call it together.
function M.is_only_server(strategy, chosen)
  if strategy ~= "parameter_server" then return false end
  local _, workers = M.of(strategy, chosen)
  for _, rank in ipairs(workers) do
    if rank == core.world().rank then return false end
  end
  return true
end

--- deal(model, n) -> the variables of the model for each of n servers, the largest first to whom has least, in the
--- order of the model.
function M.deal(model, n)
  local order, loads, owner, shards = {}, {}, {}, {}
  for i, v in ipairs(model.variables) do order[i] = { v = v, i = i, size = v:value():count() } end
  table.sort(order, function(a, b) return a.size > b.size or a.size == b.size and a.i < b.i end)
  for s = 1, n do loads[s], shards[s] = 0, {} end
  for _, each in ipairs(order) do
    local least = 1
    for s = 2, n do least = loads[s] < loads[least] and s or least end
    loads[least], owner[each.v] = loads[least] + each.size, least
  end
  for _, v in ipairs(model.variables) do table.insert(shards[owner[v]], v) end
  return shards
end

--- counters_of(optimizer) -> its variables that are not of a variable of the model: counters and rates.
function M.counters_of(optimizer)
  local is_slot, list = {}, {}
  for _, own in pairs(optimizer.slots) do
    for _, slot in pairs(own) do is_slot[slot] = true end
  end
  for _, v in ipairs(optimizer:variables()) do
    if not is_slot[v] then list[#list + 1] = v end
  end
  return list
end

--- share_of(devices, is_worker) -> which of the workers' devices are this rank's: they share the rows of a batch. All
--- ranks call it together.
function M.share_of(devices, is_worker)
  local share = { first = 0, n = devices, total = 0 }
  for r, n in ipairs(core.world_gather(is_worker and devices or 0)) do
    if r <= core.world().rank then share.first = share.first + n end
    share.total = share.total + n
  end
  return share
end

--- slot_names_of(optimizer) -> the names of its slots, in an order that is the same on all ranks.
function M.slot_names_of(optimizer)
  local seen, names = {}, {}
  for _, own in pairs(optimizer.slots) do
    for name in pairs(own) do
      if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
  end
  table.sort(names)
  return names
end

return M
