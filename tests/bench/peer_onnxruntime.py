"""onnxruntime's side of predict.lua: predicts with a model that mgpulua has exported.

    python tests/bench/peer_onnxruntime.py --model lenet5.onnx --batch 16 --threads 2 --shape 28,28,1 --type float32

It answers the requests of peer_protocol.py. All optimizations are on; with --spin 0 its threads sleep
between predictions. "first" in the answers is the time from the start of the process to the end of the
first prediction, in seconds.
"""

import argparse
import sys
import time

sys.dont_write_bytecode = True
BEGIN = time.time()

import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402

from peer_protocol import answer_predictions, process_start  # noqa: E402


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True)
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--shape", required=True, help="of a row, as 28,28,1")
    options.add_argument("--type", default="float32")
    options.add_argument("--spin", type=int, default=1)
    chosen = options.parse_args()
    how = ort.SessionOptions()
    how.intra_op_num_threads = chosen.threads
    how.inter_op_num_threads = 1
    how.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    how.add_session_config_entry("session.intra_op.allow_spinning", str(chosen.spin))
    session = ort.InferenceSession(chosen.model, how, providers=["CPUExecutionProvider"])
    shape = [chosen.batch] + [int(n) for n in chosen.shape.split(",")]
    wanted = session.get_inputs()[0]
    random = np.random.default_rng(1)
    x = random.random(shape, dtype=np.float32) if chosen.type == "float32" else random.integers(0, 90, shape)
    kind = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}[wanted.type]
    feed = {wanted.name: x.astype(kind)}
    session.run(None, feed)
    first = time.time() - process_start()
    answer_predictions(lambda: session.run(None, feed), first)


main()
