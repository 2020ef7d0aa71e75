"""torch.save and torch.load for tests/bench/checkpoint.lua, with the protocol of peer_protocol.py."""

import os

import torch

import peer_protocol

# The weights of mnist_cnn.
SHAPES = ((3, 3, 1, 32), (32,), (3, 3, 32, 256), (256,), (256,), (256,), (256,), (256,),
          (3, 3, 256, 128), (128,), (15488, 128), (128,), (128, 10), (10,))


class _Done:
    @staticmethod
    def item():
        return 0


def _saver(folder, sync):
    state = {f"{part}/{i}": torch.rand(shape) for part in ("weights", "m", "v")
             for i, shape in enumerate(SHAPES)}

    def save():
        with open(folder + "/torch.pt", "wb") as file:
            torch.save(state, file)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        return _Done
    return save


def _loader(folder):
    path = folder + "/torch.pt"
    torch.save({f"t{i}": torch.rand(4096, 4096) for i in range(8)}, path)

    def load():
        torch.load(path, weights_only=True)
        return _Done
    return load


def main():
    """Serves one kind of request."""
    options = peer_protocol.parser(__doc__)
    options.add_argument("--kind", choices=("save", "load"), required=True)
    options.add_argument("--folder", required=True)
    options.add_argument("--sync", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    step = _saver(chosen.folder, chosen.sync) if chosen.kind == "save" else _loader(chosen.folder)
    peer_protocol.serve(step, chosen)


main()
