-- require "mgpu" from a rock: loads the library and its Lua files from the folder of the rock.
if not jit then error("mgpu: this is " .. _VERSION .. "; the rock is for LuaJIT (run the script with luajit)", 0) end
local root = "@ROOT@"
package.path = ("%s/share/mgpulua/lua/?.lua;%s/share/mgpulua/lua/?/init.lua;"):format(root, root) .. package.path
package.cpath = root .. "/lib/mgpulua/?.so;" .. package.cpath
return dofile(root .. "/share/mgpulua/lua/mgpu/init.lua")
