--- image_folder(path, {size =, channels = 3, labels = "int", classes =, ...}) -> a dataset of images, one folder for
--- each class.
--
--     pets/cat/1.jpg  pets/cat/2.png  pets/dog/1.jpg
--     local train, test = mgpu.data.image_folder("pets", { size = { 180, 180 }, validation_split = 0.2, seed = 1,
--       subset = "both" })
--     for x, y in train:shuffle(1000):batch(32):prefetch(2):iter() do ... end
-- A row is an image and its label. Images are uint8 {rows, columns, channels} of their own size; with `size` they are
-- resized to float32 {size[1], size[2], channels} from 0 to 255, as by Keras's image_dataset_from_directory. Class ids
-- begin at 0, in the order of the sorted names of the folders, which are dataset.classes. Rows are sorted by class, by
-- folder and by name: shuffle them. What begins with a point is left out. Files are decoded when rows are read, by the
-- threads of prefetch.
-- ARGS
--   size              {rows, columns}, or one number for both; nil: images of their own size, which a batch refuses
--                     unless they are equal
--   interpolation     "bilinear", or another method of augment's resize; antialias = true: all pixels count
--   crop_to_aspect_ratio, pad_to_aspect_ratio
--                     true: resized images keep their proportions, and the sides that are too long are cut, or those
--                     that are too short padded with black
--   dtype             of resized images: "float32", or the whole numbers that "nearest" gives by default: "uint8"
--                     (rounded), or "int32" with bits = 16
--   channels          3, 1 (gray) or 4 (with alpha), whatever the file has
--   bits              8: pixels from 0 to 255, to which those of PNG files with 16 bits are rounded; or 16: all bits,
--                     int32 from 0 to 65535, or resized float32 from 0 to 65535
--   labels            "int" (int32), "categorical" (float32 one-hot), "binary" (float32 {1}, of two classes), or
--                     "none": images only, from all folders below the path. For labels of your own, in the order of the
--                     paths: mgpu.data.zip { image_folder(path, { labels = "none" }), from_tensors { labels } }
--   classes           the names of the folders to read, in the order of their ids; nil: all
--   extensions        {"bmp", "gif", "jpeg", "jpg", "png"}, as Keras's; "webp" can be read, too
--   follow_links      true: also follow links to folders inside the folders of classes
--   skip_bad          true: leave out files without the header of an image; dataset.skipped has their paths
--   validation_split  the share of the images that are for validation, drawn with `seed`
--   subset            "training", "validation", or "both": two datasets
-- Errors: no folder, no images; binary labels of another number of classes; when a row is read, with its path, a file
-- that cannot be read or is damaged.
-- Example:
--     os.execute "mkdir -p pets/cat pets/dog"
--     mgpu.image.save("pets/cat/1.png", mgpu.rand { 20, 30, 3 })
--     mgpu.image.save("pets/dog/1.jpg", mgpu.rand { 40, 20, 3 })
--     local ds = mgpu.data.image_folder("pets", { size = { 8, 8 } })
--     for x, y in ds:iter() do print(table.concat(x:shape(), " "), ds.classes[y:item() + 1]) end
--     --> 8 8 3 cat
--     --> 8 8 3 dog
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local options = require "mgpu.options"

local OPTIONS = options.declare {
  { "size", "pair" }, { "dtype", "string", values = { "float32", "uint8", "int32" } },
  { "interpolation", "string", default = "bilinear", values = require "mgpu.data.augment_options".METHODS },
  { "antialias", "boolean", default = false },
  { "crop_to_aspect_ratio", "boolean", default = false }, { "pad_to_aspect_ratio", "boolean", default = false },
  { "channels", "integer", default = 3, values = { 1, 3, 4 } },
  { "bits", "integer", default = 8, values = { 8, 16 } },
  { "labels", "string", default = "int", values = { "int", "categorical", "binary", "none" } },
  { "classes", "table" }, { "extensions", "table", default = { "bmp", "gif", "jpeg", "jpg", "png" } },
  { "follow_links", "boolean", default = false }, { "skip_bad", "boolean", default = false },
  { "validation_split", "number", min = 0, below = 1 },
  { "subset", "string", values = { "training", "validation", "both" } },
  { "seed", "integer", min = 0, max = 2 ^ 53 },
}

