--- Names of other frameworks (PyTorch, torch7, TensorFlow, NumPy) and what to write instead, for the errors about
--- unknown names.
--
-- A row is the foreign name and an example of ours. Names that are only spelt differently need no row: did_you_mean
-- finds them.
local core = require "mgpu.core"

local M = {}

local NAMES = {
  tensor = {
    add_ = "v:assign(v + u) for a variable v", astype = "t:to(dtype)",
    backward = "mgpu.value_and_grad(fn, variables)", bmm = "t:matmul(u)", bool = 't:to "bool"', byte = 't:to "uint8"',
    cat = "mgpu.concat({t, u}, {axis = 1})", cdiv = "t / u", clamp = "t:clip(low, high)", cmul = "t * u",
    contiguous = "t itself: every tensor is contiguous", copy = "v:assign(u) for a variable v",
    copy_ = "v:assign(u) for a variable v", cpu = 't:to "cpu"', cuda = 't:to "cuda:0"',
    data = "t itself, or t:totable()", detach = "t:stop_gradient()", dim = "t:rank()", dot = "t:matmul(u)",
    double = 't:to "float64"', equal = "t:eq(u)", expand = "t:broadcast_to {sizes}",
    expand_as = "t:broadcast_to(u:shape())", fill = "mgpu.full({sizes}, value)", float = 't:to "float32"',
    grad = "mgpu.grad(fn)", greater = "t:gt(u)", half = 't:to "float16"', index_select = "t:gather(ids, {axis = n})",
    int = 't:to "int32"', less = "t:lt(u)", long = 't:to "int64"', map = "element-wise ops: t:exp(), t * 2",
    masked_fill = "mask:where(value, t)", mm = "t:matmul(u)", mv = "t:matmul(u)", narrow = "t:slice {{first, last}}",
    ndim = "t:rank()", nDimension = "t:rank()", nElement = "t:count()", numel = "t:count()", numpy = "t:totable()",
    reduce_mean = "t:mean()", reduce_sum = "t:sum()", repeat_interleave = "t:repeat_elements(n, axis)",
    requires_grad = "mgpu.variable(t)",
    requires_grad_ = "mgpu.variable(t)", reshape_as = "t:reshape(u:shape())", select = "t:slice {n}, or t[n]",
    size = "t:shape()", storage = "t:pointer()", T = "t:transpose()", t = "t:transpose()", tolist = "t:totable()",
    topk = "t:top_k(k)",
    type = "t:dtype(), or t:to(dtype)", unsqueeze = "t:expand_dims(axis)", view = "t:reshape {rows, -1}",
    view_as = "t:reshape(u:shape())", zero_ = "v:assign(mgpu.zeros {sizes})",
  },
  variable = {
    assign_add = "v:assign(v + t)", assign_sub = "v:assign(v - t)", numpy = "v:totable()", set = "v:assign(t)",
  },
  mgpu = {
    applications = "mgpu.models", array = "mgpu.tensor {1, 2, 3}", autograd = "mgpu.grad and mgpu.value_and_grad",
    backend = "mgpu itself: ops are mgpu.relu(t)", cat = "mgpu.concat({t, u}, {axis = 1})",
    clamp = "mgpu.clip(t, low, high)", concatenate = "mgpu.concat({t, u}, {axis = 1})", Conv2D = "mgpu.layers.Conv2D",
    cuda = 'mgpu.devices "cuda"', DataLoader = "mgpu.data.from_tensors {x, y}:batch(32)", Dense = "mgpu.layers.Dense",
    distribute = "mgpu.parallel", dot = "mgpu.matmul(t, u)",
    DoubleTensor = 'mgpu.tensor(values, {dtype = "float64"})', F = "mgpu.relu(t), or t:relu()",
    FloatTensor = "mgpu.tensor(values)", from_numpy = 'mgpu.load "file.npy"',
    GradientTape = "mgpu.value_and_grad(fn, variables)", keras = "mgpu.layers, mgpu.Sequential ...",
    manual_seed = "mgpu.seed(n)",
    MirroredStrategy = 'mgpu.parallel.strategy "mirrored"', mm = "mgpu.matmul(t, u)",
    multi_gpu_model = "mgpu.parallel.multi_gpu_model", nn = "mgpu.layers, as in mgpu.layers.Dense {10}",
    np = "mgpu.tensor and its methods", numpy = "mgpu.tensor and its methods", optim = "mgpu.optimizers",
    reduce_mean = "mgpu.mean(t)", reduce_sum = "mgpu.sum(t)",
    scatter_nd = "mgpu.scatter(ids, values, shape)",
    set_random_seed = "mgpu.seed(n)", Tensor = "mgpu.tensor {1, 2, 3}", torch = "mgpu.tensor and its methods",
    utils = "mgpu.data, mgpu.image ...", Variable = "mgpu.variable(t)",
  },
  dataset = {
    as_numpy_iterator = "ds:iter()", cardinality = "ds:length()", element_spec = "ds:iter()(), an element",
    len = "ds:length()", ["repeat"] = "ds:cycle(n)", rejection_resample = "ds:filter(fn)",
    make_one_shot_iterator = "ds:iter()", scan = "for x in ds:iter() do", reduce = "for x in ds:iter() do",
    size = "ds:length()",
  },
  ["data source"] = {
    CsvDataset = "mgpu.data.csv(path)", Dataset = "mgpu.data.from_tensors {x, y}",
    DataLoader = "mgpu.data.from_tensors {x, y}:batch(32)", from_generator = "mgpu.data.generator(fn)",
    from_tensor_slices = "mgpu.data.from_tensors {x, y}", image = "mgpu.image",
    image_dataset_from_directory = "mgpu.data.image_folder(path)", ImageDataGenerator = "mgpu.ImageDataGenerator {...}",
    ImageFolder = "mgpu.data.image_folder(path)", make_csv_dataset = "mgpu.data.csv(path)",
    range = "mgpu.data.from_tensors {mgpu.arange(n)}", TensorDataset = "mgpu.data.from_tensors {x, y}",
    TextLineDataset = "mgpu.data.text_lines(path)", TFRecordDataset = "mgpu.data.tfrecord(files, schema)",
  },
  layer = {
    AdaptiveAvgPool2d = "GlobalAveragePooling2D", AvgPool2d = "AveragePooling2D",
    BatchNorm = "BatchNormalization", BatchNorm1d = "BatchNormalization", BatchNorm2d = "BatchNormalization",
    CAddTable = "Add", CMulTable = "Multiply", Conv1d = "Conv1D", Conv2d = "Conv2D",
    ConvTranspose2d = "Conv2DTranspose", Dropout2d = "SpatialDropout2D", GELU = 'Activation "gelu"',
    JoinTable = "Concatenate", LayerNorm = "LayerNormalization", Linear = "Dense {10}",
    LogSoftmax = 'Activation "log_softmax"', LookupTable = "Embedding", MaxPool1d = "MaxPooling1D",
    MaxPool2d = "MaxPooling2D", Merge = "Add, Concatenate, Multiply ...",
    Module = 'mgpu.Layer:extend("Name", {...})', Sequential = "mgpu.Sequential {...}",
    Sigmoid = 'Activation "sigmoid"', SoftMax = "Softmax", SpatialBatchNormalization = "BatchNormalization",
    SpatialConvolution = "Conv2D", SpatialMaxPooling = "MaxPooling2D", Tanh = 'Activation "tanh"',
    Upsample = "UpSampling2D", View = "Reshape", ZeroPad2d = "ZeroPadding2D",
  },
  loss = {
    BCELoss = '"binary_crossentropy"', BCEWithLogitsLoss = "mgpu.losses.BinaryCrossentropy {from_logits = true}",
    cross_entropy = '"categorical_crossentropy" (one-hot labels) or "sparse_categorical_crossentropy" (class ids)',
    crossentropy = '"categorical_crossentropy" (one-hot labels) or "sparse_categorical_crossentropy" (class ids)',
    CrossEntropyLoss = '"sparse_categorical_crossentropy", with from_logits = true for logits',
    L1Loss = '"mae"', MSELoss = '"mse"', nll_loss = '"sparse_categorical_crossentropy"',
    NLLLoss = '"sparse_categorical_crossentropy"', SmoothL1Loss = '"huber"',
  },
  optimizer = {
    apply_gradients = "opt:apply(grads, variables)", lr = "opt.learning_rate",
    minimize = "opt:apply(grads, variables), with grads of mgpu.value_and_grad", param_groups = "opt.learning_rate",
    step = "opt:apply(grads, variables), with grads of mgpu.value_and_grad",
    zero_grad = "nothing: gradients do not add up",
  },
  model = {
    add_module = "model:add(layer)", backward = "mgpu.value_and_grad(fn, model.trainable_variables)",
    cuda = 'model:compile {devices = "cuda:0"}', eval = "model(x): inference is the default",
    evaluate_generator = "model:evaluate(dataset)", fit_generator = "model:fit(dataset, {...})",
    forward = "model(x), or model(x, {training = true})", getParameters = "model.trainable_variables",
    half = 'model:compile {precision = "mixed_float16"}', load_state_dict = "model:load_weights(path)",
    parameters = "model.trainable_variables", predict_classes = "model:predict(x):argmax(-1)",
    predict_generator = "model:predict(dataset)", state_dict = "model:save_weights(path), or model:get_weights()",
    to = "model:compile {devices = ...}, or model:set_devices(list)",
    train = "model:fit(x, y), or model(x, {training = true})", training = "model(x): inference is the default",
    updateOutput = "model(x)",
    zero_grad = "nothing: gradients do not add up", zeroGradParameters = "nothing: gradients do not add up",
  },
}

--- advice(kind, name) -> ": write t:reshape {rows, -1}" for a foreign name, or nil.
-- kind: tensor, variable, mgpu, dataset, data source, layer, loss, optimizer or model.
function M.advice(kind, name)
  local ours = NAMES[kind] and NAMES[kind][name]
  return ours and ": write " .. ours or nil
end

--- each(fn): calls fn(kind, foreign name, ours) for every row.
function M.each(fn)
  for kind, names in pairs(NAMES) do
    for name, ours in pairs(names) do fn(kind, name, ours) end
  end
end

--- hint(kind, name, names) -> the end of an error about an unknown name: what to write for a foreign name, or the
--- nearest of `names`, or "".
function M.hint(kind, name, names)
  return M.advice(kind, name) or core.did_you_mean(tostring(name), names)
end

return M
