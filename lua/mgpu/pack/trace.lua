--- What a script loads: the modules that it requires by constant names, and so on for theirs.
local core = require "mgpu.core"
local lexer = require "mgpu.pack.lexer"

local M = {}

-- Modules that are in the program itself.
local INSIDE = {}
for name in ("_G string table coroutine os io math debug package bit jit ffi jit.opt jit.util jit.profile table.new "
  .. "table.clear table.clone table.isempty table.isarray table.nkeys thread.exdata string.buffer"):gmatch "%S+" do
  INSIDE[name] = true
end

-- Names behind a dot that need a plug-in.
local PLUGIN_OF = { image = "image", image_folder = "image", ImageDataGenerator = "image" }

local function read(path)
  local file, message = io.open(path, "rb")
  if not file then core.fail("io", "--pack: cannot open " .. message) end
  local text, problem = file:read "*a"
  file:close()
  if not text then core.fail("io", ("--pack: cannot read %s: %s"):format(path, problem)) end
  return text
end

--- source(path, what) -> the text of a file of Lua. Errors: none there, a program, bytecode, wrong syntax.
function M.source(path, what)
  local text = read(path)
  if text:sub(1, 4) == "\127ELF" then
    core.fail("usage", ("--pack: %s is a program, not a file of Lua: pack the script that it was made of"):format(path))
  end
  if text:sub(1, 3) == "\27LJ" then
    core.fail("usage", ("--pack: %s is bytecode, which is not checked: pack its source"):format(path))
  end
  local chunk, message = loadstring(text, "@" .. path)
  if not chunk then core.fail("usage", ("--pack: %s %s does not compile: %s"):format(what, path, message)) end
  return text
end

--- find(name, folder) -> the path of the file of a module, by package.path and then beside the script, in `folder`;
--- or nil and the path of a C library of that name, if there is one.
function M.find(name, folder)
  local path = package.searchpath(name, package.path)
    or package.searchpath(name, folder .. "?.lua;" .. folder .. "?/init.lua")
  if path then return path end
  return nil, package.searchpath(name, package.cpath)
end

-- What the tokens from the i-th on, behind the name of a function, give it: "constant" and the text, "dynamic", or nil
-- if this is no call.
local function argument(tokens, i)
  local at = i
  local function is(symbol) return tokens[at] and tokens[at].kind == "symbol" and tokens[at].text == symbol end
  if is "(" or is "," then -- f(...) or pcall(f, ...)
    at = at + 1
  elseif not tokens[at] or tokens[at].kind ~= "string" then
    return nil
  end
  local value = lexer.constant(tokens[at])
  local opened = at > i
  at = at + 1
  if value and (not opened or is ")" or is ",") then return "constant", value end
  if tokens[i].text == "," and not value then return nil end -- an argument, not pcall(f, name)
  return "dynamic"
end

-- Functions that load files of Lua, and what they load.
local LOADERS = { require = "module", dofile = "file", loadfile = "file" }

--- calls(text) -> array of {what = "module" | "file", name = constant or nil, line =}, the set of plug-ins that names
--- in the text need, and the strings that look like names of files, as an array of {name =, line =}.
function M.calls(text)
  local found, plugins, names = {}, {}, {}
  local tokens = lexer.tokens(text)
  for i, token in ipairs(tokens) do
    local before = tokens[i - 1]
    local is_field = before and before.kind == "symbol" and (before.text == "." or before.text == ":")
    local constant = token.kind == "string" and lexer.constant(token)
    if constant and constant:find "^[^%c]*[^/%c]%.%w+$" then
      names[#names + 1] = { name = constant, line = token.line }
    end
    if token.kind == "name" and is_field and PLUGIN_OF[token.text] then plugins[PLUGIN_OF[token.text]] = true end
    if token.kind == "name" and LOADERS[token.text] and not is_field then
      local kind, name = argument(tokens, i + 1)
      if kind then found[#found + 1] = { what = LOADERS[token.text], name = name, line = token.line } end
    end
  end
  return found, plugins, names
end

local function is_ours(name) return name == "mgpu" or name:find "^mgpu%." ~= nil end

-- Follows one call in the file at `path`.
local function follow(state, path, call)
  local where = ("%s:%d"):format(path, call.line)
  if not call.name then
    state:note("%s: the name of the %s is computed%s", where, call.what,
      call.what == "module" and ": --module NAME adds one" or ": --data FILE adds one")
  elseif call.what == "module" then
    state:add_module(call.name, where)
  elseif state:add_file(call.name) == nil then
    state:note("%s: there is no file %s", where, call.name)
  end
end

--- trace(script, folder, modules) -> {modules = {{name =, path =}}, files = {{name =, path =}}, notes = {text},
--- plugins = {name = true}, text = of the script, names = strings that look like names of files: {{name =,
--- where =}}}.
-- folder: that of the script, with a slash, or "". modules: names that --module adds; they must be there.
function M.trace(script, folder, modules)
  local state = { modules = {}, files = {}, notes = {}, plugins = {}, seen = {}, names = {} }

  function state:note(text, ...) self.notes[#self.notes + 1] = text:format(...) end

  function state:read(path, what)
    local text = M.source(path, what)
    local calls, plugins, names = M.calls(text)
    for _, one in ipairs(names) do
      self.names[#self.names + 1] = { name = one.name, where = ("%s:%d"):format(path, one.line) }
    end
    for name in pairs(plugins) do self.plugins[name] = true end
    for _, call in ipairs(calls) do follow(self, path, call) end
    return text
  end

  function state:add_module(name, where)
    if INSIDE[name] or is_ours(name) or self.seen[name] then return end
    self.seen[name] = true
    local path, library = M.find(name, folder)
    if path then
      self.modules[#self.modules + 1] = { name = name, path = path }
      self:read(path, ("the module %q"):format(name))
    elseif library then
      self:note("%s: the module %q is a library in C, %s, which is not packed: it must be installed where the "
        .. "program runs", where, name, library)
    elseif where then
      self:note("%s: there is no module %q in package.path or beside the script", where, name)
    else
      core.fail("usage", ("--module %s: there is no such module in package.path or beside the script"):format(name))
    end
  end

  -- nil if there is no such file.
  function state:add_file(name)
    if self.seen["file " .. name] then return true end
    for _, path in ipairs { folder .. name, name } do
      if core.file_exists(path) then
        self.seen["file " .. name] = true
        self.files[#self.files + 1] = { name = name, path = path }
        self:read(path, "the file")
        return true
      end
    end
  end

  state.text = state:read(script, "the script")
  for _, name in ipairs(modules) do state:add_module(name) end
  return state
end

return M
