--- What a run was made by: the script and its commit, the command line, versions, the machine, variables.
--
-- Everything is read from files; no program is started. Facts that cannot be read are left out.
local core = require "mgpu.core"
local sha256 = require "mgpu.io.sha256"

local M = {}

local MOST_SCRIPT = 4 * 2 ^ 20 -- bytes of a script that are kept
local MOST_SMALL = 2 ^ 20      -- bytes of other files

-- Variables that change numbers, speed or devices. (Those of launchers differ from rank to rank, and MGPU_TOKEN is
-- a secret.)
local VARIABLES = { "MGPU_ISA", "MGPU_ONEDNN", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MGPU_THREADS",
  "OMP_NUM_THREADS", "MGPU_MEMORY", "MGPU_DATA", "MGPU_PLUGINS", "MGPU_CUDA_LIBRARIES", "CUDA_VISIBLE_DEVICES",
  "MGPU_CUDA_GRAPH", "MGPU_CUDA_KEPT", "MGPU_CUDA_AUTOTUNE", "MGPU_TRANSPORT", "MGPU_LAUNCH" }

-- Shared libraries that compute or read data, as they begin in the names of their files.
local LIBRARIES = { "libdnnl", "libgomp", "libomp", "libcuda", "libcudnn", "libcublasLt", "libnvrtc", "libnccl",
  "libmpi", "libmpich", "libucp", "libpng16", "libjpeg", "libz", "libjansson", "libc" }

--- read(path, most = 1 MiB) -> the text of a regular file; nil if there is none, or it is larger or unreadable.
function M.read(path, most)
  if not core.file_exists(path) then return nil end
  local file = io.open(path, "rb")
  local text = file and file:read((most or MOST_SMALL) + 1)
  if file then file:close() end
  if not text then return file and "" or nil end
  return #text <= (most or MOST_SMALL) and text or nil
end

-- Files in /proc have the size 0, but are regular.
local function first_match(path, pattern)
  local text = M.read(path)
  return text and text:match(pattern)
end

-- ---- the script ---------------------------------------------------------------------------------

--- script_path() -> the path of the script that runs; nil in the prompt, and for a script from standard input.
function M.script_path()
  if type(arg) ~= "table" or type(arg[0]) ~= "string" or not arg[-1] or arg[0] == "-" then return nil end
  return arg[0]
end

-- The folder of git's files for a work tree at `folder`, or nil.
local function git_folder(folder)
  local path = folder .. "/.git"
  if core.file_exists(path .. "/HEAD") then return path end
  local linked = first_match(path, "^gitdir: ([^\n]+)") -- a linked work tree, or a submodule
  if not linked then return nil end
  if linked:sub(1, 1) ~= "/" then linked = folder .. "/" .. linked end
  return core.file_exists(linked .. "/HEAD") and linked or nil
end

local function is_hash(text) return text and text:match "^%x+$" and #text >= 40 and #text <= 64 end

-- The commit that a reference such as refs/heads/main names.
local function resolve(git, name)
  local common = first_match(git .. "/commondir", "^([^\n]+)")
  if common and common:sub(1, 1) ~= "/" then common = git .. "/" .. common end
  for _, folder in ipairs { git, common } do
    local hash = first_match(folder .. "/" .. name, "^(%x+)")
    if is_hash(hash) then return hash end
    for line in (M.read(folder .. "/packed-refs", 16 * MOST_SMALL) or ""):gmatch "[^\n]+" do
      local packed, of = line:match "^(%x+) (%S+)"
      if of == name and is_hash(packed) then return packed end
    end
  end
end

