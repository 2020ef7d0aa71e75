--- The page of the dashboard: one HTML file with its styles, its script and the events so far, which loads nothing.
--
-- Its Content-Security-Policy allows this style sheet and this script, by their hashes, pictures within the page, and
-- requests to where the page came from. It is in the page itself, so that a saved page has it, too.
local base64 = require "mgpu.io.base64"
local sha256 = require "mgpu.io.sha256"
local svg = require "mgpu.plot.svg"

local M = {}

-- The parts of the script, in their order; one function holds them all.
local SCRIPTS = { "data.js", "numbers.js", "chart.js", "histograms.js", "panels.js", "connection.js", "main.js" }

local POLICY = "default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; img-src data:; "
  .. "connect-src 'self'; base-uri 'none'; form-action 'none'"

-- The hash of a text as the policy writes it.
local function hash_of(text)
  return base64.encode((sha256(text):gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end)))
end

local folder = debug.getinfo(1, "S").source:match "^@(.*)page%.lua$" .. "page/"

local function read(name)
  local file = assert(io.open(folder .. name, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local before, after -- of the events

local function make()
  local style, script = "\n" .. svg.style ":root" .. "\n" .. read "style.css", { "\n(() => {\n'use strict';\n" }
  for _, name in ipairs(SCRIPTS) do script[#script + 1] = read(name) end
  script = table.concat(script) .. "})();\n"
  local policy = POLICY:format(hash_of(style), hash_of(script))
  local parts = { POLICY = policy, STYLE = style, SCRIPT = script }
  local page = read("index.html"):gsub("{{(%u+)}}", parts)
  before, after = page:match "^(.*){{events}}(.*)$"
end

--- html(events) -> the page. events: what events.line returns, in one text.
function M.html(events)
  if not before then make() end
  return before .. events .. after
end

local BEGIN, END = '<script type="application/json" id="events">', "</script>"

--- events_of(html) -> the events in a page that was saved; nil if it is no such page.
function M.events_of(html)
  local _, from = html:find(BEGIN, 1, true)
  local to = from and html:find(END, from, true)
  return to and html:sub(from + 1, to - 1) or nil
end

return M
