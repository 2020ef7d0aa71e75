-- For LuaJIT, from the repository's root: luarocks --lua-version 5.1 make examples/packaging/mgpulua-0.1.0-1.rockspec
--
-- `make install` puts all of mgpulua into the rock's own folder; LuaRocks deploys one file, which loads it from there.
rockspec_format = "3.0"
package = "mgpulua"
version = "0.1.0-1"
source = { url = "." } -- built in place: `luarocks make`
description = {
  summary = "Trains neural networks described in Lua, on CPUs and NVIDIA GPUs",
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua == 5.1" } -- LuaJIT's version
build = {
  type = "command",
  build_command = "make",
  install_command = "make install PREFIX=$(PREFIX)/mgpulua && mkdir -p $(LUADIR) && "
    .. "sed 's|@ROOT@|$(PREFIX)/mgpulua|' examples/packaging/rock.lua >$(LUADIR)/mgpu.lua",
}
