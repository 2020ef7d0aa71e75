--- mgpulua --ps: a line for each job of this user; --ps=json: an array of objects, for programs.
local core = require "mgpu.core"
local jobs = require "mgpu.attach.jobs"

--- ps(format = nil)
return function(format)
  if format and format ~= "json" then error(("--ps=%s: there is --ps, and --ps=json"):format(format), 0) end
  local list = jobs.list()
  if format then
    for _, job in ipairs(list) do job.path = nil end
    print(#list == 0 and "[]" or core.json_encode(list))
  elseif #list == 0 then
    print "no jobs"
  else
    print(table.concat(jobs.table_of(list), "\n"))
  end
end
