-- What Tab inserts and lists, without a terminal.

local check = require "check"
local complete = require "mgpu.prompt.complete"
local mgpu = require "mgpu"
local Session = require "mgpu.prompt.session"
local test = check.test

-- A folder's entries, as terminal.list gives them.
local FOLDERS = {
  ["."] = { "data/", "day.lua", ".hidden", "one file" },
  ["data/"] = { "train.csv", "test.csv" },
}
local function list(folder)
  if FOLDERS[folder] then return FOLDERS[folder] end
  local names = {}
  for name in check.run(("ls -p '%s' 2>/dev/null"):format(folder)):gmatch "[^\n]+" do names[#names + 1] = name end
  return #names > 0 and names or nil
end

local prompt = { session = Session.new(), terminal = { list = list } }

-- What Tab inserts behind the text, and its list.
local function tab(text, rest) return complete.line(prompt, text .. (rest or ""), #text) end

local function inserts(text, expected) check.equal((tab(text)), expected, text) end

local function lists(text, ...)
  local insert, listing = tab(text)
  check.equal(insert, nil)
  for _, name in ipairs { ... } do check.matches("\n" .. listing, "[\n ]" .. name .. "[\n ]") end
  return listing
end

-- Globals for the tests; the values are on a device that needs no work.
local function with_globals(globals, fn)
  for name, value in pairs(globals) do rawset(_G, name, value) end
  local ok, message = pcall(fn)
  for name in pairs(globals) do rawset(_G, name, nil) end
  if not ok then error(message, 0) end
end

test("globals, keywords and the session's locals complete", function()
  inserts("tostr", "ing")
  inserts("x = tostr", "ing")
  inserts("repe", "at")
  inserts("string.form", "at")
  inserts("print(math.hu", "ge")
  prompt.session.declared.my_local = true
  rawset(prompt.session.locals, "my_local", { inner = 1 })
  inserts("my_lo", "cal")
  inserts("my_local.in", "ner")
  check.equal({ tab "nothing_like_it" }, {})
  check.equal((tab ""), "  ")
  check.equal((tab "   "), "  ")
end)

test("what is behind the cursor stays", function()
  check.equal({ tab("x = { tostr", "(1) }") }, { "ing" })
end)

test("namespaces that load on first use complete without being loaded", function()
  with_globals({ mgpu = mgpu, L = mgpu.layers }, function()
    inserts("mgpu.lay", "er")
    inserts("L.LocallyConnected1", "D")
    inserts("L.Depthw", "iseConv") -- 1D, 2D
    inserts("mgpu.layers.Depthw", "iseConv")
    inserts("mgpu.optimizers.Adad", "elta")
    inserts("mgpu.initializers.he_u", "niform")
    inserts("mgpu.models.len", "et5")
    lists("L.Conv", "Conv1D", "Conv2D", "Conv2DTranspose")
    check.falsy(rawget(mgpu.layers, "DepthwiseConv2D"), "loaded")
  end)
end)

test("methods of tensors, variables, models, optimizers, datasets and strings complete", function()
  local model = mgpu.Sequential { mgpu.layers.Dense { 2 } }
  with_globals({ t = mgpu.ones { 2 }, v = mgpu.variable(1), m = model, s = "text",
    opt = mgpu.optimizers.Adam {}, ds = mgpu.data.from_tensors { mgpu.ones { 4, 1 } } }, function()
    inserts("t:argma", "x")
    inserts("v:assi", "gn")
    inserts("m:compil", "e")
    inserts("m:summ", "ary")
    inserts("m.laye", "r")
    inserts("opt:appl", "y")
    inserts("ds:pref", "etch")
    inserts("s:gsu", "b")
    lists("m.layer", "layers", "layer_configs")
    check.falsy((select(2, tab "m:l") or ""):find "layers", "a field behind a colon")
  end)
end)

test("completion calls no code of the user's", function()
  local called = false
  local function fail()
    called = true
    error "called"
  end
  local guarded = setmetatable({ known = 1 }, { __index = fail, __call = fail, __tostring = fail, __len = fail })
  with_globals({ guarded = guarded, child = setmetatable({}, { __index = guarded }) }, function()
    inserts("guarded.kno", "wn")
    inserts("child.kno", "wn")
    check.equal({ tab "guarded.other." }, {})
    check.equal({ tab "guarded.other.more:" }, {})
    check.equal({ tab "guarded().kno" }, {})
    lists("{ guarded.known, ", "guarded", "print") -- the globals
    check.equal({ tab "guarded.other { opt" }, {})
    check.falsy(called, "a metamethod was called")
  end)
end)

test("options of layers, functions and ops complete, those that are given already do not", function()
  with_globals({ mgpu = mgpu, L = mgpu.layers, m = mgpu.Sequential {}, t = mgpu.ones { 2 } }, function()
    inserts("L.Conv2D { 32, kernel_s", "ize = ")
    inserts("L.Conv2D{ker", "nel_")
    inserts("L.Conv2D { 32, kernel_size = 3, kernel_in", "itializer = ")
    inserts("mgpu.Sequential { L.Dense { 3, use_b", "ias = ")
    inserts("m:fit(x, y, { batc", "h_size = ")
    inserts("m:compile { opt", "imizer = ")
    inserts("m:compile { optimizer = mgpu.optimizers.Adam { learn", "ing_rate = ")
    inserts("t:sum { keep", "dims = ")
    local listing = lists("L.Dense { 3, use_bias = true, ", "units", "activation")
    check.falsy(listing:find "use_bias", "given")
    check.matches(listing, "kernel_initializer +=? *\"glorot_uniform\" +initializer")
    check.equal((tab("L.Conv2D { 32, kernel_s", " = 3 }")), "ize")
  end)
  check.equal({ tab "nosuch { opt" }, {})
end)

test("a continued input is looked at as a whole", function()
  with_globals({ L = mgpu.layers }, function()
    prompt.pending = "L.Conv2D {\n  32,\n"
    inserts("  kernel_s", "ize = ")
    prompt.pending = nil
  end)
end)

test("values of options complete inside quotes", function()
  with_globals({ mgpu = mgpu, L = mgpu.layers, m = mgpu.Sequential {} }, function()
    inserts('L.Conv2D { 3, padding = "sa', 'me"')
    inserts('L.Dense { 3, activation = "softm', 'ax"')
    inserts('L.Dense { 3, kernel_initializer = "he_n', 'ormal"')
    inserts("m:compile { loss = 'sparse_c", "ategorical_crossentropy'")
    check.equal((tab('L.Conv2D { 3, padding = "sa', '" }')), "me")
  end)
end)

test("keys complete inside brackets", function()
  with_globals({ h = { history = { val_loss = {}, ["odd key"] = 1 } } }, function()
    inserts('h.history["val', '_loss"')
    inserts("h.history['od", "d key'")
  end)
end)

test("modules complete after require, with short and full names", function()
  inserts('require "mgpu.optim', 'izers"')
  inserts("require('mgpu.nn.layers.locally_", "connected'")
  inserts('require "ff', 'i"')
end)

test("files complete inside quotes, folders go on", function()
  lists('io.open("da', "data/", "day.lua")
  inserts('io.open("dat', "a/")
  inserts('io.open("data/tr', 'ain.csv"')
  inserts("dofile 'one", " file'")
  inserts('io.open(".hi', 'dden"')
  lists("x = [[da", "data/", "day.lua")
  check.equal({ tab "-- da" }, {})
end)

test("commands and questions complete", function()
  with_globals({ mgpu = mgpu }, function()
    inserts(":tim", "e")
    inserts(":load dat", "a/")
    inserts(":time mgpu.lins", "pace")
    inserts("?mgpu.lins", "pace")
    inserts("??mgpu.lins", "pace")
    inserts("= mgpu.lins", "pace")
  end)
end)

test("names of a table with 100,000 fields complete, and the list is bounded", function()
  local big = {}
  for i = 1, 1e5 do big["field" .. i] = i end
  with_globals({ big = big }, function()
    inserts("big.fie", "ld")
    local _, listing = tab "big.field"
    check.matches(listing, "%.%.%. 300 of 100000 names\n$")
    local _, lines = listing:gsub("\n", "\n")
    check.truthy(lines < 60, lines)
  end)
end)
