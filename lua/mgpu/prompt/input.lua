--- One input of the prompt: whether it is complete, and the function that it means.
--
-- input.compile(text, session) -> {fn, quiet, is_expression, names}; or nil, message, incomplete. fn takes a function
-- that returns its arguments: an expression calls it with its values, since `return f()` would be a tail call, which
-- loses the line of an error. names: of the locals to declare.
-- Text is compiled as an expression first, then as statements. A `;` at its end suppresses printing; a `=` at its
-- beginning is luajit's spelling of `return`. Locals at the outermost level become locals of the session: the
-- keyword is blanked out and the name declared in session.lua's environment.
local lexer = require "mgpu.prompt.lexer"

local M = {}

local OPENS = { ["do"] = true, ["function"] = true, ["if"] = true, ["repeat"] = true }
local CLOSES = { ["end"] = true, ["until"] = true }

-- Lua names the token at which the compiler stopped.
local function is_incomplete(message) return message:find "'<eof>'$" ~= nil end

local function without_comments(tokens)
  local list = {}
  for _, token in ipairs(tokens) do
    if token.kind ~= "comment" then list[#list + 1] = token end
  end
  return list
end

-- The names that the `local` at tokens[i] declares, and whether they get values; nil if it is not a declaration.
local function declared_names(tokens, i)
  local next_token = tokens[i + 1]
  if not next_token then return nil end
  if next_token.text == "function" then
    local name = tokens[i + 2]
    return name and name.kind == "name" and { name.text } or nil, true
  end
  local names, at = {}, i + 1
  while tokens[at] and tokens[at].kind == "name" do
    names[#names + 1] = tokens[at].text
    if not (tokens[at + 1] and tokens[at + 1].text == ",") then
      return names, tokens[at + 1] ~= nil and tokens[at + 1].text == "=", tokens[at].last
    end
    at = at + 2
  end
  return nil
end

--- keep_locals(text) -> the text in which locals of the outermost level are globals, and the array of their names.
-- Lines keep their numbers.
function M.keep_locals(text)
  local tokens, depth, names, pieces, from = without_comments(lexer.tokens(text)), 0, {}, {}, 1
  for i, token in ipairs(tokens) do
    if token.kind == "keyword" and OPENS[token.text] then depth = depth + 1 end
    if token.kind == "keyword" and CLOSES[token.text] then depth = depth - 1 end
    local declared, has_value, last
    if token.text == "local" and depth == 0 then declared, has_value, last = declared_names(tokens, i) end
    if declared then
      pieces[#pieces + 1] = text:sub(from, token.first - 1)
      from = token.last + 1
      if not has_value then -- `local x` alone sets nil
        pieces[#pieces + 1] = text:sub(from, last) .. " = nil"
        from = last + 1
      end
      for _, name in ipairs(declared) do names[#names + 1] = name end
    end
  end
  pieces[#pieces + 1] = text:sub(from)
  return table.concat(pieces), names
end

-- The text without a `;` at its end, and whether there was one.
local function without_semicolon(text)
  local tokens = without_comments(lexer.tokens(text))
  local last = tokens[#tokens]
  if not last or last.text ~= ";" then return text, false end
  return text:sub(1, last.first - 1), true
end

--- expression_of(text) -> the expression in `= x` and `return x`, the text itself otherwise; and whether a `;` at its
--- end was taken off.
function M.expression_of(text)
  return without_semicolon(text:match "^%s*=(.*)$" or text:match "^%s*return%f[^%w_](.*)$" or text)
end

--- compile(text, session): see the top. Nothing is declared yet: that is session:run's.
function M.compile(text, session)
  local chunk = session:chunk_name()
  local expression, quiet = M.expression_of(text)
  local fn, message = load("return " .. expression, chunk, "t")
  if fn then
    fn = load("return (...)(" .. expression .. "\n)", chunk, "t") or fn
    return { fn = fn, quiet = quiet, is_expression = expression:find "%S" ~= nil, names = {} }
  end
  if is_incomplete(message) then return nil, message, true end
  if text:find "^%s*=" then return nil, message, false end
  fn, message = load(text, chunk, "t")
  if not fn then return nil, message, is_incomplete(message) end
  local rewritten, names = M.keep_locals(text)
  if #names > 0 then fn = load(rewritten, chunk, "t") or fn end
  return { fn = fn, quiet = true, names = names }
end

return M
