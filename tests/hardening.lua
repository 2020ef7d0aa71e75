-- Looks into the built program and libraries for the protections that the Makefile asks for: `make lint` runs it.
--
--     luajit tests/hardening.lua build/mgpulua build/libmgpu.so ...
--
-- Every file: relocations read-only after start (RELRO, BIND_NOW), none in code, no executable stack. The program: at
-- random addresses (PIE). Those with C code of some size: stack protector and checked libc calls (FORTIFY).
local M = {}

-- Names of functions that the compiler calls only where it put a check.
local STACK, CHECKED = "__stack_chk_fail", "_chk[%s@]"
local SMALL = 0x1000 -- bytes of code that may have no call of libc which can be checked

local function output_of(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

--- faults(path, program) -> array of what the file lacks; program: whether it is one and not a library.
function M.faults(path, program)
  local quoted = "'" .. path:gsub("'", "'\\''") .. "'"
  local headers, symbols = output_of("readelf -hldW " .. quoted), output_of("readelf --dyn-syms -W " .. quoted)
  local found = {}
  local function want(holds, what)
    if not holds then found[#found + 1] = what end
  end
  want(headers:find "Type:%s+DYN" and (not program or headers:find "Flags:[^\n]*PIE"), "is not position-independent")
  want(headers:find "GNU_RELRO", "has no RELRO segment")
  want(headers:find "BIND_NOW" or headers:find "Flags:[^\n]*NOW", "is not bound at start (BIND_NOW)")
  want(not headers:find "TEXTREL", "has relocations in its code")
  want(headers:find "GNU_STACK" and not headers:find "GNU_STACK[^\n]*RWE", "has an executable stack")
  want(symbols:find(STACK, 1, true), "has no stack protector")
  local code = tonumber((headers:match "LOAD[^\n]-(0x%x+)%s+R E"))
  want(code and code < SMALL or symbols:gsub(STACK, ""):find(CHECKED), "has no checked libc calls (FORTIFY)")
  return found
end

if ... ~= "hardening" then -- run as a program, not required by the spec
  local failed = false
  if #arg == 0 then print "     skipped: build first" end
  for _, path in ipairs(arg) do
    for _, fault in ipairs(M.faults(path, not path:find "%.so$")) do
      failed = true
      print(("%s: %s"):format(path, fault))
    end
  end
  os.exit(failed and 1 or 0)
end

return M
