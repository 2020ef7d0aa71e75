-- Reads pages of Markdown: their code blocks and links. tests/lua/manual_spec.lua runs and follows them.
--
-- A page is a program: its ```lua blocks run one after another, in one process, so that they may build on each other.
-- A ```text block right after one holds what it prints; "..." there stands for any text.
local M = {}

--- read(path) -> {path =, lines = array of the page's lines, blocks = {{kind =, first =, last =}, ...}}: the code
--- blocks, with the lines between their fences.
function M.read(path)
  local page, open = { path = path, lines = {}, blocks = {} }, nil
  for line in io.lines(path) do
    table.insert(page.lines, line)
    local fence = line:match "^```(.*)$"
    if fence and open then
      open.last = #page.lines - 1
      table.insert(page.blocks, open)
      open = nil
    elseif fence then
      open = { kind = fence, first = #page.lines + 1 }
    end
  end
  if open then error(("%s:%d: the code block has no end"):format(path, open.first - 1), 0) end
  return page
end

-- What the program prints at the beginning of the block that begins in that line.
local function mark(first) return ("<<block %d>>"):format(first) end

--- program(page) -> the Lua blocks as one program, whose lines have the numbers of the page's.
function M.program(page)
  local lines = {}
  for i = 1, #page.lines do lines[i] = "" end
  for _, block in ipairs(page.blocks) do
    if block.kind == "lua" then
      lines[block.first - 1] = ("io.write %q"):format(mark(block.first)):gsub("\n", "n")
      for i = block.first, block.last do lines[i] = page.lines[i] end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

-- The text without spaces at the ends of lines and of the text.
local function trimmed(text) return (text:gsub("[ \t]+\n", "\n"):gsub("%s+$", "")) end

--- fits(text, expected): whether the text is the expected one, in which "..." stands for anything.
function M.fits(text, expected)
  local pattern = trimmed(expected):gsub("%%", "%%%%"):gsub("[%^%$%(%)%.%[%]%*%+%-%?]", "%%%0")
  return trimmed(text):find("^" .. pattern:gsub("%%%.%%%.%%%.", ".-") .. "$") ~= nil
end

--- faults(page, output) -> array of messages, one for each ```text block that the program's output differs from.
function M.faults(page, output)
  local faults, before = {}, nil
  for _, block in ipairs(page.blocks) do
    if block.kind == "text" and before then
      local _, from = output:find(mark(before.first), 1, true)
      local to = from and output:find("<<block ", from, true)
      local printed = from and output:sub(from + 1, to and to - 1) or "(it was not reached)"
      local expected = table.concat(page.lines, "\n", block.first, block.last)
      if not M.fits(printed, expected) then
        table.insert(faults, ("%s:%d: expected\n%s\nbut the block printed\n%s"):format(page.path, block.first, expected,
          trimmed(printed)))
      end
    end
    before = block.kind == "lua" and block or nil
  end
  return faults
end

-- The anchor that a heading gets: small letters, hyphens for spaces, no other signs.
local function anchor(heading)
  return (heading:lower():gsub("[^%w%s_%-]", ""):gsub("%s", "-"))
end

local function has_anchor(page, name)
  for _, line in ipairs(page.lines) do
    local heading = line:match "^#+ (.+)$"
    if heading and anchor(heading) == name then return true end
  end
  return false
end

-- The message about a link that leads nowhere; nil if there is such a file and heading.
local function broken(page, link)
  local file, heading = link:match "^([^#]*)#?(.*)$"
  local path = file == "" and page.path or page.path:gsub("[^/]*$", "") .. file
  local found = io.open(path)
  if not found then return ("there is no %s"):format(path) end
  found:close()
  if heading ~= "" and not has_anchor(M.read(path), heading) then
    return ("%s has no heading #%s"):format(path, heading)
  end
end

--- broken_links(page) -> array of messages, one for each relative link that leads to no file or heading.
function M.broken_links(page)
  local faults, code = {}, {}
  for _, block in ipairs(page.blocks) do
    for i = block.first, block.last do code[i] = true end
  end
  for i, line in ipairs(page.lines) do
    for link in (code[i] and "" or line:gsub("`[^`]*`", "")):gmatch "%]%(([^)]+)%)" do
      local fault = not link:find "^%a+:" and broken(page, link)
      if fault then table.insert(faults, ("%s:%d: %s"):format(page.path, i, fault)) end
    end
  end
  return faults
end

return M
