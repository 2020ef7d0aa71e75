-- pairs and next, which LuaJIT's own compiler gets wrong: see runtime/bind/pairs.c.

local check = require "check"

local test = check.test

-- A script that visits a table of tables often enough that LuaJIT stops compiling the outer loop; %s stands for the
-- iterator. It prints nothing, or the round in which the loop ends early.
local NESTED = [[
  -- Its call ends compiled code, so that the interpreter enters the loop below each time.
  local function interpret(...)
    for _ = 1, 100 do end
  end
  local inner = { 1, 2, 3 }
  local tables = { a = inner, b = inner, c = inner }
  for round = 1, 100000 do
    interpret()
    local n = 0
    for _, t in %s do
      for _ in %s do end
      n = n + 1
    end
    if n ~= 3 then return print("round", round, n) end
  end]]

local function nested(outer, inner)
  local path = check.path "nested.lua"
  check.write(path, NESTED:format(outer, inner))
  return check.run(check.program .. " " .. path)
end

test("nested loops see all entries, however often they run", function()
  check.equal(nested("pairs(tables)", "pairs(t)"), "")
  check.equal(nested("next, tables", "next, t"), "")
end)

test("pairs gives the array's entries in order, then the others once; next continues after a key", function()
  local keys, rest = {}, {}
  for key, value in pairs { 10, 20, nil, 40, name = "x", [0.5] = false } do
    if type(value) == "number" then keys[#keys + 1] = key else rest[key] = value end
  end
  check.equal(keys, { 1, 2, 4 })
  check.equal(rest, { name = "x", [0.5] = false })
  check.equal({ next({ 7, 8 }, 1) }, { 2, 8 })
  check.equal(select("#", next {}), 1)
  check.equal(next({ 7 }, 1), nil)
  local t = { a = 1, b = 2, c = 3 }
  for key in pairs(t) do t[key] = nil end
  check.equal(t, {})
end)

test("pairs and next refuse what is no table, and a key that is not in it", function()
  check.raises(function() pairs() end, "bad argument #1 to 'pairs' %(table expected, got no value%)")
  check.raises(function() for _ in pairs(5) do end end, "bad argument #1 to 'pairs' %(table expected, got number%)")
  check.raises(function() next(nil) end, "bad argument #1 to 'next' %(table expected, got nil%)")
  check.raises(function() next({}, "x") end, "invalid key to 'next'")
end)

test("a script's own pairs and next stay when it requires mgpu", function()
  check.equal(check.run(check.program .. [[ -e 'local first_pairs, first_next = pairs, next
    local function own_pairs(t) return first_pairs(t) end
    local function own_next(t, key) return first_next(t, key) end
    pairs, next = own_pairs, own_next
    require "mgpu"
    print(pairs == own_pairs, next == own_next)']]), "true\ttrue\n")
end)
