-- Prints which lines and branches of the C files the last run of `make cover` has executed.
--
--     luajit tests/coverage/report.lua build/HASH          -- as `make cover` calls it
--     luajit tests/coverage/report.lua build/HASH FILE.c   -- the lines and branches of FILE.c that were missed
-- First a row for each other C file, then one for each parser: a file that reads bytes from outside, see parsers.lua.
-- A parser must reach GOAL, or what parsers.lua demands of it with a reason. The exit status is 1 if one does not.
--
-- Branches are those of gcc without optimization (-O0): two for each condition, `&&` and `||` included, and one for
-- each case of a switch. Not counted are the branches of assert(), since only a bug takes the second one.
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
  local goal, accepted = GOAL, parsers.accepted[source]
  local lines, branches = percent(m.lines_run, m.lines), percent(m.branches_taken, m.branches)
  if lines >= goal.lines and branches >= goal.branches then
    return accepted and "reaches the goal: remove it from `accepted`" or "", accepted ~= nil
  end
  if not accepted then return "BELOW THE GOAL", true end
  if lines >= accepted.lines and branches >= accepted.branches then return "accepted: " .. accepted.why, false end
  return ("BELOW the %d and %d %% that are accepted"):format(accepted.lines, accepted.branches), true
end

local function print_table(sources, is_parser)
  local total, failures = { lines = 0, lines_run = 0, branches = 0, branches_taken = 0 }, 0
  for _, source in ipairs(sources) do
    if parsers.is_parser(source) == is_parser then
      local m = measure(source)
      for key in pairs(total) do total[key] = total[key] + m[key] end
      local verdict, failed = "", false
      if is_parser then verdict, failed = judge(source, m) end
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
