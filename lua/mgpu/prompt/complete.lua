--- What Tab does: finds what is being typed and the names that fit.
--
-- complete.line(prompt, line, cursor) RETURNS insert, listing: the text to insert behind the cursor, as far as all
-- fitting names agree, and, if there is nothing to insert, the list of them. The kinds of places:
--     print, mgp|                 globals, locals of the session, keywords
--     mgpu.layers.Con|  model:f|  fields and methods (names.lua)
--     L.Conv2D { 32, ker|         names of options; behind `=` in quotes, their values (known_options.lua)
--     require "mgpu.|  "data/|    modules; files
--     :ti|  :load fi|  ?mgpu.|    commands and their arguments
local known_options = require "mgpu.prompt.known_options"
local lexer = require "mgpu.prompt.lexer"
local listing = require "mgpu.prompt.listing"
local names = require "mgpu.prompt.names"

-- ---- in quotes ----------------------------------------------------------------------------------

-- Completion inside quotes: modules after require, keys behind `[`, values of options, and files.

-- ---- files ----------------------------------------------------------------------------------------

local function expanded(folder)
  local home = os.getenv "HOME"
  return home and folder:gsub("^~/", function() return home .. "/" end) or folder
end

-- files(terminal, text, quote) -> the files whose paths begin with the text. Hidden ones fit only after a dot.
local function files(terminal, text, quote)
  local folder, start = text:match "^(.-)([^/]*)$"
  local found = listing.new(start, true)
  for _, name in ipairs(terminal.list(folder == "" and "." or expanded(folder)) or {}) do
    if name:sub(1, 1) ~= "." or start:sub(1, 1) == "." then
      found:add(name, nil, name:sub(-1) ~= "/" and quote or "")
    end
  end
  return found
end

-- ---- modules --------------------------------------------------------------------------------------

-- Adds the next part of the names of modules in the folder for a pattern of package.path.
local function add_modules(found, terminal, pattern, parents)
  local folder = pattern:match "^(.*)%?[^?/]*$"
  if not folder or pattern:find "%?/init%.lua$" then return end
  for _, name in ipairs(terminal.list((folder == "" and "./" or folder) .. parents:gsub("%.", "/")) or {}) do
    local module, is_folder = name:match "^([%w_-]+)%.lua$" or name:match "^([%w_-]+)%.so$", name:match "^([%w_-]+)/$"
    if module and module ~= "init" then found:add(parents .. module) end
    if is_folder and (parents ~= "" or folder:find "lua" or terminal.list(folder .. is_folder .. "/init.lua")) then
      found:add(parents .. is_folder)
    end
  end
end

local function modules(terminal, text)
  local found, parents = listing.new(text, true), text:match "^(.*%.)" or ""
  for pattern in package.path:gmatch "[^;]+" do add_modules(found, terminal, pattern, parents) end
  for _, known in ipairs { package.loaded, package.preload } do
    for name in next, known do found:add(name) end
  end
  if parents == "mgpu." then
    for name in pairs(require "mgpu.aliases") do found:add(parents .. name) end
  end
  return found
end

-- ---- values of options ----------------------------------------------------------------------------

-- The tables whose names a string option of this name, or of this type, stands for.
local NAMED = { optimizer = "optimizers", loss = "losses", metrics = "metrics", weighted_metrics = "metrics",
  activation = "activations", initializer = "initializers", regularizer = "regularizers", constraint = "constraints" }

local function values_of(prompt, option, text)
  local found = listing.new(text, true)
  for _, value in ipairs(option.values or {}) do found:add(value) end
  local namespace = NAMED[option[1]] or NAMED[option[2]]
  if namespace then
    names.each(prompt.terminal, require "mgpu"[namespace], function(name)
      if name:find "^%l" and name ~= "get" then found:add(name) end
    end)
  end
  return found.count > 0 and found or nil
end

-- fitting_in_quotes(prompt, complete, tokens, text) -> the names that fit in the string of this text, the last
-- of the tokens.
local function fitting_in_quotes(prompt, complete, tokens, text)
  local terminal, n = prompt.terminal, #tokens
  local quote = tokens[n].text:match "^[\"']" or ""
  local before = tokens[n - 1]
  local function closed(found)
    found.ending = quote
    return found
  end
  if not before then return files(terminal, text, quote) end
  local called = before.text == "(" and tokens[n - 2] or before
  if called and called.text == "require" then return closed(modules(terminal, text)) end
  if before.text == "[" then
    local value, found = complete.value_at(prompt, tokens, n - 2), listing.new(text, true)
    if value ~= nil then names.each(terminal, value, function(name) found:add(name, nil, quote) end) end
    return found
  end
  local option = complete.option_at(prompt, tokens, n - 1)
  local found = option and values_of(prompt, option, text)
  return found and closed(found) or files(terminal, text, quote)
end

-- ---- names --------------------------------------------------------------------------------------

local M = {}

-- ---- the text before the cursor -------------------------------------------------------------------

local OPENING, CLOSING = { ["("] = true, ["{"] = true, ["["] = true }, { [")"] = true, ["}"] = true, ["]"] = true }

-- The position among the tokens of the innermost bracket that is open at the end of tokens[1..n], or nil.
local function open_bracket(tokens, n)
  local depth = 0
  for i = n, 1, -1 do
    local text = tokens[i].kind == "symbol" and tokens[i].text
    if CLOSING[text] then depth = depth + 1 end
    if OPENING[text] then
      if depth == 0 then return i end
      depth = depth - 1
    end
  end
end

-- The value of the name, as an input would see it.
local function global(prompt, name)
  local value = rawget(prompt.session.locals, name)
  if value == nil then value = rawget(_G, name) end
  return value
end

-- The first token of the chain of names a.b:c that ends at tokens[last], or nil if there is no chain of names only.
local function chain_start(tokens, last)
  local i = last
  while tokens[i] and tokens[i].kind == "name" do
    local before = tokens[i - 1]
    if not before or before.kind ~= "symbol" or (before.text ~= "." and before.text ~= ":") then return i end
    i = i - 2
  end
end

--- value_at(prompt, tokens, last) -> the value of the chain of names that ends at tokens[last], and its last name.
function M.value_at(prompt, tokens, last)
  local first = chain_start(tokens, last)
  if not first then return nil end
  local value = global(prompt, tokens[first].text)
  for i = first + 2, last, 2 do value = names.get(value, tokens[i].text) end
  return value, tokens[last].text
end

-- The options that the table whose `{` is tokens[at] may hold: it is the argument, or among the arguments, of a call.
local function options_at(prompt, tokens, at)
  local value, name = M.value_at(prompt, tokens, at - 1)
  if value == nil then
    local call = open_bracket(tokens, at - 1)
    if not call or tokens[call].text ~= "(" then return nil end
    value, name = M.value_at(prompt, tokens, call - 1)
  end
  return value ~= nil and known_options(value, name) or nil
end

--- option_at(prompt, tokens, n) -> the declared option whose value begins behind tokens[n], a `=`; or nil.
function M.option_at(prompt, tokens, n)
  local bracket = open_bracket(tokens, n)
  if not bracket or tokens[bracket].text ~= "{" or tokens[n].text ~= "=" or not tokens[n - 1] then return nil end
  for _, option in ipairs(options_at(prompt, tokens, bracket) or {}) do
    if option[1] == tokens[n - 1].text then return option end
  end
end

-- ---- the names that fit ---------------------------------------------------------------------------

-- The options that are not given yet in the table that is open at tokens[at], or nil.
local function fitting_options(prompt, tokens, n, word)
  local at = open_bracket(tokens, n)
  if not at or tokens[at].text ~= "{" or not tokens[n].text:find "^[{,;]$" then return nil end
  local given, found = {}, listing.new(word)
  for i = at + 1, n - 1 do
    if tokens[i + 1].text == "=" then given[tokens[i].text] = true end
  end
  for _, option in ipairs(options_at(prompt, tokens, at) or {}) do
    if not given[option[1]] then found:add(option[1], listing.option_text(option), " = ") end
  end
  return found.count > 0 and found or nil
end

local function fitting_globals(prompt, word)
  local found = listing.new(word)
  for name in next, prompt.session.locals do found:add(name) end
  for name in next, _G do found:add(name) end
  for name in pairs(lexer.KEYWORDS) do found:add(name) end
  return found
end

local function fitting_fields(prompt, tokens, n, word)
  local found, value = listing.new(word), M.value_at(prompt, tokens, n - 1)
  if value == nil and tokens[n - 1] and tokens[n - 1].kind == "string" then value = "" end
  local only_methods = tokens[n].text == ":"
  names.each(prompt.terminal, value, function(name, field)
    if not only_methods or type(field) == "function" or type(field) == "userdata" then found:add(name) end
  end)
  return found
end

-- The names that fit at the end of a piece of Lua.
local function fitting(prompt, text)
  local tokens = lexer.tokens(text)
  local n, word = #tokens, ""
  local last = tokens[n]
  if last and last.open then
    return last.kind == "string" and fitting_in_quotes(prompt, M, tokens, text:sub(last.inner)) or nil
  end
  if last and last.kind == "comment" and last.last == #text then return nil end
  if last and last.last == #text and (last.kind == "name" or last.kind == "keyword") then
    word, n = last.text, n - 1
  end
  local before = tokens[n]
  if before and before.kind == "symbol" and (before.text == "." or before.text == ":") then
    return fitting_fields(prompt, tokens, n, word)
  end
  return before and fitting_options(prompt, tokens, n, word) or fitting_globals(prompt, word)
end

-- The names that fit at the end of a command or question.
local function fitting_command(prompt, text)
  local name, rest = text:match "^%s*:(%a*)%s(.*)$"
  if name == "load" or name == "save" then return files(prompt.terminal, rest) end
  if name then return fitting(prompt, rest) end
  local found = listing.new(text:match "^%s*:(.*)$")
  for _, command in ipairs(require "mgpu.prompt.commands".names) do found:add(command) end
  return found
end

--- line(prompt, line, cursor): see the top.
function M.line(prompt, line, cursor)
  local text = line:sub(1, cursor)
  if not text:find "%S" and not prompt.pending then return "  ", nil end
  local found
  if not prompt.pending and text:find "^%s*:" then
    found = fitting_command(prompt, text)
  else
    found = fitting(prompt, prompt.pending and prompt.pending .. text or text:gsub("^%s*[?=]+", ""))
  end
  if found then return found:result(require "mgpu.core".columns() or 80, line:sub(cursor + 1)) end
end

return M
