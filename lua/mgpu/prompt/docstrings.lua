--- Finds the docstrings of lua/mgpu/: the comments that begin with three dashes (lua/README.md).
local core = require "mgpu.core"

local M = {}

--- lines_of(path) -> array of the file's lines; empty if it cannot be read.
function M.lines_of(path)
  local lines, file = {}, io.open(path)
  if not file then return lines end
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  return lines
end

-- The comment lines from `first` on, without their dashes.
local function block(lines, first)
  local texts = {}
  for i = first, #lines do
    local text = lines[i]:match "^%s*%-%-%-? ?(.*)$"
    if not text then break end
    texts[#texts + 1] = text
  end
  return table.concat(texts, "\n")
end

--- above(lines, at) -> the comment right above the line, or nil. `plain`: comments with two dashes count too.
function M.above(lines, at, plain)
  local first = at
  while first > 1 and lines[first - 1]:find "^%s*%-%-" do first = first - 1 end
  if first == at or not (plain or lines[first]:find "^%s*%-%-%-") then return nil end
  return block(lines, first)
end

-- Whether the docstring lists the name among the other names of what it explains: "also A", "also A and B".
local function is_also(text, name)
  for at in text:gmatch "%f[%w_][Aa]lso%s+()" do
    local list = text:sub(at)
    while list do
      local other, rest = list:match "^([%w_]+)(.*)$"
      if other == name then return true end
      list = rest and (rest:match "^%s+and%s+(.*)" or rest:match "^,%s+(.*)")
    end
  end
  return false
end

-- The name in small letters without underscores: Keras has class names and snake case for one thing.
local function plain(name) return name:gsub("_", ""):lower() end

--- named(lines, name) -> the first docstring that begins with the name or says "also NAME"; else the first one that
--- begins with its other spelling (rmsprop: RMSprop) or with a function of it (mnist: mnist.load); else nil.
function M.named(lines, name)
  local similar
  for i, line in ipairs(lines) do
    local begins = line:find "^%s*%-%-%-" and not (lines[i - 1] or ""):find "^%s*%-%-"
    if begins then
      local text = block(lines, i)
      local head = text:match "^[%w_.:]*[%w_]" or ""
      if head:match "[%w_]+$" == name or is_also(text, name) then return text end
      if plain(head) == plain(name) or head:match "^[%w_]+%." == name .. "." then similar = similar or text end
    end
  end
  return similar
end

--- top(lines) -> the docstring at the top of a file, or nil.
function M.top(lines) return (lines[1] or ""):find "^%-%-" and block(lines, 1) or nil end

--- example(text) -> the code of a docstring's example, its last paragraph: a line "Example:" and lines indented by four
--- spaces; and the docstring without it. nil if it has none.
function M.example(text)
  local before, code = ("\n" .. text):match "^(.*)\nExample:\n(    .*)$"
  if not code or (code .. "\n"):find "\n ? ? ?[^ \n]" then return nil, text end
  return code:gsub("\n    ", "\n"):sub(5), before:sub(2)
end

--- as_example(code) -> the code as the last paragraph of a docstring; nil for nil.
function M.as_example(code) return code and "Example:\n    " .. code:gsub("\n", "\n    ") end

--- search(terminal, name) -> the docstring of a function of this name anywhere in lua/mgpu/, and its file; or nil.
function M.search(terminal, name)
  local folders = { (core.root or ".") .. "/lua/mgpu" }
  while #folders > 0 do
    local folder = table.remove(folders, 1)
    local found = terminal.list(folder) or {}
    table.sort(found)
    for _, entry in ipairs(found) do
      local path = folder .. "/" .. entry
      if path:find "/$" then
        folders[#folders + 1] = path:sub(1, -2)
      elseif path:find "%.lua$" then
        local text = M.named(M.lines_of(path), name)
        if text then return text, path end
      end
    end
  end
end

return M
