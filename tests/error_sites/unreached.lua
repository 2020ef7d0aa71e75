-- The error texts that no test can bring about, by the reason. An entry is "file text": a path and a part of the text.
return {
  {
    reason = "the system refuses what it gives to every test: random bytes, a thread, memory of a library",
    "runtime/core/io_temporary.c make a temporary name for",
    "runtime/core/process.c cannot make a pipe",
    "runtime/core/process.c cannot start a process",
    "runtime/program/launcher/crew.c cannot start rank",
    "lua/mgpu/runs/folder.lua has too many folders called", -- 10,000 runs of a script in one second
    "lua/mgpu/tune/search.lua are not complete in", -- their folders were removed while the search ran
    "runtime/program/launcher/crew.c signalfd",
    "runtime/program/launcher/launcher.c no random numbers for a token",
    "lua/mgpu/dashboard/init.lua cannot read /dev/urandom",
    "runtime/program/launcher/output.c cannot start a process",
    "runtime/program/launcher/output.c --output rank0: /dev/null",
    "runtime/bind/io.c cannot look for", -- glob without memory
    "runtime/world/hub_thread.c cannot make an eventfd",
    "runtime/world/hub_thread.c cannot start the hub's thread",
    "runtime/server/httpd/documents.c out of memory for the document",
    "runtime/server/httpd/handler.c out of memory for an answer", -- libmicrohttpd's own memory
    "runtime/server/httpd/httpd_plugin.c cannot start a thread",
    "runtime/server/httpd/httpd_plugin.c libmicrohttpd does not start",
    "runtime/server/httpd/listen.c choose a port of at least 1024", -- root may listen at any
    "runtime/server/httpd/listen.c cannot listen at port",
    "runtime/data/fetch_plugin.c libcrypto cannot compute a SHA-256",
    "runtime/data/http/session.c cannot start libcurl",
    "runtime/data/http/post.c out of memory for the headers",
    "runtime/bind/json.c json_encode: out of memory", -- jansson's own memory
    "runtime/comm/nccl/failures.c cannot make the thread that watches",
    "runtime/data/image_codec/jpeg.c out of memory: a JPEG image", -- libjpeg's own memory
    "runtime/data/image_codec/gif.c out of memory: a GIF image", -- giflib's
    "runtime/device/cpu/onednn/onednn.c oneDNN: ", -- it refuses what it has agreed to compute before
    "runtime/io/h5.c cannot make a file in memory",
    "runtime/io/h5.c cannot map",
    "runtime/io/h5_helper/main.c out of memory",
    "runtime/io/h5_helper/records.c out of memory",
    "lua/mgpu/data/datasets/files.lua cannot open", -- what was found, and checked, a moment ago
    "runtime/io/json.c out of memory while writing JSON",
    "runtime/io/onnx.c out of memory for the graph", -- jansson's own memory
    "runtime/io/onnx_message.c the file has become shorter", -- while its structure is read
    "runtime/io/safetensors_write.c out of memory while writing",
    "runtime/main.c not enough memory for a Lua state",
    "runtime/program/errors.c not enough memory",
    "runtime/main.c give the process more memory", -- LuaJIT's own memory, at one moment of its compiler
  },
  {
    reason = "a library of messages refuses what those of the tests do not refuse",
    "runtime/world/mpi/plugin.c the tag %u is too large", -- 16 communicators are enough for Open MPI and MPICH
    "runtime/world/mpi/plugin.c MPI_Init_thread",
    "runtime/world/mpi/plugin.c it can be called from one thread only",
    "runtime/world/mpi/plugin.c was initialized that way",
    "runtime/world/mpi/plugin.c was built without threads",
    "runtime/world/mpi/plugin.c MPI_Comm_dup",
    "runtime/world/ucx/plugin.c setting NET_DEVICES",
    "runtime/world/ucx/plugin.c ucp_init",
    "runtime/world/ucx/plugin.c ucp_worker_create",
    "runtime/world/ucx/plugin.c ucp_worker_get_address",
  },
  {
    reason = "sizes whose bytes do not fit into 64 bits, which were checked when the shape was made",
    "runtime/data/element.c out of memory: a batch of",
    "runtime/data/order.c rows each",
    "runtime/data/sources/csv.c rows of %zu bytes are too many",
    "runtime/data/sources/row_file.c out of memory: a table of",
    "runtime/data/transforms/augment.c is too large",
    "runtime/data/transforms/axis.c augment: a resize of",
    "runtime/device/cpu/movement/movement.c iota: axis too long",
    "runtime/device/cpu/images/resize.c a table of weights is too large",
    "runtime/device/cpu/reduce/sort.c argsort: the axis is too long",
    "runtime/device/cpu/images/transform.c a row is too long",
  },
  {
    reason = "files or lists larger than a test can be: gigabytes, or billions of entries",
    "lua/mgpu/nn/formats/onnx.lua a .onnx file holds at most 2 GiB",
    "lua/mgpu/train/data_checks.lua x has more than",
    "runtime/data/image_header.c the file has more than %d MiB",
    "runtime/data/sources/tfrecord_index.c more than %d records",
    "runtime/device/cuda/context/launch.c more than a launch can have",
    "runtime/io/tfrecord_write.c at most 2 GiB are possible",
    "runtime/io/unpack.c the disk has only",
  },
  {
    reason = "cannot happen: a mistake of the program itself, which is told instead of computing on",
    "lua/mgpu/nn/onnx/activations.lua ONNX has no activation", -- it has all that there are
    "runtime/bind/signature.c more than %d tensor arguments", -- the key is full before
    "runtime/bind/source_csv.c a field without columns", -- csv.lua names them
    "runtime/bind/source_csv.c columns without a matrix",
    "runtime/comm/local.c local: no collective",
    "runtime/data/image_codec/png.c an unknown kind of pixels", -- libpng was told which ones to give
    "runtime/device/cuda/comm/comm.c cuda: no collective",
    "runtime/device/program/reference_kernel.c results, not",
    "runtime/graph/fold_norm.c folding batch normalization put",
    "runtime/graph/partition.c an error of this program, not of the script",
    "runtime/graph/partition.c a variable or an argument",
    "runtime/graph/schedule.c wait for each other in a circle",
    "runtime/ops/random.c there is no kind number",
  },
  {
    reason = "cannot happen: what comes before has checked it, and this is what is left if that is wrong",
    "runtime/bind/data.c a cell of %d strings is damaged", -- sources make them; caches have checksums
    "runtime/bind/ops.c the attribute struct is larger than the room for it",
    "runtime/comm/nccl/calls.c there is no communicator", -- it was aborted, then, and that has a text
    "runtime/data/sources/numpy.c the file ends too early", -- the header was compared with the sizes
    "runtime/data/sources/numpy.c the array ends too early",
    "runtime/device/cuda/autotuned_kernels.c no kernel can be prepared for it", -- our own kernel always can
    "runtime/device/cuda/context/context.c more than %d files of kernels",
    "runtime/device/cuda/cudnn/conv.c is not aligned",
    "runtime/device/cuda/graph/graph_edges.c a call touches more than",
    "runtime/device/program/reference_kernel.c has no kernel for", -- every op has one
    "runtime/graph/grad.c not differentiable", -- every op whose result is a floating point number is
    "runtime/io/h5_helper/read.c the attribute \"%.80s\" of \"%s\" is damaged", -- libhdf5 has just listed it
    "runtime/io/npz.c ends too early",
  },
  {
    reason = "only in builds of another kind: without CUDA's folder, or with plug-ins of another version",
    "runtime/comm/comm.c it was built against another version of the library",
    "runtime/device/kinds.c no device kind here is a GPU", -- the second of two places
  },
}
