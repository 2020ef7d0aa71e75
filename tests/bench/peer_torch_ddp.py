"""PyTorch's DistributedDataParallel over gloo: training steps of several processes of this machine.

    python tests/bench/peer_torch_ddp.py --net lenet5 --threads 1 --ranks 2 [--layout channels_last]
    python tests/bench/peer_torch_ddp.py --ranks 2 --sums BYTES...

The step and the requests are those of peer_torch.py; --batch counts the rows of all processes, each
of which takes an equal share. Batch normalization uses the statistics of each process, as is DDP's
default. With --sums it prints "BYTES SECONDS", the best time of an all-reduce of each size.
"""

import os
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import peer_protocol  # noqa: E402
import peer_torch  # noqa: E402

TRIALS, TRIAL_SECONDS = 15, 0.1
QUIT = -1  # in place of a number of steps


def start_others(ranks):
    """Starts the other processes, which learn rank and port by torchrun's variables."""
    if "RANK" in os.environ:
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
    for rank in range(1, ranks):
        subprocess.Popen([sys.executable] + sys.argv, env=dict(os.environ, RANK=str(rank)),
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    os.environ["RANK"] = "0"


def share(number):
    """Rank 0's number, on all ranks."""
    given = torch.tensor([number], dtype=torch.int64)
    dist.broadcast(given, 0)
    return int(given)


def time_sums(sizes):
    """Prints the best time of each size."""
    for size in sizes:
        values, best, rounds = torch.zeros(size // 4), float("inf"), 2
        for _ in range(1 + TRIALS):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(rounds):
                dist.all_reduce(values)
            best = min(best, (time.perf_counter() - start) / rounds)
            rounds = share(1 + int(TRIAL_SECONDS / best))
        if dist.get_rank() == 0:
            print(f"{size} {best:.9f}", flush=True)


def follow(step):
    """Another rank than 0: trains as many steps as rank 0 is asked for."""
    for n in iter(lambda: share(0), QUIT):
        for _ in range(n):
            step().item()


def lead(step):
    """Rank 0: answers, and lets the others train as many steps."""
    def run(n):
        share(n)
        peer_protocol.run_steps(step, n)

    peer_protocol.answer_requests(run)
    share(QUIT)


def main():
    """Reads the options and serves."""
    parser = peer_protocol.parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sums", type=int, nargs="*")
    options = parser.parse_args()
    options.device, options.precision, options.graph, options.compile = "cpu", "tf32", False, None
    torch.set_num_threads(options.threads)
    start_others(options.ranks)
    dist.init_process_group("gloo")
    if options.sums:
        time_sums(options.sums)
    else:
        options.batch //= options.ranks
        step = peer_torch.make_step(options, torch.nn.parallel.DistributedDataParallel)
        for _ in range(options.warmup):
            step().item()
        if dist.get_rank() == 0:
            lead(step)
        else:
            follow(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
