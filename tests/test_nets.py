"""The networks have the sizes that they are said to have, and learn with every parameter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from paceline import nets

SIZES = [  # the network, what it takes, and the megabytes of its parameters
    (nets.cnn, (1, 28, 28), 1.7),
    (nets.lenet, (1, 28, 28), 0.2),
    (lambda: nets.lenet(3, side=32), (3, 32, 32), 0.3),
    (lambda: nets.cnn(channels=3), (3, 32, 32), 1.7),
    (nets.mlp, (1, 28, 28), 23.3),
    (nets.alexnet, (3, 32, 32), 5.6),
    (lambda: nets.alexnet(channels=1), (1, 28, 28), 5.6),
    (nets.resnet18, (3, 32, 32), 44.7),
    (nets.resnet56, (3, 32, 32), 3.4),
]


def megabytes(model: nn.Module) -> float:
    return sum(parameter.numel() * 4 for parameter in model.parameters()) / 1e6


def all_learn(model: nn.Module, scores: torch.Tensor, targets: torch.Tensor) -> None:
    nn.functional.cross_entropy(scores, targets).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(("make", "image", "size"), SIZES)
def test_a_network_for_images(make: Callable[[], nn.Module], image: tuple[int, ...], size: float) -> None:
    torch.manual_seed(0)
    model = make()
    assert megabytes(model) == pytest.approx(size, abs=0.06)
    scores = model(torch.randn(4, *image))
    assert scores.shape == (4, 10)
    all_learn(model, scores, torch.tensor([0, 3, 6, 9]))


def test_resnets_have_as_many_weighted_layers_as_their_names_say() -> None:
    for model, layers in ((nets.resnet18(), 18), (nets.resnet56(), 56)):
        weighted = [part for part in model.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
        assert len([part for part in weighted if getattr(part, "kernel_size", None) != (1, 1)]) == layers


def test_the_transformer() -> None:
    torch.manual_seed(0)
    model = nets.Transformer()
    assert megabytes(model) == pytest.approx(3.3, abs=0.06)
    text = torch.randint(65, (3, 64))
    scores = model(text)
    assert scores.shape == (3, 64, 65)
    all_learn(model, scores.flatten(0, 1), text.flatten())


def test_the_transformer_sees_nothing_of_what_comes_later() -> None:
    torch.manual_seed(0)
    model = nets.Transformer()
    text = torch.randint(65, (1, 64))
    changed = text.clone()
    changed[0, 40:] = (changed[0, 40:] + 1) % 65
    with torch.no_grad():
        before, after = model(text), model(changed)
    assert torch.equal(before[:, :40], after[:, :40])
    assert not torch.equal(before[:, 40], after[:, 40])
