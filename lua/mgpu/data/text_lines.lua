--- text_lines(paths, {skip = 0}) -> a dataset of the lines of a text file, or of several, given as a list.
--
--     for line in mgpu.data.text_lines("shakespeare.txt"):iter() do print(line) end
-- A row is one string, without the line's end (LF or CRLF); empty lines are rows too, and a batch is a table of
-- strings. gzip is unpacked, to a temporary file in TMPDIR. Lines stay in the files, which must not change meanwhile:
-- 8 bytes of memory for each.
-- ARGS
--   skip    lines at the beginning of each file that are left out
-- Errors: no lines; a line of more than 64 MiB; damaged gzip data; when a row is read, a file that has changed.
-- Example:
--     local file = io.open("poem.txt", "w")
--     file:write "so much depends\nupon\n"
--     file:close()
--     for line in mgpu.data.text_lines("poem.txt"):iter() do print(line) end
--     --> so much depends
--     --> upon
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local options = require "mgpu.options"
local paths = require "mgpu.data.paths"

local OPTIONS = options.declare { { "skip", "integer", default = 0, min = 0, max = 2 ^ 53 } }

--- text_lines(paths, options): see the top.
return function(given, chosen)
  local files = paths("text_lines", given)
  chosen = options.check("text_lines", OPTIONS, chosen == nil and {} or chosen)
  return Dataset.of_source(core.text_lines_source(files, chosen.skip))
end
