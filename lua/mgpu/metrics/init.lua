--- mgpu.metrics: one line a metric, loaded on first use.
return require "mgpu.index" ("metric", "mgpu.metrics", {
  Accuracy = "accuracy",
  BinaryAccuracy = "binary_accuracy",
  CategoricalAccuracy = "categorical_accuracy",
  Mean = "mean",
  SparseCategoricalAccuracy = "sparse_categorical_accuracy",
  acc = "accuracy",
  accuracy = "accuracy",
  binary_accuracy = "binary_accuracy",
  categorical_accuracy = "categorical_accuracy",
  sparse_categorical_accuracy = "sparse_categorical_accuracy",
})
