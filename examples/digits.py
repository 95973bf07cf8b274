"""Handwritten digits, 8x8: a small network that is right more than 95 times in a hundred after seconds.

python examples/digits.py
"""

import argparse
from time import monotonic

import torch
from torch import nn
from torch.utils.data import DataLoader

import paceline
from paceline.data import digits

MEASURE_EVERY = 0.2  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--alpha", type=float, help="parts of the data that are uneven by class, from Dirichlet(alpha)")
    parser.add_argument("--seed", type=int, default=paceline.seed())
    options = parser.parse_args()
    torch.manual_seed(options.seed)

    train, test = digits.load()
    loader = DataLoader(train, batch_size=options.batch_size, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )
    opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum))

    measure_at = monotonic()
    for epoch in range(options.epochs):
        for x, y in paceline.shard(loader, alpha=options.alpha, seed=options.seed):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            if opt.rank == 0 and opt.synchronized and monotonic() >= measure_at:
                paceline.report(accuracy=accuracy(model, *test.tensors))
                measure_at = monotonic() + MEASURE_EVERY
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    print(f"test accuracy {accuracy(model, *test.tensors):.4f}")


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of these digits that the model has right."""
    return (model(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    main()
