"""A training script that computes where it is told to: python on_device.py NET STEPS FOLDER DEVICE.

It saves each worker's parameters, and prints how good they are on what it trained on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline import nets
from paceline.data import digits


def images() -> TensorDataset:
    """Of the size of CIFAR-10's, of a colour for each class."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(256) % 10
    noise = torch.randn(256, 3, 32, 32, generator=generator)
    return TensorDataset(noise + y.view(-1, 1, 1, 1) - 4.5, y)


def task(name: str) -> tuple[nn.Module, TensorDataset]:
    torch.manual_seed(0)
    if name == "resnet18":
        return nets.resnet18(), images()
    small = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10))
    return small, digits.load()[0]


def main(name: str, steps: int, folder: Path, device: str) -> None:
    model, data = task(name)
    model = model.to(device)
    opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9))
    loader = paceline.shard(DataLoader(data, batch_size=32, shuffle=True))
    done = 0
    while done < steps:
        for x, y in loader:
            opt.zero_grad()
            loss: Tensor = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            opt.step()
            done += 1
            if done == steps:
                break
    x, y = data.tensors
    with torch.no_grad():
        right = (model(x[:256].to(device)).argmax(1).cpu() == y[:256]).float().mean().item()
    print(f"accuracy {right:.4f}", flush=True)  # noqa: T201
    torch.save([parameter.detach().cpu() for parameter in model.parameters()], folder / f"{device}-{opt.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # which rounds to ten bits
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
