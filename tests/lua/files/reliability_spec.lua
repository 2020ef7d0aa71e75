-- The checks of tests/reliability with small numbers; `make reliability` runs them with large ones.

local check = require "check"

for _, name in ipairs(require "reliability.checks") do
  local one = require("reliability." .. name)
  check.test(one.what, function()
    check.slow()
    local folder = check.path(name)
    os.execute(("mkdir '%s'"):format(folder))
    local failed, note = one.run(one.few, folder)
    if failed > 0 then check.fail(("%d failed: %s"):format(failed, note)) end
  end)
end
