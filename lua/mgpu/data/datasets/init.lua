--- mgpu.datasets: one line a data set, loaded on first use.
return require "mgpu.strict_table".lazy("data set", "mgpu.data.datasets", {
  digits = "digits",
  fashion_mnist = "fashion_mnist",
  mnist = "mnist",
})
