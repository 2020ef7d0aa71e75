-- NCCL on one GPU (a communicator of one rank), and failing training steps on two GPUs.
--
-- A single rank has nothing to sum. But it shows that NCCL is found, accepts our settings, starts in non-blocking
-- mode and ends; and an all-gather consists of messages to the rank itself, which start a kernel of NCCL and can be
-- recorded in a graph. No model makes such a communicator, so these tests call the plug-in through the FFI,
-- with copies of its structs.
local device = require "tests.cuda.device"
local ffi = require "ffi"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

ffi.cdef [[
typedef struct mg_device mg_device;
typedef struct mg_comm mg_comm;
typedef struct mg_comm_operand { const void *in; void *out; int64_t count; } mg_comm_operand;
typedef struct mg_collective_call {
  int kind, dtype, reduction, root, to;
  const mg_comm_operand *operands;
  int n_operands;
  int64_t outer;
  const int64_t *counts;
} mg_collective_call;
typedef struct mg_comm_api {
  const char *kind;
  int (*run)(mg_comm *c, int rank, const mg_collective_call *call);
  int (*begin)(mg_comm *c, int rank, const mg_collective_call *call);
  int (*settle)(mg_comm *c, int rank, const void *read, int n);
  int (*barrier)(mg_comm *c, int rank);
  void (*abort)(mg_comm *c);
  void (*reset)(mg_comm *c);
  int (*check)(mg_comm *c);
  void (*free)(mg_comm *c);
  bool recorded;
} mg_comm_api;
struct mg_comm { const mg_comm_api *api; int n, generation; double deadline; };
typedef struct mg_comm_id { char bytes[128]; } mg_comm_id;
typedef struct mg_comm_end {
  void *device, *stream, *mark;
  int (*enter)(void *device);
  int (*finish)(void *device);
} mg_comm_end;
typedef struct mg_comm_team { int n, first, here; const mg_comm_id *id; const mg_comm_end *ends; } mg_comm_team;
typedef struct mg_device_team {
  int n, first, here; const mg_comm_id *id; mg_device *const *devices;
} mg_device_team;
typedef struct mg_comm_kind {
  size_t size;
  int (*make_id)(mg_comm_id *id);
  mg_comm *(*join)(const mg_comm_team *team);
} mg_comm_kind;
const mg_comm_kind *mg_comm_find(const char *kind);
mg_device *mg_device_find(const char *name);
mg_comm *mg_device_join(const mg_device_team *team);
int mg_device_make_id(const mg_device *d, mg_comm_id *id);
int mg_device_alloc(mg_device *d, size_t bytes, void **data);
void mg_device_free(mg_device *d, void *data, size_t bytes);
int mg_device_copy(mg_device *to, void *dst, mg_device *from, const void *src, size_t bytes);
int mg_error_code(void);
const char *mg_error_message(void);
double mg_seconds(void);
void mg_interrupt(void);

int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphLaunch(void *exec, void *stream);
int cuGraphDestroy(void *graph);
int cuGraphExecDestroy(void *exec);
]]

local test = check.test
local C = ffi.C
local OK, COMM, UNSUPPORTED = 0, 7, 9 -- mg_status
local F32, SUM = 6, 0 -- mg_dtype, mg_reduce_kind
local ALL_REDUCE, ALL_GATHER = 1, 4 -- mg_collective
local NON_BLOCKING, THREAD_LOCAL = 1, 1 -- a stream, a capture
local COUNT = 10007
local COUNTS = ffi.new("int64_t[1]", COUNT)
jit.off(true, true) -- LuaJIT must not compile calls of C functions that call back into Lua

-- ---- device memory without a model ----------------------------------------------------------------------

local function sure(status)
  if status ~= OK then check.fail(ffi.string(C.mg_error_message())) end
end

-- Calls fn(gpu, memory, read, wanted, id): `memory` has three arrays of COUNT floats on the GPU, the first
-- with the numbers `wanted`; read(i) returns the numbers of array i and sets it to 0; `id` is a unique id.
local function with_memory(fn)
  local gpu, host = C.mg_device_find "cuda:0", C.mg_device_find "ref:0"
  local id = ffi.new "mg_comm_id"
  local made = C.mg_device_make_id(gpu, id)
  if made == UNSUPPORTED then check.skip(ffi.string(C.mg_error_message())) end
  sure(made)
  local numbers, address = ffi.new("float[?]", COUNT), ffi.new "void *[1]"
  local memory, wanted = {}, {}
  local function receive(i) sure(C.mg_device_copy(host, numbers, gpu, memory[i], ffi.sizeof(numbers))) end
  local function send(i)
    sure(C.mg_device_copy(gpu, memory[i], host, numbers, ffi.sizeof(numbers)))
    receive(i) -- reading back waits until it has arrived, so other streams may use it
  end
  local function read(i)
    local list = {}
    receive(i)
    for k = 1, COUNT do list[k] = numbers[k - 1] end
    ffi.fill(numbers, ffi.sizeof(numbers))
    send(i)
    return list
  end
  for i = 1, 3 do
    sure(C.mg_device_alloc(gpu, ffi.sizeof(numbers), address))
    memory[i] = address[0]
  end
  for k = 1, COUNT do
    wanted[k] = k / 8
    numbers[k - 1] = wanted[k]
  end
  send(1)
  fn(gpu, memory, read, wanted, id)
  for i = 1, 3 do C.mg_device_free(gpu, memory[i], ffi.sizeof(numbers)) end
