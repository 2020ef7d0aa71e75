--- What the terminal can do: its size, colors, and the protocol for images.
local core = require "mgpu.core"

local M = {}

M.PROTOCOLS = { "kitty", "iterm", "sixel", "blocks", "ascii" }

local SECONDS = 0.3 -- for the answer of a terminal
-- A question that only terminals with kitty's protocol answer, and one that all answer, which ends with "c".
local QUESTION = "\27_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\27\\\27[c"

local found -- the protocol of this terminal

-- The protocol, from what the terminal says of itself in the environment; nil if that does not tell.
local function by_environment()
  local term, program = os.getenv "TERM" or "", os.getenv "TERM_PROGRAM" or ""
  if term == "dumb" or term == "" then return "ascii" end
  if os.getenv "TMUX" or term:find "^screen" then return nil end -- the variables describe the terminal outside of tmux
  if os.getenv "KITTY_WINDOW_ID" or term:find "kitty" or program == "ghostty" then return "kitty" end
  if program == "iTerm.app" or program == "WezTerm" or os.getenv "LC_TERMINAL" == "iTerm2" then return "iterm" end
end

--- by_answer(text) -> the protocol that a terminal with this answer to QUESTION has.
function M.by_answer(text)
  if text:find("_Gi=31;OK", 1, true) then return "kitty" end
  local attributes = text:match "\27%[%?([%d;]*)c"
  if attributes and (";" .. attributes .. ";"):find(";4;", 1, true) then return "sixel" end
  return "blocks"
end

local function check_named(name)
  for _, known in ipairs(M.PROTOCOLS) do
    if name == known then return name end
  end
  core.fail("usage", ("MGPULUA_GRAPHICS: unknown protocol %q%s; there are %s"):format(name,
    core.did_you_mean(name, M.PROTOCOLS), table.concat(M.PROTOCOLS, ", ")))
end

--- protocol() -> one of PROTOCOLS: MGPULUA_GRAPHICS, or what the terminal can do; "ascii" without a terminal.
function M.protocol()
  local named = os.getenv "MGPULUA_GRAPHICS"
  if named and named ~= "" then return check_named(named) end
  if not core.terminal_size() then return "ascii" end
  found = found or by_environment() or M.by_answer(core.terminal_ask(QUESTION, "c", SECONDS))
  return found
end

--- is_plain() -> whether the output takes neither colors nor characters outside of ASCII.
function M.is_plain() return M.protocol() == "ascii" end

--- has_true_color() -> whether colors have 24 bits; else there are 256.
function M.has_true_color()
  local colors = os.getenv "COLORTERM"
  return colors == "truecolor" or colors == "24bit"
end

--- size() -> columns, rows, and the width and height of a character in pixels.
function M.size()
  local columns, rows, width, height = core.terminal_size()
  columns = columns and columns > 0 and columns or 80
  rows = rows and rows > 0 and rows or 24
  if not width or width == 0 or height == 0 then return columns, rows, 8, 16 end
  return columns, rows, width / columns, height / rows
end

return M
