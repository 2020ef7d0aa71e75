--- The pictures of the autoencoder examples: test images in the latent plane, and digits decoded from it.
local mgpu = require "mgpu"
local core = require "mgpu.core"
local svg = require "mgpu.plot.svg"

local SIDE = 15 -- digits in a row and in a column

-- The latent plane as SVG: a dot for each test image, in the color of its class.
local function scatter(places, labels, classes)
  local size, margin, legend = 480, 20, 70
  local most = 1e-6 -- the largest finite distance from the center
  for _, p in ipairs(places) do
    for axis = 1, 2 do
      if p[axis] - p[axis] == 0 then most = math.max(most, math.abs(p[axis])) end
    end
  end
  local function color(class) return ("hsl(%d,70%%,50%%)"):format(360 * class / classes) end
  local function pixel(v) return margin + (v / most + 1) / 2 * (size - 2 * margin) end
  local parts = {}
  for i, p in ipairs(places) do
    if p[1] - p[1] == 0 and p[2] - p[2] == 0 then
      parts[#parts + 1] = svg.element("circle", { cx = pixel(p[1]), cy = pixel(-p[2]), r = 2,
        fill = color(labels[i]) })
    end
  end
  for class = 0, classes - 1 do
    local y = margin + 20 * class
    parts[#parts + 1] = svg.element("circle", { cx = size + 10, cy = y, r = 5, fill = color(class) })
    parts[#parts + 1] = svg.text(size + 22, y + 4, class)
  end
  return svg.picture(size + legend, size, table.concat(parts, "\n"), "Test images in the latent plane") .. "\n"
end

-- The quantile of the standard normal distribution. Source: the logistic approximation of Bowling et al., 2009, whose
-- error of 0.01 does not show in a picture.
local function quantile(p) return -math.log(1 / p - 1) / 1.702 end

-- side * side points of the plane at equal steps of probability from 0.05 to 0.95, the first row on top.
local function plane(side)
  local points = {}
  for row = 1, side do
    for column = 1, side do
      points[#points + 1] = { quantile(0.05 + 0.9 * (column - 1) / (side - 1)),
        quantile(0.95 - 0.9 * (row - 1) / (side - 1)) }
    end
  end
  return mgpu.tensor(points)
end

--- latent_plane(encoder, decoder, x, y, classes, files): writes files.scatter, where each image of x is a dot in the
--- color of its class, and files.digits. With several processes all must call it; rank 0 writes.
return function(encoder, decoder, x, y, classes, files)
  local places = encoder:predict(x, { verbose = 0 })
  local digits = decoder:predict(plane(SIDE), { verbose = 0 })
  if mgpu.world().rank > 0 then return end
  core.write_file(files.scatter, { scatter(places:totable(), y:totable(), classes) })
  mgpu.image.save(files.digits, digits, { columns = SIDE, padding = 0 })
  print(("Wrote %s and %s"):format(files.scatter, files.digits))
end