end

-- Takes part as rank 0 in a collective from one piece of memory to another.
local function exchange(comm, kind, from, to)
  local operand = ffi.new("mg_comm_operand[1]", { { from, to, COUNT } })
  return comm.api.run(comm, 0, ffi.new("mg_collective_call", { kind = kind, dtype = F32, reduction = SUM,
    operands = operand, n_operands = 1, outer = 1, counts = COUNTS }))
end

-- An all-reduce into array 2 and an all-gather into array 3; with one rank both are copies.
local function both(comm, memory)
  sure(exchange(comm, ALL_REDUCE, memory[1], memory[2]))
  sure(exchange(comm, ALL_GATHER, memory[1], memory[3]))
end

local function expect_both(read, wanted)
  check.equal(read(2), wanted)
  check.equal(read(3), wanted)
end

-- Ends the communicator; it must not take long, as it would if NCCL still waited for another rank.
local function free(comm)
  local start = C.mg_seconds()
  comm.api.free(comm)
  check.truthy(C.mg_seconds() - start < 4, "the communicator ended")
end

test("a communicator of one rank is made by id, used and ended", function()
  with_memory(function(gpu, memory, read, wanted, id)
    local devices = ffi.new("mg_device *[1]", gpu)
    local comm = C.mg_device_join(ffi.new("mg_device_team", { n = 1, here = 1, id = id, devices = devices }))
    if comm == nil then sure(C.mg_error_code()) end
    check.equal(ffi.string(comm.api.kind), "nccl")
    for _ = 1, 2 do
      both(comm, memory)
      sure(comm.api.barrier(comm, 0))
      expect_both(read, wanted)
    end
    sure(comm.api.check(comm))
    free(comm)
  end)
end)

test("an interrupt ends the wait for the ranks of other processes", function()
  with_memory(function(gpu, _, _, _, id)
    local devices = ffi.new("mg_device *[1]", gpu)
    C.mg_interrupt()
    local comm = C.mg_device_join(ffi.new("mg_device_team", { n = 2, here = 1, id = id, devices = devices }))
    check.truthy(comm == nil)
    check.equal(ffi.string(C.mg_error_message()), "interrupted")
  end)
end)

-- ---- recordings ---------------------------------------------------------------------------------

local driver = ffi.load(device.real and "libcuda.so.1" or "build/fake_cuda/libcuda.so.1")

local function good(result) check.equal(result, 0) end

-- Calls fn(comm, stream, memory, expect) with a communicator of one rank on its own stream.
local function with_comm(fn)
  with_memory(function(_, memory, read, wanted)
    local stream = ffi.new "void *[1]"
    good(driver.cuStreamCreate(stream, NON_BLOCKING))
    local nothing = ffi.cast("int (*)(void *)", function() return OK end)
    local ends = ffi.new("mg_comm_end[1]",
      { { stream = stream[0], mark = memory[1], enter = nothing, finish = nothing } })
    local comm = C.mg_comm_find "nccl".join(ffi.new("mg_comm_team", { n = 1, here = 1, ends = ends }))
    if comm == nil then sure(C.mg_error_code()) end
    fn(comm, stream[0], memory, function() expect_both(read, wanted) end)
    good(driver.cuStreamDestroy_v2(stream[0]))
    nothing:free()
  end)
end

-- An executable CUDA graph of the two collectives.
local function record(comm, stream, memory)
  local graph, exec = ffi.new "void *[1]", ffi.new "void *[1]"
  good(driver.cuStreamBeginCapture_v2(stream, THREAD_LOCAL))
  both(comm, memory)
  good(driver.cuStreamEndCapture(stream, graph))
  good(driver.cuGraphInstantiateWithFlags(exec, graph[0], 0))
  good(driver.cuGraphDestroy(graph[0]))
  return exec[0]
end

local function replay(exec, stream)
  good(driver.cuGraphLaunch(exec, stream))
  good(driver.cuStreamSynchronize(stream))
end