local WHOLE = { [8] = "uint8", [16] = "int32" } -- the dtypes of pixels that are not resized

local function fail(message, ...) core.fail("usage", "image_folder: " .. message:format(...)) end

local function check_names(name, list)
  local fault, seen = core.array_fault(list), {}
  if fault then fail("option %q: %s", name, fault) end
  if #list == 0 then fail("option %q is empty", name) end
  for i, text in ipairs(list) do
    if type(text) ~= "string" or text == "" or text:find "[%z/]" or text == "." or text == ".." then
      fail("option %q: entry %d must be a name, got %s", name, i, type(text) == "string" and ("%q"):format(text)
        or type(text))
    end
    if seen[text] then fail("option %q: %q is there twice", name, text) end
    seen[text] = true
  end
end

local function check_split(chosen)
  if (chosen.validation_split == nil) ~= (chosen.subset == nil) then
    fail 'validation_split and subset ("training", "validation" or "both") are given together, or not at all'
  elseif chosen.subset and chosen.seed == nil then
    fail "validation_split needs a seed, so that training and validation share no images"
  elseif chosen.seed and not chosen.subset then
    fail "`seed` needs validation_split; to shuffle, call ds:shuffle(n, seed)"
  elseif chosen.labels == "none" and chosen.classes then
    fail 'classes have no use with labels = "none"'
  end
end

local function check_resize(chosen, given)
  for _, name in ipairs { "dtype", "interpolation", "antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio" } do
    if given[name] ~= nil and not chosen.size then fail("option %q is for resized images: give a size too", name) end
  end
  if chosen.crop_to_aspect_ratio and chosen.pad_to_aspect_ratio then
    fail "only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be true"
  end
  if chosen.dtype and chosen.dtype ~= "float32" and chosen.dtype ~= WHOLE[chosen.bits] then
    fail("images of %d bits are resized to \"float32\" or %q, not %q", chosen.bits, WHOLE[chosen.bits], chosen.dtype)
  elseif chosen.dtype == "int32" and chosen.interpolation ~= "nearest" then
    fail 'int32 pixels are resized with interpolation = "nearest" only; the others give "float32"'
  end
end

-- The dataset of a source, whose images are resized if that is wanted.
local function dataset_of(source, chosen, classes, skipped)
  local ds = Dataset.of_source(source)
  if chosen.size then
    local dtype = chosen.dtype or chosen.interpolation == "nearest" and WHOLE[chosen.bits] or "float32"
    -- "nearest" keeps int32, which augment would not take for a dtype
    ds = ds:augment { dtype = dtype ~= "int32" and dtype or nil, resize = { chosen.size[1], chosen.size[2],
      method = chosen.interpolation, antialias = chosen.antialias,
      crop_to_aspect_ratio = chosen.crop_to_aspect_ratio, pad_to_aspect_ratio = chosen.pad_to_aspect_ratio } }
  end
  ds.classes = chosen.labels ~= "none" and classes or nil
  ds.skipped = chosen.skip_bad and skipped or nil
  return ds
end

--- image_folder(path, options): see the top.
return function(path, given)
  if type(path) ~= "string" then fail("expected the path of a folder, got %s", type(path)) end
  given = given == nil and {} or given
  local chosen = options.check("image_folder", OPTIONS, given)
  check_resize(chosen, given)
  if chosen.classes then check_names("classes", chosen.classes) end
  check_names("extensions", chosen.extensions)
  local extensions = {}
  for i, text in ipairs(chosen.extensions) do extensions[i] = text:gsub("^%.", "") end
  chosen.extensions = extensions
  check_split(chosen)
  if chosen.subset == "both" then
    local classes, skipped, training, validation = core.image_folder_source(path, chosen, "training", "validation")
    return dataset_of(training, chosen, classes, skipped), dataset_of(validation, chosen, classes, skipped)
  end
  local classes, skipped, source = core.image_folder_source(path, chosen, chosen.subset)
  return dataset_of(source, chosen, classes, skipped)
end
