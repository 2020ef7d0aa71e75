-- Applies the cases of rows.lua: their inputs by formula, their options, the comparison of two devices.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local M = {}

--- What a test of the case is called; `number` is the case's place in rows.lua.
function M.label(case, number)
  local parts = {}
  for i = 2, #case do parts[#parts + 1] = "{" .. table.concat(case[i][1], ",") .. "}" end
  return ("%s %s #%d"):format(case[1], table.concat(parts, " "), number)
end

-- ---- inputs by formula --------------------------------------------------------------------------

-- Low-discrepancy numbers in [0, 1). No two of a tensor are equal, so that maxima have no ties.
local function unit(i, salt) return (0.5 + i * 0.6180339887498949 + salt * 0.7548776662466927) % 1 end

--- The numbers of an input as a list; `salt` shifts them.
function M.fill(input, salt)
  local values = {}
  if input.numbers then return input.numbers end
  for i = 1, check.count(input[1]) do
    local u = unit(i, salt)
    if input.ints then
      values[i] = math.floor(u * input.ints)
    elseif input.choose then
      values[i] = input.choose[1 + math.floor(u * #input.choose)]
    else
      values[i] = input[2] + u * (input[3] - input[2])
    end
  end
  return values
end

--- A tensor of a list of numbers.
function M.tensor(values, shape, dtype, device)
  if #values == 0 then return mgpu.zeros(shape, { dtype = dtype, device = device }) end
  return mgpu.tensor(values, { dtype = dtype, device = device }):reshape(shape)
end

--- The numbers of a tensor as a list. Empty ones are computed, too.
function M.flat(t)
  local n = t:count()
  if n == 0 then
    mgpu.eval(t)
    return {}
  end
  return t:reshape({ n }):to("float64"):totable()
end

local function input_dtype(case, input, dtype)
  if input.dtype then return input.dtype end
  if input.ints or input.choose then
    if case.as then return case.as end
    return (input.choose and case.dtypes) and dtype or "int32"
  end
  return dtype
end

--- The inputs of a case as tensors; its floating-point ones have the dtype `dtype`.
function M.inputs(case, dtype, device)
  local list = {}
  for i = 2, #case do
    local input = case[i]
    if input.pooled then
      list[#list + 1] = core.ops.max_pool2d(list[input.pooled], { size = case.size,
        strides = case.strides, pads = case.pads })
    else
      local values = M.fill(input, i + (case.salt or 0))
      list[#list + 1] = M.tensor(values, input[1], input_dtype(case, input, dtype), device)
    end
  end
  return list
end

-- ---- the op -------------------------------------------------------------------------------------

local NOT_ATTRIBUTES = { dtypes = 1, grad = 1, tol = 1, why = 1, error = 1, as = 1, salt = 1, scale = 1 }

--- The op's attributes, without the options that are for the test.
function M.options(case)
  local o = {}
  for k, v in pairs(case) do
    if type(k) == "string" and not NOT_ATTRIBUTES[k] then o[k] = v end
  end
  return o
end

--- The result of the case's op for a list of inputs; several results as one list of numbers.
function M.apply(case, list)
  local arguments = {}
  for i, t in ipairs(list) do arguments[i] = t end
  arguments[#arguments + 1] = M.options(case)
  local results = { core.ops[case[1]](unpack(arguments)) }
  if #results == 1 then return results[1] end
  for i, t in ipairs(results) do results[i] = t:reshape { t:count() } end
  return mgpu.concat(results, { axis = 1 })
end

--- Calls fn() with another default device.
function M.with_device(device, fn)
  local previous = core.default_device()
  core.default_device(device)
  core.seed(3) -- random ops draw the same numbers on all devices
  local ok, result = pcall(fn)
  core.default_device(previous)
  if not ok then error(result, 0) end
  return result
end

--- The result of the case on each of the devices. Its inputs are made once, on ref, and copied.
function M.on_devices(case, dtype, ...)
  local list, results = M.inputs(case, dtype, "ref:0"), {}
  for i, device in ipairs { ... } do
    results[i] = M.with_device(device, function()
      local there = {}
      for k, t in ipairs(list) do there[k] = t:to(device) end
      return M.apply(case, there)
    end)
  end
  return unpack(results)
end

local function has_float_input(case)
  for i = 2, #case do
    if not case[i].ints and not (case[i].choose and not case.dtypes) then return true end
  end
  return false
end

--- The dtypes that the case is tested with.
function M.dtypes(case)
  if case.dtypes then return case.dtypes end
  if not has_float_input(case) then return { "float32" } end
  return { "float32", "float64", "float16", "bfloat16" }
end

-- ---- the comparison -----------------------------------------------------------------------------

-- Relative to the largest number of the result. float64: another order of the same operations; 16-bit: two
-- roundings to 11 and to 8 bits. float32 has the tolerance of the case.
local TOLERANCE = { float64 = 1e-13, float16 = 2e-3, bfloat16 = 1.6e-2 }

--- The tolerance of a case with that dtype.
function M.tolerance(case, dtype)
  local own = case.tol or 2e-6
  if not has_float_input(case) and #case > 1 then return own end
  return TOLERANCE[dtype] or own
end

--- The largest magnitude of a list; infinities and NaN do not count.
function M.largest(values)
  local top = 0
  for _, v in ipairs(values) do
    if v == v and math.abs(v) < 1e300 then top = math.max(top, math.abs(v)) end
  end
  return top
end

--- The largest |a - e| of two lists of one length, and where it is. A NaN is at distance 0 from a NaN, and infinitely
--- far from all else.
function M.largest_difference(got, expected)
  local most, at = 0, 1
  for i, e in ipairs(expected) do
    local a = got[i]
    local off = (a == e or (a ~= a and e ~= e)) and 0 or math.abs(a - e)
    if off ~= off then off = math.huge end
    if off > most then most, at = off, i end
  end
  return most, at
end

--- Fails unless two lists agree, relative to the largest number expected, or to case.scale if that is larger. The
--- message names the element that is furthest off.
function M.compare(case, got, expected, tolerance, what)
  local scale = math.max(M.largest(expected), case.scale or 0)
  if #got ~= #expected then check.fail(("%d elements, expected %d"):format(#got, #expected)) end
  local off, at = M.largest_difference(got, expected)
  if off <= tolerance * scale then return end
  check.fail(("%s: element %d of %d is %.9g, ref says %.9g (off by %.3g, scale %g, tolerance %g)"):format(
    what or case[1], at, #got, got[at], expected[at], off, scale, tolerance))
end

return M
