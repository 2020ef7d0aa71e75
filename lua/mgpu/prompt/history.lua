--- The history of inputs: a file that several prompts share.
--
-- $XDG_STATE_HOME/mgpulua/history, or ~/.local/state/mgpulua/history, readable by its owner only. A line is an input,
-- in which \n and \\ stand for newlines and backslashes. Each input is appended at once, so that prompts that run side
-- by side, or are killed, lose nothing. At the end of a prompt the file is written anew without duplicates (the last
-- one stays) and with at most MOST inputs. All this happens under a lock. Without a terminal there is no history.
local core = require "mgpu.core"

local History = {}
History.__index = History

local MOST = 10000

local ESCAPES = { ["\\"] = "\\\\", ["\n"] = "\\n" }

local function encode(text) return (text:gsub("[\\\n]", ESCAPES)) end

local function decode(line) return (line:gsub("\\([\\n])", { n = "\n", ["\\"] = "\\" })) end

local function folder()
  local state, home = os.getenv "XDG_STATE_HOME", os.getenv "HOME"
  if state and state:find "^/" then return state .. "/mgpulua" end -- a relative one is to be ignored
  return home and home ~= "" and home .. "/.local/state/mgpulua" or nil
end

-- The inputs in the file, the oldest first.
local function read(path)
  local list, file = {}, io.open(path, "rb")
  if not file then return list end
  for line in file:lines() do
    if line ~= "" then list[#list + 1] = decode(line) end
  end
  file:close()
  return list
end

--- tidied(list) -> the list without earlier duplicates, and its last MOST entries only.
function History.tidied(list)
  local seen, kept = {}, {}
  for i = #list, 1, -1 do
    if not seen[list[i]] and #kept < MOST then
      seen[list[i]] = true
      kept[#kept + 1] = list[i]
    end
  end
  for i = 1, math.floor(#kept / 2) do kept[i], kept[#kept + 1 - i] = kept[#kept + 1 - i], kept[i] end
  return kept
end

-- Calls fn under the lock. RETURNS whether it succeeded; the first failure is shown, later ones are not.
local function locked(self, fn)
  local ok, message = pcall(self.terminal.locked, self.folder .. "/history.lock", fn)
  if not ok and not self.failed then
    self.failed = true
    io.stderr:write("the history is not kept: ", core.printable((tostring(message):gsub("^[^:]*:%d+: ", ""))), "\n")
  end
  return ok
end

--- History.open(terminal) -> the history, with the file's inputs in the line editor.
function History.open(terminal)
  local self = setmetatable({ terminal = terminal, list = {}, known = {}, folder = folder() }, History)
  if not terminal.interactive or not self.folder then return self end
  self.path = self.folder .. "/history"
  locked(self, function()
    core.make_folder(self.folder)
    self.list = History.tidied(read(self.path))
  end)
  for _, text in ipairs(self.list) do self.known[text] = true end
  terminal.set_history(self.list)
  return self
end

--- history:add(text): appends an input to the file and to the line editor's history.
function History:add(text)
  if self.list[#self.list] == text or not self.terminal.interactive then return end
  self.list[#self.list + 1] = text
  if self.known[text] then -- its earlier entry is dropped
    self.list = History.tidied(self.list)
    self.terminal.set_history(self.list)
  else
    self.known[text] = true
    self.terminal.add_history(text)
  end
  if self.path then locked(self, function()
    local file, why = io.open(self.path, "ab")
    if not file then error(why, 0) end
    file:write(encode(text), "\n")
    file:close()
  end) end
end

--- history:close(): writes the file anew if it holds duplicates or too many inputs.
function History:close()
  if not self.path then return end
  locked(self, function()
    local list = read(self.path)
    local kept = History.tidied(list)
    if #kept == #list then return end
    for i, text in ipairs(kept) do kept[i] = encode(text) end
    core.write_file(self.path, table.concat(kept, "\n") .. "\n")
  end)
end

return History
