--- einsum(equation, tensors...): sums of products by axes with letters; see matrices.lua.
--
-- Tensors are joined from left to right. Of a pair, letters that only one has and nobody needs later are summed first;
-- then both become {batch, own, summed} and {batch, summed, own}, and one matmul does the rest.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local ops = core.ops
local MOST = 8 -- axes of a tensor

local function fail(message, ...) core.fail("usage", ("einsum: " .. message):format(...)) end

-- The letters of a term. Its "..." stands for letters of `dots` (outermost first): as many as the tensor has further
-- axes, or all of them for the result, whose rank is nil.
local function letters_of(term, rank, dots, equation)
  local before, after = term:match "^(.-)%.%.%.(.*)$"
  local named = before and before .. after or term
  if named:find "[^%a]" then fail("%q: the axes of a tensor are letters and one \"...\", got %q", equation, term) end
  local spare = rank and rank - #named or #dots
  if not before and rank and spare ~= 0 then
    fail("%q: %q names %d axes, the tensor has %d", equation, term, #named, rank)
  end
  if spare < 0 then fail("%q: %q names %d axes, the tensor has %d", equation, term, #named, rank) end
  if not before then return named end
  return before .. dots:sub(#dots - spare + 1) .. after
end

-- The terms of the equation and its result (nil without an arrow), without spaces.
local function parse(equation)
  local text = equation:gsub("%s", "")
  local left, right = text:match "^(.-)%->(.*)$"
  local terms = {}
  for term in ((left or text) .. ","):gmatch "(.-)," do terms[#terms + 1] = term end
  return terms, right
end

-- Without an arrow: the letters of "...", then those that occur once, in alphabetical order.
local function result_of(named, dots)
  local count, list = {}, {}
  for _, letters in ipairs(named) do
    for letter in letters:gmatch "%a" do count[letter] = (count[letter] or 0) + 1 end
  end
  for letter, n in pairs(count) do if n == 1 then list[#list + 1] = letter end end
  table.sort(list)
  return dots .. table.concat(list)
end

-- A tensor whose axes have letters.
local function labelled(t, letters) return { t = t, letters = letters } end

local function axis_of(x, letter) return (x.letters:find(letter, 1, true)) end

-- x with its axes in the order of `letters`.
local function ordered(x, letters)
  if x.letters == letters then return x end
  local order = {}
  for letter in letters:gmatch "." do order[#order + 1] = axis_of(x, letter) end
  return labelled(ops.permute(x.t, { order = order }), letters)
end

-- x with axes of equal letters replaced by their diagonal.
local function without_doubles(x)
  for at = 1, #x.letters do
    local letter = x.letters:sub(at, at)
    local again = x.letters:find(letter, at + 1, true)
    if again then
      local order, rest, shape = {}, "", x.t:shape()
      if shape[at] ~= shape[again] then
        fail("letter %q stands for sizes %d and %d", letter, shape[at], shape[again])
      end
      for i = 1, #x.letters do
        if i ~= at and i ~= again then order[#order + 1], rest = i, rest .. x.letters:sub(i, i) end
      end
      order[#order + 1], order[#order + 2] = at, again
      return without_doubles(labelled(core.methods.diagonal(ops.permute(x.t, { order = order })), rest .. letter))
    end
  end
  return x
end

-- x summed over the letters that are neither in `other` nor in `needed`.
local function summed(x, other, needed)
  local axes, kept = {}, ""
  for at = 1, #x.letters do
    local letter = x.letters:sub(at, at)
    if other:find(letter, 1, true) or needed:find(letter, 1, true) then
      kept = kept .. letter
    else
      axes[#axes + 1] = at
    end
  end
  if #axes == 0 then return x end
  return labelled(ops.sum(x.t, { axis = axes }), kept)
end

-- Broadcasting: a letter of both whose size is 1 in x only is dropped from x.
local function without_ones(x, other)
  local shape, mine, kept, sizes = x.t:shape(), other.t:shape(), "", {}
  for at = 1, #x.letters do
    local letter = x.letters:sub(at, at)
    local there = axis_of(other, letter)
    if not (there and shape[at] == 1 and mine[there] ~= 1) then kept, sizes[#sizes + 1] = kept .. letter, shape[at] end
    if there and shape[at] ~= mine[there] and shape[at] ~= 1 and mine[there] ~= 1 then
      fail("letter %q stands for sizes %d and %d", letter, shape[at], mine[there])
    end
  end
  if kept == x.letters then return x end
  return labelled(ops.reshape(x.t, { shape = sizes }), kept)
end

-- The axes of x in three groups, as a tensor of three axes.
local function grouped(x, first, second, third)
  x = ordered(x, first .. second .. third)
  local shape, sizes, at = x.t:shape(), { 1, 1, 1 }, 0
  for g, letters in ipairs { first, second, third } do
    for _ = 1, #letters do
      at = at + 1
      sizes[g] = sizes[g] * shape[at]
    end
  end
  return ops.reshape(x.t, { shape = sizes })
end

-- The product of a pair, with the letters that are needed later.
local function joined(a, b, needed)
  a, b = summed(a, b.letters, needed), summed(b, a.letters, needed)
  a, b = without_ones(a, b), without_ones(b, a)
  local batch, inner, own_a, own_b, size = "", "", "", "", {}
  for at, n in ipairs(a.t:shape()) do
    local letter = a.letters:sub(at, at)
    size[letter] = n
    if not axis_of(b, letter) then
      own_a = own_a .. letter
    elseif needed:find(letter, 1, true) then
      batch = batch .. letter
    else
      inner = inner .. letter
    end
  end
  for at, n in ipairs(b.t:shape()) do
    local letter = b.letters:sub(at, at)
    size[letter] = n
    if not axis_of(a, letter) then own_b = own_b .. letter end
  end
  local y = ops.matmul(grouped(a, batch, own_a, inner), grouped(b, batch, inner, own_b))
  local letters, shape = batch .. own_a .. own_b, {}
  for letter in letters:gmatch "." do shape[#shape + 1] = size[letter] end
  if #shape > MOST then fail("a product of two tensors has %d axes, more than %d", #shape, MOST) end
  return labelled(ops.reshape(y, { shape = shape }), letters)
end

-- Letters for the axes of "...": as many as the tensor with the most has, that no term uses.
local function letters_of_dots(terms, tensors, equation)
  local most, used = 0, table.concat(terms)
  for i, term in ipairs(terms) do
    if term:find("...", 1, true) then most = math.max(most, tensors[i]:rank() - #term + 3) end
  end
  local free = ""
  for code = 90, 65, -1 do -- Z to A
    if #free < most and not used:find(string.char(code), 1, true) then free = free .. string.char(code) end
  end
  if #free < most then fail("%q: too many letters", equation) end
  return free
end

-- The letters of each tensor and of the result.
local function read(equation, tensors)
  local terms, right = parse(equation)
  if #terms ~= #tensors then
    fail("%q is about %d tensor%s, got %d", equation, #terms, #terms == 1 and "" or "s", #tensors)
  end
  local dots = letters_of_dots(terms, tensors, equation)
  local named, list = {}, {}
  for i, term in ipairs(terms) do
    named[i] = term:gsub("%.%.%.", "")
    list[i] = without_doubles(labelled(tensors[i], letters_of(term, tensors[i]:rank(), dots, equation)))
  end
  local result = right and letters_of(right, nil, dots, equation) or result_of(named, dots)
  for letter in result:gmatch "." do
    if select(2, result:gsub(letter, "")) > 1 then fail("%q: letter %q is twice in the result", equation, letter) end
    local known = dots:find(letter, 1, true)
    for _, x in ipairs(list) do known = known or axis_of(x, letter) end
    if not known then fail("%q: letter %q of the result is in no tensor", equation, letter) end
  end
  return list, result
end

return function(equation, first, ...)
  if type(equation) ~= "string" then fail("the equation must be a string, got %s", type(equation)) end
  local tensors = type(first) == "table" and not core.is_tensor(first) and first or { first, ... }
  arguments.check_array("einsum", tensors)
  if #tensors == 0 then fail("no tensors are given") end
  local own = {}
  for i, t in ipairs(tensors) do own[i] = arguments.as_tensor("einsum", t) end
  local list, result = read(equation, own)
  local sofar = list[1]
  for i = 2, #list do
    local needed = result
    for k = i + 1, #list do needed = needed .. list[k].letters end
    sofar = joined(sofar, list[i], needed)
  end
  sofar = summed(sofar, "", result)
  return #result > 0 and ordered(sofar, result).t or sofar.t
end
