-- The C files that read bytes from outside: files, archives, downloads, and what other processes answer. `make cover`
-- demands more of them than of other files, since whoever made the bytes chooses which of their branches run.
local M = {}

-- Folders of which every C file is a parser, but those in `others`.
local FOLDERS = { "runtime/io/", "runtime/io/h5_helper/", "runtime/data/sources/", "runtime/data/image_codec/" }
local FILES = {
  "runtime/core/plugin.c", -- ELF files
  "runtime/data/cifar.c",
  "runtime/data/example.c",
  "runtime/data/idx.c",
  "runtime/data/image.c",
  "runtime/data/image_bmp.c",
  "runtime/data/image_header.c",
  "runtime/world/host_list.c", -- variables and files of batch systems
  "runtime/data/source.c", -- several strings in one cell
  "runtime/program/attach/record.c", -- what clients send to a job, and it to them
  "runtime/world/record.c", -- what other processes send
}
local OTHERS = {
  "runtime/io/safetensors_write.c", -- these write files
  "runtime/io/tfrecord_write.c",
  "runtime/io/zip_write.c",
  "runtime/io/hash.c", -- these hash bytes, whatever they are
  "runtime/io/hash_avx2.c",
  "runtime/data/sources/tensors.c", -- these hand on the rows of tensors and of other sources
  "runtime/data/sources/transformed.c",
}

-- What no test can run: the line, or so many `branches` of the line, that contains this text, and why. It does not
-- count. Only for files that would miss the goal by it; a check that its caller makes needless should go instead.
M.accepted = {
  ["runtime/io/crc32c.c"] = {
    { text = "return has_instruction() ? by_instruction(bytes, n)", branches = 1,
      why = "a machine has the instruction or not; the table, of the other ones, is tested by itself" },
  },
}

local function set(list)
  local s = {}
  for _, item in ipairs(list) do s[item] = true end
  return s
end
local folders, files, others = set(FOLDERS), set(FILES), set(OTHERS)

function M.is_parser(path) return files[path] or folders[path:match "^.*/"] and not others[path] or false end

return M
