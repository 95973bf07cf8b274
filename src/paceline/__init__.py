"""Paceline trains PyTorch models on machines that are not equally fast."""

from typing import TYPE_CHECKING, Any

from paceline.sync.models.asp import ASP
from paceline.sync.models.bsp import BSP
from paceline.sync.models.dc_asgd import DCASGD
from paceline.sync.models.drop import DropStragglers
from paceline.sync.models.dsps import DSPS
from paceline.sync.models.dssp import DSSP
from paceline.sync.models.elastic_bsp import ElasticBSP
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP
from paceline.sync.models.pssp import PSSP
from paceline.sync.models.ssp import SSP

if TYPE_CHECKING:
    from paceline.training import CheckpointError, Optimizer, load_checkpoint, report, save_checkpoint, seed, shard

__all__ = [
    "ASP",
    "BSP",
    "DCASGD",
    "DSPS",
    "DSSP",
    "PSP",
    "PSSP",
    "SSP",
    "CheckpointError",
    "DropStragglers",
    "ESync",
    "ElasticBSP",
    "Optimizer",
    "load_checkpoint",
    "report",
    "save_checkpoint",
    "seed",
    "shard",
]

NEED_TORCH = ("CheckpointError", "Optimizer", "load_checkpoint", "report", "save_checkpoint", "seed", "shard")


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for: a command that only shows its help should not wait for it."""
    if name in NEED_TORCH:
        from paceline import training

        return getattr(training, name)
    raise AttributeError(f"module 'paceline' has no attribute {name!r}")
