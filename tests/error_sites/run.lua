-- Proves that tests trigger the error texts: lists every place that makes one, and which of them a run reached.
--
--     luajit tests/error_sites/run.lua copy     -- as `make error-sites` calls them
--     luajit tests/error_sites/run.lua report STATUS
-- copy: build/error_sites/tree becomes a copy of the sources in which each of these places (see scan.lua) first writes
-- one byte into the file build/error_sites/reached, at the place's own number. So it counts what any process reaches,
-- scripts that tests start among them. RESET=1 in the environment forgets what earlier runs reached.
-- report: writes build/error_sites/list.txt, a line `reached|listed|MISSED  file:line  text` for each place, and prints
-- the missed ones and the counts. unreached.lua lists the places that no test can reach. The exit status is 1 if a
-- place is missed, if the list names one that does not exist or is reached, or if STATUS, that of the tests, is not 0.
local FOLDER = "build/error_sites"
local ROOTS = "Makefile README.md LICENSE runtime lua models examples tests"
local SEARCHED = { "^runtime/.*%.[ch]$", "^lua/mgpu/.*%.lua$", "^models/.*%.lua$", "^examples/.*%.lua$" }

local here = arg[0]:match "^.*/" or "./"
local scan = dofile(here .. "scan.lua")

local function read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local text = f:read "*a"
  f:close()
  return text
end

local function run(command)
  local pipe = assert(io.popen(command))
  local output = pipe:read "*a"
  pipe:close()
  return output
end

local function is_searched(path)
  for _, pattern in ipairs(SEARCHED) do
    if path:find(pattern) then return true end
  end
end

-- ---- numbers of sites -------------------------------------------------------------------------------

local PLACES = 2 ^ 18 -- bytes of the file `reached`

local function hash(text)
  local h = 5381
  for i = 1, #text do h = (h * 33 + text:byte(i)) % 2 ^ 32 end
  return h % PLACES
end

