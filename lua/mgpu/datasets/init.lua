--- mgpu.datasets: one line a data set, loaded on first use.
return require "mgpu.index" ("data set", "mgpu.datasets", {
  digits = "digits",
  fashion_mnist = "fashion_mnist",
  mnist = "mnist",
})
