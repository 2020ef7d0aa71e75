--- The tokens of a piece of Lua, which may be unfinished.
--
-- lexer.tokens(text) -> array of tokens {kind, first, last, text}: positions in bytes from 1.
--   kind    "name", "keyword", "number", "string", "comment", or "symbol"
--   open    true if a string or comment does not end; a string's `inner` is where its contents begin
local M = {}

M.KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch "%a+" do
  M.KEYWORDS[word] = true
end

-- The end of a long bracket whose opening matches at `at`: its last byte and the first one inside; nil if there is no
-- opening. An end of nil: it does not end.
local function long_bracket(text, at)
  local _, open_end, level = text:find("^%[(=*)%[", at)
  if not open_end then return nil end
  local _, close_end = text:find("]" .. level .. "]", open_end + 1, true)
  return open_end + 1, close_end
end

-- The last byte of a short string that begins at `at`; nil if it does not end in its line.
local function short_string(text, at)
  local quote, i = text:sub(at, at), at + 1
  while true do
    local found, _, char = text:find("([\\\n" .. quote .. "])", i)
    if not found or char == "\n" then return nil end
    if char == quote then return found end
    i = found + 2 -- the escaped character
  end
end

local function comment(text, at)
  local inner, last = long_bracket(text, at + 2)
  if inner then return { kind = "comment", first = at, last = last or #text, open = not last } end
  return { kind = "comment", first = at, last = (text:find("\n", at, true) or #text + 1) - 1 }
end

local function string_token(text, at)
  local inner, last = long_bracket(text, at)
  if not inner then
    inner, last = at + 1, short_string(text, at)
    if not last then -- it ends with its line, as an error, or with the text
      local newline = text:find("\n", at, true)
      return { kind = "string", first = at, last = (newline or #text + 1) - 1, inner = inner, open = not newline }
    end
  end
  return { kind = "string", first = at, last = last or #text, inner = inner, open = not last }
end

local SYMBOLS = { "%.%.%.", "%.%.", "==", "~=", "<=", ">=", "::", "." } -- the longest first

local function token_at(text, at)
  local char = text:sub(at, at)
  if char:find "[%a_\128-\255]" then
    local _, last = text:find("^[%w_\128-\255]+", at)
    return { kind = M.KEYWORDS[text:sub(at, last)] and "keyword" or "name", first = at, last = last }
  end
  if text:find("^%.?%d", at) then
    local _, last = text:find("^[%w_.]+", at)
    if text:find("^[eEpP]$", last) or text:find("[eEpP][+-]%d", last) == last then
      _, last = text:find("^[+-]%d+", last + 1)
    end
    return { kind = "number", first = at, last = last or #text }
  end
  if text:find("^%-%-", at) then return comment(text, at) end
  if char == '"' or char == "'" or text:find("^%[=*%[", at) then return string_token(text, at) end
  for _, pattern in ipairs(SYMBOLS) do
    local _, last = text:find("^" .. pattern, at)
    if last then return { kind = "symbol", first = at, last = last } end
  end
end

--- tokens(text) -> array of tokens, see the top.
function M.tokens(text)
  local list, at = {}, 1
  while true do
    at = text:find("%S", at)
    if not at then return list end
    local token = token_at(text, at)
    token.text = text:sub(token.first, token.last)
    list[#list + 1] = token
    at = token.last + 1
  end
end

return M
