--- The tokens of Lua source, for finding what a script requires and for leaving out comments.
local M = {}

-- The position behind a long bracket that opens at `at`, or nil if none does.
local function long_bracket(text, at)
  local level = text:match("^%[(=*)%[", at)
  if not level then return nil end
  local _, last = text:find("]" .. level .. "]", at + #level + 2, true)
  return (last or #text) + 1
end

-- The position behind a string in quotes.
local function short_string(text, at)
  local quote, i = text:sub(at, at), at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == "\\" then
      i = i + 2
    elseif c == quote or c == "\n" then
      return i + 1
    else
      i = i + 1
    end
  end
  return i
end

-- The position behind the comment at `at`.
local function comment(text, at)
  return long_bracket(text, at + 2) or text:find("\n", at, true) or #text + 1
end

-- The kind of the token at `at`, and the position behind it.
local function token_at(text, at)
  local c = text:sub(at, at)
  if c:find "[%a_\128-\255]" then return "name", text:match("^[%w_\128-\255]+()", at) end
  if c:find "%d" or text:find("^%.%d", at) then
    return "number", text:match("^0[xX][%x.]+[%w]*()", at) or text:match("^[%d.]+[eE][+-]?%w*()", at)
      or text:match("^[%w.]+()", at)
  end
  if c == '"' or c == "'" then return "string", short_string(text, at) end
  local behind = c == "[" and long_bracket(text, at)
  if behind then return "string", behind end
  return "symbol", at + 1
end

--- tokens(text) -> array of {kind = "name" | "number" | "string" | "symbol", text =, line =, first =, last =}.
-- Symbols are single characters. Comments and a first line that begins with # are left out.
function M.tokens(text)
  local list, line = {}, 1
  local at = text:match "^\239\187\191()" or 1
  if text:sub(at, at) == "#" then at = text:find("\n", at, true) or #text + 1 end
  local function count_lines(from, to)
    for _ in text:sub(from, to):gmatch "\n" do line = line + 1 end
  end
  while at <= #text do
    local behind
    if text:find("^%s", at) then
      behind = text:match("^%s+()", at)
    elseif text:find("^%-%-", at) then
      behind = comment(text, at)
    else
      local kind
      kind, behind = token_at(text, at)
      list[#list + 1] = { kind = kind, text = text:sub(at, behind - 1), line = line, first = at, last = behind - 1 }
    end
    count_lines(at, behind - 1)
    at = behind
  end
  return list
end

--- constant(token) -> the value of a string token, or nil.
function M.constant(token)
  if not token or token.kind ~= "string" then return nil end
  local chunk = loadstring("return " .. token.text)
  return chunk and chunk()
end

--- stripped(text) -> the same program with its tokens on the same lines, without comments and indentation.
function M.stripped(text)
  local parts, line = {}, 1
  local last
  for _, token in ipairs(M.tokens(text)) do
    if token.line > line then
      parts[#parts + 1] = ("\n"):rep(token.line - line)
    elseif last and token.first > last.last + 1 then
      parts[#parts + 1] = " "
    end
    parts[#parts + 1] = token.text
    line, last = token.line + select(2, token.text:gsub("\n", "")), token
  end
  parts[#parts + 1] = "\n"
  return table.concat(parts)
end

return M
