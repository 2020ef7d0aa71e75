--- `mgpulua --pack --c model`: a model as a C library, a header and an archive for the linker.
local c_text = require "mgpu.pack.c_text"
local contents = require "mgpu.pack.contents"
local core = require "mgpu.core"

local function fail(message, ...) core.fail("usage", "--pack --c: " .. message:format(...)) end

local RESERVED = {}
for word in ("auto break case char const continue default do double else enum extern float for goto if inline int long "
  .. "register return short signed sizeof static struct switch typedef union unsigned void volatile while rows in out "
  .. "class new delete this template"):gmatch "%S+" do
  RESERVED[word] = true
end

-- The text as a name in C: letters, digits and underscores.
local function identifier(text)
  local name = text:gsub("[^%w_]", "_")
  return name:find "^%d" and "_" .. name or name
end

-- ---- inputs and outputs ---------------------------------------------------------------------------

-- Names that several inputs, or outputs, of the library have in C.
local function name_arrays(arrays, names, side, upper)
  local seen = {}
  for i, array in ipairs(arrays) do
    local name = #arrays > 1 and identifier(names and names[i] or tostring(i)) or nil
    if name and (seen[name:lower()] or name == "") then name = name .. "_" .. i end
    if name then seen[name:lower()] = true end
    array.parameter = name and ("%s_%s"):format(side[1], name) or side[1]
    array.macro = name and ("%s_%s_%s"):format(upper, side[2], name:upper()) or ("%s_%s"):format(upper, side[2])
  end
end

local HALF = { float16 = true, bfloat16 = true }

-- The shapes and dtypes of the model's inputs, without the batch.
local function inputs_of(model)
  local arrays = {}
  if model.reads_values then fail("the model reads texts or other values on the host, which C arrays do not hold") end
  local shapes, dtypes = {}, model.input_dtypes or {}
  if model.input_names then
    for i, input in ipairs(model.inputs) do shapes[i] = input:shape() end
  else
    shapes[1] = model.built_shape
    local first = model.layers[1]
    dtypes = { model.input_dtype or first and first.takes_integers and "int32" }
  end
  for i, shape in ipairs(shapes) do
    local row = { select(2, unpack(shape)) }
    for _, size in ipairs(row) do
      if size < 0 then
        fail("input %d has the shape {%s}, with sizes that are not fixed (-1): make the model with fixed sizes", i,
          table.concat(shape, ", "))
      end
    end
    local dtype = dtypes[i] or "float32"
    arrays[i] = { shape = row, dtype = HALF[dtype] and "float32" or dtype }
  end
  return arrays
end

-- The shapes and dtypes of what the library would return, from a prediction of zeros.
local function outputs_of(model, inputs)
  local ROWS = 2
  local zeros, arrays = {}, {}
  for i, array in ipairs(inputs) do
    if not c_text.type_of(array.dtype) then fail("input %d has the dtype %s, which C has not", i, array.dtype) end
    zeros[i] = require "mgpu".zeros({ ROWS, unpack(array.shape) }, { dtype = array.dtype })
  end
  for i, y in ipairs { require "mgpu.pack.embedded"(model)(unpack(zeros)) } do
    local shape = y:shape()
    if shape[1] ~= ROWS then
      fail("output %d has %d rows for %d rows of input: only outputs with one row for each can be returned", i,
        shape[1] or 0, ROWS)
    end
    arrays[i] = { shape = { select(2, unpack(shape)) }, dtype = y:dtype() }
  end
  return arrays
end

-- ---- tools ----------------------------------------------------------------------------------------

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- The output of a command. Errors: a status other than 0.
local function run(command)
  local pipe = io.popen("( " .. command .. " ) 2>&1; echo $?")
  local text = pipe:read "*a"
  pipe:close()
  local output, status = text:match "^(.*)(%d+)\n$"
  if status ~= "0" then fail("the command failed: %s\n%s", command, output or text) end
  return output
end

local function need_tools(compiler)
  for _, tool in ipairs { compiler, "objcopy", "ar" } do
    if os.execute("command -v " .. quote(tool) .. " >/dev/null") ~= 0 then
      fail("there is no %s: it needs a C compiler and binutils (apt-get install gcc)", tool)
    end
  end
end

