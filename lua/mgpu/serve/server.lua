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
local values = require "mgpu.serve.values"

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

-- A job of one row; number(k, dtype): the k-th element of each input. nil if sizes are open or texts are taken.
local function made_up(self, number)
  local columns = {}
  for i, input in ipairs(self.signature.inputs) do
    local shape, numbers = { unpack(input.shape) }, {}
    if shape[1] == -1 then shape[1] = 1 end
    for _, size in ipairs(shape) do
      if size == -1 then return nil end
    end
    if input.dtype == "string" then return nil end
    for k = 1, values.count(shape) do numbers[k] = number(k, input.dtype) end
    columns[i] = values.from_tensor(core.tensor(numbers):to(input.dtype))
    columns[i].shape = shape
  end
  return { columns = columns, rows = 1 }
end

--- server:warm_up() -> nothing, or why a row of zeros could not be predicted. Compiles the plan for one row.
function Server:warm_up()
  local job = made_up(self, function() return 0 end)
  if not job then return nil end
  local ok, problem = pcall(self.runner.run, self.runner, { job })
  if not ok then return select(2, refuse.answer_of(problem)) end
end

-- Two jobs of one row each, with other numbers.
local function two_jobs(self)
  local jobs = {}
  for row = 0, 1 do
    jobs[row + 1] = made_up(self, function(k, dtype)
      return values.is_float(dtype) and math.sin(k * k + row) or row
    end)
  end
  return jobs
end

-- Whether the jobs' outputs differ by more than rounding.
local function differ(a, b)
  for i, c in ipairs(a.outputs) do
    local x, y = values.to_tensor(c):to "float64", values.to_tensor(b.outputs[i]):to "float64"
    if (x - y):abs():max():item() > 1e-2 * x:abs():max():item() + 1e-30 then return true end
  end
  return false
end

--- server:separate_rows() -> whether it had to. Two rows are predicted alone and together: where that differs, or is
--- not possible, as in a model with a softmax over its batch, requests are no longer joined.
function Server:separate_rows()
  if not self.signature.joins or self.batch == 1 then return false end
  local alone, together = two_jobs(self), two_jobs(self)
  for i = 1, #together do
    if not pcall(self.runner.run, self.runner, { alone[i] }) then return false end
  end
  if #together == 0 then return false end
  if pcall(self.runner.run, self.runner, together) and not differ(alone[1], together[1])
    and not differ(alone[2], together[2]) then
    return false
  end
  self.signature.joins = false
  return true
end

return M
