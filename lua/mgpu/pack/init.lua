--- `mgpulua --pack`: a script with all that it needs as one program, or a model as a C library.
local command_line = require "mgpu.pack.command_line"
local check_model = require "mgpu.pack.model_file"
local contents = require "mgpu.pack.contents"
local core = require "mgpu.core"
local trace = require "mgpu.pack.trace"

local function fail(message, ...) core.fail("usage", "--pack: " .. message:format(...)) end

local function print_line(text, ...) print(core.printable(text:format(...))) end

-- ---- the files that options name ------------------------------------------------------------------

-- The path of the file or folder that --model or --data names; nil if there is none.
local function look_for(name, folder)
  for _, path in ipairs { name:sub(1, 1) == "/" and name or folder .. name, name } do
    if core.file_exists(path) then return path, false end
    if core.folder_exists(path) then return path, true end
  end
end

-- NAME or NAME=PATH -> the name, the path, and whether that is a folder.
local function named_file(option, text, folder)
  local path, is_folder = look_for(text, folder)
  if path then return text, path, is_folder end
  local name, given = text:match "^([^=]+)=(.+)$"
  if not name then fail("%s %s: there is no such file beside the script or here", option, text) end
  path, is_folder = look_for(given, "")
  if not path then fail("%s %s: there is no file %s", option, text, given) end
  return name, path, is_folder
end

