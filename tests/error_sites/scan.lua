-- Finds the places in C and Lua sources that make an error text, and the edits that let a run tell which it reached.
--
-- M.sites(path, source) RETURNS an array of sites { line =, text =, edits = { { at, insert, skip } ... } } in the order
-- of the file. A site is
--   * a call of one of the functions below with words in its arguments,
--   * a string with words behind ? or : (in Lua: and, or) within such a call, if there are several: each is a text,
--   * in C `why = "words"` (also *why, problem), in Lua `return nil, "words"`.
-- Calls that only pass on a message, as error(message, 0), make no text.
local M = {}

local C_CALLS = [[mg_fail bind_fail mg_infer_fail mg_io_fail_call mg_nccl_fail mg_error_prefix luaL_error png_error fail
  fail_header fail_contents fail_cell fail_wrong_type fail_unknown_option fail_missing fail_name fail_length fail_crypto
  fail_checksum fail_too_long fail_changed fail_no_memory bad_place refuse refuse_in_trace refuse_layer_output
  refuse_processes refuse_groups fprintf fputs]]
local LUA_CALLS = [[error fail refuse fail_unknown fail_mixed fail_missing complain stop raise guard guard_finite]]
local STATUS = [[ok usage data io oom nonfinite device comm interrupted unsupported internal]]

local function set(words)
  local result = {}
  for word in words:gmatch "%S+" do result[word] = true end
  return result
end
local CALLS, STATUS_NAMES = { c = set(C_CALLS), lua = set(LUA_CALLS) }, set(STATUS)

-- ---- strings and comments -------------------------------------------------------------------------

-- The end of the quoted string that begins at `at`.
local function end_of_quoted(source, at)
  local quote, i = source:sub(at, at), at + 1
  while source:sub(i, i) ~= quote do
    if i > #source then return #source end
    i = i + (source:sub(i, i) == "\\" and 2 or 1)
  end
  return i
end

