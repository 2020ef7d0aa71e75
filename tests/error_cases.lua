-- Runs a list of wrong calls, each as a test of its own: the call must raise the text, at the line of the call.
--
--     require "error_cases" {
--       { "a step of 0 in slice", function() x:slice { { 1, 2, 0 } } end, "step of axis 1 must not be 0" },
--     }
-- A case is { what is wrong, the call, text of the message: plain or a Lua pattern, code = "usage" }. Cases about
-- anything other than a call of mgpu by a script have anywhere = true: their message need not name a line.
local check = require "check"

local file = check.file:match "[^/]*$"

return function(cases)
  for _, case in ipairs(cases) do
    check.test("an error names what is wrong: " .. case[1], function()
      local message = check.raises(case[2], case[3], case.code or "usage")
      if not case.anywhere then check.matches(message, file:gsub("%W", "%%%0") .. ":%d+: ") end
    end)
  end
end
