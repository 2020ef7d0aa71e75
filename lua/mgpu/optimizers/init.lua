--- mgpu.optimizers: one line a class, loaded on first use.
return require "mgpu.index" ("optimizer", "mgpu.optimizers", {
  Adadelta = "adadelta",
  Adagrad = "adagrad",
  Adam = "adam",
  AdamW = "adamw",
  Adamax = "adamax",
  Nadam = "nadam",
  RMSprop = "rmsprop",
  SGD = "sgd",
  adadelta = "adadelta",
  adagrad = "adagrad",
  adam = "adam",
  adamax = "adamax",
  adamw = "adamw",
  nadam = "nadam",
  rmsprop = "rmsprop",
  sgd = "sgd",
})