-- All sites in the order of the files, each with path and number. Numbers come from file and text, so that they stay
-- when other places change.
local function all_sites(sources)
  local list, taken = {}, {}
  for _, path in ipairs(sources) do
    local source, seen = read(path), {}
    for _, site in ipairs(scan.sites(path, source)) do
      seen[site.text] = (seen[site.text] or 0) + 1
      local number = hash(("%s %s %d"):format(path, site.text, seen[site.text]))
      while taken[number] do number = (number + 1) % PLACES end
      taken[number] = true
      site.path, site.number = path, number
      list[#list + 1] = site
    end
  end
  return list
end

local function find_sources()
  local paths, sources = {}, {}
  for path in run("find " .. ROOTS .. " -type f | sort"):gmatch "[^\n]+" do
    paths[#paths + 1] = path
    if is_searched(path) then sources[#sources + 1] = path end
  end
  return paths, sources
end

-- ---- copying ----------------------------------------------------------------------------------------

-- Included by the C files. It includes no header of libc's, since what that defines would depend on the file's own
-- macros. The process that reads HDF5 files may open none later on, so it maps `reached` at its start.
local C_HEADER = [[
#pragma once
#include <sys/syscall.h>
extern long syscall(long, ...);
extern int *__errno_location(void) __attribute__((const));
static unsigned char *mg_error_sites;
static inline void mg_error_site(unsigned number) {
    const int kept = *__errno_location();
    const long fd = mg_error_sites ? -1 : syscall(SYS_openat, -100, "@FILE", 1, 0);
    if (mg_error_sites) mg_error_sites[number] = 1;
    if (fd >= 0) syscall(SYS_pwrite64, fd, "\1", 1, (long)number), syscall(SYS_close, fd);
    *__errno_location() = kept;
}
#ifdef MG_ERROR_SITES_EARLY
__attribute__((constructor)) static void mg_error_sites_map(void) {
    const long fd = syscall(SYS_openat, -100, "@FILE", 2, 0);
    const long map = fd < 0 ? -1 : syscall(SYS_mmap, 0, 1 << 18, 3, 1, fd, 0);
    if (map > 0 || map < -4095) mg_error_sites = (unsigned char *)map;
    if (fd >= 0) syscall(SYS_close, fd);
}
#endif
]]
-- It stands in core/, which every folder may include.
local C_HEADER_PATH = "runtime/core/error_site.h"
local C_HEAD = '@EARLY#include "core/error_site.h"\n#line 1 "@PATH"\n'
local C_EARLY = "#define MG_ERROR_SITES_EARLY\n"
local LUA_HEAD = "local SITE = dofile '@FOLDER/site.lua' "
-- Returns SITE(number) -> nothing.
local SITE_LUA = [[
local open, seen = io.open, {}
return function(number)
  local f = not seen[number] and open("@FILE", "r+b")
  if f then
    seen[number] = true
    f:seek("set", number)
    f:write "\1"
    f:close()
  end
end
]]

-- Where the first line begins that is not a comment: `?name` shows the comments before it.
local function first_code(source)
  local at = 1
  while source:find("^%-%-", at) or source:find("^\n", at) do at = source:find("\n", at, true) + 1 end
  return at
end

local function instrumented(path, sites, absolute)
  local edits = {}
  for _, site in ipairs(sites) do
    for _, edit in ipairs(site.edits) do
      edits[#edits + 1] = { edit[1], (edit[2]:gsub("@", site.number)), edit[3] }
    end
  end
  local values = { FOLDER = absolute, PATH = path, EARLY = path:find "/h5_helper/" and C_EARLY or "" }
  local source, is_lua = read(path), path:find "%.lua$"
  local head = (is_lua and LUA_HEAD or C_HEAD):gsub("@(%u+)", values)
  table.insert(edits, 1, { is_lua and first_code(source) or 1, head })
  return scan.edit(source, edits)
end

local function write_if_changed(path, text)
  if read(path) == text then return end
  os.remove(path)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

local function make_folders(paths)
  local folders, done = {}, {}
  for _, path in ipairs(paths) do
    local folder = path:match "^(.*)/"
    if folder and not done[folder] then
      done[folder] = true
      folders[#folders + 1] = FOLDER .. "/tree/" .. folder
    end
  end
  local pipe = assert(io.popen("xargs mkdir -p", "w"))
  pipe:write(table.concat(folders, "\n"))
  pipe:close()
end

local function remove_others(paths)
  local ours = { [C_HEADER_PATH] = true }
  for _, path in ipairs(paths) do ours[path] = true end
  for path in run("cd " .. FOLDER .. "/tree && find " .. ROOTS .. " -type f 2>/dev/null"):gmatch "[^\n]+" do
    if not ours[path] then os.remove(FOLDER .. "/tree/" .. path) end
  end
end

local function copy()
  local paths, sources = find_sources()
  make_folders(paths)
  remove_others(paths)
  local absolute = run("cd " .. FOLDER .. " && pwd"):gsub("\n", "")
  if os.getenv "RESET" == "1" or #(read(FOLDER .. "/reached") or "") ~= PLACES then
    write_if_changed(FOLDER .. "/reached", ("\0"):rep(PLACES))
  end
  write_if_changed(FOLDER .. "/site.lua", (SITE_LUA:gsub("@FILE", absolute .. "/reached")))
  write_if_changed(FOLDER .. "/tree/" .. C_HEADER_PATH, (C_HEADER:gsub("@FILE", absolute .. "/reached")))
  local by_path = {}
  for _, site in ipairs(all_sites(sources)) do
    by_path[site.path] = by_path[site.path] or {}
    table.insert(by_path[site.path], site)
  end
  for _, path in ipairs(paths) do
    local text = by_path[path] and instrumented(path, by_path[path], absolute) or read(path)
    write_if_changed(FOLDER .. "/tree/" .. path, text)
  end
  os.execute("cd " .. FOLDER .. "/tree && find tests examples -name '*.sh' -exec chmod +x {} +")
end

-- ---- the report -------------------------------------------------------------------------------------

-- The reason that unreached.lua gives for the site, or nil. Notes for each of its entries whether a site that it names
-- was not reached.
local function reason_for(site, is_reached, groups, used)
  for _, group in ipairs(groups) do
    for _, entry in ipairs(group) do
      local path, text = entry:match "^(%S+)%s*(.*)$"
      if path == site.path and site.text:find(text, 1, true) then
        used[entry] = used[entry] == "needed" and "needed" or is_reached and "reached" or "needed"
        return group.reason
      end
    end
  end
end

local function report()
  local groups, used = dofile(here .. "unreached.lua"), {}
  local reached = assert(read(FOLDER .. "/reached"), "run `make error-sites` first")
  local counts, lines = { reached = 0, listed = 0, MISSED = 0 }, {}
  local _, sources = find_sources()
  for _, site in ipairs(all_sites(sources)) do
    local is_reached = reached:byte(site.number + 1) == 1
    local reason = reason_for(site, is_reached, groups, used)
    local state = is_reached and "reached" or reason and "listed" or "MISSED"
    counts[state] = counts[state] + 1
    lines[#lines + 1] = ("%s  %s:%d  %s"):format(state, site.path, site.line, site.text)
    if state == "MISSED" then print(lines[#lines]) end
  end
  local stale = 0
  for _, group in ipairs(groups) do
    for _, entry in ipairs(group) do
      if used[entry] ~= "needed" then
        stale = stale + 1
        print(("unreached.lua names a place that %s: %s"):format(used[entry] and "a test reaches" or "does not exist",
          entry))
      end
    end
  end
  write_if_changed(FOLDER .. "/list.txt", table.concat(lines, "\n") .. "\n")
  print(("error texts: %d reached, %d listed as unreachable, %d missed (%s/list.txt)"):format(counts.reached,
    counts.listed, counts.MISSED, FOLDER))
  local failed = arg[2] ~= "0"
  if failed then print "a test has failed in the copy of the sources: see above" end
  os.exit(counts.MISSED == 0 and stale == 0 and not failed and 0 or 1)
end

local commands = { copy = copy, report = report }
local command = commands[arg[1]] or error("usage: luajit tests/error_sites/run.lua copy|report STATUS", 0)
command()