--- git_commit(path) -> {commit =, branch =} of the work tree that the file lies in; nil if it lies in none.
-- branch is nil for a detached HEAD. Whether the file differs from the commit is not known.
function M.git_commit(path)
  local folder = path:match "^(.*)/[^/]*$" or "."
  for _ = 1, 64 do
    local git = git_folder(folder)
    if git then
      local head = first_match(git .. "/HEAD", "^([^\n]+)") or ""
      local name = head:match "^ref: (refs/[^%c ]+)$"
      if name and name:find("..", 1, true) then return nil end
      local commit = name and resolve(git, name) or not name and is_hash(head) and head
      return commit and { commit = commit, branch = name and name:gsub("^refs/heads/", "") or nil } or nil
    end
    if folder == "/" or folder == "" then return nil end
    folder = folder:sub(1, 1) == "/" and (folder:match "^(.+)/[^/]*$" or "/") or folder .. "/.."
    if #folder > 4000 then return nil end
  end
end

--- script() -> {path =, sha256 =, text =, git =}, of the script that runs; nil if none does.
function M.script()
  local path = M.script_path()
  local text = path and M.read(path, MOST_SCRIPT)
  if not text then return nil end
  return { path = path, sha256 = sha256(text), text = text, git = M.git_commit(path) }
end

--- command() -> the words of the command line.
function M.command()
  local words, first = {}, 0
  if type(arg) ~= "table" then return words end
  while arg[first - 1] ~= nil do first = first - 1 end
  for i = first, #arg do words[#words + 1] = tostring(arg[i]) end
  return words
end

-- ---- versions and machine -----------------------------------------------------------------------

--- versions() -> {mgpulua =, LuaJIT =, libdnnl =, ...}: of the libraries among LIBRARIES that are loaded.
function M.versions()
  local found, wanted = { mgpulua = core.version, LuaJIT = jit and jit.version or _VERSION }, {}
  for _, name in ipairs(LIBRARIES) do wanted[name] = true end
  for name, version in (M.read("/proc/self/maps", 16 * MOST_SMALL) or ""):gmatch "/([%w_]+)%.so%.?([%w._]*)\n" do
    if wanted[name] and version ~= "" then found[name] = version end
  end
  return found
end

--- host() -> the name of this machine.
function M.host() return first_match("/proc/sys/kernel/hostname", "^([^\n]+)") or "localhost" end

--- machine(devices) -> {host =, system =, cpu =, cores =, devices = {name = text}}. devices: array of names.
function M.machine(devices)
  local texts, cores = {}, 0
  for _, name in ipairs(devices) do
    local ok, info = pcall(core.device_info, name)
    texts[name] = ok and info.text or "not there any more"
  end
  local cpus = M.read("/proc/cpuinfo", 16 * MOST_SMALL) or ""
  for _ in ("\n" .. cpus):gmatch "\nprocessor%s*:" do cores = cores + 1 end
  local kernel = first_match("/proc/sys/kernel/osrelease", "^([^\n]+)")
  return { host = M.host(), cpu = cpus:match "model name%s*:%s*([^\n]+)", cores = cores > 0 and cores or nil,
    system = ("%s %s, %s"):format(jit and jit.os or "?", kernel or "?", jit and jit.arch or "?"), devices = texts }
end

--- environment() -> the variables that are set, of those that change numbers, speed or devices.
function M.environment()
  local set = {}
  for _, name in ipairs(VARIABLES) do set[name] = os.getenv(name) end
  return set
end

-- ---- processes ----------------------------------------------------------------------------------

--- process_start(pid) -> when the process was started, in ticks of the kernel since the machine was; nil if it is
--- gone, false if this cannot be told. pid: a number, or "self".
function M.process_start(pid)
  local text = M.read(("/proc/%s/stat"):format(pid))
  if not text then return not core.file_exists "/proc/self/stat" and false or nil end
  local rest, n = text:match ".*%)%s(.*)", 2 -- behind the name, which may hold anything
  for field in (rest or ""):gmatch "%S+" do
    n = n + 1
    if n == 3 and (field == "Z" or field == "X") then return nil end
    if n == 22 then return tonumber(field) or false end
  end
  return false
end

--- pid() -> the number of this process; nil where that cannot be told.
function M.pid() return tonumber(first_match("/proc/self/stat", "^(%d+)") or "") end

return M
