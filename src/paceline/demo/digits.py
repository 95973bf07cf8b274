"""The script of the demo: learn digits until the test accuracy is reached. Worker 0 looks now and then."""

import sys
from time import monotonic

import torch
from torch import nn
from torch.utils.data import DataLoader

import paceline
from paceline.data import digits

EVERY = 5  # iterations of worker 0 between two looks


def main(target: float) -> None:
    torch.manual_seed(0)
    train, test = digits.load()
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10)
    )
    opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    began, step = monotonic(), 0
    while True:
        for x, y in paceline.shard(loader):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            opt.step()
            step += 1
            if opt.rank == 0 and step % EVERY == 0:
                accuracy = measure(model, *test.tensors)
                print(f"accuracy {accuracy:.4f} after {monotonic() - began:.2f} s", flush=True)
                if accuracy >= target:
                    return


@torch.no_grad()
def measure(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


if __name__ == "__main__":
    main(float(sys.argv[1]))
