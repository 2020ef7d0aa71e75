-- What ?name shows for the functions that are written in C and are no ops, as in the comments of runtime/bind/.
return {
  deterministic = [[
deterministic([boolean]) -> the current value: whether algorithms are chosen by rule instead of by timing.]],
  device_info = [[
device_info(name) -> {name, kind, text, memory, host_visible}. The device is not opened.]],
  devices = [[
devices([kind]) -> array of the names of the devices, kinds of higher rank first. It obeys --devices and
CUDA_VISIBLE_DEVICES.]],
  error_code = [[
error_code() -> the kind of the last error: "usage", "data", "io", "oom", "nonfinite", "device", "comm", "interrupted",
"unsupported" or "internal".]],
  eval = [[
eval(t, ...) -> the same tensors, computed now, in one plan. Tensors are computed when their numbers are needed; this is
for timing, and for freeing what they are made of.]],
  grad = [[
grad(fn) -> a function that returns the gradient of fn, whose first result is one number, by its first argument.]],
  memory = [[
memory(device) -> {used, peak, limit} of a device in bytes; memory() -> {bytes, blocks, tensors} of the library.]],
  no_grad = [[
no_grad(fn, ...) -> fn's results. No gradient flows through the tensors made inside.]],
  precision = [[
precision(["fast" | "highest"]) -> the current value. "fast" allows TF32, Winograd and the like.]],
  tidy = [[
tidy(fn, ...) -> fn's results. Every other tensor made inside is freed, also after an error.]],
  value_and_grad = [[
value_and_grad(fn, variables) -> a function that returns fn's value and an array of gradients in the order of the
variables, false for those that fn does not depend on.]],
  variable = [[
variable(value, {name =, trainable = true}) -> a variable: a named handle on a tensor, with v:value() and
v:assign(t). It can be used where a tensor can.]],
  -- methods of tensors
  count = "t:count() -> the number of elements.",
  device = "t:device() -> the name of the device that holds or will hold it.",
  dtype = 't:dtype() -> "float32" and so on.',
  free = "t:free(): gives up the memory now; any later use raises.",
  item = "t:item() -> the one element as a number or boolean.",
  rank = "t:rank() -> the number of axes.",
  shape = "t:shape() -> array of the sizes of the axes.",
  totable = "t:totable() -> nested tables; a number for a scalar.",
}
