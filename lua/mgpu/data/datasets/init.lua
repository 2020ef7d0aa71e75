--- mgpu.datasets: one line a data set, loaded on first use.
return require "mgpu.strict_table".lazy("data set", "mgpu.data.datasets", {
  cifar10 = "cifar10",
  cifar100 = "cifar100",
  digits = "digits",
  fashion_mnist = "fashion_mnist",
  imdb = "imdb",
  kmnist = "kmnist",
  mnist = "mnist",
  reuters = "reuters",
  shapes = "shapes",
})
