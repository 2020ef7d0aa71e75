-- Writes the reference of all public names as HTML, from what ?name shows at the prompt: `make docs`.
--
--     build/mgpulua tests/reference.lua FOLDER
--     build/mgpulua tests/reference.lua --missing
--
-- A page for each table of classes or functions, and index.html with every name. A name without documentation or an
-- example is a warning, and the program ends with status 1. --missing only prints the warnings.
package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path

local html = require "reference_page"
local mgpu = require "mgpu"

local pages, warnings = require "reference_names".collect()

local function write(folder)
  local index = {}
  for _, page in ipairs(pages) do
    local body, links = { html.text(page.introduction or "") }, {}
    for _, entry in ipairs(page.entries) do
      table.insert(links, ('<a href="%s.html#%s">%s</a>'):format(page.file, html.escape(entry.name),
        html.escape(entry.name)))
      table.insert(body, html.entry(entry.name, entry.text, entry.where))
    end
    local file = assert(io.open(("%s/%s.html"):format(folder, page.file), "w"))
    file:write(html.page(page.title, table.concat(body, "\n")))
    file:close()
    table.insert(index, ('<h2><a href="%s.html">%s</a></h2>\n<p>%s</p>'):format(page.file, page.title,
      table.concat(links, " &middot; ")))
  end
  table.insert(index, '<h2><a href="c/html/mgpu_8h.html">The C interface, mgpu.h</a></h2>')
  local file = assert(io.open(folder .. "/index.html", "w"))
  file:write(html.page("mgpulua " .. mgpu.version .. ": reference", table.concat(index, "\n")))
  file:close()
end

local target = assert(arg[1], "usage: mgpulua tests/reference.lua FOLDER or --missing")
if target ~= "--missing" then write(target) end
for _, warning in ipairs(warnings) do io.stderr:write("reference: ", warning, "\n") end
os.exit(warnings[1] and 1 or 0)
