--- mgpu.optimizers: one line a class, loaded on first use.
return require "mgpu.index" ("optimizer", "mgpu.optimizers", {
  Adam = "adam",
  RMSprop = "rmsprop",
  SGD = "sgd",
  adam = "adam",
  rmsprop = "rmsprop",
  sgd = "sgd",
})
