-- Makes the pictures of the tutorial, in this folder:
--
--     build/mgpulua --devices cpu:0-1 lua/manual/pictures/make.lua
local mgpu = require "mgpu"

local FOLDER = arg[0]:match "^(.*/)" or "./"

-- The diagram of the notebook: model replicas on devices, gradients averaged, weights updated in one place.
local function parallelism()
  local lines = {}
  local function add(text, ...) table.insert(lines, text:format(...)) end
  local function box(x, y, width, text, class)
    add('<rect x="%d" y="%d" width="%d" height="34" rx="5" class="%s"/>', x, y, width, class or "box")
    add('<text x="%d" y="%d">%s</text>', x + width / 2, y + 22, text)
  end
  local function arrow(x1, y1, x2, y2)
    add('<path d="M%d %dL%d %d" marker-end="url(#tip)"/>', x1, y1, x2, y2)
  end
  add '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 330" font-family="sans-serif" font-size="13">'
  add '<style>.box{fill:none;stroke:#888}.home{fill:#2a8a2a33;stroke:#2a8a2a}path{stroke:#888;fill:none}'
  add 'text{fill:#222;text-anchor:middle}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>'
  add '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
  add '<path d="M0 0L8 4L0 8"/></marker>'
  box(200, 10, 200, "batch of 128 images")
  for i = 0, 3 do
    local x = 15 + i * 145
    box(x, 90, 135, "32 images", "box")
    box(x, 140, 135, ("cuda:%d: model"):format(i))
    box(x, 190, 135, "gradients")
    arrow(300, 44, x + 67, 90)
    arrow(x + 67, 124, x + 67, 140)
    arrow(x + 67, 174, x + 67, 190)
    arrow(x + 67, 224, 300, 270)
  end
  box(105, 270, 390, "cpu:0: mean of the gradients, update of the weights", "home")
  add '</svg>'
  local file = assert(io.open(FOLDER .. "parallelism.svg", "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
end

local train, test = mgpu.datasets.digits(1024)
mgpu.image.save(FOLDER .. "digits.png", train.x:slice { { 1, 40 } }, { columns = 10 })
parallelism()

mgpu.seed(42)
local function images(x) return x:reshape { -1, 28, 28, 1 }:to "float32" / 255 end
local model = mgpu.models.mnist_cnn { input_shape = { 28, 28, 1 }, classes = 10 }
model:plot(FOLDER .. "model.svg")
model:compile { loss = "sparse_categorical_crossentropy", optimizer = "rmsprop", metrics = { "accuracy" } }
local history = model:fit(images(train.x), train.y, { batch_size = 128, epochs = 12, verbose = 2,
  validation_data = { images(test.x), test.y } })
history:plot(FOLDER .. "curves.svg", { title = "mnist_cnn on drawn digits" })
