--- The command line of `mgpulua --pack`.
local core = require "mgpu.core"

local M = {}

M.usage = [[
usage: mgpulua --pack SCRIPT [options]     one program of a script
       mgpulua --pack MODEL --c [options]  a C library of a model
  -o FILE         the program; default: the script's name without .lua. With --c: the folder for the library
                  and its header; default: here
  --model FILE    add a model, or FILE as NAME: --model NAME=FILE; the script opens it by its name
  --data FILE     the same for other files; a folder is added with all that is in it
  --module NAME   add a module that the script requires by a computed name
  --plugin NAME   add a plug-in: image, gif, webp, cuda, fetch, ...
  --list          only show what would be packed
  --c             make NAME.h and libNAME.a
  --name NAME     of the C functions: NAME_predict ...; default: the model's file without its ending
  --batch N       with --c: rows for which NAME_predict computes at once (1)
  --help          this text
A file is looked for beside the script, then here. The program finds what is inside of it before files on the disk.
]]

-- Option -> the field, and whether it is given once, several times, or without a value.
local OPTIONS = {
  ["-o"] = { "output", "once" }, ["--model"] = { "models", "many" }, ["--data"] = { "data", "many" },
  ["--module"] = { "modules", "many" }, ["--plugin"] = { "plugins", "many" }, ["--list"] = { "list", "flag" },
  ["--c"] = { "c", "flag" }, ["--name"] = { "name", "once" }, ["--batch"] = { "batch", "once" },
  ["--help"] = { "help", "flag" },
}

local function fail(message, ...) core.fail("usage", "--pack: " .. message:format(...)) end

local function unknown(name)
  local known = {}
  for option in pairs(OPTIONS) do known[#known + 1] = option end
  table.sort(known)
  fail("unknown option %s%s; mgpulua --pack --help lists the options", name, core.did_you_mean(name, known))
end

-- The value of the option at index i of `arg`, and the index of the last word that belongs to it.
local function value_of(arg, i, name, given)
  if given then return given, i end
  if arg[i + 1] == nil then fail("%s needs a value", name) end
  return arg[i + 1], i + 1
end

--- parse(arg) -> {script =, output =, models = {}, data = {}, modules = {}, plugins = {}, list =, c =, name =, batch =,
--- help =}. Errors: unknown options, values that are missing or given twice.
function M.parse(arg)
  local parsed, i = { models = {}, data = {}, modules = {}, plugins = {} }, 0
  while i < #arg do
    i = i + 1
    local name, given = arg[i]:match "^(%-%-[^=]+)=(.*)$"
    name = name or arg[i]
    local option = OPTIONS[name]
    if not option and name:find "^%-." then unknown(name) end
    if not option then
      if parsed.script then fail("%s and %s: there can be one script", parsed.script, name) end
      parsed.script = arg[i]
    elseif option[2] == "flag" then
      if given then fail("%s takes no value", name) end
      parsed[option[1]] = true
    else
      local value
      value, i = value_of(arg, i, name, given)
      if value == "" then fail("%s: the value is empty", name) end
      if option[2] == "many" then
        table.insert(parsed[option[1]], value)
      elseif parsed[option[1]] then
        fail("%s is given twice", name)
      else
        parsed[option[1]] = value
      end
    end
  end
  return parsed
end

return M
