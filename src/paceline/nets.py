"""The networks of the examples and comparisons, in plain `torch.nn`. Sizes are of the parameters, in float32.

Batch normalization keeps running means in buffers. Those are not parameters, so they stay with each worker.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def cnn(channels: int = 1, classes: int = 10) -> nn.Sequential:
    """Two convolutions and two linear layers, for images of 28x28 or 32x32: 1.7 MB."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(7),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def lenet(channels: int = 1, classes: int = 10, side: int = 28) -> nn.Sequential:
    """Two strided convolutions and two linear layers, in the manner of LeNet-5: 0.2 MB, and little to compute."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (side // 4) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def mlp(inputs: int = 28 * 28, classes: int = 10) -> nn.Sequential:
    """Two hidden layers of 2 048: 23 MB for images of 28x28. Much to send for little to compute."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, classes),
    )


def alexnet(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """AlexNet downsized to three convolutions and two linear layers, for images of 28x28 or 32x32: 5.6 MB."""
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(128, 128, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(128 * 4 * 4, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def resnet18(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """ResNet-18 with a first layer for 32x32, without pooling: 45 MB."""
    return _resnet(channels, classes, widths=(64, 128, 256, 512), blocks=2)


def resnet56(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """The ResNet-56 that its paper has for CIFAR-10: 3.4 MB. Deep and narrow: little to send for much to compute."""
    return _resnet(channels, classes, widths=(16, 32, 64), blocks=9)


def _resnet(channels: int, classes: int, widths: tuple[int, ...], blocks: int) -> nn.Sequential:
    layers = [_convolution(channels, widths[0], stride=1), nn.ReLU()]
    before = widths[0]
    for width in widths:
        for _ in range(blocks):
            layers.append(Residual(before, width))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def _convolution(inputs: int, outputs: int, stride: int, size: int = 3) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """Two convolutions, and what came in added to what they give. Where the width grows, the image is halved."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first = _convolution(inputs, outputs, stride)
        self.second = _convolution(outputs, outputs, stride=1)
        self.past = nn.Identity() if inputs == outputs else _convolution(inputs, outputs, stride, size=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.past(x))


class Transformer(nn.Module):
    """A small model of which character comes next: 3.3 MB with its four layers of width 128.

    It takes numbers of characters, (texts, places), and gives a score for each next one, (texts, places, characters).
    """

    def __init__(self, characters: int = 65, context: int = 64, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        self.layers = nn.Sequential(*(Attention(width, heads=4) for _ in range(layers)), nn.LayerNorm(width))
        self.scores = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        scores: Tensor = self.scores(self.layers(self.characters(text) + self.places(places)))
        return scores


class Attention(nn.Module):
    """A layer of a transformer: each place looks at those before it, then computes by itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.look = nn.Linear(width, 3 * width)
        self.gather = nn.Linear(width, width)
        self.compute = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        texts, places, width = x.shape
        split = self.look(self.before(x)).view(texts, places, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.gather(seen.transpose(1, 2).reshape(texts, places, width))
        out: Tensor = x + self.compute(x)
        return out
