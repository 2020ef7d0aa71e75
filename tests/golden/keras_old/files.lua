-- The files of make_old_files.py that are here, by the version of Keras that wrote them.
return {
  ["1.2.2"] = { "branches_inside.h5", "channels_first.h5", "conv1d.h5", "momentum.h5", "nested_functional.h5",
    "transposed.h5" },
  ["2.3.1"] = { "adam.h5" },
  ["2.13.1"] = { "nested_functional.keras" },
  ["2.15.0"] = { "local_first.h5", "local_same.h5", "nadam.h5", "sgd.h5" },
}
