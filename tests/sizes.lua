-- How large the sources are: `make size`.
--
--     luajit tests/sizes.lua FILE...
--
-- A table with a row for each folder: files, lines, the median and longest file, the share of lines that are comments,
-- and how many passages stand twice. A passage is six or more lines of code that are equal but for white space;
-- comments, includes and lines of punctuation do not count. Then the longest of them.
local PASSAGE, MOST_PLACES, SHOWN = 6, 8, 10

-- ---- one file -----------------------------------------------------------------------------------

local COMMENTS = {
  lua = { line = "^%-%-", open = "^%-%-%[=*%[", close = "%]=*%]" },
  c = { line = "^//", open = "^/%*", close = "%*/" },
}
local KINDS = { lua = "lua", c = "c", h = "c", cu = "c", def = "c" }

-- Whether a line of code says something: not only punctuation, and no include or require.
local function counts(text)
  return text:find "%w" and not text:find "^#include" and not text:find "require%s*%(?[\"']"
end

-- RETURNS {path =, lines =, comments =, code = {lines that count}, at = {their numbers}}.
local function read(path)
  local kind = COMMENTS[KINDS[path:match "%.(%w+)$"]]
  local file = { path = path, lines = 0, comments = 0, code = {}, at = {} }
  local inside = false
  for line in io.lines(path) do
    file.lines = file.lines + 1
    local text = line:match "^%s*(.-)%s*$"
    if not inside and kind and text:find(kind.open) then inside = true end
    local comment = inside or (kind and text:find(kind.line))
    if comment then
      file.comments = file.comments + 1
    elseif counts(text) then
      file.code[#file.code + 1], file.at[#file.at + 1] = text:gsub("%s+", " "), file.lines
    end
    if inside and text:find(kind.close) then inside = false end
  end
  return file
end

-- ---- passages that stand twice ------------------------------------------------------------------

-- Where each run of PASSAGE lines stands: text -> {{file, index}...}.
local function index_passages(files)
  local places = {}
  for _, file in ipairs(files) do
    for i = 1, #file.code - PASSAGE + 1 do
      local text = table.concat(file.code, "\n", i, i + PASSAGE - 1)
      places[text] = places[text] or {}
      table.insert(places[text], { file = file, index = i })
    end
  end
  return places
end

-- The number of equal lines from both places on.
local function common_length(a, b)
  local n = 0
  while a.file.code[a.index + n] and a.file.code[a.index + n] == b.file.code[b.index + n] do n = n + 1 end
  return n
end

-- Each pair of places once, at its beginning, with its length. What stands in more than MOST_PLACES places does not
-- count.
local function pairs_of(files)
  local found = {}
  for _, list in pairs(index_passages(files)) do
    for i = 1, #list <= MOST_PLACES and #list or 0 do
      for k = 1, i - 1 do
        local a, b = list[k], list[i]
        local begins = a.index == 1 or b.index == 1 or a.file.code[a.index - 1] ~= b.file.code[b.index - 1]
        local apart = a.file ~= b.file or b.index - a.index >= PASSAGE
        if begins and apart then found[#found + 1] = { a, b, length = common_length(a, b) } end
      end
    end
  end
  table.sort(found, function(p, q)
    if p.length ~= q.length then return p.length > q.length end
    if p[1].file.path ~= q[1].file.path then return p[1].file.path < q[1].file.path end
    return p[1].index < q[1].index
  end)
  return found
end

-- ---- the table ----------------------------------------------------------------------------------

-- runtime/device/cpu/simd/x.h -> runtime/device/cpu; other files by their first two folders.
local function folder_of(path)
  return path:match "^(runtime/device/[^/]+)/" or path:match "^([^/]+/[^/]+)/" or path:match "^([^/]+)/" or "."
end

local function summarize(name, files, twice)
  local lines, comments, lengths, longest = 0, 0, {}, files[1]
  for i, file in ipairs(files) do
    lines, comments, lengths[i] = lines + file.lines, comments + file.comments, file.lines
    if file.lines > longest.lines then longest = file end
  end
  table.sort(lengths)
  print(("%-24s %5d %7d %7d %8d  %-34s %6.0f %% %6d"):format(name, #files, lines,
    lengths[math.floor((#lengths + 1) / 2)], longest.lines, longest.path:match "[^/]*$", 100 * comments / lines, twice))
end

local files, folders, names = {}, {}, {}
for i, path in ipairs(arg) do
  files[i] = read(path)
  local name = folder_of(path)
  if not folders[name] then names[#names + 1], folders[name] = name, { twice = 0 } end
  table.insert(folders[name], files[i])
end
table.sort(names)
local twice = pairs_of(files)
for _, pair in ipairs(twice) do
  local a, b = folders[folder_of(pair[1].file.path)], folders[folder_of(pair[2].file.path)]
  a.twice = a.twice + 1
  if a ~= b then b.twice = b.twice + 1 end
end
print(("%-24s %5s %7s %7s %8s  %-34s %8s %6s"):format("folder", "files", "lines", "median", "longest", "", "comments",
  "twice"))
for _, name in ipairs(names) do summarize(name, folders[name], folders[name].twice) end
summarize("all", files, #twice)
print("\nThe longest passages that stand twice:")
for i = 1, math.min(SHOWN, #twice) do
  local a, b = twice[i][1], twice[i][2]
  print(("%4d lines  %s:%d  %s:%d"):format(twice[i].length, a.file.path, a.file.at[a.index], b.file.path,
    b.file.at[b.index]))
end
