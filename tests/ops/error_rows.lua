-- Cases that ops must refuse, with a part of the message. See rows.lua.
return function(bad)
  local HUGE = 2 ^ 52 -- about the largest whole number that an option may be
  bad { "add", { { 2, 3 }, 0, 1 }, { { 2, 4 }, 0, 1 }, error = "add: shapes {2, 3} and {2, 4}" }
  bad { "matmul", { { 2, 3 }, 0, 1 }, { { 4, 5 }, 0, 1 }, error = "inner sizes" }
  bad { "reshape", { { 2, 3 }, 0, 1 }, shape = { 4 }, error = "reshape" }
  bad { "permute", { { 2, 3 }, 0, 1 }, order = { 1, 1 }, error = "permute" }
  bad { "concat", { { 2, 3 }, 0, 1 }, { { 3, 3 }, 0, 1 }, axis = 2,
    error = "shapes {2, 3} and {3, 3} differ in more than axis 2" }
  bad { "broadcast_to", { { 2, 3 }, 0, 1 }, shape = { 2, 4 }, error = "broadcast_to" }
  bad { "sum", { { 2, 3 }, 0, 1 }, axis = 3, error = "axis 3" }
  bad { "max", { { 0, 3 }, 0, 1 }, axis = 1, error = "max" }
  bad { "argmax", { { 2, 0 }, 0, 1 }, axis = 2, error = "argmax" }
  bad { "softmax", { { 2, 3 }, ints = 3 }, error = "softmax" }
  bad { "softmax_cross_entropy", { { 2, 3 }, 0, 1 }, { { 2 }, 0, 1 }, error = "targets for logits {2, 3}" }
  bad { "softmax_cross_entropy", { {}, 0, 1 }, { {}, 0, 1 }, error = "at least one axis: the classes" }
  bad { "sparse_softmax_cross_entropy", { { 2, 3 }, 0, 1 }, { { 2 }, 0, 1 }, error = "integers" }
  bad { "sparse_softmax_cross_entropy", { { 2, 3 }, 0, 1 }, { { 3 }, ints = 2 }, error = "labels for logits {2, 3}" }
  bad { "conv2d", { { 2, 5, 5, 3 }, 0, 1 }, { { 3, 3, 4, 4 }, 0, 1 }, error = "channels" }
  bad { "conv2d", { { 2, 2, 2, 3 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, error = "conv2d" }
  bad { "conv2d", { { 2, 5, 5 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, error = "4 axes" }
  bad { "max_pool2d", { { 2, 1, 1, 3 }, 0, 1 }, size = { 2, 2 }, error = "max_pool2d" }
  bad { "gather", { { 5, 2 }, 0, 1 }, { { 3 }, 0, 1 }, axis = 1, error = "integer" }
  bad { "batch_norm", { { 4, 3 }, 0, 1 }, { { 2, 2 }, 0, 1 }, { { 3 }, 0, 1 }, { { 3 }, 0, 1 }, error = "batch_norm" }
  bad { "place", { { 2, 3 }, 0, 1 }, error = "no device was given" } -- model_parallel_spec tests its value
  bad { "sum", { { 2, 3 }, 0, 1 }, axs = 1, error = "did you mean \"axis\"" }
  -- shapes
  bad { "reshape", { { 2, 3 }, 0, 1 }, shape = { -1, -1 }, error = "one size may be -1, none smaller" }
  bad { "reshape", { { 2, 3 }, 0, 1 }, shape = { -2, 3 }, error = "one size may be -1, none smaller" }
  bad { "reshape", { { 2, 3 }, 0, 1 }, shape = { HUGE, HUGE }, error = "too many elements" }
  bad { "permute", { { 2, 3 }, 0, 1 }, order = { 1 }, error = "order has 1 axes, the tensor of shape {2, 3} has 2" }
  bad { "slice", { { 2, 3 }, 0, 1 }, step = { 1, 0 }, error = "slice: step of axis 2 must not be 0" }
  bad { "slice", { { 2, 3 }, 0, 1 }, stop = { 3 }, error = "slice: 1 to 3 lies outside axis 1 of shape {2, 3}" }
  bad { "slice", { { 2, 3 }, 0, 1 }, start = { 0, 0, 0 }, error = "slice: more ranges than shape {2, 3} has axes" }
  bad { "pad", { { 2, 3 }, 0, 1 }, before = { 0, -1 }, error = "pad: sizes of axis 2 must not be negative" }
  bad { "pad", { { 2, 4096 }, 0, 1 }, interior = { 0, HUGE }, error = "pad: sizes of axis 2 are too large" }
  bad { "pad", { { 2, 3 }, 0, 1 }, after = { 1, 1, 1 }, error = "pad: more sizes than shape {2, 3} has axes" }
  bad { "sum", { { 2, 3 }, 0, 1 }, axis = { 1, 1 }, error = "sum: axis 1 is given twice" }

  -- entries by ids
  bad { "gather", { { 1, 1, 1, 1, 1 }, 0, 1 }, { { 1, 1, 1, 1, 1 }, ints = 1 }, axis = 1,
    error = "shape {1, 1, 1, 1, 1} with ids {1, 1, 1, 1, 1} gives a result of more than 8 axes" }
  bad { "scatter_add", { { 4, 2 }, 0, 1 }, { { 3 }, ints = 2 }, axis = 1, size = 5,
    error = "ids {3} do not match the slices {4, 2}: the ids' axes must stand at the axis" }
  bad { "scatter_last", { { 3 }, ints = 2 }, size = -1, error = "scatter_last: 3 ids for a size of -1" }
  bad { "scatter_along_axis", { { 3, 4 }, 0, 1 }, { { 3, 5 }, ints = 2 }, axis = 2, size = 9,
    error = "scatter_along_axis: 5 ids for 4 slices" }

  -- convolutions and pooling
  bad { "conv2d", { { 1, 4, 4, 3 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, groups = 2,
    error = "groups = 2 must divide the 3 channels and the 4 kernels" }
  bad { "conv2d", { { 1, 4, 4, 3 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, strides = { 1, 1, 1 },
    error = "conv2d: strides must be a list of 2, got 3" }
  bad { "conv2d", { { 1, 4, 4, 3 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, strides = { 1, 0 },
    error = "conv2d: strides must be 1 to 2147483647, got 0" }
  bad { "conv2d", { { 1, 4, 4, 3 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, strides = { 2 ^ 31 },
    error = "conv2d: strides must be 1 to 2147483647, got 2147483648" }
  bad { "conv2d", { { 1, 4, 4, 3 }, 0, 1 }, { { 0, 3, 3, 4 }, 0, 1 },
    error = "conv2d: a window of 0 rows is not possible: give a size of at least 1" }
  bad { "conv2d", { { 1, 2, 4, 3 }, 0, 1 }, { { 5, 3, 3, 4 }, 0, 1 }, pads = { 1 },
    error = "conv2d: the window spans 5 rows, but the image has 4 with its padding" }
  bad { "conv2d_grad_input", { { 1, 2, 2, 4 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, input_shape = { 1, 4, 4 },
    error = "conv2d_grad_input: input_shape must list 4 sizes, got {1, 4, 4}" }
  bad { "conv2d_grad_input", { { 1, 2, 3, 4 }, 0, 1 }, { { 3, 3, 3, 4 }, 0, 1 }, input_shape = { 1, 4, 4, 3 },
    error = "dy has shape {1, 2, 3, 4}, but the convolution gives {1, 2, 2, 4}" }
  bad { "max_pool2d", { { 1, 4, 4, 3 }, 0, 1 }, size = { 2, 2 }, pads = { 2, 0, 0, 0 },
    error = "a window would lie outside the image {1, 4, 4, 3}: pads must be smaller than size" }
  bad { "max_pool2d", { { 1, 4, 4, 3 }, 0, 1 }, size = { 2 ^ 31 }, error = "max_pool2d: size must be 1 to 2147483647" }
  bad { "max_pool2d_grad", { { 1, 4, 4, 3 }, 0, 1 }, { { 1, 2, 2, 3 }, 0, 1 }, { { 1, 2, 3, 3 }, 0, 1 },
    size = { 2, 2 }, error = "input 3 has shape {1, 2, 3, 3}, but must have {1, 2, 2, 3}" }

  -- products
  bad { "matmul", { {}, 0, 1 }, { { 3, 4 }, 0, 1 }, error = "matmul: inputs need at least one axis: {} x {3, 4}" }

  -- normalization and losses
  bad { "batch_norm", { { 4, 3 }, 0, 1 }, { { 2, 3 }, 0, 1 }, { { 2 }, 0, 1 }, { { 3 }, 0, 1 },
    error = "gamma of x {4, 3} must have shape {3}, got {2}" }
  bad { "batch_norm", { { 4, 3 }, 0, 1 }, { { 2, 3 }, 0, 1 }, { { 3 }, 0, 1 }, { { 2 }, 0, 1 },
    error = "beta of x {4, 3} must have shape {3}, got {2}" }
  bad { "batch_norm_reduce", { { 4, 3 }, 0, 1 }, { { 2, 3 }, 0, 1 }, { { 5, 3 }, 0, 1 },
    error = "dy has shape {5, 3}, but x has {4, 3}" }
  bad { "layer_norm", { {}, 0, 1 }, { { 3 }, 0, 1 }, { { 3 }, 0, 1 }, error = "the numbers of a row" }
  bad { "layer_norm", { { 4, 3 }, 0, 1 }, { { 2 }, 0, 1 }, { { 3 }, 0, 1 },
    error = "gamma of x {4, 3} must have shape {3}, got {2}" }
  bad { "softmax_grad", { { 2, 3 }, 0, 1 }, { { 2, 4 }, 0, 1 }, axis = 2,
    error = "dy has shape {2, 4}, but y has {2, 3}" }

  -- random numbers
  bad { "random", shape = { 3 }, kind = "uniform", b = 1, dtype = "int32",
    error = "uniform numbers must be floating point, not int32" }
  bad { "random", shape = { 3 }, kind = "uniform", a = 0, b = 1e39,
    error = "0 and 1e+39 do not fit into float32: choose smaller numbers or a wider dtype" }
  bad { "random", shape = { 3 }, kind = "uniform", a = 2, b = 1, error = "the lower bound 2 exceeds the upper bound 1" }
  bad { "random", shape = { 3 }, kind = "normal", b = -1,
    error = "the standard deviation must not be negative, got -1" }
  bad { "random", shape = { 3 }, kind = "bernoulli", a = 2, dtype = "bool",
    error = "a probability lies between 0 and 1, got 2" }
  bad { "random", shape = { 3 }, kind = "randint", a = 0, b = 0.5,
    error = "bounds must be integers, the upper one larger by 1 to 2^32, got 0 and 0.5" }
  bad { "random", shape = { 3 }, kind = "randint", a = 0, b = 300, dtype = "uint8",
    error = "the integers 0 to 299 do not fit into uint8: choose a wider dtype" }
end
