"""Fashion-MNIST: which of ten kinds of clothes is on a picture of 28x28.

python examples/fashion_mnist.py --net cnn --epochs 2
"""

import argparse
import math
from copy import deepcopy
from time import monotonic

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Subset

import paceline
from paceline import nets
from paceline.data import fashion_mnist

NETS = {"cnn": nets.cnn, "lenet": nets.lenet, "mlp": nets.mlp, "alexnet": lambda: nets.alexnet(channels=1)}
CURVES = {"cosine": lambda share: (1 + math.cos(math.pi * share)) / 2, "exponential": lambda share: 0.001**share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, default="cnn")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--clip", type=float, default=float("inf"), help="the longest that a gradient may be")
    parser.add_argument("--anneal", type=seconds, default=math.inf, help="seconds in which the learning rate falls")
    parser.add_argument("--curve", choices=CURVES, default="cosine", help="how it falls: to 0, or to a thousandth")
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, or cuda")
    parser.add_argument("--alpha", type=float, help="parts of the data that are uneven by class, from Dirichlet(alpha)")
    parser.add_argument("--measure", type=int, default=1000, help="so many of the test set, now and then")
    parser.add_argument("--measure-every", type=float, default=2.0, help="seconds")
    parser.add_argument("--seed", type=int, default=paceline.seed())
    parser.add_argument("--limit", type=int, default=60_000, help="only so many examples of each set")
    options = parser.parse_args()
    torch.manual_seed(options.seed)

    train, test = fashion_mnist.load()
    train = Subset(train, range(min(len(train), options.limit)))
    images, kinds = (part[: options.limit].to(options.device) for part in test.tensors)
    few = images[: options.measure], kinds[: options.measure]
    loader = DataLoader(train, batch_size=options.batch_size, shuffle=True)
    model = NETS[options.net]().to(options.device)
    if options.device != "cpu":
        warm_up(model, *few, options.batch_size)
    opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum))
    begun = measure_at = monotonic()
    curve = CURVES[options.curve]
    schedule = LambdaLR(opt, lambda _: curve(min((monotonic() - begun) / options.anneal, 1.0)))

    for epoch in range(options.epochs):
        part = paceline.shard(loader, alpha=options.alpha, seed=options.seed)
        for step, (x, y) in enumerate(part):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(options.device)), y.to(options.device))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            opt.step()
            schedule.step()
            if opt.rank == 0 and opt.synchronized and monotonic() >= measure_at:
                paceline.report(accuracy=accuracy(model, *few))
                measure_at = monotonic() + options.measure_every
            if step % 100 == 0:
                print(f"epoch {epoch + 1}, step {step}: loss {loss.item():.4f}", flush=True)

    print(f"test accuracy {accuracy(model, images, kinds):.4f}")


def seconds(text: str) -> float:
    """A time that can pass: not 0, not less."""
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time; give seconds above 0")
    return value


def warm_up(model: nn.Module, images: Tensor, kinds: Tensor, batch_size: int) -> None:
    """What a GPU does only once takes a second; better before the others wait for it than in the first step."""
    trial = deepcopy(model)
    nn.functional.cross_entropy(trial(images[:batch_size]), kinds[:batch_size]).backward()
    nn.utils.clip_grad_norm_(trial.parameters(), 1.0)
    torch.optim.SGD(trial.parameters(), lr=0.1).step()
    accuracy(trial, images, kinds)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, kinds: Tensor) -> float:
    """The share of a set that the model has right."""
    model.eval()
    right = [model(x).argmax(1) == y for x, y in zip(images.split(500), kinds.split(500), strict=True)]
    model.train()
    return torch.cat(right).float().mean().item()


if __name__ == "__main__":
    main()
