--- File names with fields, as in "w-{epoch:02d}-{val_accuracy:.3f}.h5".
--
-- A field is {name} or {name:spec}, with spec as in Python's format: [0][width][.digits][d f e g F E G %]. {{ and }}
-- stand for braces. epoch and batch are whole numbers (d), the values of the logs are not.
local core = require "mgpu.core"

local FilePattern = {}
FilePattern.__index = FilePattern

local COUNTERS = { epoch = true, batch = true }

-- The format of one field, for string.format, and whether the value is a fraction to be shown in percent.
local function parse_spec(self, name, spec)
  local fill, width, digits, kind = spec:match "^(0?)(%d*)(%.?%d*)([dfegFEG%%]?)$"
  local whole = COUNTERS[name] and (kind == "" or kind == "d")
  local valid = fill and #width <= 2 and #digits <= 3 and digits ~= "." and (kind ~= "d" or whole)
    and not (whole and digits ~= "")
  if not valid then
    core.fail("usage", ('%s: the field {%s:%s} is not understood: write {%s} or {%s:%s}'):format(self.who, name, spec,
      name, name, COUNTERS[name] and "02d" or ".3f"))
  end
  if whole then return "%" .. fill .. width .. "d" end
  if kind == "" then return spec == "" and "%.14g" or "%" .. fill .. width .. digits .. "g" end
  if kind == "%" then return "%" .. fill .. width .. (digits == "" and ".6" or digits) .. "f%%", true end
  return "%" .. fill .. width .. digits .. kind
end

local function add_field(self, text)
  local name, colon, spec = text:match "^([%a_][%w_]*)(:?)(.*)$"
  if not name or colon == "" and spec ~= "" then
    core.fail("usage", ("%s: {%s} is not a field: write {name} or {name:.3f}, and {{ for a brace"):format(self.who,
      text))
  end
  local format, percent = parse_spec(self, name, spec)
  self.pieces[#self.pieces + 1] = { name = name, format = format, percent = percent }
  self.fields[#self.fields + 1] = name
end

--- new(text, who) -> a pattern; who: begins error messages. Errors: a field that is not understood.
function FilePattern.new(text, who)
  local self = setmetatable({ who = who, pieces = {}, fields = {} }, FilePattern)
  local at = 1
  while at <= #text do
    local plain = text:match("^[^{}]+", at)
    local field = text:match("^{([^{}]*)}", at)
    local brace = text:match("^{{", at) or text:match("^}}", at)
    if brace then
      self.pieces[#self.pieces + 1] = brace:sub(1, 1)
    elseif plain then
      self.pieces[#self.pieces + 1] = plain
    elseif field then
      add_field(self, field)
    else
      core.fail("usage", ("%s: %q has a brace that is not closed: write {{ or }} for one"):format(who, text))
    end
    at = at + (brace and 2 or plain and #plain or #field + 2)
  end
  return self
end

--- pattern:path(values) -> the file name; values: a table by the fields' names. Errors: a field without a number.
function FilePattern:path(values)
  local list = {}
  for i, piece in ipairs(self.pieces) do
    if type(piece) == "string" then
      list[i] = piece
    else
      local value = values[piece.name]
      if type(value) ~= "number" then
        core.fail("usage", ("%s: the logs have no number %q for the field {%s}"):format(self.who, piece.name,
          piece.name))
      end
      list[i] = piece.format:format(piece.percent and value * 100 or value)
    end
  end
  return table.concat(list)
end

return FilePattern
