"""How a system is to run when it is measured: a value that its processes find in their environment."""

from __future__ import annotations

import os
from typing import Literal

import msgspec
from msgspec import Struct

VARIABLE = "PACELINE_BENCH"
Net = Literal["cnn", "mlp", "resnet18"]
System = Literal["none", "ddp", "paceline", "paceline_overlap"]


class Training(Struct, frozen=True):
    """Which network to train, and what keeps the workers together."""

    net: Net
    system: System
    device: str = "cpu"

    def environment(self) -> dict[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @staticmethod
    def found() -> Training:
        return msgspec.json.decode(os.environ[VARIABLE], type=Training)


class Setup(Struct, frozen=True):
    """How Paceline moves rounds.

    `copied`: gradients are copied into the memory that is sent from, not written there in the first place.

    `in_place`: parameters are read where the server has them, not copied to the worker.
    `one_core`: every server has one core to itself, or shares it with others, as machines of their own would.
    `sizes` are those of the tensors that the elements are cut into; by default there is one.
    """

    wire: Literal["auto", "tcp", "shared-memory"] = "auto"
    copied: bool = False
    in_place: bool = False
    slicing: Literal["elastic", "by-key"] = "elastic"
    barrier: bool = False
    one_core: bool = False
    sizes: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @staticmethod
    def found() -> Setup:
        return msgspec.json.decode(os.environ.get(VARIABLE, "{}"), type=Setup)
