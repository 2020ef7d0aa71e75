--- What several example scripts share: options read by argparse, and the devices that --mgpu asks for.
--
--     local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")
--     local parser = command_line.parser("Trains a network.")
--     command_line.add_mgpu(parser)
--     local options = command_line.read(parser)
local mgpu = require "mgpu"

local M = {}

local SCRIPT = arg[0]:match "[^/]*$"

--- stop(message, ...): ends the program with status 1.
function M.stop(message, ...)
  io.stderr:write(SCRIPT, ": ", message:format(...), "\n")
  os.exit(1)
end

--- parser(description) -> a parser of argparse, which has --help. Ends the program where argparse is not installed.
function M.parser(description)
  local found, argparse = pcall(require, "argparse")
  if not found then M.stop "the Lua module argparse is missing: apt-get install lua-argparse" end
  local parser = argparse("mgpulua " .. SCRIPT, description)
  parser:help_max_width(100)
  parser.error = function(_, message) M.stop("%s (see --help)", message) end
  return parser
end

--- count(least, option) -> a function that reads the text of the option of that name as a whole number >= least.
function M.count(least, option)
  return function(text)
    local n = tonumber(text)
    if n and n % 1 == 0 and n >= least and n < 2 ^ 53 then return n end
    return nil, ("%s %s: it must be a whole number from %d on"):format(option, text, least)
  end
end

--- positive(option) -> a function that reads the text of the option of that name as a number above 0.
function M.positive(option)
  return function(text)
    local x = tonumber(text)
    if x and x > 0 and x < math.huge then return x end
    return nil, ("%s %s: it must be a number above 0"):format(option, text)
  end
end

--- check_save(path): ends the program if no model can be saved there, before the time for training is spent.
function M.check_save(path)
  local ok, message = pcall(require("mgpu.nn.saving").check_path, path, "save", "--save")
  if not ok then M.stop("%s", (message:gsub("^%S+:%d+: ", ""))) end
end

--- add_count(parser, option, least, description, default): an option that takes a whole number >= least.
function M.add_count(parser, option, least, description, default)
  parser:option(option, description, default):argname "N":convert(M.count(least, option))
end

--- add_epochs(parser, default)
function M.add_epochs(parser, default)
  M.add_count(parser, "--epochs", 1, "Passes over the training data.", tostring(default))
end

--- add_limit(parser)
function M.add_limit(parser)
  M.add_count(parser, "--limit", 1, "Use only the first N images of each set.")
end

--- add_mgpu(parser)
function M.add_mgpu(parser)
  parser:option("--mgpu", "Train on the first N devices; without N, on all. They are GPUs, or those that mgpulua "
    .. "--devices names. Without the option: one device."):args "?":argname "N":convert(M.count(1, "--mgpu"))
end

--- read(parser) -> the options. gpus: the devices of --mgpu, empty unless there are two or more; ngpus: their number,
--- or 1.
function M.read(parser)
  local options = parser:parse()
  local ok, gpus = pcall(mgpu.parallel.get_available_gpus, options.mgpu and (options.mgpu[1] or -1) or 0)
  if not ok then M.stop("--mgpu %d: %s", options.mgpu[1], (gpus:gsub("^.-get_available_gpus: ", ""))) end
  options.gpus = #gpus > 1 and gpus or {}
  options.ngpus = math.max(#options.gpus, 1)
  return options
end

-- What --data names: sets in files, and sets that are drawn by code, of at least DRAWN images.
local FILES = { mnist = "mnist", fashion = "fashion_mnist", cifar10 = "cifar10" }
local DRAWN = 6000

--- add_data(parser, names, default = names[1]): the data sets that --data may name; the last one is drawn by code.
function M.add_data(parser, names, default)
  M.drawn = names[#names]
  parser:option("--data", ("The data set: %s; %s are drawn by code and need no files."):format(
    table.concat(names, ", "), M.drawn), default or names[1]):choices(names):argname "NAME"
end

--- load(options) -> train, test: the data set of --data. Ends the program with a sentence that names the drawn set
--- where files are missing.
function M.load(options)
  if options.data == M.drawn then return mgpu.datasets[M.drawn](math.max(options.limit or 0, DRAWN)) end
  local set = mgpu.datasets[FILES[options.data]]
  local found, train, test = pcall(set.load_data, { data_dir = options.datadir })
  if not found then M.stop("%s; --data %s needs no files", (train:gsub("^%S+:%d+: ", "")), M.drawn) end
  return train, test
end

--- first_rows(set, limit) -> x, y: the first rows of a data set, or all of them without a limit.
function M.first_rows(set, limit)
  local last = math.min(limit or math.huge, set.x:shape()[1])
  return set.x:slice { { 1, last } }, set.y:slice { { 1, last } }
end

--- shape_text(t) -> "(60000, 28, 28, 1)"
function M.shape_text(t) return "(" .. table.concat(t:shape(), ", ") .. ")" end

--- exists(path) -> whether there is a file that can be read.
function M.exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

return M
