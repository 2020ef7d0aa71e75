-- What ?name shows for the functions that are written in C and are not ops, as in the comments of runtime/bind/.
return {
  deterministic = [[
deterministic([boolean]) -> the current value: whether algorithms are chosen by rule instead of by timing.
Example:
    mgpu.deterministic(true) -- the same bits in every run
    print(mgpu.deterministic())  --> true]],
  device_info = [[
device_info(name) -> {name, kind, text, memory, host_visible}. The device is not opened.
Example:
    local info = mgpu.device_info "cpu:0"
    print(info.name, info.kind, info.memory > 0)  --> cpu:0 cpu true]],
  devices = [[
devices([kind]) -> array of the names of the devices, kinds of higher rank first. It obeys --devices and
CUDA_VISIBLE_DEVICES.
Example:
    print(table.concat(mgpu.devices "cpu", " "))  --> cpu:0 cpu:1]],
  error_code = [[
error_code() -> the kind of the last error: "usage", "data", "io", "oom", "nonfinite", "device", "comm", "interrupted",
"unsupported" or "internal".
Example:
    print(pcall(mgpu.zeros, { -1 }))
    --> false ...: zeros: a size of the shape must be a whole number of at least 0, got -1
    print(mgpu.error_code())  --> usage]],
  eval = [[
eval(t, ...) -> the same tensors, computed now, in one plan. Tensors are computed when their numbers are needed; this is
for timing, and for freeing what they are made of.
Example:
    local a = mgpu.rand { 100, 100 }
    local b, c = a:matmul(a), a:sum()
    mgpu.eval(b, c) -- both are computed now]],
  grad = [[
grad(fn) -> a function that returns the gradient of fn, whose first result is one number, by its first argument.
Example:
    local slope = mgpu.grad(function(x) return (x ^ 2):sum() end)
    print(slope(mgpu.tensor { 1, 2, 3 })) -- 2 x
    --> tensor {3} float32 cpu:0
    --> {2, 4, 6}]],
  memory = [[
memory(device) -> {used, peak, limit} of a device in bytes; memory() -> {bytes, blocks, tensors} of the library.
Example:
    local before = mgpu.memory("cpu:0").used
    local t = mgpu.zeros { 1000, 1000 }
    mgpu.eval(t)
    print(mgpu.memory("cpu:0").used - before >= 4e6)  --> true]],
  no_grad = [[
no_grad(fn, ...) -> fn's results. No gradient flows through the tensors made inside.
Example:
    local slope = mgpu.grad(function(x)
      local scale = mgpu.no_grad(function() return x:sum() end) -- counts as a constant
      return (x * scale):sum()
    end)
    print(slope(mgpu.tensor { 1, 2 }))
    --> tensor {2} float32 cpu:0
    --> {3, 3}]],
  precision = [[
precision(["fast" | "highest"]) -> the current value. "fast" allows TF32, Winograd and the like.
Example:
    mgpu.precision "highest"
    print(mgpu.precision())  --> highest]],
  tidy = [[
tidy(fn, ...) -> fn's results. Every other tensor made inside is freed, also after an error.
Example:
    local part
    local y = mgpu.tidy(function()
      part = mgpu.rand { 1000 }
      return part:sum()
    end)
    print(y:count()) -- y is kept  --> 1
    print(pcall(part.item, part))  --> false ...: the tensor was freed]],
  value_and_grad = [[
value_and_grad(fn, variables) -> a function that returns fn's value and an array of gradients in the order of the
variables, false for those that fn does not depend on.
Example:
    local w = mgpu.variable(mgpu.tensor { 1, 2 })
    local value, gradients = mgpu.value_and_grad(function(x) return (w * x):sum() end, { w })(mgpu.tensor { 3, 4 })
    print(value:item())  --> 11
    print(gradients[1])
    --> tensor {2} float32 cpu:0
    --> {3, 4}]],
  variable = [[
variable(value, {name =, trainable = true}) -> a variable: a named handle on a tensor, with v:value() and
v:assign(t). It can be used where a tensor can.
Example:
    local v = mgpu.variable(mgpu.zeros { 2 }, { name = "state" })
    v:assign(v + 1)
    print(v:value())
    --> tensor {2} float32 cpu:0
    --> {1, 1}]],
  -- methods of variables
  assign = [[
v:assign(t) -> v, which holds t from here on: a tensor or nested numbers of the same shape, cast to the variable's
dtype.
Example:
    local v = mgpu.variable(mgpu.tensor { 1, 2 })
    v:assign(v * 10)
    print(v:value())
    --> tensor {2} float32 cpu:0
    --> {10, 20}]],
  value = [[
v:value() -> the tensor that the variable holds now. It stays what it is when the variable changes.
Example:
    local v = mgpu.variable(mgpu.tensor { 1, 2 })
    local before = v:value()
    v:assign(v + 1)
    print(before:sum():item(), v:value():sum():item())  --> 3 5]],
  -- methods of tensors
  count = [[
t:count() -> the number of elements.
Example:
    print(mgpu.zeros({ 2, 3 }):count())  --> 6]],
  device = [[
t:device() -> the name of the device that holds or will hold it.
Example:
    print(mgpu.zeros({ 2 }, { device = "cpu:1" }):device())  --> cpu:1]],
  dtype = [[
t:dtype() -> "float32" and so on.
Example:
    print(mgpu.zeros({ 2 }):dtype(), mgpu.tensor({ true }):dtype())  --> float32 bool]],
  free = [[
t:free(): gives up the memory now; any later use raises.
Example:
    local t = mgpu.zeros { 1000 }
    t:free()
    print(pcall(t.sum, t))  --> false ...: the tensor was freed]],
  item = [[
t:item() -> the one element as a number or boolean.
Example:
    print(mgpu.tensor({ 1, 2, 3 }):sum():item())  --> 6
    print(pcall(function() return mgpu.zeros({ 2 }):item() end))
    --> false ...: item: the tensor has 2 elements (shape {2}), not one: use :totable()]],
  rank = [[
t:rank() -> the number of axes.
Example:
    print(mgpu.zeros({ 8, 28, 28 }):rank(), mgpu.tensor(5):rank())  --> 3 0]],
  shape = [[
t:shape() -> array of the sizes of the axes.
Example:
    local rows, columns = unpack(mgpu.zeros({ 2, 3 }):shape())
    print(rows, columns)  --> 2 3]],
  totable = [[
t:totable() -> nested tables; a number for a scalar.
Example:
    local rows = mgpu.tensor({ { 1, 2 }, { 3, 4 } }):totable()
    print(rows[2][1])  --> 3]],
}
