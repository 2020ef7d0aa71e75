--- mgpu.datasets: for each data set the file that defines it, loaded on first use.
return require "mgpu.strict_table".lazy("data set", "mgpu.data.datasets", {
  cifar10 = "cifar",
  cifar100 = "cifar",
  digits = "drawn",
  fashion_mnist = "mnist",
  imdb = "texts",
  kmnist = "mnist",
  mnist = "mnist",
  reuters = "texts",
  shapes = "drawn",
})
