-- Starts a program in several processes that a transport connects: by mpirun, or by plain.sh for UCX. For specs and
-- benchmarks.
local M = {}

-- Kind -> launch: the command that starts N processes; needs: its program; name: how the library's version begins.
M.transports = {
  openmpi = {
    launch = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np",
    needs = "mpirun.openmpi", name = "Open MPI ",
  },
  mpich = { launch = "mpirun.mpich -np", needs = "mpirun.mpich", name = "MPICH " },
  ucx = { launch = "sh tests/world/plain.sh", needs = "sh", name = "UCX " },
}

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local function output_of(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

--- missing(kind, build) -> why programs cannot run with this transport, or nil; build: the folder of plug-ins.
function M.missing(kind, build)
  local plugin, launcher = ("mgpu-%s.so"):format(kind), M.transports[kind].needs
  if not exists(build .. "/" .. plugin) then return plugin .. " was not built" end
  if output_of("command -v " .. launcher) == "" then return "there is no " .. launcher end
end

--- compiler() -> the name of a C compiler, or nil.
function M.compiler() return output_of("command -v cc gcc clang | head -n 1"):match "%S+" end

--- compile(source, program, build) compiles a source that includes peers.h; RETURNS the compiler's messages, or nil.
function M.compile(source, program, build)
  local messages = output_of(("%s -std=gnu11 -O2 -Wall -Werror -Iruntime -o %s %s -L%s -lmgpu "
    .. "-Wl,-rpath,$(realpath %s)"):format(M.compiler(), program, source, build, build))
  return messages ~= "" and messages or nil
end

--- command(kind, n, program) -> the command that starts n processes of the program with its arguments.
function M.command(kind, n, program) return ("%s %d %s"):format(M.transports[kind].launch, n, program) end

return M
