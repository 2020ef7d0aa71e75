-- mgpu.data.csv: options, dtypes and errors. csv_golden_spec compares with pandas; tests/c/test_csv.c has the details.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local csv = mgpu.data.csv

local function file(text, name)
  local path = check.path(name or "t.csv")
  check.write(path, text)
  return path
end

-- All rows of a dataset at once, as Lua values, and their dtypes.
local function whole(ds)
  local values, dtypes = { ds:batch(ds:length()):iter()() }, {}
  for k, v in ipairs(values) do
    if type(v) == "userdata" then values[k], dtypes[k] = v:totable(), v:dtype() end
  end
  return values, dtypes
end

test("without a label each column is a field of the first dtype that fits", function()
  local ds = csv(file "i,l,f,s\n1,1,1,1\n-2,3000000000,.5,x\n")
  local values, dtypes = whole(ds)
  check.equal(dtypes, { "int32", "int64", "float32" })
  check.equal(values, { { 1, -2 }, { 1, 3e9 }, { 1, 0.5 }, { "1", "x" } })
  check.equal(ds.columns, { "i", "l", "f", "s" })
  check.equal(ds:length(), 2)
end)

test("with a label x is one float32 matrix of the other columns", function()
  local path = file "a,y,b\n1,7,2\n3,8,4\n"
  local values, dtypes = whole(csv(path, { label = "y" }))
  check.equal(values, { { { 1, 2 }, { 3, 4 } }, { 7, 8 } })
  check.equal(dtypes, { "float32", "int32" })
  values, dtypes = whole(csv(path, { label = 2, columns = { -1, "a" }, dtypes = "float64" }))
  check.equal(values, { { { 2, 1 }, { 4, 3 } }, { 7, 8 } })
  check.equal(dtypes, { "float64", "int32" })
  values = whole(csv(path, { label = { "y", "a" } }))
  check.equal(values, { { { 2 }, { 4 } }, { { 7, 1 }, { 8, 3 } } })
  values, dtypes = whole(csv(path, { label = "y", matrix = false, dtypes = { a = "uint8", y = "float32" } }))
  check.equal(values, { { 1, 3 }, { 2, 4 }, { 7, 8 } })
  check.equal(dtypes, { "uint8", "int32", "float32" })
end)

test("texts as labels become class ids in sorted order, or those given", function()
  local train, test_file = file "x,y\n1,dog\n2,cat\n3,dog\n", file("x,y\n1,cow\n2,dog\n", "test.csv")
  local ds = csv(train, { label = "y" })
  check.equal(whole(ds)[2], { 1, 0, 1 })
  check.equal(ds.classes, { "cat", "dog" })
  check.equal(ds:shuffle(3, 1):batch(2).classes, { "cat", "dog" })
  local all = { "dog", "cat", "cow" }
  check.equal(whole(csv(train, { label = "y", classes = all }))[2], { 0, 1, 0 })
  check.equal(whole(csv(test_file, { label = "y", classes = all }))[2], { 2, 0 })
  check.raises(function() csv(test_file, { label = "y", classes = ds.classes }) end,
    '%.csv: line 2, column 2 %("y"%): "cow" is not one of the 2 classes', "data")
  check.equal(whole(csv(train, { label = "y", dtypes = { y = "string" } }))[2], { "dog", "cat", "dog" })
end)

test("headers are found, given or replaced", function()
  local plain, texts = file "1,a\n2,b\n", file("p,q\nr,s\n", "texts.csv")
  check.equal(csv(plain):length(), 2)
  check.equal(csv(plain).columns, { 1, 2 })
  check.equal(csv(plain, { names = { "n", "t" }, label = "t" }).classes, { "a", "b" })
  check.equal(csv(texts):length(), 1)
  check.equal(csv(texts, { header = false }):length(), 2)
  check.equal(csv(texts, { header = true, names = { "n", "t" } }).columns, { "n", "t" })
  check.equal(whole(csv(file("7,8\n1,2\n", "numbers.csv"), { header = true, label = "8" })), { { { 1 } }, { 2 } })
end)

test("missing values are errors unless something stands for them", function()
  local path = file "a,b,s\n1,,x\nNA,2.5,\n"
  check.raises(function() csv(path) end,
    "line 2, column 2 %(\"b\"%): the value is missing; the option `missing`", "data")
  local values, dtypes = whole(csv(path, { missing = 0 }))
  check.equal(values, { { 1, 0 }, { 0, 2.5 }, { "x", "" } })
  check.equal(dtypes, { "int32", "float32" })
  values, dtypes = whole(csv(path, { missing = { a = 0.5, [2] = -1, s = "none" } }))
  check.equal(values, { { 1, 0.5 }, { -1, 2.5 }, { "x", "none" } })
  check.equal(dtypes, { "float32", "float32" })
  check.raises(function() csv(path, { label = "s", missing = 0 }) end,
    "line 3, column 3 %(\"s\"%): the value is missing")
  check.raises(function() csv(path, { missing = {} , dtypes = { a = "float32" } }) end, "the value is missing")
  local nan = whole(csv(path, { columns = { "b" }, missing = { b = 0 / 0 } }))[1]
  check.truthy(nan[1] ~= nan[1] and nan[2] == 2.5)
  check.equal(whole(csv(file("1\n?\n", "q.csv"), { na = { "?" }, missing = 4 }))[1], { 1, 4 })
end)

test("several files are one dataset", function()
  local a, b = file "x,y\n1,q\n", file("x,y\r\n2,p\r\n3,q\r\n", "b.csv")
  local ds = csv({ a, b }, { label = "y" })
  check.equal(whole(ds), { { { 1 }, { 2 }, { 3 } }, { 1, 0, 1 } })
  check.raises(function() csv { a, file("x,z\n1,2\n", "c.csv") } end,
    'c%.csv: line 1: column 2 is called "z" here, and "y" in the header of .*t%.csv', "data")
end)

