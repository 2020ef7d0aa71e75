--- Completion inside quotes: modules after require, keys behind `[`, values of options, and files.
local listing = require "mgpu.prompt.listing"
local names = require "mgpu.prompt.names"

local M = {}

-- ---- files ----------------------------------------------------------------------------------------

local function expanded(folder)
  local home = os.getenv "HOME"
  return home and folder:gsub("^~/", function() return home .. "/" end) or folder
end

--- files(terminal, text, quote) -> the files whose paths begin with the text. Hidden ones fit only after a dot.
function M.files(terminal, text, quote)
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

--- fitting(prompt, complete, tokens, text) -> the names that fit in the string of this text that ends the tokens.
function M.fitting(prompt, complete, tokens, text)
  local terminal, n = prompt.terminal, #tokens
  local quote = tokens[n].text:match "^[\"']" or ""
  local before = tokens[n - 1]
  local function closed(found)
    found.ending = quote
    return found
  end
  if not before then return M.files(terminal, text, quote) end
  local called = before.text == "(" and tokens[n - 2] or before
  if called and called.text == "require" then return closed(modules(terminal, text)) end
  if before.text == "[" then
    local value, found = complete.value_at(prompt, tokens, n - 2), listing.new(text, true)
    if value ~= nil then names.each(terminal, value, function(name) found:add(name, nil, quote) end) end
    return found
  end
  local option = complete.option_at(prompt, tokens, n - 1)
  local found = option and values_of(prompt, option, text)
  return found and closed(found) or M.files(terminal, text, quote)
end

return M
