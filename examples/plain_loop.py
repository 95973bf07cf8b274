"""Push, pull and clock by hand: four workers fit a line on two servers, under a synchronization model of your choice.

    python examples/plain_loop.py --workers 4 --servers 2 --sync "ssp(s=3)"

Every worker has its own data. The last one is slow: it computes each gradient several times over.
"""

import argparse
import time

import torch

from paceline.launch.local import LocalCluster
from paceline.launch.node import Post
from paceline.nodes import Job
from paceline.params import Optimizer

TRUTH = torch.linspace(-1, 1, 2000)


def train(post: Post) -> dict[str, float]:
    """What every worker does. What it returns, `main` gets."""
    generator = torch.Generator().manual_seed(post.number)
    slow = post.number == post.job.workers - 1
    with post.worker({"weight": tuple(TRUTH.shape)}) as worker:
        worker.start(post.coordinator, torch.zeros_like(TRUTH))
        begin = time.perf_counter()
        while worker.iteration < post.arguments["iterations"]:
            inputs = torch.randn(200, len(TRUTH), generator=generator)
            for _ in range(8 if slow else 1):
                error = inputs @ (worker.parameters - TRUTH)
                worker.gradients.copy_(inputs.T @ error / len(inputs))
            worker.push()
            worker.clock()
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "error": float((worker.parameters - TRUTH).abs().mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--sync", default="ssp(s=3)")
    parser.add_argument("--iterations", type=int, default=200)
    options = parser.parse_args()
    job = Job(
        workers=options.workers,
        servers=options.servers,
        sync=options.sync,
        optimizer=Optimizer("sgd", {"lr": 0.05}),
    )
    with LocalCluster(job, "plain_loop:train", {"iterations": options.iterations}) as cluster:
        ended = cluster.wait(timeout=300)
    for name, node in ended.items():
        if node.error is not None:
            raise SystemExit(f"{name}: {node.error}\n{node.log}")
        if node.value is not None:
            print(f"{name}: {node.value['seconds']:.2f} s, mean error {node.value['error']:.4f}")


if __name__ == "__main__":
    main()
