--- What differs between runs: configuration, versions and machine, and the texts of their scripts.
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"

local M = {}

local MOST_CELLS = 4e6 -- of the table of the longest common sequence: some 2,000 changed lines
local CONTEXT = 2      -- equal lines around a change
local MOST_SCRIPT = 4 * 2 ^ 20
local WIDEST = 60

-- ---- values -------------------------------------------------------------------------------------

-- Everything of a run that is compared, in one table by name.
local function values_of(run)
  local all = {}
  for name, value in pairs(run.config) do all[name] = value end
  local function add(prefix, found)
    for name, value in pairs(found) do
      if type(value) == "table" then
        if type(name) == "string" then add(prefix .. name .. ".", value) end
      elseif type(name) == "string" then
        all[prefix .. name] = value
      end
    end
  end
  add("versions.", run.versions)
  add("machine.", run.machine)
  all.seed, all.state, all.epochs = run.seed, run.state, run.epochs
  all["script.path"], all["script.commit"] = run.script.path, run.script.commit
  all["script.sha256"] = run.script.sha256 and run.script.sha256:sub(1, 12)
  for name, value in pairs(run.best) do all["best." .. name] = value end
  local words = {}
  for i, each in ipairs(run.command) do words[i] = tostring(each) end
  all.command = table.concat(words, " ")
  return all
end

local function shown(value)
  if value == nil then return "-" end
  local text = type(value) == "number" and ("%.10g"):format(value) or core.printable(tostring(value), true)
  return #text <= WIDEST and text or text:sub(1, WIDEST - 2) .. ".."
end

--- values(runs) -> array of {name, value of the first run, of the second, ...}, of those that differ, sorted by name.
-- A value that a run lacks is nil.
function M.values(runs)
  local all, names, rows = {}, {}, {}
  for i, run in ipairs(runs) do
    all[i] = values_of(run)
    for name in pairs(all[i]) do names[name] = true end
  end
  for name in pairs(names) do
    local row, differs = { name }, false
    for i = 1, #runs do
      row[i + 1] = all[i][name]
      differs = differs or all[i][name] ~= all[1][name]
    end
    if differs then rows[#rows + 1] = row end
  end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  return rows
end

-- ---- texts --------------------------------------------------------------------------------------

local function lines_of(text)
  local list = {}
  if text ~= "" and text:sub(-1) ~= "\n" then text = text .. "\n" end
  for line in text:gmatch "([^\n]*)\n" do list[#list + 1] = line end
  return list
end

local function part(list, from, to)
  local copy = {}
  for i = from, to do copy[#copy + 1] = list[i] end
  return copy
end

-- The lengths of the longest common sequences of the ends of a and b: of a[i..n] and b[j..m] at i * (m + 1) + j.
local function common_lengths(a, b)
  local n, m, t = #a, #b, {}
  for j = 1, m + 1 do t[(n + 1) * (m + 1) + j] = 0 end
  for i = n, 1, -1 do
    t[i * (m + 1) + m + 1] = 0
    for j = m, 1, -1 do
      local below, right = t[(i + 1) * (m + 1) + j], t[i * (m + 1) + j + 1]
      t[i * (m + 1) + j] = a[i] == b[j] and t[(i + 1) * (m + 1) + j + 1] + 1 or math.max(below, right)
    end
  end
  return t
end

-- The middles of two lists of lines, as {mark, line}: "-" only in a, "+" only in b, " " in both.
local function changes(a, b)
  local list, i, j, m = {}, 1, 1, #b
  local function add(mark, line) list[#list + 1] = { mark, line } end
  if #a * #b > MOST_CELLS then
    for _, line in ipairs(a) do add("-", line) end
    for _, line in ipairs(b) do add("+", line) end
    return list
  end
  local t = common_lengths(a, b)
  while i <= #a or j <= m do
    if i <= #a and j <= m and a[i] == b[j] then
      add(" ", a[i])
      i, j = i + 1, j + 1
    elseif j > m or i <= #a and t[(i + 1) * (m + 1) + j] >= t[i * (m + 1) + j + 1] then
      add("-", a[i])
      i = i + 1
    else
      add("+", b[j])
      j = j + 1
    end
  end
  return list
end

--- texts(a, b) -> the differing lines of two texts as an array: "-" and "+" before what only a or b has, " " before the
--- equal lines around, and "@@ N" with the number of the line in `a` before each passage.
function M.texts(a, b)
  a, b = lines_of(a), lines_of(b)
  local first, last = 0, 0
  while first < #a and first < #b and a[first + 1] == b[first + 1] do first = first + 1 end
  while last < #a - first and last < #b - first and a[#a - last] == b[#b - last] do last = last + 1 end
  local marked = {}
  for i = math.max(1, first - CONTEXT + 1), first do marked[#marked + 1] = { " ", a[i], i } end
  local at = first + 1
  local middle = changes(part(a, first + 1, #a - last), part(b, first + 1, #b - last))
  for _, each in ipairs(middle) do
    marked[#marked + 1] = { each[1], each[2], at }
    if each[1] ~= "+" then at = at + 1 end
  end
  if #middle == 0 then return {} end
  for i = #a - last + 1, math.min(#a, #a - last + CONTEXT) do marked[#marked + 1] = { " ", a[i], i } end
  local near, out, open = {}, {}, false
  for i, each in ipairs(marked) do
    for k = i - CONTEXT, i + CONTEXT do near[k] = near[k] or each[1] ~= " " end
  end
  for i, each in ipairs(marked) do
    if near[i] and not open then out[#out + 1] = "@@ " .. each[3] end
    if near[i] then out[#out + 1] = each[1] .. each[2] end
    open = near[i]
  end
  return out
end

-- The script that the run has kept, or nil.
local function script_of(run) return facts.read(run.path .. "/script.lua", MOST_SCRIPT) end

-- ---- both ---------------------------------------------------------------------------------------

--- text(runs) -> what differs between two or more runs, as lines: a table of values, then the changes of the script of
--- each from that of the first.
function M.text(runs)
  local out, rows, widest = {}, { { "" } }, {}
  for i, run in ipairs(runs) do rows[1][i + 1] = run.name end
  for _, row in ipairs(M.values(runs)) do rows[#rows + 1] = row end
  for _, row in ipairs(rows) do
    for i = 1, #runs + 1 do widest[i] = math.max(widest[i] or 0, #shown(row[i])) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i = 1, #runs + 1 do cells[i] = shown(row[i]) .. (" "):rep(widest[i] - #shown(row[i])) end
    out[#out + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  if #rows == 1 then out = { "configuration, versions and machine are the same" } end
  local first = script_of(runs[1])
  for i = 2, #runs do
    local names = ("%s -> %s"):format(core.printable(runs[1].name, true), core.printable(runs[i].name, true))
    local other = script_of(runs[i])
    if first and other and first ~= other then
      out[#out + 1] = "\nscript, " .. names
      for _, line in ipairs(M.texts(first, other)) do out[#out + 1] = core.printable(line, true) end
    elseif not first or not other then
      out[#out + 1] = "\nscript, " .. names .. ": not recorded in both"
    end
  end
  return table.concat(out, "\n")
end

return M
