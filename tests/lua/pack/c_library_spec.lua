-- mgpulua --pack --c: C libraries of models predict what the models predict.

local check = require "check"
local mgpu = require "mgpu"
local test = check.test
local L = mgpu.layers

local build = check.program:match "^'?(.*)/mgpulua'?$" or "build"
if check.run(("ls '%s/mgpu-pack.o' 2>/dev/null"):format(build)) == "" then
  check.skip "mgpu-pack.o was not built: static libraries are missing"
end
if check.run "command -v cc && command -v objcopy" == "" then check.skip "there is no C compiler with binutils" end

local root = check.run("pwd"):gsub("\n", "")
local program = check.program:gsub("^'?([^/'])", "'" .. root .. "/%1"):gsub("([^'])$", "%1'")

local function command(text, folder)
  local output, status = check.run(("cd %s && %s"):format(folder or ".", text))
  if status ~= 0 then check.fail(text .. "\n" .. output) end
  return output
end

local function numbers(text)
  local list = {}
  for number in text:gmatch "%S+" do list[#list + 1] = tonumber(number) end
  return list
end

test("examples/embed_static prints what the model predicts", function()
  local folder = check.path "embed"
  command(("cp -R examples/embed_static %s"):format(folder))
  mgpu.seed(7)
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 8, activation = "tanh" }, L.Dense { 2 } }
  model:save(folder .. "/net.safetensors")
  command(("MAKEFLAGS= make CFLAGS=-Werror MGPULUA=%s"):format(program), folder)
  command("rm net.safetensors libnet.a", folder)
  check.near(numbers(command("env -i ./predict 0.5 -1 2", folder)),
    model:predict(mgpu.tensor { { 0.5, -1, 2 } }, { verbose = 0 }):totable()[1], 1e-6)
end)

local MAIN = [[
#include "two.h"
#include "net.h"
#include <stdio.h>
int main(void) {
    const float a[] = {1, 2, 3, 4, 5, 6};
    const int32_t b[] = {1, 2};
    float sum[2 * TWO_OUTPUT_SUM_SIZE], twice[2 * TWO_OUTPUT_TWICE_SIZE];
    const float x[NET_INPUT_SIZE] = {1};
    float y[NET_OUTPUT_SIZE];
    if (TWO_ROWS != 2 || two_predict(a, b, sum, twice) != TWO_OK) return puts(two_error()), 1;
    for (int i = 0; i < 2 * TWO_OUTPUT_SUM_SIZE; i++) printf("%.9g ", sum[i]);
    for (int i = 0; i < 2 * TWO_OUTPUT_TWICE_SIZE; i++) printf("%.9g ", twice[i]);
    if (net_predict(x, y) != NET_OK) return puts(net_error()), 1;
    printf("%.9g\n", y[0]);
    if (two_predict_rows(0, a, b, sum, twice) != TWO_USAGE) return 2;
    puts(two_error());
    if (net_predict(NULL, y) != NET_USAGE) return 3;
    puts(net_error());
    two_close();
    if (two_predict_rows(1, a, b, sum, twice) != TWO_OK) return 4;
    printf("%.9g\n", sum[0]);
    return 0;
}
]]

test("several inputs and outputs, and two libraries in one program", function()
  local folder = check.path "two"
  command("mkdir " .. folder)
  mgpu.seed(2)
  local a, b = mgpu.Input { 3, name = "a" }, mgpu.Input { {}, dtype = "int32", name = "b" }
  local e = L.Embedding { 4, 3 } (b)
  local sum = L.Add { name = "sum" } { a, e }
  local model = mgpu.Model { inputs = { a, b }, outputs = { sum, L.Dense { 2, name = "twice" } (sum) } }
  model:save(folder .. "/m.safetensors")
  local net = mgpu.Sequential { L.Input { 4 }, L.Dense { 1 } }
  net:save(folder .. "/net.onnx")
  command(program .. " --pack m.safetensors --c --name two --batch 2", folder)
  command(program .. " --pack net.onnx --c", folder)
  check.write(folder .. "/main.c", MAIN)
  command("cc -Wall -Wextra -Werror main.c libtwo.a libnet.a -lm -lpthread -ldl -o main", folder)
  local lines = {}
  for line in command("./main", folder):gmatch "[^\n]+" do lines[#lines + 1] = line end
  local y = model:predict({ mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }, mgpu.tensor({ 1, 2 }, { dtype = "int32" }) },
    { verbose = 0 })
  local expected = {}
  for _, t in ipairs { y[1], y[2], net:predict(mgpu.tensor { { 1, 0, 0, 0 } }, { verbose = 0 }) } do
    for _, row in ipairs(t:totable()) do for _, v in ipairs(row) do expected[#expected + 1] = v end end
  end
  check.near(numbers(lines[1]), expected, 1e-6)
  check.equal(lines[2], "two: the number of rows must be at least 1")
  check.equal(lines[3], "net: an input is NULL")
  check.near(tonumber(lines[4]), expected[1], 1e-6)
end)

test("models that cannot be libraries, and wrong options, are refused", function()
  local path = check.path "m.safetensors"
  mgpu.Sequential { L.Input { -1, 3 }, L.Dense { 2 } }:save(path)
  for arguments, message in pairs { [path] = "sizes that are not fixed", [path .. " --batch 0"] = "--batch 0",
    [path .. " --name 1x"] = "--name 1x", [path .. " --name int"] = "is a word of C",
    [path .. " --data x"] = "do not go with it", ["none.npz"] = "none.npz" } do
    local text, status = check.run(("%s --pack %s --c"):format(check.program, arguments))
    check.matches(text, message)
    check.truthy(status ~= 0, arguments)
  end
end)
