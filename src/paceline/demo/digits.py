"""The script of the demo: learn digits for as long as it is let. Worker 0 looks now and then how good the model is."""

import torch
from torch import nn
from torch.utils.data import DataLoader

import paceline
from paceline.data import digits

EVERY = 5  # iterations of worker 0 between two looks


def main() -> None:
    torch.manual_seed(paceline.seed())
    train, test = digits.load()
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10)
    )
    opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    looked = 0
    while True:
        for x, y in paceline.shard(loader, seed=paceline.seed()):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            opt.step()
            if opt.rank == 0 and opt.synchronized and opt.iteration >= looked + EVERY:
                looked = opt.iteration
                paceline.report(accuracy=measure(model, *test.tensors))


@torch.no_grad()
def measure(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


if __name__ == "__main__":
    main()
