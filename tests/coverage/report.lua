-- Prints which lines and branches of the C files the last run of `make cover` has executed.
--
--     luajit tests/coverage/report.lua build/HASH          -- as `make cover` calls it
--     luajit tests/coverage/report.lua build/HASH FILE.c   -- the lines and branches of FILE.c that were missed
-- First a row for each other C file, then one for each parser: a file that reads bytes from outside, see parsers.lua.
-- A parser must reach GOAL. The exit status is 1 if one does not, or if what parsers.lua lists as impossible was run.
--
-- Branches are those of gcc without optimization (-O0): two for each condition, `&&` and `||` included, and one for
-- each case of a switch; what optimization and inlining add is not there. Not counted are the branches of assert(),
-- since only a bug takes the second one, and what parsers.lua lists.
local GOAL = { lines = 97, branches = 90 }

local here = arg[0]:match "^.*/" or "./"
local parsers = dofile(here .. "parsers.lua")
local folder, only = arg[1], arg[2]

local function lines_of(command)
  local pipe = assert(io.popen(command))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

-- What gcov says about one C file: counts, and the places that were missed, in the order of the lines. A file that no
-- program has run has no counts; then everything in it is missed.
local function measure(source)
  local notes = ("%s/%s"):format(folder, source:gsub("%.c$", ".gcno"))
  local m = { lines = 0, lines_run = 0, branches = 0, branches_taken = 0, missed = {} }
  local wanted, asserted, number, text
  for _, line in ipairs(lines_of(("gcov -t -b -c %s 2>/dev/null"):format(notes))) do
    local count, at, rest = line:match "^ *([^:]+): *(%d+):(.*)$"
    local branch, taken = line:match "^branch +(%d+) (.*)$"
    if at == "0" and rest:find "^Source:" then
      wanted = rest == "Source:" .. source
    elseif wanted and count then
      number, text, asserted = tonumber(at), rest, rest:find "^%s*assert%("
      if not count:find "^%-" then
        m.lines = m.lines + 1
        if count:find "^[#=]" then
          m.missed[#m.missed + 1] = { line = number, what = "line", text = text }
        else
          m.lines_run = m.lines_run + 1
        end
      end
    elseif wanted and branch and not asserted then
      m.branches = m.branches + 1
      if taken:find "^taken [1-9]" then
        m.branches_taken = m.branches_taken + 1
      else
        m.missed[#m.missed + 1] = { line = number, what = "branch " .. branch, text = text }
      end
    end
  end
  return m
end

-- Takes what parsers.lua lists for the file out of the counts. False: some of it was run, or is not there.
local function leave_out_accepted(source, m)
  local right = true
  for _, item in ipairs(parsers.accepted[source] or {}) do
    local what, left = item.branches and "branch" or "line", item.branches or 1
    for i = #m.missed, 1, -1 do
      local miss = m.missed[i]
      if left > 0 and miss.what:find(what, 1, true) == 1 and miss.text:find(item.text, 1, true) then
        local counted = what == "line" and "lines" or "branches"
        m[counted], left = m[counted] - 1, left - 1
        table.remove(m.missed, i)
      end
    end
    right = right and left == 0
  end
  return right
end

local function percent(part, whole) return whole == 0 and 100 or 100 * part / whole end

local function print_missed(source)
  for _, miss in ipairs(measure(source).missed) do
    print(("%s:%d: %s: %s"):format(source, miss.line, miss.what, miss.text:gsub("^%s+", "")))
  end
end

local function print_row(source, m, verdict)
  print(("  %-44s %6.1f %6d  %8.1f %8d  %s"):format(source, percent(m.lines_run, m.lines), m.lines,
    percent(m.branches_taken, m.branches), m.branches, verdict))
end

-- What is to be said about a parser; the second result is true if that is a failure.
local function judge(source, m)
  if not leave_out_accepted(source, m) then return "RUN, or not there: what is `accepted`", true end
  if percent(m.lines_run, m.lines) < GOAL.lines or percent(m.branches_taken, m.branches) < GOAL.branches then
    return "BELOW THE GOAL", true
  end
  return "", false
end

local function print_table(sources, is_parser)
  local total, failures = { lines = 0, lines_run = 0, branches = 0, branches_taken = 0 }, 0
  for _, source in ipairs(sources) do
    if parsers.is_parser(source) == is_parser then
      local m = measure(source)
      local verdict, failed = "", false
      if is_parser then verdict, failed = judge(source, m) end
      for key in pairs(total) do total[key] = total[key] + m[key] end
      if failed then failures = failures + 1 end
      print_row(source, m, verdict)
    end
  end
  print_row("together", total, "")
  return failures
end

if only then return print_missed(only) end
local sources = lines_of(("cd %s && find runtime -name '*.gcno' | sed 's/gcno$/c/' | LC_ALL=C sort"):format(folder))
print("  what the tests ran, by the counts in " .. folder)
print(("  %-44s %6s %6s  %8s %8s"):format("", "% of", "lines", "% of", "branches"))
print_table(sources, false)
print "\n  parsers"
local failures = print_table(sources, true)
print(("  goal: %d %% of the lines and %d %% of the branches of each parser: %s"):format(GOAL.lines, GOAL.branches,
  failures == 0 and "reached" or failures .. " files miss it"))
os.exit(failures == 0 and 0 or 1)