local function next_c_token(source, at)
  local from = source:find('["\'/]', at)
  while from do
    local two = source:sub(from, from + 1)
    if two == "/*" then return "comment", from, select(2, source:find("*/", from + 2, true)) or #source end
    if two == "//" then return "comment", from, (source:find("\n", from, true) or #source + 1) - 1 end
    if two:sub(1, 1) ~= "/" then return "string", from, end_of_quoted(source, from) end
    from = source:find('["\'/]', from + 1)
  end
end

local function next_lua_token(source, at)
  local from = source:find('["\'%-%[]', at)
  while from do
    local comment = source:sub(from, from + 1) == "--"
    local bracket = source:match("^%[(=*)%[", comment and from + 2 or from)
    if bracket then
      local _, to = source:find("]" .. bracket .. "]", from, true)
      return comment and "comment" or "string", from, to or #source
    elseif comment then
      return "comment", from, (source:find("\n", from, true) or #source + 1) - 1
    elseif source:sub(from, from):find '["\']' then
      return "string", from, end_of_quoted(source, from)
    end
    from = source:find('["\'%-%[]', from + 1)
  end
end

-- RETURNS the source with comments as spaces and the insides of strings as "_", and the list of its strings, each
-- { from, to }.
local function mask(source, next_token)
  local parts, strings, at = {}, {}, 1
  while true do
    local kind, from, to = next_token(source, at)
    if not kind then break end
    parts[#parts + 1] = source:sub(at, from - 1)
    if kind == "comment" then
      parts[#parts + 1] = source:sub(from, to):gsub("[^\n]", " ")
    else
      strings[#strings + 1] = { from, to }
      parts[#parts + 1] = '"' .. source:sub(from + 1, to - 1):gsub("[^\n]", "_") .. '"'
    end
    at = to + 1
  end
  parts[#parts + 1] = source:sub(at)
  return table.concat(parts), strings
end

-- The inside of a string literal as one reads it.
local function contents(source, from, to)
  local text = source:sub(from, to)
  local long = text:match "^%[(=*)%["
  text = long and text:sub(#long + 3, -#long - 3) or text:sub(2, -2)
  return (text:gsub("\\n", " "):gsub('\\(["\'\\])', "%1"):gsub("%s+", " "))
end

-- Whether a text has words of its own, besides formats such as %s and the names of status codes.
local function has_words(text)
  if STATUS_NAMES[text] then return false end
  local bare = text:gsub("%%[%-+ #%d%.*lzhjPRIduxXs]*[diuxXscfgeEGqp]", " ")
  return bare:find "%a%a" ~= nil
end

-- ---- what stands where ------------------------------------------------------------------------------

local function line_counter(source)
  local line, at = 1, 1
  return function(position)
    for _ in source:sub(at, position - 1):gmatch "\n" do line = line + 1 end
    at = position
    return line
  end
end

-- The literals that begin between from and to: adjacent ones of C are one. Each { from, to, text }.
local function literals(source, masked, strings, from, to, joins)
  local list = {}
  for _, s in ipairs(strings) do
    if s[1] >= from and s[2] <= to and masked:sub(s[1], s[1]) == '"' then
      local last = list[#list]
      if joins and last and masked:sub(last.to + 1, s[1] - 1):find "^[%sA-Z%d_]*$" then
        last.to, last.text = s[2], last.text .. contents(source, s[1], s[2])
      else
        list[#list + 1] = { from = s[1], to = s[2], text = contents(source, s[1], s[2]) }
      end
    end
  end
  return list
end

local function joined_text(list)
  local texts = {}
  for _, literal in ipairs(list) do
    if has_words(literal.text) then texts[#texts + 1] = literal.text end
  end
  return table.concat(texts, " | ")
end

-- The end of the call whose name ends before `at`: its closing parenthesis or, in Lua, its string.
local function end_of_call(masked, at)
  local open = masked:find("%S", at)
  local first = open and masked:sub(open, open)
  if first == "(" then return select(2, masked:find("^%b()", open)), open end
  if first == '"' then return masked:find('"', open + 1, true), open end
end

-- ---- C ----------------------------------------------------------------------------------------------

-- Texts that are chosen by ?: within a call.
local function c_choices(masked, list)
  local chosen = {}
  for _, literal in ipairs(list) do
    local before = masked:sub(1, literal.from - 1):match "(%S)%s*$"
    if (before == "?" or before == ":") and has_words(literal.text) and literal.text:find "%a %a" then
      chosen[#chosen + 1] = literal
    end
  end
  return chosen
end

local function around(from, to)
  return { { from, "(mg_error_site(@), " }, { to + 1, ")" } }
end

-- Whether a name is called at `from`, not declared: declarations begin at the left edge. Members are others' names.
local function is_c_call(masked, from)
  local before = masked:sub(1, from)
  return before:find "\n%s[^\n]*$" and not before:find "[>.].$"
end

local function scan_c(source)
  local masked, strings = mask(source, next_c_token)
  local found = {}
  local function add(from, text, edits) found[#found + 1] = { at = from, text = text, edits = edits } end
  local function add_choices(list)
    for _, c in ipairs(c_choices(masked, list)) do add(c.from, c.text, around(c.from, c.to)) end
  end
  for from, name, behind in masked:gmatch "()([%a_][%w_]*)%s*()%(" do
    local to = CALLS.c[name] and is_c_call(masked, from) and end_of_call(masked, behind)
    if to then
      local list = literals(source, masked, strings, from, to, true)
      local text = joined_text(list)
      if name:find "^fp" then
        if not source:sub(from, to):find("stderr", 1, true) or not text:find "^mgpulua: " then text = "" end
      end
      if text ~= "" then
        add(from, text, around(from, to))
        add_choices(list)
      end
    end
  end
  for from, value in masked:gmatch '()[%*%s]why = ()[^;]*;' do
    local to = masked:find(";", from, true)
    local list = literals(source, masked, strings, value, to, true)
    if masked:sub(value, value) == '"' then
      add(value, list[1].text, around(list[1].from, list[1].to))
    else
      add_choices(list)
    end
  end
  return found
end

-- ---- Lua --------------------------------------------------------------------------------------------

-- Texts that are chosen by and/or within a call.
local function lua_choices(masked, list)
  local chosen = {}
  for _, literal in ipairs(list) do
    local before = masked:sub(1, literal.from - 1)
    local word, open = before:match "(%a+)%s*(%(?)$"
    if (word == "and" or word == "or") and has_words(literal.text) and literal.text:find "%a %a" then
      literal.open = open ~= ""
      chosen[#chosen + 1] = literal
    end
  end
  return chosen
end

local function scan_lua(source)
  local masked, strings = mask(source, next_lua_token)
  local found = {}
  local function add(from, text, edits) found[#found + 1] = { at = from, text = text, edits = edits } end
  local function add_choices(list)
    for _, c in ipairs(lua_choices(masked, list)) do
      local edits = { { c.from, c.open and "SITE(@) or " or "(SITE(@) or " } }
      if not c.open then edits[2] = { c.to + 1, ")" } end
      add(c.from, c.text, edits)
    end
  end
  for from, name, behind in masked:gmatch '()([%a_][%w_.:]*)%s*()[("]' do
    local last = name:match "[%w_]+$"
    local is_call = CALLS.lua[last] and not masked:sub(1, from - 1):find "function%s+$"
    local to, open
    if is_call then to, open = end_of_call(masked, behind) end
    if to then
      local list = literals(source, masked, strings, from, to)
      local text = joined_text(list)
      if text ~= "" then
        -- The note goes into the first argument: a wrapped function would lose its name in tracebacks.
        local edits = { { open + 1, "SITE(@) or " } }
        if masked:sub(open, open) == '"' then edits = { { open, "(SITE(@) or " }, { to + 1, ")" } } end
        add(from, text, edits)
        add_choices(list)
      end
    end
  end
  for from, behind in masked:gmatch '()return nil, ()%(?"' do
    local line_end = masked:find("\n", from, true)
    local list = literals(source, masked, strings, from, line_end)
    if list[1] and has_words(list[1].text) then add(from, list[1].text, { { behind, "SITE(@) or " } }) end
  end
  return found
end

-- ---- both -------------------------------------------------------------------------------------------

--- sites(path, source): see the top.
function M.sites(path, source)
  local found = (path:find "%.lua$" and scan_lua or scan_c)(source)
  table.sort(found, function(a, b) return a.at < b.at end)
  local line_of = line_counter(source)
  for _, site in ipairs(found) do site.line = line_of(site.at) end
  return found
end

--- edit(source, edits) -> the source with text inserted: edits are { at, text, skip }, which puts the text before the
--- byte `at` and leaves out `skip` bytes.
function M.edit(source, edits)
  for i, e in ipairs(edits) do e.order = i end
  table.sort(edits, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a.order < b.order
  end)
  local parts, at = {}, 1
  for _, e in ipairs(edits) do
    parts[#parts + 1] = source:sub(at, e[1] - 1)
    parts[#parts + 1] = e[2]
    at = e[1] + (e[3] or 0)
  end
  parts[#parts + 1] = source:sub(at)
  return table.concat(parts)
end

return M
