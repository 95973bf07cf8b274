"""CIFAR-10: which of ten things or animals is on a picture of 32x32.

python examples/cifar10.py --net alexnet --epochs 10
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

import paceline
from paceline import nets
from paceline.data import cifar10

NETS = {"alexnet": nets.alexnet, "resnet18": nets.resnet18, "resnet56": nets.resnet56}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, default="alexnet")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=50_000, help="only so many examples of each set")
    options = parser.parse_args()
    torch.manual_seed(options.seed)

    train, test = (Subset(part, range(min(len(part), options.limit))) for part in cifar10.load())
    loader = DataLoader(train, batch_size=options.batch_size, shuffle=True)
    model = NETS[options.net]()
    opt = paceline.Optimizer(
        torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=options.weight_decay)
    )

    for epoch in range(options.epochs):
        model.train()
        for step, (x, y) in enumerate(paceline.shard(loader)):
            mirrored = torch.rand(len(x), 1, 1, 1) < 0.5
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.where(mirrored, x.flip(3), x)), y)
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print(f"epoch {epoch + 1}, step {step}: loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch + 1}: test accuracy {accuracy(model, test):.4f}", flush=True)

    print(f"test accuracy {accuracy(model, test):.4f}")


@torch.no_grad()
def accuracy(model: nn.Module, test: Dataset) -> float:
    """The share of a set that the model has right."""
    model.eval()
    right = [model(x).argmax(1) == y for x, y in DataLoader(test, batch_size=500)]
    return torch.cat(right).float().mean().item()


if __name__ == "__main__":
    main()