test("a path that ends in .tsv has tabs", function()
  check.equal(whole(csv(file("a\tb\n1,5\t2\n", "t.tsv"), { columns = { "b" } })), { { 2 } })
end)

test("damaged files are refused with their line", function()
  local function refused(text, message, options)
    check.raises(function() csv(file(text), options) end, message, "data")
  end
  refused("", "t%.csv is empty")
  refused("a,b\n", "has a header, but no rows")
  refused("a,b\n1,2\n\n3\n", "t%.csv: line 4 has 1 cells, the first record has 2")
  refused('a,b\n1,"2\n3,4\n', "t%.csv: line 2: the quote that opens here is never closed")
  refused("a\n1\0002\n", "t%.csv: line 2: a zero byte")
  refused("\255\254a\0", "is text in UTF%-16")
  refused("a,b\n1,2\n1,x\n", 'line 3, column 2 %("b"%): "x" is not a number', { label = "a" })
  refused("a,b\n1,2\n1,1e40\n", "1e40 does not fit float32", { label = "a" })
  refused("a,b\n1,2\n1,256\n", "256 does not fit uint8", { dtypes = { b = "uint8" } })
  refused("a,b\n1,2\n1,0.5\n", '"0.5" is not of dtype int32: give the column a floating dtype',
    { dtypes = { b = "int32" } })
  check.raises(function() csv(check.path "none.csv") end, "cannot open .*none%.csv", "io")
  check.raises(function() csv(check.path "") end, "is not a regular file", "io")
end)

test("wrong options name what is there", function()
  local path = file "width,height,kind,width\n1,2,3,4\n"
  local function refused(message, options, given)
    check.raises(function() csv(given or path, options) end, message, "usage")
  end
  refused('csv: unknown option "lable" %(did you mean "label"%?%)', { lable = 1 })
  refused('csv: option "label": there is no column "hight" %(did you mean "height"%?%)', { label = "hight" })
  refused('csv: option "label": there is no column "zebra"; there are width, height, kind, width', { label = "zebra" })
  refused('csv: option "label": there is no column 5: the file has 4', { label = 5 })
  refused('csv: option "label": there is no column %-5', { label = -5 })
  refused('csv: option "columns": two columns are called "width": give the position', { columns = { "width" } })
  refused('csv: option "columns": column 1 is there twice', { columns = { 2, 1, 1 } })
  refused('csv: option "columns" is empty', { columns = {} })
  refused("csv: column kind is a label, and is also in `columns`", { label = "kind", columns = { 1, 3 } })
  refused('csv: option "label": a column is a name or a position, got true', { label = true })
  refused('csv: unknown dtype "float31" %(did you mean "float32"%?%)', { dtypes = { kind = "float31" } })
  refused("csv: a column cannot be read as float16; float32", { dtypes = { kind = "float16" } })
  refused("csv: columns of one x have one dtype", { label = "kind", dtypes = { [1] = "float32", [2] = "float64" } })
  refused("csv: texts cannot be columns of one x", { label = "kind", dtypes = "string" })
  refused('csv: option "dtypes": a dtype is a name', { dtypes = { kind = 1 } })
  refused('csv: option "missing" must be a number or a text', { missing = true })
  refused('csv: option "names" has 1 names, but the file has 4 columns', { names = { "a" } })
  refused('csv: option "delimiter" must be one character, got ""', { delimiter = "" })
  refused('csv: the delimiter "\'" is also the quote', { delimiter = "'", quote = "'" })
  refused('csv: option "na": entry 1 is a number', { na = { 1 } })
  refused('csv: option "classes" is empty', { label = "kind", classes = {} })
  refused("csv: the class \"a\" is given twice", { label = "kind", classes = { "a", "a" } })
  refused("csv: `classes` belongs to a label", { classes = { "a" } })
  refused("csv: classes are for a single label", { label = { 1, 2 }, classes = { "a" } })
  refused("csv: a label with classes has no other dtype", { label = 3, classes = { "a" }, dtypes = { kind = "int32" } })
  refused("csv: there is no column besides the label", { label = 1 }, file("1\n2\n", "one.csv"))
  refused('csv: option "label": there is no column "b": the only column is "a;b": has it another `delimiter`%?',
    { label = "b" }, file("a;b\n1;2\n", "semicolons.csv"))
  refused("csv: a path, or a list of paths, is needed", nil, {})
  refused("csv: the first argument is a number, not a path", nil, 5)
  refused("csv: path 2 is a boolean, not a path", nil, { path, true })
  refused("csv: path 1 is \"\", not a path", nil, { "" })
end)

test("fit trains on a csv dataset", function()
  mgpu.seed(3)
  local lines, state = { "length,width,species" }, 1
  local function random()
    state = state * 16807 % 2147483647
    return state / 2147483647
  end
  for i = 1, 120 do
    local k = i % 3
    lines[i + 1] = ("%.3f,%.3f,%s"):format(k + random() / 2, 2 * k - random() / 2, ({ "b", "a", "c" })[k + 1])
  end
  local ds = csv(file(table.concat(lines, "\n")), { label = "species" })
  local L = mgpu.layers
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 16, activation = "relu" },
    L.Dense { #ds.classes, activation = "softmax" } }
  model:compile { optimizer = mgpu.optimizers.Adam { 0.05 }, loss = "sparse_categorical_crossentropy",
    metrics = "accuracy" }
  local h = model:fit(ds:shuffle(120, 1):batch(20), { epochs = 10, verbose = 0 })
  check.truthy(h.history.accuracy[10] > 0.9, "accuracy after training: " .. h.history.accuracy[10])
end)
