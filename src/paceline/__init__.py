"""Paceline trains PyTorch models on machines that are not equally fast."""

from paceline.sync.models.asp import ASP
from paceline.sync.models.bsp import BSP
from paceline.sync.models.drop import DropStragglers
from paceline.sync.models.dsps import DSPS
from paceline.sync.models.dssp import DSSP
from paceline.sync.models.elastic_bsp import ElasticBSP
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP
from paceline.sync.models.pssp import PSSP
from paceline.sync.models.ssp import SSP

__all__ = ["ASP", "BSP", "DSPS", "DSSP", "PSP", "PSSP", "SSP", "DropStragglers", "ESync", "ElasticBSP"]
