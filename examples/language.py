"""Tiny Shakespeare: a small transformer that learns which character comes next.

python examples/language.py --epochs 3
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

import paceline
from paceline import nets
from paceline.data import text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--context", type=int, default=64, help="how many characters it sees")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=100_000, help="only so many stretches of text of each set")
    options = parser.parse_args()
    torch.manual_seed(options.seed)

    train, test = (Subset(part, range(min(len(part), options.limit))) for part in text.load(context=options.context))
    loader = DataLoader(train, batch_size=options.batch_size, shuffle=True)
    model = nets.Transformer(len(text.CHARACTERS), options.context)
    opt = paceline.Optimizer(torch.optim.AdamW(model.parameters(), lr=options.lr))

    for epoch in range(options.epochs):
        for step, (x, y) in enumerate(paceline.shard(loader)):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print(f"epoch {epoch + 1}, step {step}: loss {loss.item():.4f}", flush=True)

    print(f"test perplexity {perplexity(model, test):.4f}")


@torch.no_grad()
def perplexity(model: nn.Module, test: Dataset) -> float:
    """Among how many equally likely characters the model seems to choose."""
    losses = [
        nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")
        for x, y in DataLoader(test, batch_size=100)
    ]
    return torch.cat(losses).mean().exp().item()


if __name__ == "__main__":
    main()
