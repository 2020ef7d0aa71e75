--- mgpu.losses: one line a loss, loaded on first use. Names, Keras's short ones too.
return require "mgpu.index" ("loss", "mgpu.losses", {
  BinaryCrossentropy = "binary_crossentropy",
  CategoricalCrossentropy = "categorical_crossentropy",
  MeanSquaredError = "mean_squared_error",
  SparseCategoricalCrossentropy = "sparse_categorical_crossentropy",
  bce = "binary_crossentropy",
  binary_crossentropy = "binary_crossentropy",
  categorical_crossentropy = "categorical_crossentropy",
  mean_squared_error = "mean_squared_error",
  mse = "mean_squared_error",
  sparse_categorical_crossentropy = "sparse_categorical_crossentropy",
})
