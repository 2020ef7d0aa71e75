--- tfrecord(files, schema, {compression =, skip_bad = false}) -> a dataset of the records of TFRecord files, each a
--- tf.train.Example.
--
--     local ds = mgpu.data.tfrecord("train-*.tfrecord",
--       { { "image", "png", shape = { 28, 28, 1 } }, { "label", "int64" } })
--     for x, y in ds:shuffle(10000):batch(128):iter() do ... end    -- x uint8 {128, 28, 28, 1}, y int64 {128}
-- files: a path, a pattern (its files in the order of their names), or a list of both. schema: record_schema.lua says
-- which features become fields, at most 1024, and how.
-- Rows are read when they are needed, in any order, by several threads. The call reads the lengths of all records, and
-- 16 bytes for each record stay in memory. Checksums are verified at each reading.
-- ARGS
--   compression  "gzip", "zlib" or "none"; nil: found by the contents of each file. Compressed files are unpacked at
--                the call into one temporary file, in the folder TMPDIR (/tmp)
--   skip_bad     true: reads all records at the call and leaves out those that do not match their checksum; what
--                follows a damaged length, up to the end of the file, is lost. dataset.skipped counts the records left
--                out, dataset.lost_bytes the bytes; the log says where. Damaged gzip or zlib data are still errors
-- Errors: no such file; a damaged or truncated file, with record (from 1) and byte; a feature that is missing, of
-- another kind or of another length, with file, record, and what was expected and found.
-- Example:
--     local schema = { { "image", "png", shape = { 4, 4, 1 } }, { "label", "int64" } }
--     local blank = mgpu.zeros({ 4, 4, 1 }, { dtype = "uint8" })
--     mgpu.data.write_tfrecord("train.tfrecord", { { blank, 7 }, { blank, 9 } }, schema)
--     local ds = mgpu.data.tfrecord("train.tfrecord", schema)
--     for x, y in ds:iter() do print(table.concat(x:shape(), " "), y:item()) end
--     --> 4 4 1 7
--     --> 4 4 1 9
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local options = require "mgpu.options"
local paths = require "mgpu.data.paths"
local record_schema = require "mgpu.data.record_schema"

local OPTIONS = options.declare {
  { "compression", "string", values = { "gzip", "zlib", "none" } }, { "skip_bad", "boolean", default = false },
}

--- tfrecord(files, schema, options): see the top.
return function(files, schema, given)
  local chosen = options.check("tfrecord", OPTIONS, given or {})
  local fields = record_schema("tfrecord", schema)
  local source, skipped, lost = core.tfrecord_source(paths("tfrecord", files), fields, chosen.compression or "auto",
    chosen.skip_bad)
  local ds = Dataset.of_source(source)
  ds.skipped, ds.lost_bytes = skipped, lost
  return ds
end
