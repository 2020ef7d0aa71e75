-- The first ten minutes of somebody at the prompt, in a terminal.

local check = require "check"
local terminal = require "lua.prompt.terminal"
local test = check.test

-- What is typed, and what the answer must contain; a table of several in this order.
local SESSION = {
  { "1 + 1", "2\n" },
  { "print 'hello'", "hello\n" },
  { ":help", { "Expressions print their values", ":time EXPR", ":quit" } },
  { ":hlep", 'did you mean "help"' },
  { "t = mgpu.tensor { { 1, 2 }, { 3, 4 } }", "" },
  { "t", { "tensor {2, 2} float32", "1, 2", "3, 4" } },
  { "t:sum(2):totable()", "{ 3, 7 }" },
  { "t:shape()", "{ 2, 2 }" },
  { "t.shape[1]", "this is a method, not a field: write t:shape()[1]" },
  { "t + mgpu.ones { 3 }", { "stdin[", "{2, 2}", "{3}" } },
  { "t:matmul(t);", "" },
  { "_:totable()", "{ { 7, 10 }, { 15, 22 } }" },
  { "?t.matmul", { "matmul: ", "Differentiable" } },
  { "?L.Dense", { "Dense {units", "Weights:", "use_bias" } },
  { "local images, labels = mgpu.rand { 256, 8, 8, 1 }, mgpu.randint(0, 3, { 256 })", "" },
  { "images:shape()", "{ 256, 8, 8, 1 }" },
  { "model = mgpu.Sequential {", ">> " },
  { "  L.Conv2D { 4, 3, activation = 'relu', input_shape = { 8, 8, 1 } },", ">> " },
  { "  L.Flatten {}, L.Dense { 3, activaton = 'softmax' },", ">> " },
  { "}", 'Dense: unknown option "activaton" (did you mean "activation"?)' },
  { "model = mgpu.Sequential { L.Conv2D { 4, 3, activation = 'relu', input_shape = { 8, 8, 1 } }, L.Flatten {},"
    .. " L.Dense { 3, activation = 'softmax' } }", "" },
  { "model", "Total params: 475" },
  { "model:summary()", { "Layer (type)", "Total params: 475" } },
  { "model:fit(images, labels)", "compile" },
  { "model:compile { optimizer = 'adam', loss = 'sparse_categorical_crossentropy', metrics = 'accuracy' }", "" },
  { "h = model:fit(images, labels, { epochs = 2, verbose = 2 })", { "Epoch 1/2", "Epoch 2/2", "loss: " } },
  { "#h.history.loss", "2\n" },
  { "model:evaluate(images, labels, { verbose = 0 }).accuracy <= 1", "true\n" },
  { "model:predict(images, { verbose = 0 }):argmax(-1):shape()", "{ 256 }" },
  { ":time model:predict(images, { verbose = 0 })", { "tensor {256, 3}", "s\n" } },
  { "for i = 1, 3 do", ">> " },
  { "  print(i, images:mean():item() > 0)", ">> " },
  { "end", { "1\ttrue", "3\ttrue" } },
  { "function square(x)", ">> " },
  { "  return x * x", ">> " },
  { "end", "" },
  { "square(t):totable()", "{ { 1, 4 }, { 9, 16 } }" },
  { "square()", { "stdin[", "attempt to perform arithmetic", "stack traceback:", "in function 'square'" } },
  { "??square", { "function square(x)", "return x * x" } },
  { "mgpu.grad(function(x) return (x * x):sum() end)(t):totable()", "{ { 2, 4 }, { 6, 8 } }" },
  { ":who", { "images ", "local tensor {256, 8, 8, 1}", "model ", "square ", "t " } },
  { ":mem", { "tensors", "Lua", "process" } },
  { ":devices", "ref:0" },
  { "model:save 'FOLDER/first.safetensors'", "" },
  { "mgpu.load_model 'FOLDER/first.safetensors':count_params()", "475" },
  { ":save FOLDER/first.lua", "inputs written to FOLDER/first.lua" },
  { "{ a = 1, 2, { 'three' } }", '{ 2, { "three" }, a = 1 }' },
  { "x = = 2", "unexpected symbol near '='" },
  { "= t:max():item()", "4\n" },
  { "nil", "nil" },
}

test("a first session of ten minutes", function()
  local folder = check.path "first"
  check.run("mkdir -p " .. folder)
  local t = terminal.open { env = { XDG_STATE_HOME = folder }, columns = 200 }
  t:expect "> "
  for _, step in ipairs(SESSION) do
    local line = step[1]:gsub("FOLDER", folder)
    t:type(line)
    t:expect "\n" -- behind the echo
    for _, answer in ipairs(type(step[2]) == "table" and step[2] or { step[2] }) do
      t:expect((answer:gsub("FOLDER", folder)))
    end
    if step[2] ~= ">> " then t:expect "> " end
  end
  check.equal(t:close(), 0)
  local text, status = check.run(("cd %s && %s first.lua"):format(folder,
    (check.program:gsub("^'?([^/'])", function(c) return io.popen("pwd"):read() .. "/" .. c end):gsub("'", ""))))
  check.equal(status, 0)
  check.matches(text, "hello\n.*Total params: 475.*Epoch 2/2")
end)
