--- SVG and HTML text: escaping, elements, and the colors that all pictures share.
--
-- A picture follows the reader's light or dark setting: its colors are CSS variables, set once for each. The first
-- three colors of curves are from the palette of Okabe and Ito, which color-blind people can tell apart, lightened for
-- dark backgrounds; the others, for pages with many curves, keep apart from these by lightness. The classes s1, s2, ...
-- set them as stroke, f1, f2, ... as fill.
local core = require "mgpu.core"
local options = require "mgpu.options"
local world = require "mgpu.parallel.world"

local M = {}

-- ---- files --------------------------------------------------------------------------------------

-- Where pictures go: the check of names before any work, and the writing.

--- check_file(who, path, ending, declared, given) -> the checked options. Raises unless a file with this ending can be
--- written at the path.
function M.check_file(who, path, ending, declared, given)
  if type(path) ~= "string" then
    core.fail("usage", ('%s "x%s": the path must be text, got %s'):format(who, ending,
      path == nil and "nothing" or "a " .. type(path)))
  end
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    core.fail("usage", ("%s: options are a table, got a %s"):format(who, type(given)))
  end
  if path:lower():sub(-#ending) ~= ending then
    core.fail("usage", ("%s: %s: the name must end in %s"):format(who, path, ending))
  end
  core.check_creatable(path, who)
  return options.check(who, declared, given or {})
end

--- write_file(path, text): the file is the old one or complete.
function M.write_file(path, text)
  if world.is_first() then core.write_file(path, text .. "\n") end
end

-- ---- elements, escaping, colors -----------------------------------------------------------------

local LIGHT = { paper = "#ffffff", ink = "#1b1b1f", soft = "#5d6068", grid = "#dfe1e6", box = "#f4f5f8",
  "#0072b2", "#d55e00", "#009e73", "#b3478a", "#8a6d00", "#3d4fb8", "#a33b3b", "#4f6f7a" }
local DARK = { paper = "#17181c", ink = "#eceef2", soft = "#a3a8b3", grid = "#33363f", box = "#22242b",
  "#56b4e9", "#ff8f4a", "#2bc79a", "#e59ac7", "#e3c34a", "#9aa8ff", "#f08a8a", "#9fb8c4" }

M.COLORS = #LIGHT -- how many colors curves can have

local FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

-- What UTF-8 allows, with bytes from 128 on: no overlong forms, no surrogates, nothing beyond U+10FFFF.
local NEXT = "[\128-\191]"
local CHARACTERS = { "[\194-\223]" .. NEXT, "\224[\160-\191]" .. NEXT, "\237[\128-\159]" .. NEXT,
  "[\225-\236\238\239]" .. NEXT .. NEXT, "\240[\144-\191]" .. NEXT .. NEXT, "[\241-\243]" .. NEXT .. NEXT .. NEXT,
  "\244[\128-\143]" .. NEXT .. NEXT }

--- plain(text) -> the text as UTF-8 without control characters but tab and line ends: those, and bytes that are no
--- UTF-8, become "?".
function M.plain(text)
  text = tostring(text):gsub("[%z\1-\8\11\12\14-\31\127]", "?")
  return (text:gsub("[\128-\255]+", function(run)
    local kept = run
    for _, pattern in ipairs(CHARACTERS) do kept = kept:gsub(pattern, " ") end -- which keeps their neighbours apart
    return kept:find "[\128-\255]" and ("?"):rep(#run) or run
  end))
end

--- escape(text) -> the text for use in XML, which forbids control characters and broken UTF-8: see plain.
function M.escape(text)
  return (M.plain(text):gsub("[&<>\"']", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;",
    ["'"] = "&#39;" }))
end

--- shortened(text, most) -> the text, or its beginning and "…" if it has more than `most` bytes.
function M.shortened(text, most)
  if #text <= most then return text end
  return (text:sub(1, most - 3):gsub("[\192-\255][\128-\191]*$", "")) .. "…" -- the last character may be cut
end

--- number(x) -> a coordinate with at most one digit after the point.
function M.number(x) return (("%.1f"):format(x):gsub("%.0$", "")) end

--- element(name, attributes, content) -> "<name ...>content</name>". Numbers become coordinates, other values are
--- escaped; content is XML already, nil for an empty element.
function M.element(name, attributes, content)
  local keys, parts = {}, { "<" .. name }
  for key in pairs(attributes) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = attributes[key]
    parts[#parts + 1] = (' %s="%s"'):format(key, type(value) == "number" and M.number(value) or M.escape(value))
  end
  parts[#parts + 1] = content and (">%s</%s>"):format(content, name) or "/>"
  return table.concat(parts)
end

--- text(x, y, words, class, anchor = "start") -> a text element.
function M.text(x, y, words, class, anchor)
  return M.element("text", { x = x, y = y, class = class, ["text-anchor"] = anchor or "start" }, M.escape(words))
end

local function variables(colors)
  local list = {}
  for key, value in pairs(colors) do
    list[#list + 1] = ("--%s:%s"):format(type(key) == "number" and "c" .. key or key, value)
  end
  table.sort(list)
  return table.concat(list, ";")
end

--- style(root) -> the style sheet; root: the selector of the element that gets the colors.
function M.style(root)
  local lines = {
    ("%s{%s;color-scheme:light dark}"):format(root, variables(LIGHT)),
    ("@media (prefers-color-scheme:dark){%s{%s}}"):format(root, variables(DARK)),
    "svg text{font-family:" .. FONT .. ";font-size:12px;fill:var(--ink)}",
    "svg .title{font-size:14px;font-weight:600}", "svg .soft{fill:var(--soft);font-size:11px}",
    "svg .paper{fill:var(--paper)}", "svg .grid{stroke:var(--grid);fill:none}",
    "svg .axis{stroke:var(--soft);fill:none}", "svg .box{fill:var(--box);stroke:var(--soft)}",
    "svg .edge{fill:none;stroke:var(--soft);stroke-width:1.3}", "svg .head{fill:var(--soft)}",
    "svg .group{fill:none;stroke:var(--c1);stroke-dasharray:5 3}",
    "svg .curve{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}",
    "svg .val{stroke-dasharray:6 4}",
  }
  for i = 1, #LIGHT do
    lines[#lines + 1] = ("svg .s%d{stroke:var(--c%d)}svg .f%d{fill:var(--c%d)}"):format(i, i, i, i)
  end
  return table.concat(lines, "\n")
end

--- picture(width, height, content, title, styled = true) -> an <svg> element. styled = false leaves the style sheet
--- out, for a page that has it.
function M.picture(width, height, content, title, styled)
  local inside = "<title>" .. M.escape(title) .. "</title>\n"
  if styled ~= false then inside = inside .. "<style>" .. M.style(":root") .. "</style>\n" end
  inside = inside .. M.element("rect", { width = width, height = height, class = "paper" }) .. "\n" .. content
  return M.element("svg", { xmlns = "http://www.w3.org/2000/svg", width = width, height = height, role = "img",
    viewBox = ("0 0 %s %s"):format(M.number(width), M.number(height)) }, inside)
end

return M
