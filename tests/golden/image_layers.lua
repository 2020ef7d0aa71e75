-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- image_layers.safetensors, by their path in this table. Written by make_golden.py. A recipe {
-- salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- Images are floor(unit * 256) of hash.lua with this salt, float32, divided by 255 where `unit` is
-- true. cases: what the layer with these options returns for images of this size in training.
return {
  salt = 80,
  cases = {
    { layer = "AutoContrast", options = {}, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "AutoContrast", options = { value_range = { 0, 1 } }, size = { 3, 5, 4, 3 }, unit = true },
    { layer = "AutoContrast", options = { data_format = "channels_first" }, size = { 3, 3, 5, 4 }, unit = false },
    { layer = "AutoContrast", options = { value_range = { -255, 510 } }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "Equalization", options = {}, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "Equalization", options = { value_range = { 0, 1 } }, size = { 3, 5, 4, 3 }, unit = true },
    { layer = "Equalization", options = { data_format = "channels_first" }, size = { 3, 3, 5, 4 }, unit = false },
    { layer = "Equalization", options = { bins = 7 }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "Equalization", options = { bins = 300, value_range = { -255, 255 } }, size = { 3, 5, 4, 3 },
      unit = false },
    { layer = "RandomInvert", options = { factor = { 1, 1 } }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "RandomInvert", options = { factor = { 1, 1 }, value_range = { 0, 1 } }, size = { 3, 5, 4, 3 },
      unit = true },
    { layer = "RandomInvert", options = { factor = { 0, 0 } }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "RandomPosterization", options = { factor = { 3, 3 } }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "RandomPosterization", options = { factor = 1 }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "RandomPosterization", options = { factor = { 8, 8 } }, size = { 3, 5, 4, 3 }, unit = false },
    { layer = "RandomPosterization", options = { factor = { 5, 5 }, value_range = { 0, 1 } }, size = { 3, 5, 4, 3 },
      unit = true },
    { layer = "RandomPosterization", options = { factor = { 2, 2 }, value_range = { -255, 255 } },
      size = { 3, 5, 4, 3 }, unit = false },
  },
}
