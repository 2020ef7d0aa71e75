-- Files of lua/mgpu require each other in one direction only (lua/README.md).

local check = require "check"
local core = require "mgpu.core"
local test = check.test

-- module -> array of the modules that it requires when it is loaded
local function require_graph()
  local graph, root = {}, core.root .. "/lua/"
  for path in io.popen(("find '%smgpu' -name '*.lua'"):format(root)):lines() do
    local module = path:sub(#root + 1):gsub("/init%.lua$", ""):gsub("%.lua$", ""):gsub("/", ".")
    local needs = {}
    for line in io.lines(path) do
      local name = line:match "^local [%w_]+ = require ?%(?\"(mgpu[%w_.]*)\""
        or line:match "^for .*require \"(mgpu[%w_.]*)\""
      local is_in_c = name == "mgpu.core" or name == "mgpu.attach.link"
      if name and not is_in_c then needs[#needs + 1] = name end
    end
    graph[module] = needs
  end
  return graph
end

local graph = require_graph()

test("no two files require each other, directly or by way of others", function()
  local state, path = {}, {} -- state: "open" while a module's requirements are visited, then "done"
  local function visit(module)
    path[#path + 1] = module
    if state[module] == "open" then check.fail("a cycle: " .. table.concat(path, " -> ")) end
    if not state[module] then
      state[module] = "open"
      for _, name in ipairs(graph[module] or check.fail("no file for " .. module)) do visit(name) end
      state[module] = "done"
    end
    path[#path] = nil
  end
  for module in pairs(graph) do visit(module) end
end)

-- Everything that the module requires, directly or not.
local function reach(module, found)
  found = found or {}
  for _, name in ipairs(graph[module]) do
    if not found[name] then
      found[name] = true
      reach(name, found)
    end
  end
  return found
end

test("tensors and data know nothing of networks and training", function()
  for module in pairs(graph) do
    if module:find "^mgpu%.tensor" or module:find "^mgpu%.data" then
      for name in pairs(reach(module)) do
        if name:find "^mgpu%.nn" or name:find "^mgpu%.train" then check.fail(module .. " requires " .. name) end
      end
    end
  end
end)

test("the train step knows nothing of fit, data and callbacks", function()
  local above = { "mgpu.train.fit", "mgpu.train.evaluate", "mgpu.train.data_adapter", "mgpu.train.batch_cursor",
    "mgpu.train.callback_list", "mgpu.train.placement", "mgpu.train.progress" }
  local found = reach "mgpu.train.train_step"
  for _, name in ipairs(above) do check.falsy(found[name], name) end
  check.truthy(reach "mgpu.train.fit" ["mgpu.train.train_step"])
end)