test("collectives in a CUDA graph run at each launch", function()
  with_comm(function(comm, stream, memory, expect)
    both(comm, memory)
    good(driver.cuStreamSynchronize(stream))
    expect()
    local exec = record(comm, stream, memory)
    for _ = 1, 3 do
      replay(exec, stream)
      expect()
    end
    sure(comm.api.check(comm))
    good(driver.cuGraphExecDestroy(exec))
    free(comm)
  end)
end)

test("a communicator is aborted and made again while a graph with the old one lives", function()
  with_comm(function(comm, stream, memory, expect)
    local old = record(comm, stream, memory)
    local start = C.mg_seconds()
    comm.api.abort(comm)
    check.truthy(C.mg_seconds() - start < 4, "abort does not wait for the graph")
    check.equal(comm.api.check(comm), COMM)
    comm.api.reset(comm)
    sure(comm.api.check(comm))
    check.equal(comm.generation, 1)
    local new = record(comm, stream, memory)
    replay(new, stream)
    expect()
    good(driver.cuGraphExecDestroy(old))
    replay(new, stream)
    expect()
    good(driver.cuGraphExecDestroy(new))
    free(comm)
  end)
end)

-- ---- two GPUs -----------------------------------------------------------------------------------

local L = mgpu.layers

-- A model on these devices, and a function that does a training step.
local function steps(devices)
  mgpu.seed(3)
  mgpu.reset_names()
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu" }, L.Dense { 3 } }
  model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.1 }, devices = devices }
  local x, y = (mgpu.arange(54):to "float32" % 11):reshape { 9, 6 } / 11, mgpu.ones { 9, 3 }
  return model, function() model:train_on_batch(x, y) end
end

-- A step in which cuda:1 fails.
local function fail(step)
  core.fault { device = "cuda:1", op = "matmul" }
  check.raises(step, "cuda:1: matmul: failed", "device")
  core.fault()
end

test("a GPU that fails in a recorded step is an error, and the next steps succeed", function()
  if #core.devices "cuda" < 2 then check.skip "one GPU" end
  local serial, step = steps { "ref:0" }
  local model, step_on_two = steps { "cuda:0", "cuda:1" }
  for i = 1, 8 do
    if i == 2 or i == 5 or i == 6 then fail(step_on_two) end
    step()
    step_on_two()
  end
  for i, w in ipairs(model:get_weights()) do
    check.near(w, serial:get_weights()[i], 1e-5) -- float32 sums in another order
  end
end)

if device.real then return end

ffi.cdef "long long fake_cuda_count(const char *what);"

test("graphs with an aborted communicator are destroyed at the next step", function()
  local _, step = steps { "cuda:0", "cuda:1" }
  for _ = 1, 4 do step() end
  fail(step)
  local before = driver.fake_cuda_count "cuGraphExecDestroy"
  step()
  check.truthy(driver.fake_cuda_count "cuGraphExecDestroy" >= before + 2, "at least one of each GPU")
end)

test("a program can end after a failed step, by os.exit or normally", function()
  local path = check.path "script.lua"
  check.write(path, [[
local core, mgpu = require "mgpu.core", require "mgpu"
local model = mgpu.Sequential { mgpu.layers.Input { 6 }, mgpu.layers.Dense { 3 } }
model:compile { loss = "mse", optimizer = "sgd", devices = { "cuda:0", "cuda:1" } }
local x, y = mgpu.ones { 8, 6 }, mgpu.ones { 8, 3 }
for _ = 1, 3 do model:train_on_batch(x, y) end
core.fault { device = "cuda:1", op = "matmul" }
print(pcall(model.train_on_batch, model, x, y))
if arg[1] == "at once" then os.exit(3) end]])
  for how, code in pairs { ["at once"] = 3, ["in order"] = 0 } do
    local leaks = code == 3 and "ASAN_OPTIONS=detect_leaks=0" or "" -- os.exit frees nothing
    local out, status = check.run(("timeout 20 env %s %s %s '%s'"):format(leaks, check.program, path, how))
    check.matches(out, "cuda:1: matmul: failed")
    check.equal(status, code)
  end
end)

test("NCCL does not use the pointers of GPUs whose copies do not arrive, and registers no buffers", function()
  local path = check.path "deaf.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local L = mgpu.layers
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
    model:compile { loss = "mse", devices = { "cuda:0", "cuda:1" } }
    model:fit(mgpu.rand { 32, 4 }, mgpu.rand { 32, 3 }, { batch_size = 8, verbose = 0 })
    print(os.getenv "NCCL_P2P_DIRECT_DISABLE", os.getenv "NCCL_GRAPH_REGISTER")]])
  local function run(settings)
    return (check.run(("%s MGPU_CUDA_LIBRARIES=build/fake_cuda %s %s"):format(settings, check.program, path)))
  end
  check.equal(run "MGPU_FAKE_CUDA_DEAF=1", "1\t0\n")
  check.equal(run "", "nil\t0\n")
end)