-- Adds all files below a folder.
local function add_folder(packed, name, path)
  local files = core.folder_files(path)
  if #files == 0 then fail("--data %s: there are no files in this folder", path) end
  for _, file in ipairs(files) do packed:add_file(name .. file:sub(#path + 1), file) end
end

local function add_named_files(packed, options, folder)
  for _, text in ipairs(options.models) do
    local name, path, is_folder = named_file("--model", text, folder)
    if is_folder then fail("--model %s is a folder: name a file", path) end
    check_model(path)
    packed:add_file(name, path)
  end
  for _, text in ipairs(options.data) do
    local name, path, is_folder = named_file("--data", text, folder)
    if is_folder then
      add_folder(packed, name, path)
    else
      packed:add_file(name, path)
    end
  end
end

-- What adds a file, by its ending.
local ADDS = { safetensors = "--model %s adds it", npz = "--model %s adds it", onnx = "--model %s adds it" }
for _, ending in ipairs { "h5", "hdf5", "keras" } do
  ADDS[ending] = "%s cannot be read there, a .safetensors file can"
end

-- Notes the files beside the script that are named in it and not packed: where the program runs, they may be missing.
local function note_left_out(packed, traced, folder)
  local told = {}
  for _, one in ipairs(traced.names) do
    local normal = contents.normal(one.name)
    local inside = not normal or packed.by_name["files/" .. normal]
    if not inside and not told[normal] and core.file_exists(folder .. normal) then
      told[normal] = true
      local advice = ADDS[one.name:match "[^.]*$"] or "--data %s adds it"
      traced:note("%s: there is a file %s, which is not packed: " .. advice, one.where, one.name, one.name)
    end
  end
end

-- ---- plug-ins -------------------------------------------------------------------------------------

local NOT_PACKED = {
  h5 = "files of HDF5 are read by a program of its own with libhdf5: save models as .safetensors",
  cpu = "the cpu device is in every packed program",
}

-- The file of a plug-in: one that needs no library of the system if there is one, or else the usual one; or nil.
local function plugin_file(beside, name)
  for _, place in ipairs { "/pack/mgpu-", "/mgpu-" } do
    local path = beside .. place .. name .. ".so"
    if core.file_exists(path) then return path end
  end
end

local function add_plugins(packed, names, wanted, beside)
  for _, name in ipairs(wanted) do
    if NOT_PACKED[name] then fail("--plugin %s: %s", name, NOT_PACKED[name]) end
    names[name] = true
  end
  local sorted = {}
  for name in pairs(names) do sorted[#sorted + 1] = name end
  table.sort(sorted)
  for _, name in ipairs(sorted) do
    local path = plugin_file(beside, name)
    if not path then
      local known = {}
      for _, file in ipairs(core.glob(beside .. "/mgpu-*.so")) do
        known[#known + 1] = file:match "mgpu%-([^/]*)%.so$"
      end
      fail("--plugin %s: this build has no such plug-in%s", name, core.did_you_mean(name, known, "plug-in"))
    end
    packed:add_plugin(name, path)
  end
end

-- ---- the program ----------------------------------------------------------------------------------

local function size_text(bytes)
  if bytes < 1000 then return bytes .. " B" end
  if bytes < 1e6 then return ("%.1f kB"):format(bytes / 1e3) end
  return ("%.2f MB"):format(bytes / 1e6)
end

-- The script's files and plug-ins, one a line, the number of mgpu's own, and what the trace has noted.
local function report(packed, notes)
  local own, bytes = 0, 0
  table.sort(packed.entries, function(a, b) return a.name < b.name end)
  for _, entry in ipairs(packed.entries) do
    local name = entry.name:match "^files/(.*)" or entry.name:match "^mgpulua/plugins/(.*)"
    if name then
      local from = name ~= entry.origin and " from " .. entry.origin or ""
      print_line("  %9s  %s%s", size_text(entry.size), name, from)
    else
      own, bytes = own + 1, bytes + entry.size
    end
  end
  print_line("  %9s  mgpu: %d files of Lua", size_text(bytes), own)
  for _, note in ipairs(notes) do print_line("not followed: %s", note) end
end

-- The path of the program. Errors: a folder; a file that is packed.
local function output_of(options, script, packed)
  local output = options.output or script:match "([^/]*)%.lua$" or script:match "[^/]*$" .. ".app"
  if core.folder_exists(output) then fail("-o %s is a folder: name the program", output) end
  if not core.file_exists(output) then return output end
  local sources = { core.plugin_program "pack" }
  for _, entry in ipairs(packed.entries) do sources[#sources + 1] = entry.origin end
  for _, path in ipairs(sources) do
    if core.is_same_file(output, path) then
      fail("-o %s would replace what it is made of: name another file", output)
    end
  end
  return output
end

local function pack(options)
  local script = options.script
  local stub = core.plugin_program "pack"
  if not stub then
    core.fail("unsupported", "--pack: this build has no mgpu-pack, which needs the static libraries of jansson, zlib "
      .. "and LuaJIT: apt-get install libjansson-dev zlib1g-dev libluajit-5.1-dev, then make")
  end
  if core.folder_exists(script) then fail("%s is a folder: name a script", script) end
  local folder = script:match "^.*/" or ""
  local traced = trace.trace(script, folder, options.modules)
  local packed = contents.new()
  packed:add_script(script, script:match "[^/]*$", traced.text)
  for _, module in ipairs(traced.modules) do packed:add_module(module, folder) end
  for _, file in ipairs(traced.files) do packed:add_file(file.name, file.path) end
  add_named_files(packed, options, folder)
  note_left_out(packed, traced, folder)
  add_plugins(packed, traced.plugins, options.plugins, stub:match "^(.*)/")
  packed:add_mgpu()
  if options.list then
    report(packed, traced.notes)
    return
  end
  local output = output_of(options, script, packed)
  core.zip_write(output, packed:list(), stub)
  local file = assert(io.open(output, "rb"))
  print_line("%s: %s", output, size_text(file:seek "end"))
  file:close()
  report(packed, traced.notes)
end

return function(arg)
  local options = command_line.parse(arg)
  if options.help then
    io.write(command_line.usage)
    return
  end
  if not options.script then fail "name the script: mgpulua --pack SCRIPT" end
  if options.c then return require "mgpu.pack.c_library"(options) end
  for _, name in ipairs { "name", "batch" } do
    if options[name] then fail("--%s goes with --c, which makes a C library of a model", name) end
  end
  pack(options)
end
