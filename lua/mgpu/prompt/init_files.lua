--- The user's own start-up code of the prompt.
--
-- MGPULUA_INIT is a piece of Lua, or a file: its name, or @ and its name. Then $XDG_CONFIG_HOME/mgpulua/init.lua, or
-- ~/.config/mgpulua/init.lua, if it is there. Scripts run neither, and with -E the prompt does not either.
local M = {}

local function is_file(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local function run(prompt, chunk, message)
  if chunk then prompt:call(chunk) else prompt:complain(message) end
end

local function config_file()
  local config, home = os.getenv "XDG_CONFIG_HOME", os.getenv "HOME"
  if config and config:find "^/" then return config .. "/mgpulua/init.lua" end
  return home and home .. "/.config/mgpulua/init.lua"
end

--- run(prompt): runs them; their errors are shown.
function M.run(prompt)
  local init, path = os.getenv "MGPULUA_INIT", config_file()
  if init and init ~= "" then
    local file = init:match "^@(.*)" or (is_file(init) and init)
    if file then run(prompt, loadfile(file, "t")) else run(prompt, load(init, "=MGPULUA_INIT", "t")) end
  end
  if path and is_file(path) then run(prompt, loadfile(path, "t")) end
end

return M
