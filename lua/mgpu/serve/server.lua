--- The loop of a server: takes requests, joins those that come together, runs the model, answers.
--
-- The first request of a batch waits for more until there are enough rows, its time is over, or each client that is
-- connected has sent one: a single client never waits.
local core = require "mgpu.core"
local Metrics = require "mgpu.serve.metrics"
local refuse = require "mgpu.serve.refuse"
local routes = require "mgpu.serve.routes"
local runner = require "mgpu.serve.runner"
local signature = require "mgpu.serve.signature"

local M = {}

local Server = {}
Server.__index = Server

local IDLE = 600 -- seconds of one wait for a request

--- new(model, http, {name =, batch =, max_delay = seconds}) -> a server; http: of core.server.
function M.new(model, http, chosen)
  local s = signature.of(model, chosen.name)
  return setmetatable({ http = http, signature = s, batch = chosen.batch, max_delay = chosen.max_delay,
    runner = runner.new(model, s, chosen.batch), metrics = Metrics.new() }, Server)
end

-- ---- answering ----------------------------------------------------------------------------------

function Server:answer(request, where, status, content_type, bytes, headers)
  self.metrics:answer(status, where)
  request:reply(status, content_type, bytes, headers)
end

--- server:fail(request, where, problem): answers with what pcall has caught.
function Server:fail(request, where, problem)
  local status, message = refuse.answer_of(problem)
  local headers = type(problem) == "table" and problem.headers or nil
  if status >= 500 then io.stderr:write("mgpulua: ", core.printable(message, true), "\n") end
  local ok, text = pcall(core.json_encode, { error = message })
  if not ok then text = core.json_encode { error = core.printable(message:gsub("[\128-\255]", "?"), true) } end
  self:answer(request, where, status, "application/json", text .. "\n", headers)
end

local function finish(self, job)
  local ok, content_type, bytes, headers = pcall(job.form.write, self.signature, job)
  if not ok then return self:fail(job.request, job.where, content_type) end
  self.metrics:prediction(job.rows, job.began)
  self:answer(job.request, job.where, 200, content_type, bytes, headers)
end

-- ---- running ------------------------------------------------------------------------------------

-- A batch that fails is run again, each request by itself: only the one that is at fault fails.
local function run_together(self, jobs)
  local ok, problem = pcall(self.runner.run, self.runner, jobs)
  if ok then
    for _, job in ipairs(jobs) do finish(self, job) end
  elseif #jobs == 1 then
    self:fail(jobs[1].request, jobs[1].where, problem)
  else
    for _, job in ipairs(jobs) do run_together(self, { job }) end
  end
end

-- Runs the jobs, together those of equal shapes.
local function run(self, jobs)
  local groups, order = {}, {}
  for _, job in ipairs(jobs) do
    local key = self.signature.joins and signature.key_of(job.columns) or #order + 1
    if not groups[key] then
      groups[key] = {}
      order[#order + 1] = key
    end
    table.insert(groups[key], job)
  end
  for _, key in ipairs(order) do run_together(self, groups[key]) end
end

-- ---- the loop -----------------------------------------------------------------------------------

-- Takes requests until there is a batch. RETURNS their jobs.
local function collect(self, first_wait)
  local jobs, rows, deadline = {}, 0, nil
  while rows < self.batch do
    local wait = first_wait
    if #jobs > 0 then
      wait = #jobs >= self.http:clients() and 0 or math.max(deadline - core.clock(), 0)
    end
    local request = self.http:take(wait) -- nil also when a stop is requested and none waits
    if not request then break end
    local job = routes.handle(self, request)
    if job then
      jobs[#jobs + 1], rows = job, rows + job.rows
      deadline = deadline or core.clock() + self.max_delay
    end
  end
  return jobs
end

--- server:loop(): answers until a signal asks to stop; then what has come is answered.
function Server:loop()
  while not core.stop_requested() do run(self, collect(self, IDLE)) end
  self.http:stop()
  repeat
    local jobs = collect(self, 0)
    run(self, jobs)
  until #jobs == 0
  self.http:close()
end

--- server:warm_up() -> nothing, or why a row of zeros could not be predicted. Compiles the plan for one row.
function Server:warm_up()
  local columns = {}
  for i, input in ipairs(self.signature.inputs) do
    local shape = { unpack(input.shape) }
    if shape[1] == -1 then shape[1] = 1 end
    for _, size in ipairs(shape) do
      if size == -1 then return nil end
    end
    if input.dtype == "string" then return nil end
    columns[i] = require "mgpu.serve.values".from_tensor(core.tensor(0):to(input.dtype))
    local count = 1
    for _, size in ipairs(shape) do count = count * size end
    columns[i].shape, columns[i].bytes = shape, columns[i].bytes:rep(count)
  end
  local ok, problem = pcall(self.runner.run, self.runner, { { columns = columns, rows = 1 } })
  if not ok then return select(2, refuse.answer_of(problem)) end
end

return M
