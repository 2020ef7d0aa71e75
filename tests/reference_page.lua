-- The pages of the reference as HTML: texts of docstrings, as ?name shows them, with headings and links.
local M = {}

local STYLE = [[
body{font:16px/1.5 sans-serif;max-width:56em;margin:2em auto;padding:0 1em}
pre,code{font:14px/1.4 monospace}pre{white-space:pre-wrap;background:#8881;padding:.5em 1em}
h2{font-size:1.1em;margin-top:2em;border-top:1px solid #8885;padding-top:.8em}.where{color:#888;font-size:.8em}
td,th{text-align:left;vertical-align:top;padding:.1em .8em .1em 0}
:root{color-scheme:light dark}a{text-decoration:none}]]

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

--- escape(text) -> the text as HTML.
function M.escape(text) return (text:gsub('[&<>"]', ENTITIES)) end

-- Lines that stay as they are: examples and tables of options, and their headings.
local function is_set(line) return line:find "^%s" ~= nil or line:find "^[A-Z]+$" ~= nil end

-- A line that begins a new paragraph although no empty line is before it.
local function begins(line) return line:find "^[A-Z][a-z]+:" ~= nil or line:find "^[A-Z][A-Z]+" ~= nil end

-- The lines, joined, without the spaces that all of them begin with.
local function dedented(lines)
  local least = math.huge
  for _, line in ipairs(lines) do least = math.min(least, #line:match "^ *") end
  local list = {}
  for i, line in ipairs(lines) do list[i] = line:sub(least + 1) end
  return table.concat(list, "\n")
end

--- text(docstring) -> it as paragraphs and preformatted parts.
function M.text(docstring)
  local out, paragraph, set = {}, {}, {}
  local function flush()
    if paragraph[1] then table.insert(out, "<p>" .. M.escape(table.concat(paragraph, "\n")) .. "</p>") end
    if set[1] then table.insert(out, "<pre>" .. M.escape(dedented(set)) .. "</pre>") end
    paragraph, set = {}, {}
  end
  for line in (docstring .. "\n"):gmatch "(.-)\n" do
    if line == "" or begins(line) and not set[1] then flush() end
    if line ~= "" and is_set(line) then
      if paragraph[1] then flush() end
      table.insert(set, line)
    elseif line ~= "" then
      if set[1] then flush() end
      table.insert(paragraph, line)
    end
  end
  flush()
  return table.concat(out, "\n")
end

--- entry(name, text, where) -> a section with this heading. where: the place in the source, or nil.
function M.entry(name, text, where)
  return ('<h2 id="%s">%s</h2>\n%s\n%s'):format(M.escape(name), M.escape(name), M.text(text),
    where and ('<p class="where">%s</p>'):format(M.escape(where)) or "")
end

--- page(title, body) -> the whole page.
function M.page(title, body)
  return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>%s</title>\n<style>%s</style></head>\n'
    .. '<body><p><a href="index.html">mgpulua: reference</a></p>\n<h1>%s</h1>\n%s\n</body></html>\n'):format(
    M.escape(title), STYLE, M.escape(title), body)
end

return M
