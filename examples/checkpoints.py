"""Digits again, with checkpoints: end it when you like, start it again, and it goes on from the last one.

python examples/checkpoints.py --folder checkpoints
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

import paceline
from paceline.data import digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="checkpoints")
    parser.add_argument("--iterations", type=int, default=300, help="how many in all, over all starts")
    parser.add_argument("--every", type=int, default=50, help="iterations between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)

    train, test = digits.load()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    loaded = paceline.load_checkpoint(options.folder, model, optimizer)
    opt = paceline.Optimizer(optimizer, iteration=loaded.iteration)
    print(f"from iteration {opt.iteration}")

    while opt.iteration < options.iterations:
        for x, y in paceline.shard(loader):
            if opt.iteration >= options.iterations:
                break
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
            if opt.iteration % options.every == 0:
                paceline.save_checkpoint(options.folder, model, opt)

    with torch.no_grad():
        x, y = test.tensors
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