-- Compiles NAME.c in the folder and joins it with the runtime; only the functions of the header can be seen outside.
local function build(folder, name, runtime, compiler)
  local keep = {}
  for _, suffix in ipairs { "predict", "predict_rows", "open", "close", "error" } do
    keep[#keep + 1] = ("--keep-global-symbol=%s_%s"):format(name, suffix)
  end
  run(("cd %s && %s -O2 -fPIC -c -o model.o %s.c && %s -r -nostdlib -o all.o model.o %s && objcopy %s all.o %s.o "
    .. "&& ar rcsD lib%s.a %s.o"):format(quote(folder), quote(compiler), name, quote(compiler), quote(runtime),
    table.concat(keep, " "), name, name, name))
end

-- ---- the library ----------------------------------------------------------------------------------

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local function batch_of(text)
  local batch = text == nil and 1 or tonumber(text)
  if not batch or batch < 1 or batch % 1 ~= 0 or batch > 2 ^ 31 - 1 then
    fail("--batch %s: give a whole number of rows from 1 on", text)
  end
  return batch
end

local function name_of(options, path)
  local name = options.name or identifier(path:match "([^/]*)%.[^./]*$" or path:match "[^/]*$")
  if RESERVED[name] then fail("--name: %s is a word of C or C++: give another name, as --name %s_net", name, name) end
  if not name:find "^[%a_][%w_]*$" then
    fail("--name %s: give a name that C functions can begin with: letters, digits and underscores", name)
  end
  return name
end

-- The archive for pack/embed.c, written to `path`.
local function write_archive(model_path, path)
  local packed = contents.new()
  local file = model_path:match "[^/]*$"
  packed:add_file(file, model_path)
  packed:note("model", file)
  packed:add_mgpu()
  packed:add_own("lua/mgpu/pack/embedded.lua", core.root .. "/lua/mgpu/pack/embedded.lua")
  core.zip_write(path, packed:list())
end

local function check_options(options)
  for _, name in ipairs { "models", "data", "modules", "plugins" } do
    if #options[name] > 0 then fail("options about files of a script do not go with it: %s", options[name][1]) end
  end
  if options.list then fail "--list does not go with it" end
end

--- c_library(options): options as command_line.lua reads them.
return function(options)
  check_options(options)
  local path, runtime, compiler = options.script, core.plugin_program "pack", os.getenv "CC" or "cc"
  runtime = runtime and runtime .. ".o"
  if not runtime or not core.file_exists(runtime) then
    core.fail("unsupported", "--pack --c: this build has no mgpu-pack.o, which needs static libraries: apt-get install "
      .. "libjansson-dev zlib1g-dev libluajit-5.1-dev, then make")
  end
  local name, batch, folder = name_of(options, path), batch_of(options.batch), options.output or "."
  require "mgpu.pack.model_file"(path)
  need_tools(compiler)
  local model = require "mgpu".load_model(path, { compile = false })
  local spec = { name = name, file = path:match "[^/]*$", version = core.version, batch = batch }
  spec.inputs = inputs_of(model)
  spec.outputs = outputs_of(model, spec.inputs)
  name_arrays(spec.inputs, model.input_names, { "in", "INPUT" }, name:upper())
  name_arrays(spec.outputs, model.output_names, { "out", "OUTPUT" }, name:upper())
  core.make_folder(folder)
  local work = run "mktemp -d":gsub("\n", "")
  local ok, message = pcall(function()
    write_archive(path, work .. "/archive.zip")
    spec.archive_size = #read(work .. "/archive.zip")
    core.write_file(("%s/%s.h"):format(work, name), c_text.header(spec))
    core.write_file(("%s/%s.c"):format(work, name), c_text.source(spec))
    build(work, name, run("realpath " .. quote(runtime)):gsub("\n", ""), compiler)
    core.write_file(("%s/%s.h"):format(folder, name), c_text.header(spec))
    core.write_file(("%s/lib%s.a"):format(folder, name), read(("%s/lib%s.a"):format(work, name)))
  end)
  os.execute("rm -rf " .. quote(work))
  if not ok then error(message, 0) end
  local library = ("%s/lib%s.a"):format(folder, name)
  print(core.printable(("%s/%s.h, %s: link with %s -lm -lpthread -ldl"):format(folder, name, library, library)))
end
