-- A parser of XML for tests: elements, attributes, text, the five entities. Anything else is an error.
--
--     local root = require "xml" "<a b='1'>x<c/></a>"
--     root.name, root.attributes.b, root.text   -- text: its own and the text of all elements in it
--     root:all("c", "class") -> array of the elements of that name, at any depth, with that class, in order
local Element = {}
Element.__index = Element

function Element:all(name, class, found)
  found = found or {}
  for _, child in ipairs(self) do
    local classes = " " .. (child.attributes.class or "") .. " "
    local wanted = child.name == name and (not class or classes:find(" " .. class .. " ", 1, true))
    if wanted then found[#found + 1] = child end
    child:all(name, class, found)
  end
  return found
end

local ENTITIES = { amp = "&", lt = "<", gt = ">", quot = '"', ["#39"] = "'" }

local function plain(text)
  assert(not text:find "[%z\1-\8\11\12\14-\31]", "a control character")
  return (text:gsub("&([^;]*);?", function(name) return ENTITIES[name] or error("the entity &" .. name) end))
end

local function attributes_of(text, tag)
  local found = {}
  local rest = text:gsub("%s+([%w:_-]+)=([\"'])(.-)%2", function(name, _, value)
    assert(not found[name], name .. " is given twice in " .. tag)
    assert(not value:find "<", "< in an attribute of " .. tag)
    found[name] = plain(value)
    return ""
  end)
  assert(rest:match "^%s*$", "text in the tag " .. tag .. ": " .. rest)
  return found
end

return function(text)
  local root = setmetatable({ attributes = {}, text = "" }, Element)
  local open, at = { root }, 1
  while at <= #text do
    local words, stop, name, inside, close = text:match("^([^<]*)<(/?)([%w:]+)([^<>]-)(/?)>()", at)
    if not words then break end
    for _, element in ipairs(open) do element.text = element.text .. plain(words) end
    if stop == "/" then
      assert(#open > 1 and open[#open].name == name, "</" .. name .. "> closes another element")
      open[#open] = nil
    else
      local element = setmetatable({ name = name, attributes = attributes_of(inside, name), text = "" }, Element)
      table.insert(open[#open], element)
      if close ~= "/" then open[#open + 1] = element end
    end
    at = select(6, text:match("^([^<]*)<(/?)([%w:]+)([^<>]-)(/?)>()", at))
  end
  assert(text:sub(at):match "^%s*$", "no XML: " .. text:sub(at, at + 60))
  assert(#open == 1 and #root == 1, "elements that are not closed")
  return root[1]
end
