-- mgpu.show: what it writes, decoded again where a terminal would.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local terminal = require "mgpu.show.terminal"

local L = mgpu.layers
local test = check.test

-- What show writes. Without a terminal the protocol is "ascii" unless it is given.
local function shown(value, options)
  local output, text = mgpu.output, {}
  mgpu.output = function(part) text[#text + 1] = part end
  local ok, message = pcall(mgpu.show, value, options)
  mgpu.output = output
  if not ok then error(message, 0) end
  return table.concat(text)
end

local function base64_decoded(text)
  local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  local out, word, bits = {}, 0, 0
  for char in text:gmatch "[^=]" do
    word, bits = word * 64 + alphabet:find(char, 1, true) - 1, bits + 6
    if bits >= 8 then
      bits = bits - 8
      out[#out + 1] = string.char(math.floor(word / 2 ^ bits))
      word = word % 2 ^ bits
    end
  end
  return table.concat(out)
end

local ROWS = { { { 255, 0, 0 }, { 0, 255, 0 } }, { { 0, 0, 255 }, { 51, 102, 204 } } }
local IMAGE = mgpu.tensor(ROWS, { dtype = "uint8" })

-- Checks that pixel(y, x), from 0, is the image enlarged by a whole factor. RETURNS the factor.
local function check_enlarged(rows, columns, pixel)
  local factor = columns / 2
  check.equal({ rows, factor % 1 }, { factor * 2, 0 })
  for y = 0, rows - 1 do
    for x = 0, columns - 1 do
      check.equal(pixel(y, x), ROWS[math.floor(y / factor) + 1][math.floor(x / factor) + 1])
    end
  end
  return factor
end

-- ---- protocols ----------------------------------------------------------------------------------

test("kitty gets the pixels in chunks of 4096 characters", function()
  local text, data, columns, rows, chunks = shown(IMAGE, { protocol = "kitty" }), {}, nil, nil, 0
  for head, payload in text:gmatch "\27_G([^;]*);([^\27]*)\27\\" do
    chunks = chunks + 1
    check.truthy(#payload <= 4096)
    columns, rows = columns or tonumber(head:match "s=(%d+)"), rows or tonumber(head:match "v=(%d+)")
    check.equal(head:match "a=T", chunks == 1 and "a=T" or nil)
    data[chunks] = payload
  end
  check.truthy(chunks > 0 and text:find "m=0;[^;]*$")
  local bytes = base64_decoded(table.concat(data))
  check.equal(#bytes, rows * columns * 3)
  check_enlarged(rows, columns, function(y, x)
    return { bytes:byte((y * columns + x) * 3 + 1, (y * columns + x) * 3 + 3) }
  end)
end)

test("iTerm2 gets a PNG file", function()
  if not pcall(mgpu.image.encode_png, IMAGE) then check.skip "needs libpng" end
  local size, data = shown(IMAGE, { protocol = "iterm" })
    :match "^\27%]1337;File=inline=1;size=(%d+);[^:]*:([^\7]*)\7\n$"
  local file = base64_decoded(data)
  check.equal(#file, tonumber(size))
  local pixels = mgpu.image.decode(file):totable()
  check_enlarged(#pixels, #pixels[1], function(y, x) return pixels[y + 1][x + 1] end)
end)

-- The pixels of a sixel image: red, green and blue in percent by row and column.
local function sixel_decoded(text)
  local columns, rows, body = text:match '^\27P[%d;]*q"1;1;(%d+);(%d+)(.*)\27\\\n$'
  local palette, pixels, color, x, top, at = {}, {}, nil, 0, 0, 1
  for y = 0, rows - 1 do pixels[y] = {} end
  local function put(char, n)
    for k = 0, 5 do
      if math.floor((char:byte() - 63) / 2 ^ k) % 2 == 1 then
        for i = x, x + n - 1 do pixels[top + k][i] = palette[color] end
      end
    end
    x = x + n
  end
  while at <= #body do
    local number, r, g, b = body:match("^#(%d+);2;(%d+);(%d+);(%d+)", at)
    local plain, count, char = body:match("^#(%d+)", at), body:match("^!(%d+)(.)", at)
    if number then
      palette[number] = { tonumber(r), tonumber(g), tonumber(b) }
      at = at + #("#;2;;;") + #number + #r + #g + #b
    elseif plain then
      color, at = plain, at + 1 + #plain
    elseif count then
      put(char, tonumber(count))
      at = at + 2 + #count
    else
      local one = body:sub(at, at)
      if one == "$" then x = 0 elseif one == "-" then x, top = 0, top + 6 else put(one, 1) end
      at = at + 1
    end
  end
  return pixels, tonumber(rows), tonumber(columns)
end

test("sixels are the image in 216 colors, or in 64 greys", function()
  local pixels, rows, columns = sixel_decoded(shown(IMAGE, { protocol = "sixel" }))
  check_enlarged(rows, columns, function(y, x) -- all of its colors are among the 216
    local percent, bytes = pixels[y][x], {}
    for k = 1, 3 do bytes[k] = math.floor(percent[k] * 2.55 + 0.5) end
    return bytes
  end)
  local ramp = mgpu.linspace(0, 1, 64):reshape { 1, 64 }
  pixels, rows, columns = sixel_decoded(shown(ramp, { protocol = "sixel" }))
  for x = 0, columns - 1 do
    check.near(pixels[rows - 1][x][1] / 100, math.floor(x * 64 / columns) / 63, 0.02) -- a grey is 1/63 from the next
  end
end)

test("colors between the colors of the sixel palette are mixed from their neighbours", function()
  local pixels, rows, columns = sixel_decoded(shown(mgpu.zeros { 4, 4, 3 } + mgpu.tensor { 0.5, 0.3, 0.1 },
    { protocol = "sixel" }))
  local sums = { 0, 0, 0 }
  for y = 0, rows - 1 do
    for x = 0, columns - 1 do
      for k = 1, 3 do sums[k] = sums[k] + pixels[y][x][k] / 100 end
    end
  end
  for k, wanted in ipairs { 0.5, 0.3, 0.1 } do
    check.near(sums[k] / rows / columns, wanted, 0.02) -- 16 thresholds between levels that are 0.2 apart: 0.0125
  end
end)

test("half blocks show two rows of pixels in a line", function()
  local text = shown(IMAGE, { protocol = "blocks" })
  if terminal.has_true_color() then
    check.equal(text, "\27[38;2;255;0;0m\27[48;2;0;0;255m▀\27[38;2;0;255;0m\27[48;2;51;102;204m▀\27[0m\n")
  else
    check.equal(text, "\27[38;5;196m\27[48;5;21m▀\27[38;5;46m\27[48;5;68m▀\27[0m\n")
  end
end)

test("without a terminal an image is ten kinds of characters, a batch is a grid", function()
  check.equal(shown(mgpu.tensor { { 0, 0.55, 1 }, { 0, 0.55, 1 } }), " +@\n")
  local two = mgpu.concat({ mgpu.ones { 1, 2, 2 }, mgpu.ones { 1, 2, 2 } }, { axis = 1 })
  check.equal(shown(two, { padding = 2, columns = 2 }), "\n  @@  @@\n\n")
  check.equal(shown(mgpu.tensor { { -5, 0, 5 }, { -5, 0, 5 } }), " +@\n") -- scaled
  check.equal(shown(mgpu.ones { 2, 2 } * 7), "\n")
end)

test("an image that is wider than the terminal is shrunk to the means of its pixels", function()
  local stripes = mgpu.tensor { { 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1 } }:broadcast_to { 2, 16 }
  check.equal(shown(stripes, { width = 8 }), "====@@@@\n")
end)

test("the protocol is what the terminal answers", function()
  check.equal(terminal.by_answer "\27_Gi=31;OK\27\\\27[?62;c", "kitty")
  check.equal(terminal.by_answer "\27[?62;4;22c", "sixel")
  check.equal(terminal.by_answer "\27[?64;1;14;44c", "blocks")
  check.equal(terminal.by_answer "", "blocks")
  local function run(variable)
    return check.run(("MGPULUA_GRAPHICS=%s %s -e 'require %q.show(require %q.ones { 2, 2 })' 2>&1"):format(variable,
      check.program, "mgpu", "mgpu"))
  end
  check.matches(run "kitty", "\27_G")
  check.matches(run "kity", 'MGPULUA_GRAPHICS: unknown protocol "kity" (did you mean "kitty"?)')
end)

-- ---- models and charts --------------------------------------------------------------------------

test("a model's branches fork and join", function()
  local x = mgpu.Input { 8, 8, 3, name = "x" }
  local a = L.Conv2D { 3, 3, padding = "same", name = "a" } (x)
  local b = L.Conv2D { 3, 1, name = "b" } (x)
  local c = L.Add { name = "c" } { a, x }
  local model = mgpu.Model { inputs = x, outputs = L.Concatenate { name = "d" } { c, b, x }, name = "branches" }
  check.equal(shown(model), [[
branches
*         x (Input)         (None, 8, 8, 3)
|-----\
* | | |   a (Conv2D)        (None, 8, 8, 3)   84 parameters
| * | |   b (Conv2D)        (None, 8, 8, 3)   12 parameters
|-+-/ |
* |   |   c (Add)           (None, 8, 8, 3)
|-----/
*         d (Concatenate)   (None, 8, 8, 9)
]])
end)

test("a Sequential is a list", function()
  check.equal(shown(mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "first" }, name = "list" }), [[
list
*   input           (None, 4)
*   first (Dense)   (None, 3)   15 parameters
]])
end)

test("numbers are a curve", function()
  check.equal(shown(mgpu.tensor { 0, 1, 2, 3, 4 }, { width = 12, height = 5 }), [[
{5} float32
4 |        *
  |      **
2 |   ***
  | **
0 |*
  +---------
   1 2 3 4 5
]])
end)

test("a history has a chart for each value, with the validation in it", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  model:compile { loss = "mse", metrics = "mae" }
  local history = model:fit(mgpu.ones { 8, 2 }, mgpu.ones { 8, 1 }, { epochs = 3, verbose = 0, validation_split = 0.5 })
  local text = shown(history, { width = 40 })
  for _, words in ipairs { "loss ", "mae", "* training  o validation" } do check.matches(text, words) end
  check.falsy(shown(history, { metrics = "mae" }):find "loss")
  check.raises(function() mgpu.show(history, { metrics = "mea" }) end, 'did you mean "mae"', "usage")
end)

-- ---- errors -------------------------------------------------------------------------------------

test("what cannot be drawn is an error", function()
  check.raises(function() mgpu.show(3) end, "show_spec.lua:%d+: show: draws images %(tensors%), what fit returns, and "
    .. "models; got 3", "usage")
  check.raises(function() mgpu.show { history = { loss = { 1 } }, epoch = { 1 } } end, "got a table", "usage")
  for _, shape in ipairs { { 2, 2, 5, 7, 9 }, {} } do
    check.raises(function() mgpu.show(mgpu.ones(shape)) end, ("%%d: show: a tensor of shape {%s} is neither a curve "
      .. "{n} nor an image {rows, columns}, {rows, columns, 1, 3 or 4}, nor a batch of images"):format(
      table.concat(shape, ", ")), "usage")
  end
  check.raises(function() mgpu.show(mgpu.ones { 2, 2, 5, 7 }) end, "%d: show: a tensor of shape {2, 2, 5, 7} is not an "
    .. "image: {rows, columns}, ", "usage")
  check.raises(function() mgpu.show(mgpu.ones { 0, 3 }) end, "show: a tensor of shape {0, 3} has no pixels", "usage")
  check.raises(function() mgpu.show(mgpu.tensor { { 1, 0 / 0 } }) end, "not finite", "usage")
  check.raises(function() mgpu.show(mgpu.ones { 2, 2 }, { widht = 3 }) end, 'did you mean "width"', "usage")
  check.raises(function() mgpu.show(mgpu.ones { 2, 2 }, 3) end, "options are a table", "usage")
  check.raises(function() mgpu.show(mgpu.Sequential {}) end, "no layers", "usage")
  check.equal(core.terminal_ask("", "c", 0), "")
end)
